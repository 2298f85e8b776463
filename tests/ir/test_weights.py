"""Constants: what is inline, a splat, a reference; references are mapped, sliced and stored once."""

from __future__ import annotations

import gc
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compiler.ir.errors import IrError
from compiler.ir.types import DType
from compiler.ir.weights import INLINE_ELEMENTS, Splat, Stores, Tensor, WeightRef, literal_bytes
from tests.ir.strategies import ARRAY_DTYPES, arrays

F32 = DType("float32")


@pytest.fixture
def stores(tmp_path: Path) -> Stores:
    np.arange(1000, dtype=np.float32).tofile(tmp_path / "w.bin")
    return Stores({"w0": tmp_path / "w.bin"})


@given(st.sampled_from(ARRAY_DTYPES).flatmap(lambda d: st.tuples(st.just(d), arrays(d, (3, 2)))))
def test_load_of_constant_is_the_array_to_the_bit(drawn):
    dtype, array = drawn
    found = Stores()
    literal = found.constant(array, dtype)
    assert literal.dtype == dtype
    assert Tensor(dtype, found.load(literal)) == Tensor(dtype, array)


def test_small_ones_are_inline_equal_ones_splats_big_ones_references():
    stores = Stores()
    assert isinstance(stores.constant(np.arange(INLINE_ELEMENTS)), Tensor)
    assert isinstance(stores.constant(np.arange(INLINE_ELEMENTS + 1)), WeightRef)
    assert isinstance(stores.constant(np.ones(10**6, np.float32)), Splat)
    assert isinstance(stores.constant(np.array([0.0, -0.0], np.float32)), Tensor)  # equal numbers, other bits
    assert isinstance(stores.constant(np.full(9, np.nan, ml_dtypes.bfloat16)), Splat)
    assert isinstance(stores.constant(np.array(3.0)), Tensor)
    assert isinstance(stores.constant(np.zeros((0, 4))), Tensor)


def test_equal_bytes_are_stored_once():
    stores = Stores()
    first, again = stores.constant(np.arange(100)), stores.constant(np.arange(100))
    other = stores.constant(np.arange(100).astype(np.float64))
    assert first == again
    assert isinstance(other, WeightRef)
    assert other.offset % 64 == 0
    assert stores.size("scratch") == other.offset + other.nbytes
    assert stores.load(first)[99] == 99
    assert stores.load(other)[99] == 99.0


def test_the_scratch_file_goes_with_its_stores():
    stores = Stores()
    stores.constant(np.arange(100))
    path = stores.files["scratch"]
    assert path.exists()
    del stores
    gc.collect()
    assert not path.exists()


def test_a_store_that_was_read_is_never_written(tmp_path):
    np.arange(100).tofile(tmp_path / "old.weights")
    before = (tmp_path / "old.weights").read_bytes()
    stores = Stores({"scratch": tmp_path / "old.weights"})
    literal = stores.constant(np.arange(200))
    assert isinstance(literal, WeightRef)
    assert literal.store == stores.scratch == "scratch_1"
    assert (tmp_path / "old.weights").read_bytes() == before


def test_slices_are_references_into_the_same_bytes(stores):
    whole = WeightRef("w0", 0, F32, (10, 100))
    part = whole.slice((2, 10), (3, 5)).slice((1, 0), (2, 2))
    assert part == WeightRef("w0", 0, F32, (10, 100), ((3, 2), (10, 2)))
    assert part.shape == (2, 2)
    assert literal_bytes(part) == part.nbytes == 16
    assert stores.load(part).tolist() == [[310, 311], [410, 411]]
    assert whole.slice((0, 0), (10, 100)) == whole
    with pytest.raises(IrError, match="out of range"):
        part.slice((1, 0), (2, 1))


def test_loads_are_read_only_maps(stores):
    array = stores.load(WeightRef("w0", 400, F32, (4,)))
    assert array.tolist() == [100, 101, 102, 103]
    assert isinstance(array.base, np.memmap) or isinstance(array, np.memmap)
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 1


def test_what_is_not_there_is_named(stores, tmp_path):
    with pytest.raises(IrError, match="weight store 'w1' is not known here, expected one of"):
        stores.load(WeightRef("w1", 0, F32, (1,)))
    stores.add("w1", tmp_path / "gone.bin")
    with pytest.raises(IrError, match="cannot read"):
        stores.load(WeightRef("w1", 0, F32, (1,)))
    with pytest.raises(IrError, match="is already"):
        stores.add("w1", tmp_path / "other.bin")
    with pytest.raises(IrError, match="has 4000 bytes, expected bytes 3996 to 4004"):
        stores.load(WeightRef("w0", 3996, F32, (2,)))


def test_tensors_are_frozen_copies():
    array = np.zeros(3, np.float32)
    tensor = Tensor(F32, array)
    array[0] = 1
    assert tensor.array[0] == 0
    with pytest.raises(ValueError, match="read-only"):
        tensor.array[0] = 1
    assert Tensor(F32, np.float32([np.nan])) == Tensor(F32, np.float32([np.nan]))
    assert Tensor(F32, np.float32([0.0])) != Tensor(F32, np.float32([-0.0]))


def test_text_is_bytes_in_utf8():
    assert Tensor(DType("string"), np.array(["ü"], object)).array.tolist() == ["ü".encode()]
    assert Stores().constant(np.array([b"a", "b"], object)) == Tensor(DType("string"), np.array([b"a", b"b"], object))
