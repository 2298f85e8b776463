"""Arguments that are the parts of one sparse or ragged tensor, told by their names and types, and arrays for them that fit together.

x_indices: i64[n,2], x_values: f32[n], x_dense_shape: i64[2]   =>   one sparse x (as TensorFlow 1's signatures are loaded)
x: i64[n,2], x_1: f32[n], x_2: i64[2]                          =>   one sparse x (a tf.function's)
x: f32[n], x_1: i64[m]                                         =>   one ragged x: values and row splits, outermost first

Names prove nothing, so such arrays are drawn only for a model that refuses others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count, takewhile

import numpy as np

from compiler.execution import Array
from compiler.ir.types import TensorType

_ROW_LENGTHS = (1, 3, 0, 2)


@dataclass(frozen=True)
class Sparse:
    """The names of a sparse tensor's parts."""

    indices: str
    values: str
    dense_shape: str

    def arrays(self, inputs: Mapping[str, TensorType], rows: int, length: int) -> dict[str, Array]:
        """Up to two entries a row, in order."""
        shape = inputs[self.indices].shape
        rank = shape[1] if shape is not None and isinstance(shape[1], int) else 2
        columns = sorted({0, length // 2})
        places = [[row, *([column] * (rank - 1))] for row in range(rows) for column in (columns if rank > 1 else [0])]
        dense = np.array([rows, *[length] * (rank - 1)], np.int64)
        values = np.arange(1, len(places) + 1).astype(inputs[self.values].dtype.numpy)
        return {self.indices: np.array(places, np.int64).reshape(-1, rank), self.values: values, self.dense_shape: dense}


@dataclass(frozen=True)
class Ragged:
    """The names of a ragged tensor's values and of its row splits."""

    values: str
    splits: tuple[str, ...]

    def arrays(self, inputs: Mapping[str, TensorType], rows: int, length: int) -> dict[str, Array]:
        """Rows of 1, 3, 0, 2 values, again and again."""
        found: dict[str, Array] = {}
        for name in self.splits:
            lengths = [_ROW_LENGTHS[row % len(_ROW_LENGTHS)] for row in range(rows)]
            found[name] = np.cumsum([0, *lengths]).astype(inputs[name].dtype.numpy)
            rows = sum(lengths)
        inner = [size if isinstance(size, int) else length for size in (inputs[self.values].shape or (0,))[1:]]
        found[self.values] = np.arange(rows * int(np.prod(inner))).reshape([rows, *inner]).astype(inputs[self.values].dtype.numpy)
        return found


def composites(inputs: Mapping[str, TensorType]) -> list[Sparse | Ragged]:
    """What may be one tensor, by the first name of each; strings have no part in it."""
    return [found for name in inputs if (found := _named(name, inputs) or _numbered(name, inputs)) is not None]


def _named(name: str, inputs: Mapping[str, TensorType]) -> Sparse | None:
    base = name.removesuffix("_indices")
    parts = Sparse(f"{base}_indices", f"{base}_values", f"{base}_dense_shape")
    return parts if base != name and _is_sparse(parts, inputs) else None


def _numbered(name: str, inputs: Mapping[str, TensorType]) -> Sparse | Ragged | None:
    sparse = Sparse(name, f"{name}_1", f"{name}_2")
    if _is_sparse(sparse, inputs):
        return sparse
    splits = tuple(takewhile(lambda split: _is_integers(split, 1, inputs), (f"{name}_{i}" for i in count(1))))
    return Ragged(name, splits) if splits and inputs[name].dtype != "string" else None


def _is_sparse(parts: Sparse, inputs: Mapping[str, TensorType]) -> bool:
    return (
        _is_integers(parts.indices, 2, inputs)
        and _is_integers(parts.dense_shape, 1, inputs)
        and parts.values in inputs
        and inputs[parts.values].dtype != "string"
        and inputs[parts.values].rank == 1
    )


def _is_integers(name: str, rank: int, inputs: Mapping[str, TensorType]) -> bool:
    return name in inputs and str(inputs[name].dtype) in ("int32", "int64") and inputs[name].rank == rank
