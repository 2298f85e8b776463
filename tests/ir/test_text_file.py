"""Files: what is written beside the text, what is referred to, and that a reader never sees half of either."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from compiler.ir.errors import IrError
from compiler.ir.graph import Graph
from compiler.ir.module import Module, Variable
from compiler.ir.text import equal, read_document, read_module, write_module
from compiler.ir.types import DType, TensorType
from compiler.ir.weights import Stores, WeightRef

F32 = DType("float32")


def module_with_weights(folder: Path) -> Module:
    """A variable in a store, a computed constant, and a slice of another."""
    np.arange(200, dtype=np.float32).tofile(folder / "w.bin")
    module = Module("m", stores=Stores({"w0": folder / "w.bin"}))
    module.variables["v"] = Variable("v", TensorType(F32, (100,)), WeightRef("w0", 400, F32, (100,)))
    computed = module.stores.constant(np.arange(100, dtype=np.float32) + 0.5)
    unused = module.stores.constant(np.arange(1000, dtype=np.float32) + 0.25)
    sliced = module.stores.constant(np.arange(100, dtype=np.float32) + 0.75)
    assert isinstance(unused, WeightRef)
    assert isinstance(sliced, WeightRef)
    graph = module.entries["main"] = Graph("main")
    for name, value in (("a", computed), ("b", sliced.slice((10,), (5,)))):
        graph.add("Const", attrs={"value": value}, types=(TensorType(value.dtype, value.shape),), name=name)
    return module


def values(module: Module) -> list[list[float]]:
    constants = [module.stores.load(node.attrs["value"]).tolist() for node in module.entries["main"]]
    return [*constants, module.stores.load(module.variables["v"].initial).tolist()]


@pytest.mark.parametrize("pack", ["scratch", "everything"])
def test_what_is_read_is_what_was_written(tmp_path, pack):
    module = module_with_weights(tmp_path)
    write_module(module, tmp_path / "m.ir", pack=pack, pipeline="a,b")
    pipeline, again = read_document(tmp_path / "m.ir")
    assert pipeline == "a,b"
    assert values(again) == values(module)
    assert sorted(again.stores.files) == (["scratch", "w0"] if pack == "scratch" else ["scratch"])
    assert (tmp_path / "m.weights").stat().st_size < 2000  # the constant nobody refers to is not in it
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m.ir", "m.weights", "w.bin"]


def test_the_module_written_is_left_alone(tmp_path):
    module = module_with_weights(tmp_path)
    twin, version = module.copy(), module.version
    write_module(module, tmp_path / "m.ir")
    assert equal(module, twin)
    assert module.version == version


def test_paths_are_relative_to_the_file(tmp_path):
    (tmp_path / "in").mkdir()
    write_module(module_with_weights(tmp_path), tmp_path / "in" / "m.ir")
    text = (tmp_path / "in" / "m.ir").read_text()
    assert 'store scratch = "m.weights"' in text
    assert f'store w0 = "{tmp_path.as_posix()}/w.bin"' in text
    write_module(module_with_weights(tmp_path), tmp_path / "m.ir", pack="everything")
    (tmp_path / "moved").mkdir()
    for name in ("m.ir", "m.weights"):
        (tmp_path / name).rename(tmp_path / "moved" / name)
    assert values(read_module(tmp_path / "moved" / "m.ir"))[0][0] == 0.5


def test_writing_is_deterministic_and_settles(tmp_path):
    write_module(module_with_weights(tmp_path), tmp_path / "m.ir")
    first = [(tmp_path / name).read_bytes() for name in ("m.ir", "m.weights")]
    again = read_module(tmp_path / "m.ir")
    expected = values(again)
    write_module(again, tmp_path / "m.ir")
    assert [(tmp_path / name).read_bytes() for name in ("m.ir", "m.weights")] == first
    assert values(again) == values(read_module(tmp_path / "m.ir")) == expected


def test_new_constants_beside_old_ones(tmp_path):
    """Read, compute one more constant, and write over the file that the old ones are read from."""
    write_module(module_with_weights(tmp_path), tmp_path / "m.ir")
    module = read_module(tmp_path / "m.ir")
    value = module.stores.constant(np.arange(100, dtype=np.float32) - 1)
    module.entries["main"].add("Const", attrs={"value": value}, types=(TensorType(F32, (100,)),), name="c")
    expected = values(module)
    write_module(module, tmp_path / "m.ir")
    assert values(read_module(tmp_path / "m.ir")) == expected
    assert values(module) == expected
    write_module(module, tmp_path / "other.ir")
    assert values(read_module(tmp_path / "other.ir")) == expected


def test_a_module_read_before_the_file_was_replaced_keeps_its_weights(tmp_path):
    write_module(module_with_weights(tmp_path), tmp_path / "m.ir")
    early, smaller = read_module(tmp_path / "m.ir"), read_module(tmp_path / "m.ir")
    smaller.entries["main"].remove("a")
    write_module(smaller, tmp_path / "m.ir")
    assert values(smaller)[0] == values(read_module(tmp_path / "m.ir"))[0] == values(early)[1]
    assert values(early)[0][0] == 0.5


def test_nothing_packed_is_text_alone(tmp_path):
    write_module(module_with_weights(tmp_path), tmp_path / "m.ir", pack="nothing")
    assert not (tmp_path / "m.weights").exists()
    with pytest.raises(IrError, match="weight store 'scratch' is not known here"):
        values(read_module(tmp_path / "m.ir"))


def test_a_failed_write_leaves_what_was_there(tmp_path):
    (tmp_path / "m.ir").write_text("old")
    module = module_with_weights(tmp_path)
    module.entries["main"].set_attrs("a", {"value": None})
    with pytest.raises(IrError, match="attribute value None"):
        write_module(module, tmp_path / "m.ir", pack="nothing")
    (tmp_path / "w.bin").write_bytes(b"short")
    with pytest.raises(IrError, match="store 'w0' ends before"):
        write_module(module, tmp_path / "m.ir", pack="everything")
    assert (tmp_path / "m.ir").read_text() == "old"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m.ir", "w.bin"]


def test_no_file_and_no_text(tmp_path):
    with pytest.raises(IrError, match=r"cannot read .*gone\.ir"):
        read_module(tmp_path / "gone.ir")
    (tmp_path / "bad.ir").write_text("module 3")
    with pytest.raises(IrError, match=r"bad\.ir: line 1, column 8: found '3', expected the module's name in quotes"):
        read_module(tmp_path / "bad.ir")
