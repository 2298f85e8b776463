"""Weights reach a saved model without standing in memory together: constants by splicing, variables part by part, state by digest."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from compiler.backend import save_values, state_view
from compiler.backend.pool import Pool
from compiler.backend.saved_model import Original, save
from compiler.backend.splice import MARK, fill
from compiler.execution import Array, RuntimeConfig, SavedModelArtefact
from compiler.frontend.source import load
from compiler.ir.errors import IrError
from compiler.ir.graph import Graph, Value
from compiler.ir.module import Module
from compiler.ir.types import DType, TensorType
from compiler.ir.weights import Stores, WeightRef

pytestmark = pytest.mark.tf


def weights() -> dict[str, Array]:
    rng = np.random.default_rng(0)
    return {
        "single": rng.standard_normal((200, 150)).astype(np.float32),
        "double": rng.standard_normal((100, 130)),
        "brain": rng.standard_normal((300, 200)).astype(DType("bfloat16").numpy),
        "whole": rng.integers(-9, 9, (150, 151), np.int64),
        "truth": rng.integers(0, 2, (300, 301)).astype(bool),
    }


def of_constants(arrays: dict[str, Array]) -> Module:
    """Each array as an output, in two bodies' worth of constants: whole, and its right half."""
    stores = Stores()
    graph = Graph("serving_default")
    graph.add_input("x", TensorType(DType("float32"), ()))
    outputs = []
    for name, array in arrays.items():
        literal = stores.constant(array)
        assert isinstance(literal, WeightRef)
        half = literal.slice((0, array.shape[1] // 2), (array.shape[0], array.shape[1] - array.shape[1] // 2))
        for label, value in ((name, literal), (f"{name}_right", half)):
            node = graph.add("Const", [], {"value": value}, [TensorType(literal.dtype, value.shape)], name=label)
            outputs.append((label, Value(node.name)))
    graph.set_outputs(outputs)
    return Module("constants", {"serving_default": graph}, stores=stores)


def test_spliced_constants_are_what_the_module_holds(pool: Pool, tmp_path: Path) -> None:
    arrays = weights()
    saved = save(of_constants(arrays), tmp_path / "m")
    (result,) = pool.run(SavedModelArtefact(saved.path), [{"x": np.float32(0)}], config=RuntimeConfig())
    for name, array in arrays.items():
        np.testing.assert_array_equal(result.outputs[name], array)
        np.testing.assert_array_equal(result.outputs[f"{name}_right"], array[:, array.shape[1] // 2 :])
    data = (saved.path / "saved_model.pb").read_bytes()
    proto = saved_model_pb2.SavedModel.FromString(data)
    assert MARK.encode() not in data
    assert proto.SerializeToString(deterministic=True) == data, "the file is in the canonical order of its fields"


def test_a_weight_without_a_place_is_an_error(tmp_path: Path) -> None:
    module = of_constants({"w": np.ones((200, 200), np.float32) * np.arange(200, dtype=np.float32)})
    literal = module.entries["serving_default"].node("w").attrs["value"]
    assert isinstance(literal, WeightRef)
    file = tmp_path / "saved_model.pb"
    file.write_bytes(saved_model_pb2.SavedModel(saved_model_schema_version=1).SerializeToString())
    with pytest.raises(IrError, match="1 of 1 weights have no place"):
        fill(file, {"0": literal}, module.stores)


class Several(tf.Module):
    def __init__(self) -> None:
        super().__init__()
        rng = np.random.default_rng(1)
        self.read = [tf.Variable(rng.standard_normal((40, 50)).astype(np.float32), name=f"read{i}") for i in range(3)]
        self.count = tf.Variable(7, dtype=tf.int64, name="count")
        self.words = tf.Variable(["a", "b"], name="words")
        self.unused = tf.Variable(tf.ones([4]), name="unused")

    @tf.function
    def serve(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
        self.count.assign_add(1)
        for variable in self.read:
            self.read[0].assign(self.read[0] * 1.0)
            x = x + tf.reduce_sum(variable)
        return {"y": x, "count": self.count.read_value(), "words": self.words.read_value()}


def test_variables_are_written_in_parts_from_the_originals_checkpoint(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    model = Several()
    spec = tf.TensorSpec([None], tf.float32, name="x")
    tf.saved_model.save(model, str(tmp_path / "in"), signatures=model.serve.get_concrete_function(spec))
    source = load(tmp_path / "in")
    saved = save(source.module, tmp_path / "out", original=Original(tmp_path / "in"))
    loaded = tf.saved_model.load(str(saved.path))
    (result,) = [loaded.signatures["serving_default"](x=tf.constant([1.0, 2.0]))]
    expected = sum(float(np.sum(v.numpy())) for v in model.read)
    np.testing.assert_allclose(result["y"], np.array([1.0, 2.0]) + expected, rtol=1e-4)
    assert int(result["count"]) == 8
    assert result["words"].numpy().tolist() == [b"a", b"b"]

    root = tf.train.Checkpoint(first=tf.Variable(np.ones((8, 8), np.float32)), second=tf.Variable(np.ones(3, np.int64)))
    tf.saved_model.save(root, str(tmp_path / "parts"))
    monkeypatch.setattr(save_values, "PART_BYTES", 64)
    declared = [(root.first, lambda: np.full((8, 8), 2, np.float32)), (root.second, lambda: np.arange(3))]
    save_values.rewrite_checkpoint(tmp_path / "parts", root, declared, None)
    reader = tf.train.load_checkpoint(str(tmp_path / "parts" / "variables" / "variables"))
    np.testing.assert_array_equal(reader.get_tensor("first/.ATTRIBUTES/VARIABLE_VALUE"), np.full((8, 8), 2))
    np.testing.assert_array_equal(reader.get_tensor("second/.ATTRIBUTES/VARIABLE_VALUE"), np.arange(3))
    assert len(list((tmp_path / "parts" / "variables").glob("variables.data-*"))) > 1
    assert sorted(p.name for p in (tmp_path / "parts").iterdir()) == ["assets", "fingerprint.pb", "saved_model.pb", "variables"]


class Held:
    """Two variables, one of them large; what the backend's loaded models are to a view."""

    def __init__(self, stateful: bool) -> None:
        self.stateful = stateful
        self.values = {"kernel": np.zeros(state_view.LARGE_BYTES, np.float64), "count": np.zeros((), np.int64)}
        self.reads: list[str] = []

    def variable_bytes(self) -> dict[str, int]:
        return {name: state_view.MODEL_BYTES if name == "kernel" else 8 for name in self.values}

    def variables(self, names: Sequence[str]) -> dict[str, Array]:
        self.reads += names
        return {name: self.values[name].copy() for name in names}


def test_a_large_variable_is_sent_when_it_has_changed() -> None:
    held = Held(stateful=True)
    view = state_view.StateView(held)  # type: ignore[arg-type]
    held.values["count"] += 1
    values, unchanged = view.read()
    assert (list(values), int(values["count"]), unchanged) == (["count"], 1, ["kernel"])
    held.values["kernel"][5] = -0.0
    values, unchanged = view.read()
    assert (sorted(values), unchanged) == (["count", "kernel"], [])
    assert np.signbit(values["kernel"][5])


def test_what_cannot_be_written_is_not_read() -> None:
    held = Held(stateful=False)
    values, unchanged = state_view.StateView(held).read()  # type: ignore[arg-type]
    assert (list(values), unchanged, held.reads) == (["count"], ["kernel"], ["count"])
