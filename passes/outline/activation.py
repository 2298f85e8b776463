"""Activations that are several nodes: gelu in its three forms, and swish.

(0.5 * x) * Erfc(-x * 0.7071)                                =>  call @gelu(x)        as tf.nn.gelu emits it
(0.5 * x) * (1 + Erf(x * 0.7071)),  / 1.4142                 =>  call @gelu(x)
(0.5 * x) * (1 + Tanh(0.7979 * (x + 0.0447 * x^3)))          =>  call @gelu_tanh(x)
x * Sigmoid(x)                                               =>  call @swish(x)
"""

from __future__ import annotations

from compiler.ir.graph import Value
from compiler.rewrite.builder import Builder
from compiler.rewrite.matcher import Match
from compiler.rewrite.rule import Capture, Pattern, PatternBuilder, Refusal, Rule
from passes.outline.body import inside, outlined

TOLERANCE = 1e-3
"""Relative: a constant is the one of the formula, in whatever precision it was written; the body keeps the model's own."""


def _are(m: Match, **expected: tuple[float, ...]) -> Refusal | None:
    """Is each captured constant one of the values it may be?"""
    for name, values in expected.items():
        found = m.const(name) if m.has(name) else values[0]
        if not isinstance(found, int | float) or not any(abs(found - v) <= TOLERANCE * abs(v) for v in values):
            return Refusal(f"constant {name} is {found}, expected {' or '.join(map(str, values))}")
    return None


class GeluErf(Rule):
    """(0.5 * x) * Erfc(-x * 0.7071), (0.5 * x) * (1 + Erf(x * 0.7071))"""

    def pattern(self, op: PatternBuilder, x: Capture, half: Capture, root: Capture, sqrt2: Capture, one: Capture) -> Pattern:
        complement = op.Erfc(op.one_of(op.Mul(op.Neg(x), root), op.RealDiv(op.Neg(x), sqrt2)))
        direct = op.AddV2(op.Erf(op.one_of(op.Mul(x, root), op.RealDiv(x, sqrt2))), one)
        return op.Mul(op.Mul(x, half), op.one_of(complement, direct))

    def check(self, m: Match) -> Refusal | None:
        return inside(m) or _are(m, half=(0.5,), root=(0.70710678,), sqrt2=(1.41421356,), one=(1.0,))

    def rewrite(self, op: Builder, m: Match) -> Value:
        return outlined(op, m, "gelu")


class GeluTanh(Rule):
    """(0.5 * x) * (1 + Tanh(0.7979 * (x + 0.0447 * x^3)))"""

    def pattern(
        self, op: PatternBuilder, x: Capture, half: Capture, one: Capture, outer: Capture, inner: Capture, three: Capture
    ) -> Pattern:
        cubed = op.Mul(op.Pow(x, three), inner)
        return op.Mul(op.Mul(x, half), op.AddV2(op.Tanh(op.Mul(op.AddV2(x, cubed), outer)), one))

    def check(self, m: Match) -> Refusal | None:
        return inside(m) or _are(m, half=(0.5,), one=(1.0,), outer=(0.79788456,), inner=(0.044715,), three=(3.0,))

    def rewrite(self, op: Builder, m: Match) -> Value:
        return outlined(op, m, "gelu_tanh")


class Swish(Rule):
    """x * Sigmoid(x)"""

    def pattern(self, op: PatternBuilder, x: Capture) -> Pattern:
        return op.Mul(x, op.Sigmoid(x))

    def check(self, m: Match) -> Refusal | None:
        return inside(m)

    def rewrite(self, op: Builder, m: Match) -> Value:
        return outlined(op, m, "swish")


RULES = (GeluErf(), GeluTanh(), Swish())
