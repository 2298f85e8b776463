"""What stands in a graph: nodes, the values they yield, and who needs them.  Plain frozen data; `graph.py` connects it.

Attributes are compared strictly (`attr_key`): 1, 1.0 and True differ, 0.0 differs from -0.0, NaN equals NaN, the string "float32" is not
the type float32.  Python's own `==` says otherwise in every one of these cases, and a pass that merges nodes by it changes the model.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

from compiler.ir.errors import IrError
from compiler.ir.types import DType, TensorType
from compiler.ir.weights import Literal

CONTROL = "^"
INPUT = "Input"


@dataclass(frozen=True)
class FunctionRef:
    """An attribute that names a graph of the module: `@body`."""

    name: str


@dataclass(frozen=True)
class ShapeAttr:
    """A TensorShapeProto attribute: static or unknown dimensions only."""

    shape: tuple[int | None, ...] | None


Attr: TypeAlias = "int | float | bool | str | bytes | DType | ShapeAttr | FunctionRef | Literal | tuple[Attr, ...]"
"""Attribute values.  Strings are `str` when valid UTF-8, else `bytes`; `DType` is a type attribute; lists are tuples."""


def attr_key(attr: Attr) -> Hashable:
    """Equal exactly when the attributes are the same to the compiler, and hashable: what CSE and the verifier compare."""
    if isinstance(attr, tuple):
        return ("tuple", *map(attr_key, attr))
    return (type(attr).__name__, float.__repr__(attr) if isinstance(attr, float) else attr)


def attrs_key(attrs: Mapping[str, Attr]) -> Hashable:
    """`attr_key` of a whole attribute dictionary, in any order."""
    return tuple((name, attr_key(attr)) for name, attr in sorted(attrs.items()))


class Value(NamedTuple):
    """Output `port` of node `node`."""

    node: str
    port: int = 0

    def __str__(self) -> str:
        return f"%{self.node}" + (f":{self.port}" if self.port else "")


class Use(NamedTuple):
    """Operand `slot` of node `user`."""

    user: str
    slot: int


class Edge(NamedTuple):
    """A data edge into a node: its slot, the value it carries, and whether it closes a v1 loop."""

    slot: int
    value: Value
    back: bool


class Output(NamedTuple):
    """A named result of the graph."""

    name: str
    value: Value


@dataclass(frozen=True, eq=False)
class Node:
    """An operator: what it is, not how it is connected.

    `types` has one entry for each output.  `device` is a device string or "" (unplaced; before placement it is the user's pin).
    `origin` names the layers or original nodes it comes from.
    Attributes equal to the OpDef's default, and type or number attributes that the operands determine, are not stored.
    """

    name: str
    op: str
    attrs: Mapping[str, Attr] = field(default_factory=dict)
    types: tuple[TensorType, ...] = ()
    device: str = ""
    origin: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "attrs", MappingProxyType(dict(self.attrs)))
        object.__setattr__(self, "types", tuple(self.types))
        object.__setattr__(self, "origin", tuple(sorted(set(self.origin))))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Node) and self.key == other.key

    def __hash__(self) -> int:
        return hash((self.name, self.op))

    @property
    def key(self) -> Hashable:
        """Equal exactly when the nodes are."""
        return (self.name, self.op, attrs_key(self.attrs), self.types, self.device, self.origin)

    @property
    def type(self) -> TensorType:
        """The type of the only output."""
        if len(self.types) != 1:
            raise IrError(f"{self.op} {self.name!r} has {len(self.types)} outputs, expected one")
        return self.types[0]


@dataclass(frozen=True)
class Needs:
    """Who needs a value, or any output of a node: the one answer every pass asks for."""

    data: tuple[Use, ...]
    control: tuple[str, ...]
    outputs: tuple[str, ...]

    @property
    def anyone(self) -> bool:
        return bool(self.data or self.control or self.outputs)

    def only(self, user: str) -> bool:
        """Is one data operand of `user` the whole need?"""
        return len(self.data) == 1 and self.data[0].user == user and not self.control and not self.outputs
