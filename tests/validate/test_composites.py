"""Parts of sparse and ragged tensors are recognised, and drawn so that they fit together."""

import numpy as np

from compiler.ir.dims import symbol
from compiler.ir.types import DType, TensorType
from compiler.validate.composites import Ragged, Sparse, composites
from compiler.validate.draw import draws, schemes


def typed(dtype: str, *shape: int | None) -> TensorType:
    return TensorType(DType(dtype), tuple(symbol(f"b{i}") if size is None else size for i, size in enumerate(shape)))


SPARSE = {"s": typed("int64", None, 2), "s_1": typed("float32", None), "s_2": typed("int64", 2)}
RAGGED = {"r": typed("float32", None, 4), "r_1": typed("int64", None), "r_2": typed("int64", None)}
NAMED = {"x_dense_shape": typed("int64", 3), "x_indices": typed("int64", None, 3), "x_values": typed("int64", None)}


def test_parts_are_told_by_names_and_types() -> None:
    assert composites(SPARSE) == [Sparse("s", "s_1", "s_2")]
    assert composites(RAGGED) == [Ragged("r", ("r_1", "r_2"))]
    assert composites(NAMED) == [Sparse("x_indices", "x_values", "x_dense_shape")]
    assert composites({"x": typed("float32", None), "x_1": typed("float32", None)}) == []
    assert composites({"x": typed("string", None), "x_1": typed("int64", None)}) == []


def test_they_are_drawn_together_after_everything_else_was_refused() -> None:
    found = schemes(SPARSE)
    assert [s.composite for s in found] == sorted(s.composite for s in found) and found[-1].composite
    assert not any(s.composite for s in schemes({"x": typed("float32", None)}))


def test_a_sparse_tensor_has_its_indices_in_order_inside_its_shape() -> None:
    for inputs, (indices, values, shape) in ((SPARSE, ("s", "s_1", "s_2")), (NAMED, ("x_indices", "x_values", "x_dense_shape"))):
        drawn = draws(inputs, schemes(inputs)[-1])[1].inputs
        places = drawn[indices].tolist()
        assert places == sorted(places) and len(places) == len(drawn[values]) == 6
        assert (drawn[indices] < drawn[shape]).all() and drawn[shape].tolist()[0] == 3


def test_a_ragged_tensor_has_row_splits_that_end_at_its_values() -> None:
    drawn = draws(RAGGED, schemes(RAGGED)[-1])[1].inputs
    outer, inner, values = drawn["r_1"], drawn["r_2"], drawn["r"]
    assert outer.tolist() == [0, 1, 4, 4]
    assert inner[0] == 0 and inner[-1] == len(values) and len(inner) == outer[-1] + 1
    assert values.shape[1:] == (4,) and (np.diff(inner) >= 0).all()
