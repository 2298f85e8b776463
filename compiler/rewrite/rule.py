"""A rule is a pattern, a check and a rewrite:

    class FoldTransposeIntoMatMul(Rule):
        def pattern(self, op, x, perm, y): return op.MatMul(op.Transpose(x, perm), y, transpose_a=False)
        def check(self, m): return None if m.const("perm") == (1, 0) else Refusal("permutation is not (1, 0)", m.perm)
        def rewrite(self, op, m): return op.MatMul(m.x, m.y, transpose_a=True)

The parameters of `pattern` after `op` are captures: each stands for one value, whatever makes it; a capture written twice is one value.
`op.Name(...)` is an interior node.  A pattern's vocabulary:

    op.MatMul(x, y, transpose_a=False)   an attribute that is named must be equal, the OpDef's default counted in
    op.MatMul(x, y, transpose_a=op.Any)  any value of it; the rule reads it by `m.attr("label", "transpose_a")` and must carry it
    op.Conv2D(x, w, others=op.Any)       every attribute not named is free; the rule must carry them: `**m.attrs("label")`
    op.MatMul(x, y, named="mm")          a label: `m.node("mm")`, `m.attrs("mm")`, `m.type("mm")`
    op.Split(axis, x)[1]                 an output port; one pattern object used twice is one node
    op.AddN(op.Rest("xs"))               any number of remaining operands: `m.values("xs")`
    op.one_of(p, q)                      the first that leads to a match; captures of the others are absent: `m.has("y")`
    op.optional(op.Cast(x))              the node, or its first operand where the node is not there
    op.Transpose(x, p, shared=True)      others may need this node too: it stays, the match only looks through it

An attribute that a pattern does not name must have its default; one without a default (`strides`) must be named, unless it is a dtype,
which the types say (`DstT`; but `out_type` of Shape has a default).  So an attribute the rule has never heard of means no match.
Operands of a commutative op are tried both ways round.

What every rule is spared from checking (`matcher.automatic_refusal`): an interior node must be pure, on the root's device and wanted by
nobody outside the match (a `shared` one may be wanted).  Control edges into matched nodes are carried over to every node that the rewrite
builds; where it builds none and there are such edges, or a device pin that the value put in its place has not, the rule is refused.
Constants are exempt: they are copied by reference, never consumed.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final, TypeAlias

from compiler.ir.errors import IrError
from compiler.ir.graph import Value

if TYPE_CHECKING:
    from compiler.rewrite.builder import Builder
    from compiler.rewrite.matcher import Match


@dataclass(frozen=True)
class Refusal:
    """Why a rule declines a place that its pattern fits: the reason in words, and what it is about.

    `quiet`: the rule has nothing to say about such a place (a Pad that pads), which is no news to a reader of the report.
    """

    reason: str
    where: object = None
    quiet: bool = False

    def __str__(self) -> str:
        return self.reason if self.where is None else f"{self.reason}: {self.where}"


class _AnyAttribute:
    def __repr__(self) -> str:
        return "op.Any"


ANY: Final = _AnyAttribute()


@dataclass(frozen=True)
class Capture:
    """Any one value."""

    name: str


@dataclass(frozen=True)
class Rest:
    """The remaining operands, however many."""

    name: str


@dataclass(frozen=True, eq=False)
class NodePattern:
    """One node; `serial` tells two patterns of the same look apart."""

    serial: int
    op: str
    operands: tuple[Pattern | Rest, ...]
    attrs: Mapping[str, object]
    others_free: bool = False
    label: str = ""
    shared: bool = False

    def __getitem__(self, port: int) -> PortPattern:
        return PortPattern(self, port)


@dataclass(frozen=True)
class PortPattern:
    """Output `port` of a node."""

    node: NodePattern
    port: int


@dataclass(frozen=True)
class OneOf:
    """Alternatives, tried in order."""

    alternatives: tuple[Pattern, ...]


Pattern: TypeAlias = Capture | NodePattern | PortPattern | OneOf
Operand: TypeAlias = Pattern | Rest


@dataclass
class PatternBuilder:
    """The `op` of `Rule.pattern`: `op.Name(...)` is a node pattern.  (TensorFlow's own op `Any` is `op.node("Any", operands, attrs)`.)"""

    Any: ClassVar[_AnyAttribute] = ANY
    Rest: ClassVar[type] = Rest
    count: int = 0

    def __getattr__(self, op: str) -> _NodePatternMaker:
        if op.startswith("_"):
            raise AttributeError(op)
        return _NodePatternMaker(self, op)

    def one_of(self, *alternatives: Pattern) -> OneOf:
        return OneOf(alternatives)

    def optional(self, pattern: NodePattern) -> OneOf:
        first = pattern.operands[0]
        if isinstance(first, Rest):
            raise IrError(f"op.optional({pattern.op}) has no first operand to fall back to")
        return OneOf((pattern, first))

    def node(self, op: str, operands: tuple[Operand, ...], attrs: Mapping[str, object]) -> NodePattern:
        self.count += 1
        named = dict(attrs)
        label, shared, others = str(named.pop("named", "")), bool(named.pop("shared", False)), named.pop("others", None)
        return NodePattern(self.count, op, operands, named, others is ANY, label, shared)


@dataclass(frozen=True)
class _NodePatternMaker:
    builder: PatternBuilder
    op: str

    def __call__(self, *operands: Operand, **attrs: object) -> NodePattern:
        return self.builder.node(self.op, operands, attrs)


class Rule(ABC):
    """A local rewrite.  Holds no state between `check` and `rewrite`; what both need is computed from the match."""

    pattern: Callable[..., Pattern]
    """`def pattern(self, op: PatternBuilder, x: Capture, ...) -> Pattern`; the captures differ from rule to rule."""

    @property
    def name(self) -> str:
        """`FoldTranspose` -> `fold-transpose`."""
        return "".join(f"-{c.lower()}" if c.isupper() and i else c.lower() for i, c in enumerate(type(self).__name__))

    def check(self, m: Match) -> Refusal | None:
        """None where the rewrite is right, else why not."""
        return None

    @abstractmethod
    def rewrite(self, op: Builder, m: Match) -> Value | tuple[Value, ...] | Refusal:
        """The values that replace the root's, existing ones or built by `op.Name(...)`: one for each port of the root, in order; a single
        one where the root has one output or the pattern is a port, `op.Split(axis, x)[1]`.  Refuse before building."""


@dataclass(frozen=True)
class CompiledRule:
    """A rule with its pattern drawn once: the ops it can be rooted at, and how deep it looks."""

    rule: Rule
    root: Pattern
    root_ops: tuple[str, ...]
    depth: int


def compile_rule(rule: Rule) -> CompiledRule:
    parameters = list(inspect.signature(rule.pattern).parameters)
    root = rule.pattern(PatternBuilder(), *(Capture(name) for name in parameters[1:]))
    ops = tuple(dict.fromkeys(node.op for node in _roots(root, rule)))
    return CompiledRule(rule, root, ops, _depth(root))


def _roots(pattern: Pattern, rule: Rule) -> Iterator[NodePattern]:
    match pattern:
        case NodePattern():
            yield pattern
        case PortPattern(node=node):
            yield node
        case OneOf(alternatives=alternatives):
            for alternative in alternatives:
                yield from _roots(alternative, rule)
        case Capture(name=name):
            raise IrError(f"rule {rule.name!r}: its pattern may be the bare capture {name!r}, expected a node")


def _depth(pattern: Pattern | Rest) -> int:
    match pattern:
        case NodePattern(operands=operands):
            return 1 + max((_depth(o) for o in operands), default=0)
        case PortPattern(node=node):
            return _depth(node)
        case OneOf(alternatives=alternatives):
            return max(_depth(a) for a in alternatives)
        case _:
            return 0
