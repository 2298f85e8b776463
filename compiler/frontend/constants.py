"""TensorProtos as literals, read as TensorFlow's runtime reads them.

A proto lists its first elements in the field of its type; the last one repeats, and none at all means zeros (or empty strings).
A value that repeats over the whole shape stays a splat, however large.  Half and bfloat16 are bit patterns, a complex number two values.
"""

from __future__ import annotations

import math

import numpy as np
from tensorflow.core.framework import tensor_pb2

from compiler.frontend.element_types import dtype_of, shape_of
from compiler.frontend.sstable import TableError, varint
from compiler.ir.errors import CleaveError
from compiler.ir.types import DType
from compiler.ir.weights import Array, Literal, Splat, Stores, Tensor

_MOST_ELEMENTS = 2**40
_FIELDS = {
    "float32": "float_val", "float64": "double_val", "int64": "int64_val", "uint32": "uint32_val", "uint64": "uint64_val",
    "bool": "bool_val", "float16": "half_val", "bfloat16": "half_val", "string": "string_val", "complex64": "scomplex_val",
    "complex128": "dcomplex_val",
}  # fmt: skip
"""Every other number is in `int_val`, or for the float8 types a byte of `float8_val`."""


def literal_of(proto: tensor_pb2.TensorProto, stores: Stores, where: str) -> Literal:
    """A constant: a splat, a small tensor, or bytes in the module's scratch store.  CleaveError where the proto does not say one."""
    dtype = dtype_of(proto.dtype)
    shape = shape_of(proto.tensor_shape)
    if dtype in ("resource", "variant") or dtype.endswith("_ref"):
        raise CleaveError(f"{where}: a constant of type {dtype} cannot be read, expected a model saved with its tables and variables")
    if shape is None or any(d is None for d in shape):
        raise CleaveError(f"{where}: a constant has shape {shape}, expected a static one")
    static = tuple(d or 0 for d in shape)
    count = math.prod(static)
    if count > _MOST_ELEMENTS:
        raise CleaveError(f"{where}: a constant has {count} elements, expected at most {_MOST_ELEMENTS}")
    if proto.tensor_content and count:
        return stores.constant(_content(proto.tensor_content, dtype, count, where).reshape(static), dtype)
    listed = _listed(proto, dtype)[:count]
    if count > 1 and len(listed) <= 1:
        return Splat(Tensor(dtype, _padded(listed, dtype, 1).reshape(())), static)
    return stores.constant(_padded(listed, dtype, count).reshape(static), dtype)


def _listed(proto: tensor_pb2.TensorProto, dtype: DType) -> Array:
    """The elements that the proto spells out."""
    if dtype.startswith("float8"):
        return np.frombuffer(proto.float8_val, np.uint8).view(dtype.numpy)
    values = getattr(proto, _FIELDS.get(dtype, "int_val"))
    if dtype == "string":
        return _strings(list(values))
    if dtype in ("float16", "bfloat16"):
        return np.asarray(values, np.int32).astype(np.uint16).view(dtype.numpy)
    if dtype.is_complex:
        parts = np.asarray(values, np.float32 if dtype == "complex64" else np.float64)
        return parts[: len(parts) // 2 * 2].view(dtype.numpy)
    wide = {"int_val": np.int32}.get(_FIELDS.get(dtype, "int_val"), dtype.numpy)
    return np.asarray(values, wide).astype(dtype.numpy, copy=False)


def _padded(listed: Array, dtype: DType, count: int) -> Array:
    """`count` elements: those listed, then the last of them again and again."""
    if len(listed) == count:
        return listed
    last = listed[-1] if len(listed) else (b"" if dtype == "string" else dtype.numpy.type(0))
    array = np.empty(count, dtype.numpy)
    array.fill(last)  # not np.full, which strips zero bytes from the end of a string
    array[: len(listed)] = listed
    return array


def _content(data: bytes, dtype: DType, count: int, where: str) -> Array:
    """All elements, from the bytes the runtime keeps them as."""
    if dtype == "string":
        return _string_content(data, count, where)
    if len(data) != count * dtype.numpy.itemsize:
        raise CleaveError(f"{where}: a constant of {count} {dtype} has {len(data)} bytes, expected {count * dtype.numpy.itemsize}")
    array = np.frombuffer(data, dtype.numpy)
    narrow = dtype in ("int2", "uint2", "int4", "uint4")
    return array.astype(np.int8).astype(dtype.numpy) if narrow else array  # the unused bits of a byte may be anything


def _string_content(data: bytes, count: int, where: str) -> Array:
    """The lengths of all strings, then their bytes."""
    lengths, position = [], 0
    try:
        for _ in range(count):
            length, position = varint(data, position)
            lengths.append(length)
    except TableError:
        lengths = []
    if len(lengths) != count or position + sum(lengths) != len(data):
        raise CleaveError(f"{where}: a constant of {count} strings has {len(data)} bytes that do not hold them; is the model truncated?")
    ends = position + np.cumsum(lengths)
    return _strings([data[end - length : end] for end, length in zip(ends, lengths, strict=True)])


def _strings(values: list[bytes]) -> Array:
    array = np.empty(len(values), object)
    array[:] = values
    return array
