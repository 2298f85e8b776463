"""AttrValue protos as IR attributes, and which of them a node stores."""

from __future__ import annotations

from collections.abc import Mapping

from tensorflow.core.framework import attr_value_pb2, op_def_pb2

from compiler.frontend.constants import literal_of
from compiler.frontend.element_types import dtype_of, shape_of
from compiler.ir.errors import CleaveError, IrError
from compiler.ir.graph import Attr, FunctionRef, ShapeAttr, attr_key
from compiler.ir.weights import Stores
from compiler.ops import opdefs
from compiler.ops.attributes import defaults, implied_by_operands

DROPPED = frozenset({"_output_shapes", "_class", "_read_only_resource_inputs", "_gradient_op_type", "_num_original_outputs"})
"""Hints that rewriting makes stale, or that are never believed."""


def producer_defaults(ops: op_def_pb2.OpList) -> dict[str, dict[str, Attr]]:
    """Defaults as the program that wrote a model knew them, of attributes that this TensorFlow does not have: op -> attribute -> value."""
    found: dict[str, dict[str, Attr]] = {}
    for op in ops.op:
        definition = opdefs.get(op.name)
        later = [a for a in op.attr if definition is not None and a.name not in definition.attrs and a.HasField("default_value")]
        values = {a.name: attr_of(a.default_value, Stores(), op.name) for a in later}
        found[op.name] = {name: value for name, value in values.items() if value is not None}
    return found


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
    derived = implied_by_operands(op)
    known = {name: attr_key(value) for name, value in defaults(op).items()}
    return {n: a for n, a in attrs.items() if n not in derived and (n not in known or known[n] != attr_key(a))}
