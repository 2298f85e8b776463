"""What TensorFlow's own OpDefs say, read from a table: `get("Conv2D").attrs["strides"].type == "list(int)"`, without TensorFlow.

The table, `opdefs.txt`, is generated (`python -m tests.tools.generate_opdefs`) and stamped with the version it was taken from. Its first
line is a header, every other line is one op: its name, a space, and JSON in which an argument is written as REGISTER_OP writes it:

    "x: T"    "values: N * T"    "ref: Ref(T)"    "shape: int32"    "components: Toutput_types"

Attribute values are plain Python everywhere: a dtype is its short name ('float32', 'bfloat16', 'string', 'resource', 'variant'), a shape
a tuple of int | None, or None when its rank is unknown, a tensor the triple (dtype, shape, values), a list a tuple. A line is parsed when
its op is first asked for.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources

AttrValue = str | int | float | bool | tuple["AttrValue", ...] | None


class OpDefError(ValueError):
    """An op or attribute that the table does not know, or attributes that do not fit the op."""


@dataclass(frozen=True, slots=True)
class ArgDef:
    """One declared argument. Its dtype is `dtype`, or the value of `type_attr`; it stands for several operands under the other two."""

    name: str
    dtype: str | None = None
    type_attr: str | None = None
    number_attr: str | None = None
    type_list_attr: str | None = None
    is_ref: bool = False


@dataclass(frozen=True, slots=True)
class AttrDef:
    """One declared attribute. `default` means something only if `has_default`; `allowed` is None when anything is."""

    name: str
    type: str
    has_default: bool = False
    default: AttrValue = None
    allowed: tuple[AttrValue, ...] | None = None
    minimum: int | None = None


@dataclass(frozen=True, slots=True)
class Deprecation:
    """The GraphDef version from which the op may no longer be added, and what to use instead."""

    version: int
    explanation: str


@dataclass(frozen=True, slots=True)
class OpDef:
    """One op as it is registered. `attrs` is ordered by name."""

    name: str
    inputs: tuple[ArgDef, ...]
    outputs: tuple[ArgDef, ...]
    attrs: Mapping[str, AttrDef]
    is_stateful: bool = False
    is_commutative: bool = False
    is_aggregate: bool = False
    allows_uninitialized_input: bool = False
    is_distributed_communication: bool = False
    deprecation: Deprecation | None = None


FLAGS = ("is_stateful", "is_commutative", "is_aggregate", "allows_uninitialized_input", "is_distributed_communication")


def get(op: str) -> OpDef | None:
    """The OpDef of `op`, or None if this version of TensorFlow registers no such op (it may be a function's name)."""
    return _parsed(op)


def names() -> tuple[str, ...]:
    """Every op of the table, sorted."""
    return tuple(_table()[1])


def tensorflow_version() -> str:
    """The version of TensorFlow from which the table was generated."""
    return _table()[0]


def is_stateful(op: str) -> bool:
    """Whether the op is registered as stateful. An op that the table does not know is: nothing may be assumed of it."""
    definition = get(op)
    return definition is None or definition.is_stateful


def input_dtypes(op: str, attrs: Mapping[str, object]) -> tuple[str, ...]:
    """The dtype of every data operand, in order. `attrs` may leave out attributes that have a default. Refs give their base dtype."""
    return _dtypes(_require(op), _require(op).inputs, attrs)


def output_dtypes(op: str, attrs: Mapping[str, object]) -> tuple[str, ...]:
    """The dtype of every output, in order. `attrs` may leave out attributes that have a default. Refs give their base dtype."""
    return _dtypes(_require(op), _require(op).outputs, attrs)


def input_arity(op: str, attrs: Mapping[str, object]) -> int:
    """How many data operands the op takes with these attributes."""
    return sum(_counts(_require(op), _require(op).inputs, attrs))


def output_arity(op: str, attrs: Mapping[str, object]) -> int:
    """How many outputs the op has with these attributes."""
    return sum(_counts(_require(op), _require(op).outputs, attrs))


def output_ranges(op: str, attrs: Mapping[str, object]) -> dict[str, range]:
    """Output argument -> the output ports it covers. A FunctionDef's `node:arg:i` is port `output_ranges(...)[arg][i]`."""
    definition = _require(op)
    ranges, start = {}, 0
    for arg, count in zip(definition.outputs, _counts(definition, definition.outputs, attrs), strict=True):
        ranges[arg.name] = range(start, start + count)
        start += count
    return ranges


def parse(op: str, text: str) -> OpDef:
    """One line of the table, after the op's name, as an OpDef."""
    fields = json.loads(text)
    attrs = {name: _attr(name, spec) for name, spec in fields.get("attr", {}).items()}
    deprecated = fields.get("deprecated")
    return OpDef(
        name=op,
        inputs=tuple(_arg(arg, attrs) for arg in fields.get("in", ())),
        outputs=tuple(_arg(arg, attrs) for arg in fields.get("out", ())),
        attrs=attrs,
        deprecation=Deprecation(*deprecated) if deprecated else None,
        **dict.fromkeys(fields.get("is", ()), True),
    )


@cache
def _table() -> tuple[str, dict[str, str]]:
    text = resources.files(__package__).joinpath("opdefs.txt").read_text(encoding="utf-8")
    header, *lines = text.splitlines()
    split = (line.partition(" ") for line in lines)
    return json.loads(header)["tensorflow"], {name: rest for name, _, rest in split}


@cache
def _parsed(op: str) -> OpDef | None:
    text = _table()[1].get(op)
    return None if text is None else parse(op, text)


def _require(op: str) -> OpDef:
    definition = get(op)
    if definition is None:
        raise OpDefError(f"'{op}' is no op of TensorFlow {tensorflow_version()}")
    return definition


def _arg(text: str, attrs: Mapping[str, AttrDef]) -> ArgDef:
    name, _, spec = text.partition(": ")
    number, _, base = spec.rpartition(" * ")
    is_ref = base.startswith("Ref(")
    base = base[4:-1] if is_ref else base
    if base not in attrs:
        return ArgDef(name, dtype=base, number_attr=number or None, is_ref=is_ref)
    if attrs[base].type == "list(type)":
        return ArgDef(name, type_list_attr=base, is_ref=is_ref)
    return ArgDef(name, type_attr=base, number_attr=number or None, is_ref=is_ref)


def _attr(name: str, spec: Mapping[str, object]) -> AttrDef:
    allowed, minimum = spec.get("allowed"), spec.get("minimum")
    return AttrDef(
        name=name,
        type=str(spec["type"]),
        has_default="default" in spec,
        default=_frozen(spec.get("default")),
        allowed=tuple(_frozen(value) for value in allowed) if isinstance(allowed, list) else None,
        minimum=minimum if isinstance(minimum, int) else None,
    )


def _frozen(value: object) -> AttrValue:
    if isinstance(value, list):
        return tuple(_frozen(item) for item in value)
    assert value is None or isinstance(value, str | int | float)
    return value


def _dtypes(definition: OpDef, args: tuple[ArgDef, ...], attrs: Mapping[str, object]) -> tuple[str, ...]:
    dtypes: list[str] = []
    for arg, count in zip(args, _counts(definition, args, attrs), strict=True):
        if arg.type_list_attr is not None:
            dtypes.extend(_type_list(definition, arg.type_list_attr, attrs))
        elif arg.type_attr is not None and count:
            dtypes.extend([_type(definition, arg.type_attr, attrs)] * count)
        elif arg.dtype is not None:
            dtypes.extend([arg.dtype] * count)
    return tuple(dtypes)


def _counts(definition: OpDef, args: tuple[ArgDef, ...], attrs: Mapping[str, object]) -> tuple[int, ...]:
    return tuple(_count(definition, arg, attrs) for arg in args)


def _count(definition: OpDef, arg: ArgDef, attrs: Mapping[str, object]) -> int:
    if arg.type_list_attr is not None:
        return len(_type_list(definition, arg.type_list_attr, attrs))
    if arg.number_attr is None:
        return 1
    number = _value(definition, arg.number_attr, attrs)
    if not isinstance(number, int) or number < 0:
        raise OpDefError(f"{definition.name}: attribute '{arg.number_attr}' is {number!r}, expected a count")
    return number


def _type(definition: OpDef, name: str, attrs: Mapping[str, object]) -> str:
    value = _value(definition, name, attrs)
    if not isinstance(value, str):
        raise OpDefError(f"{definition.name}: attribute '{name}' is {value!r}, expected a dtype's name")
    return value


def _type_list(definition: OpDef, name: str, attrs: Mapping[str, object]) -> tuple[str, ...]:
    values = _value(definition, name, attrs)
    if not isinstance(values, tuple | list) or not all(isinstance(value, str) for value in values):
        raise OpDefError(f"{definition.name}: attribute '{name}' is {values!r}, expected a tuple of dtype names")
    return tuple(values)


def _value(definition: OpDef, name: str, attrs: Mapping[str, object]) -> object:
    if name in attrs:
        return attrs[name]
    declared = definition.attrs[name]
    if not declared.has_default:
        raise OpDefError(f"{definition.name}: attribute '{name}' is missing and has no default")
    return declared.default
