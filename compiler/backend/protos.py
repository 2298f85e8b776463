"""The IR's values as protos: literals, shapes, attributes.

splat(f32[1000], 2.5)  =>  TensorProto {dtype, shape, one float_val}: a splat stays a splat, and a weight is read once, where it is written
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import attr_value_pb2, tensor_pb2, tensor_shape_pb2
from tensorflow.core.protobuf import config_pb2

from compiler.ir.dims import Dim
from compiler.ir.errors import CleaveError
from compiler.ir.graph import Attr, FunctionRef, ShapeAttr
from compiler.ir.types import DType, Shape
from compiler.ir.weights import Array, Literal, Splat, Stores, Tensor, WeightRef

_INTEGER_FIELDS = {"int64": "int64_val", "uint64": "uint64_val", "uint32": "uint32_val"}


def dtype_enum(dtype: DType) -> int:
    return int(tf.as_dtype(str(dtype)).as_datatype_enum)


def shape_proto(shape: Shape) -> tensor_shape_pb2.TensorShapeProto:
    """Symbolic and unknown dimensions are -1."""
    proto = tensor_shape_pb2.TensorShapeProto()
    if shape is None:
        proto.unknown_rank = True
        return proto
    for dim in shape:
        proto.dim.add(size=_size(dim))
    return proto


def _size(dim: Dim) -> int:
    return dim if isinstance(dim, int) else -1


def tensor_proto(literal: Literal, stores: Stores) -> tensor_pb2.TensorProto:
    proto = tensor_pb2.TensorProto(dtype=dtype_enum(literal.dtype), tensor_shape=shape_proto(literal.shape))
    if 0 in literal.shape:
        return proto
    array = literal.item.array if isinstance(literal, Splat) else stores.load(literal)
    if array.dtype == object:
        proto.string_val.extend(array.reshape(-1).tolist())
    elif array.size == 1 or _is_packed(array):
        _set_elements(proto, array.reshape(-1), literal.dtype)
    else:
        proto.tensor_content = np.ascontiguousarray(array).tobytes()
    return proto


def _is_packed(array: Array) -> bool:
    """Element types narrower than a byte, whose content form differs from memory's."""
    return array.dtype.name in ("int4", "uint4", "int2", "uint2", "float4_e2m1fn")


def _set_elements(proto: tensor_pb2.TensorProto, flat: Array, dtype: DType) -> None:
    name = dtype.removesuffix("_ref")
    if name in ("float16", "bfloat16"):
        proto.half_val.extend(flat.view(np.uint16).tolist())
    elif name.startswith("float8"):
        proto.float8_val = flat.tobytes()
    elif name in ("float32", "float64"):
        getattr(proto, "float_val" if name == "float32" else "double_val").extend(flat.tolist())
    elif name in ("complex64", "complex128"):
        parts = flat.view(np.float32 if name == "complex64" else np.float64).tolist()
        getattr(proto, "scomplex_val" if name == "complex64" else "dcomplex_val").extend(parts)
    elif name == "bool":
        proto.bool_val.extend(flat.tolist())
    elif name == "float4_e2m1fn":
        raise CleaveError("a constant of type float4_e2m1fn cannot be emitted: TensorFlow has no form for its elements")
    else:
        getattr(proto, _INTEGER_FIELDS.get(name, "int_val")).extend(int(item) for item in flat.tolist())


def attr_value(attr: Attr, kind: str | None, stores: Stores, function: Callable[[str], str]) -> attr_value_pb2.AttrValue:
    """`kind` is the OpDef's word ("list(int)"), None for attributes that no OpDef declares; `function` gives a body's emitted name."""
    proto = attr_value_pb2.AttrValue()
    if isinstance(attr, tuple):
        element = kind[5:-1] if kind is not None and kind.startswith("list(") else None
        proto.list.SetInParent()
        for item in attr:
            _append(proto.list, attr_value(item, element, stores, function))
    elif isinstance(attr, DType):
        proto.type = dtype_enum(attr)
    elif isinstance(attr, bool):
        proto.b = attr
    elif isinstance(attr, int) and kind != "float":
        proto.i = attr
    elif isinstance(attr, int | float):
        proto.f = attr
    elif isinstance(attr, str | bytes):
        proto.s = attr.encode() if isinstance(attr, str) else attr
    elif isinstance(attr, ShapeAttr):
        proto.shape.CopyFrom(shape_proto(attr.shape))
    elif isinstance(attr, FunctionRef):
        proto.func.name = function(attr.name)
    else:
        proto.tensor.CopyFrom(tensor_proto(attr, stores))
    return proto


def _append(items: attr_value_pb2.AttrValue.ListValue, item: attr_value_pb2.AttrValue) -> None:
    field = item.WhichOneof("value")
    assert field is not None and field != "list"
    value = getattr(item, field)
    getattr(items, field).extend([value])


def literal_content_bytes(literal: Literal) -> int:
    """Bytes a literal takes in a GraphDef, about."""
    if isinstance(literal, Splat):
        return 16
    if isinstance(literal, WeightRef):
        return literal.nbytes
    assert isinstance(literal, Tensor)
    return sum(len(item) + 4 for item in literal.array.reshape(-1).tolist()) if literal.array.dtype == object else literal.array.nbytes


def envelope_config(given: bytes = b"") -> bytes:
    """Grappler off, for the graph that is called with it; what else `given` asks for stays, but for the devices of whoever wrote it."""
    config = config_pb2.ConfigProto.FromString(given)
    config.ClearField("device_count")
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    data: bytes = config.SerializeToString(deterministic=True)
    return data
