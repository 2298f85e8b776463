"""Rewrites that are the same bit for bit: nothing here takes floats for real numbers.

Identity(x), StopGradient(x), ...        =>  x            Cast(x) to its own type           =>  x
Transpose(x, identity), Pad(x, zeros)    =>  x            Reshape(x, its own shape)         =>  x
Transpose(Transpose(x, p), q)            =>  Transpose(x, p[q])
Reshape(Reshape(x, s), t)                =>  Reshape(x, t)
Squeeze(ExpandDims(x, a), a)             =>  x            ConcatV2(x)                       =>  x
Select(all true, x, y)                   =>  x            Select(all false, x, y)           =>  y
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from compiler.ir.graph import Value
from compiler.ir.module import Module
from compiler.ir.types import TensorType
from compiler.ir.weights import Array
from compiler.pipeline.base import CANONICAL, TYPED, Context, Pass
from compiler.rewrite.builder import Builder
from compiler.rewrite.engine import apply_rules
from compiler.rewrite.matcher import Match
from compiler.rewrite.rule import Capture, Pattern, PatternBuilder, Refusal, Rule


@dataclass(frozen=True)
class Simplify(Pass):
    """Bit-exact identities."""

    name = "simplify"
    requires = frozenset({TYPED})
    establishes = frozenset({CANONICAL})

    def run(self, module: Module, context: Context) -> None:
        apply_rules(module, RULES, context)


class DropIdentity(Rule):
    """Identity(x) => x, and the ops that only mean something to gradients."""

    def pattern(self, op: PatternBuilder, x: Capture) -> Pattern:
        return op.one_of(op.Identity(x), op.StopGradient(x), op.Snapshot(x), op.PreventGradient(x, message=op.Any))

    def check(self, m: Match) -> Refusal | None:
        return _refusal_of_references((m.type("x"),))

    def rewrite(self, op: Builder, m: Match) -> Value:
        return m.x


class DropIdentityN(Rule):
    """IdentityN(x, y, ...) => x, y, ..."""

    def pattern(self, op: PatternBuilder) -> Pattern:
        return op.IdentityN(op.Rest("xs"))

    def check(self, m: Match) -> Refusal | None:
        return _refusal_of_references(m.graph.type_of(value) for value in m.values("xs"))

    def rewrite(self, op: Builder, m: Match) -> tuple[Value, ...]:
        return m.values("xs")


class DropCast(Rule):
    """Cast(x) to the type it has => x"""

    def pattern(self, op: PatternBuilder, x: Capture) -> Pattern:
        return op.Cast(x, others=op.Any, named="cast")

    def check(self, m: Match) -> Refusal | None:
        same = m.type("x").dtype == m.type("cast").dtype
        return None if same else Refusal("the types differ", quiet=True)

    def rewrite(self, op: Builder, m: Match) -> Value:
        return m.x


class DropTranspose(Rule):
    """Transpose(x, identity) => x"""

    def pattern(self, op: PatternBuilder, x: Capture, perm: Capture) -> Pattern:
        return op.Transpose(x, perm)

    def check(self, m: Match) -> Refusal | None:
        perm = m.const("perm")
        identity = isinstance(perm, tuple) and perm == tuple(range(len(perm)))
        return None if identity else Refusal("the permutation moves something", quiet=True)

    def rewrite(self, op: Builder, m: Match) -> Value:
        return m.x


class ComposeTransposes(Rule):
    """Transpose(Transpose(x, p), q) => Transpose(x, p[q])"""

    def pattern(self, op: PatternBuilder, x: Capture, inner: Capture, outer: Capture) -> Pattern:
        return op.Transpose(op.Transpose(x, inner), outer)

    def check(self, m: Match) -> Refusal | None:
        inner, outer = m.const("inner"), m.const("outer")
        return None if isinstance(inner, tuple) and isinstance(outer, tuple) else Refusal("a permutation is not constant")

    def rewrite(self, op: Builder, m: Match) -> Value:
        inner, outer = m.array("inner"), m.array("outer")
        assert inner is not None and outer is not None, "checked"
        return op.Transpose(m.x, op.constant(np.asarray(inner)[np.asarray(outer)]))


class ComposeReshapes(Rule):
    """Reshape(Reshape(x, s), t) => Reshape(x, t)"""

    def pattern(self, op: PatternBuilder, x: Capture, s: Capture, t: Capture) -> Pattern:
        return op.Reshape(op.Reshape(x, s), t)

    def rewrite(self, op: Builder, m: Match) -> Value:
        return op.Reshape(m.x, m.t)


class DropReshape(Rule):
    """Reshape, Squeeze, ExpandDims or BroadcastTo to the shape that x is proven to have => x"""

    def pattern(self, op: PatternBuilder, x: Capture, s: Capture) -> Pattern:
        return op.one_of(op.Reshape(x, s, named="to"), op.BroadcastTo(x, s, named="to"), op.Squeeze(x, squeeze_dims=op.Any, named="to"))

    def check(self, m: Match) -> Refusal | None:
        return None if proven_same(m.type("x"), m.type("to")) else Refusal("the shapes are not proven equal", quiet=True)

    def rewrite(self, op: Builder, m: Match) -> Value:
        return m.x


class DropExpandSqueeze(Rule):
    """Squeeze(ExpandDims(x, a), a) => x"""

    def pattern(self, op: PatternBuilder, x: Capture, axis: Capture) -> Pattern:
        return op.Squeeze(op.ExpandDims(x, axis), squeeze_dims=op.Any, named="squeeze")

    def check(self, m: Match) -> Refusal | None:
        axis, rank = m.const("axis"), m.type("x").rank
        if isinstance(axis, tuple) and len(axis) == 1:
            axis = axis[0]
        dims = m.attr("squeeze", "squeeze_dims")
        if not isinstance(axis, int) or rank is None or not isinstance(dims, tuple) or len(dims) != 1 or not isinstance(dims[0], int):
            return Refusal("the axes are not one constant each")
        return None if axis % (rank + 1) == dims[0] % (rank + 1) else Refusal("the axes differ")

    def rewrite(self, op: Builder, m: Match) -> Value:
        return m.x


class DropConcat(Rule):
    """ConcatV2 of one => it"""

    def pattern(self, op: PatternBuilder, x: Capture, axis: Capture) -> Pattern:
        return op.ConcatV2(x, axis)

    def rewrite(self, op: Builder, m: Match) -> Value:
        return m.x


class DropPad(Rule):
    """Pad by nothing => x"""

    def pattern(self, op: PatternBuilder, x: Capture, paddings: Capture, value: Capture) -> Pattern:
        return op.one_of(op.Pad(x, paddings), op.PadV2(x, paddings, value), op.MirrorPad(x, paddings, mode=op.Any))

    def check(self, m: Match) -> Refusal | None:
        paddings = m.array("paddings")
        return None if paddings is not None and not np.any(paddings) else Refusal("it pads, or may", quiet=True)

    def rewrite(self, op: Builder, m: Match) -> Value:
        return m.x


class DropSelect(Rule):
    """Select or SelectV2 by a constant that is true (false) throughout => x (y), where that has the result's shape already"""

    def pattern(self, op: PatternBuilder, c: Capture, x: Capture, y: Capture) -> Pattern:
        return op.one_of(op.SelectV2(c, x, y, named="to"), op.Select(c, x, y, named="to"))

    def check(self, m: Match) -> Refusal | None:
        chosen = _chosen(m.array("c"))
        if chosen is None:
            return Refusal("the condition is not one constant throughout", quiet=True)
        same = proven_same(m.type(chosen), m.type("to"))
        return None if same else Refusal("the chosen side may be broadcast", quiet=True)

    def rewrite(self, op: Builder, m: Match) -> Value:
        return m.x if _chosen(m.array("c")) == "x" else m.y


def _chosen(condition: Array | None) -> str | None:
    """The side a condition takes everywhere; None where that differs from element to element, or there are none."""
    if condition is None or not condition.size or bool(np.all(condition)) != bool(np.any(condition)):
        return None
    return "x" if np.all(condition) else "y"


def _refusal_of_references(types: Iterable[TensorType]) -> Refusal | None:
    """An Identity of a v1 reference is the value at that moment; the reference itself would show later writes."""
    return Refusal("it reads a reference") if any(t.dtype.endswith("_ref") for t in types) else None


def proven_same(left: TensorType, right: TensorType) -> bool:
    """Are the two shapes known and equal, symbols included?"""
    return left.shape is not None and left.shape == right.shape and all(d is not None for d in left.shape)


RULES = (
    DropIdentity(),
    DropIdentityN(),
    DropCast(),
    DropTranspose(),
    ComposeTransposes(),
    DropReshape(),
    ComposeReshapes(),
    DropExpandSqueeze(),
    DropConcat(),
    DropPad(),
    DropSelect(),
)
