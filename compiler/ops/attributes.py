"""A node's attributes made whole: `Conv2D {padding="VALID"}` on f32 operands => padding, strides, data_format, ..., T=f32.

The IR leaves out what equals the OpDef's default and what the operands determine (`T`, `N`, `Tin`); specs and opaque inference want all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from types import MappingProxyType

from compiler.ir.errors import IrError
from compiler.ir.graph import Attr, ShapeAttr
from compiler.ir.types import DType
from compiler.ops import opdefs
from compiler.ops.opdefs import ArgDef, AttrValue, OpDef


@cache
def defaults(op: str) -> Mapping[str, Attr]:
    """The default of every attribute that has one, as the IR writes attribute values; empty for an op the table does not know."""
    definition = opdefs.get(op)
    if definition is None:
        return MappingProxyType({})
    found = {name: _attr(a.type, a.default) for name, a in definition.attrs.items() if a.has_default}
    return MappingProxyType({name: value for name, value in found.items() if value is not None})


def complete(op: str, attrs: Mapping[str, Attr], operands: Sequence[DType]) -> dict[str, Attr]:
    """`attrs`, under them what the operands determine, under that the defaults."""
    definition = opdefs.get(op)
    if definition is None:
        return dict(attrs)
    return {**defaults(op), **_from_operands(definition, {**_told(op, defaults(op)), **attrs}, operands), **attrs}


def stored(op: str, attrs: Mapping[str, Attr], operands: Sequence[DType]) -> dict[str, Attr]:
    """The inverse of `complete`: what a node keeps, and nothing that another op's attributes left behind."""
    definition = opdefs.get(op)
    if definition is None:
        return dict(attrs)
    told = _told(op, {**defaults(op), **attrs})
    found = _from_operands(definition, told, operands)
    implied = {**defaults(op), **{name: value for name, value in found.items() if name not in told}}
    return {
        name: value for name, value in attrs.items() if name.startswith("_") or (name in definition.attrs and implied.get(name) != value)
    }


@cache
def implied_by_operands(op: str) -> frozenset[str]:
    """The attributes that operands determine; of several open counts (indices, values, ... of `SparseCross`) none."""
    definition = opdefs.get(op)
    if definition is None:
        return frozenset()
    counts = {name for arg in definition.inputs for name in (arg.number_attr, arg.type_list_attr) if name is not None}
    types = {arg.type_attr for arg in definition.inputs if arg.type_attr is not None}
    return frozenset(types | counts if len(counts) < 2 else types)


def _told(op: str, attrs: Mapping[str, Attr]) -> dict[str, Attr]:
    return {name: value for name, value in attrs.items() if name not in implied_by_operands(op)}


def _attr(kind: str, value: AttrValue) -> Attr | None:
    """A default of the table as an IR attribute; tensor defaults have no reader and are left out."""
    if kind.startswith("list("):
        items = [_attr(kind[5:-1], v) for v in value] if isinstance(value, tuple) else []
        return tuple(i for i in items if i is not None)
    if kind == "type":
        return DType(str(value))
    if kind == "shape":
        assert value is None or isinstance(value, tuple)
        return ShapeAttr(None if value is None else tuple(v if isinstance(v, int) else None for v in value))
    return value if isinstance(value, str | int | float) else None


def _from_operands(definition: OpDef, attrs: Mapping[str, Attr], operands: Sequence[DType]) -> dict[str, Attr]:
    counts = _counts(definition, attrs, len(operands))
    found: dict[str, Attr] = {}
    start = 0
    for arg, count in zip(definition.inputs, counts, strict=True):
        dtypes = [_base(d) for d in operands[start : start + count]]
        start += count
        if arg.number_attr is not None:
            found[arg.number_attr] = count
        if arg.type_list_attr is not None:
            found[arg.type_list_attr] = tuple(dtypes)
        elif arg.type_attr is not None and dtypes:
            found[arg.type_attr] = dtypes[0]
    return found


def _counts(definition: OpDef, attrs: Mapping[str, Attr], operands: int) -> tuple[int, ...]:
    """How many operands each argument takes: the one open count is what the others leave."""
    known = [_known_count(arg, attrs) for arg in definition.inputs]
    open_args = [arg for arg, count in zip(definition.inputs, known, strict=True) if count is None]
    rest = operands - sum(count for count in known if count is not None)
    if not open_args:
        return tuple(count or 0 for count in known) if rest == 0 else _misfit(definition, operands)
    names = {arg.number_attr or arg.type_list_attr for arg in open_args}
    if len(names) > 1 or rest < 0 or rest % len(open_args):
        return _misfit(definition, operands)
    return tuple(rest // len(open_args) if count is None else count for count in known)


def _known_count(arg: ArgDef, attrs: Mapping[str, Attr]) -> int | None:
    if arg.type_list_attr is not None:
        listed = attrs.get(arg.type_list_attr)
        return len(listed) if isinstance(listed, tuple) else None
    if arg.number_attr is None:
        return 1
    number = attrs.get(arg.number_attr)
    return number if isinstance(number, int) else None


def _misfit(definition: OpDef, operands: int) -> tuple[int, ...]:
    expected = ", ".join(_arg_text(arg) for arg in definition.inputs) or "none"
    raise IrError(f"{definition.name}: {operands} operands do not fit its arguments, expected ({expected})")


def _arg_text(arg: ArgDef) -> str:
    if arg.type_list_attr is not None:
        return f"{arg.name}: {arg.type_list_attr}"
    kind = arg.dtype or arg.type_attr
    return f"{arg.name}: {arg.number_attr} * {kind}" if arg.number_attr else f"{arg.name}: {kind}"


def _base(dtype: DType) -> DType:
    return DType(dtype.removesuffix("_ref"))
