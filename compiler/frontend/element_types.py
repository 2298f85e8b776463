"""DataType enum values and shape protos as the IR has them."""

from __future__ import annotations

import tensorflow as tf
from tensorflow.core.framework import tensor_shape_pb2

from compiler.ir.errors import CleaveError, IrError
from compiler.ir.types import DType

_REFS = 100
"""Added to a DataType for a reference to it."""


def dtype_of(number: int) -> DType:
    """The element type of a DataType enum value."""
    base, ref = (number - _REFS, "_ref") if number > _REFS else (number, "")
    try:
        return DType(tf.as_dtype(base).name + ref)
    except (TypeError, IrError):
        raise CleaveError(f"{number} is no element type, expected a value of TensorFlow's DataType") from None


def shape_of(proto: tensor_shape_pb2.TensorShapeProto) -> tuple[int | None, ...] | None:
    if proto.unknown_rank:
        return None
    return tuple(None if dim.size < 0 else int(dim.size) for dim in proto.dim)
