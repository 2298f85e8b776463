"""AttrValue protos as IR attributes.

A TensorProto lists fewer values than its shape has elements: the last one repeats; none at all: zeros.  Half types are bit patterns.
A value that repeats over the whole shape stays a splat, however large.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import tensorflow as tf
from tensorflow.core.framework import attr_value_pb2, tensor_pb2, tensor_shape_pb2, types_pb2

from compiler.ir.errors import CleaveError, IrError
from compiler.ir.graph import Attr, FunctionRef, ShapeAttr, attr_key
from compiler.ir.types import DType
from compiler.ir.weights import Array, Literal, Splat, Stores, Tensor
from compiler.ops import opdefs
from compiler.ops.attributes import defaults

DROPPED = frozenset({"_output_shapes", "_class", "_read_only_resource_inputs", "_gradient_op_type", "_num_original_outputs"})
"""Hints that rewriting makes stale, or that are never believed."""
_MOST_ELEMENTS = 2**40


def dtype_of(number: int) -> DType:
    """The element type of a DataType enum value."""
    name = types_pb2.DataType.Name(number).removeprefix("DT_").lower()
    ref = name.endswith("_ref")
    return DType(tf.as_dtype(number).base_dtype.name + ("_ref" if ref else ""))


def shape_of(proto: tensor_shape_pb2.TensorShapeProto) -> tuple[int | None, ...] | None:
    if proto.unknown_rank:
        return None
    return tuple(None if dim.size < 0 else int(dim.size) for dim in proto.dim)


def literal_of(proto: tensor_pb2.TensorProto, stores: Stores, where: str) -> Literal:
    """A constant: a splat, a small tensor, or bytes in the module's scratch store."""
    dtype = dtype_of(proto.dtype)
    shape = shape_of(proto.tensor_shape)
    if dtype in ("resource", "variant"):
        raise CleaveError(f"{where}: a constant of type {dtype} cannot be read, expected a model saved with its tables and variables")
    if shape is None or any(d is None for d in shape) or math.prod(d or 0 for d in shape) > _MOST_ELEMENTS:
        raise CleaveError(f"{where}: a constant has shape {shape}, expected a static one")
    static = tuple(d or 0 for d in shape)
    if math.prod(static) > 1 and not proto.tensor_content and _listed(proto) <= 1:
        single = tensor_pb2.TensorProto()
        single.CopyFrom(proto)
        single.tensor_shape.Clear()
        return Splat(Tensor(dtype, _array(single, dtype, where)), static)
    return stores.constant(_array(proto, dtype, where), dtype)


def _listed(proto: tensor_pb2.TensorProto) -> int:
    """How many elements the proto spells out."""
    halved = 2 if proto.scomplex_val or proto.dcomplex_val else 1
    fields = (
        proto.half_val, proto.float_val, proto.double_val, proto.int_val, proto.string_val, proto.scomplex_val, proto.int64_val,
        proto.bool_val, proto.dcomplex_val, proto.uint32_val, proto.uint64_val, proto.float8_val,
    )  # fmt: skip
    return sum(len(f) for f in fields) // halved


def _array(proto: tensor_pb2.TensorProto, dtype: DType, where: str) -> Array:
    try:
        array: Array = tf.make_ndarray(proto)
    except (ValueError, TypeError, IndexError) as error:
        raise CleaveError(f"{where}: a constant cannot be read: {error}") from None
    if array.dtype.fields:  # quint8 and its kin
        array = array.view(dtype.numpy)
    return array.astype(dtype.numpy, copy=False)


def attr_of(proto: attr_value_pb2.AttrValue, stores: Stores, where: str) -> Attr | None:
    """One attribute; None for an unset one."""
    match proto.WhichOneof("value"):
        case "i":
            return int(proto.i)
        case "f":
            return float(proto.f)
        case "b":
            return bool(proto.b)
        case "s":
            return _text(proto.s)
        case "type":
            return dtype_of(proto.type)
        case "shape":
            return ShapeAttr(shape_of(proto.shape))
        case "tensor":
            return literal_of(proto.tensor, stores, where)
        case "func":
            return FunctionRef(proto.func.name)
        case "list":
            return _list_of(proto.list, stores, where)
        case "placeholder":
            raise CleaveError(f"{where}: attribute {proto.placeholder!r} is a placeholder of a generic function, expected a value")
    return None


def _list_of(proto: attr_value_pb2.AttrValue.ListValue, stores: Stores, where: str) -> tuple[Attr, ...]:
    return (
        *map(_text, proto.s),
        *map(int, proto.i),
        *map(float, proto.f),
        *map(bool, proto.b),
        *map(dtype_of, proto.type),
        *(ShapeAttr(shape_of(s)) for s in proto.shape),
        *(literal_of(t, stores, where) for t in proto.tensor),
        *(FunctionRef(f.name) for f in proto.func),
    )


def _text(data: bytes) -> str | bytes:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data


def attrs_of(op: str, protos: Mapping[str, attr_value_pb2.AttrValue], stores: Stores, where: str) -> dict[str, Attr]:
    """All attributes of a node as the proto has them, stale hints left out."""
    found: dict[str, Attr] = {}
    for name in sorted(protos):
        if name in DROPPED:
            continue
        try:
            value = attr_of(protos[name], stores, where)
        except (IrError, ValueError) as error:
            raise CleaveError(f"{where}: attribute {name!r} of {op}: {error}") from None
        if value is not None and not (name == "_collective_manager_ids" and value == ()):
            found[name] = value
    return found


def normal(op: str, attrs: Mapping[str, Attr]) -> dict[str, Attr]:
    """What a node stores: not the defaults, nor what its operands determine."""
    definition = opdefs.get(op)
    if definition is None:
        return dict(attrs)
    derived = {n for arg in definition.inputs for n in (arg.type_attr, arg.number_attr, arg.type_list_attr) if n is not None}
    known = {name: attr_key(value) for name, value in defaults(op).items()}
    return {n: a for n, a in attrs.items() if n not in derived and (n not in known or known[n] != attr_key(a))}
