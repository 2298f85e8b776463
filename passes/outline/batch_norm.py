"""Batch normalisation that folding did not take: its input comes from no convolution or product, or its parameters are variables.

s = Rsqrt(variance + epsilon) * gamma       x * s + (beta - mean * s),  x * s + (-mean * s + beta)      =>      call @batch_norm(...)
x * s + t, both constant, one value for each of the last axis's channels                                =>      call @batch_norm(x, s, t)
"""

from __future__ import annotations

from compiler.ir.graph import Value
from compiler.rewrite.builder import Builder
from compiler.rewrite.matcher import Match
from compiler.rewrite.rule import Capture, Pattern, PatternBuilder, Refusal, Rule
from passes.outline.body import inside, outlined
from passes.outline.layer_norm import normalised


class BatchNorm(Rule):
    """x * s + (beta - mean * s), x * s + (-mean * s + beta)"""

    def pattern(
        self, op: PatternBuilder, x: Capture, mean: Capture, variance: Capture, epsilon: Capture, gamma: Capture, beta: Capture
    ) -> Pattern:
        inverse = op.Rsqrt(op.AddV2(variance, epsilon))
        return op.one_of(*(normalised(op, x, mean, scale, beta) for scale in (op.Mul(inverse, gamma), inverse)))

    def check(self, m: Match) -> Refusal | None:
        return inside(m) or _not_statistics(m)

    def rewrite(self, op: Builder, m: Match) -> Value:
        return outlined(op, m, "batch_norm")


class ScaleAndShift(Rule):
    """x * s + t, s and t constant vectors along x's last dimension"""

    def pattern(self, op: PatternBuilder, x: Capture, s: Capture, t: Capture) -> Pattern:
        return op.AddV2(op.Mul(x, s), t)

    def check(self, m: Match) -> Refusal | None:
        return inside(m) or _not_channels(m)

    def rewrite(self, op: Builder, m: Match) -> Value:
        return outlined(op, m, "batch_norm")


def _not_statistics(m: Match) -> Refusal | None:
    """One variance for each channel, whatever the row; a layer norm that could not be taken whole has one for each row."""
    shape = m.type("variance").shape
    if m.type("epsilon").shape != ():
        return Refusal("its epsilon is no scalar", m.epsilon, quiet=True)
    channels = [size for size in shape or () if size != 1]
    if shape is None or len(channels) > 1 or not all(isinstance(size, int) for size in channels):
        return Refusal("its statistics are not one value for each channel", m.variance)
    return None


def _not_channels(m: Match) -> Refusal | None:
    """Any sum of a product fits the pattern, so what is none of a batch-norm's is no news."""
    shape, scale, shift = m.type("x").shape, m.type("s").shape, m.type("t").shape
    constant = m.literal("s") is not None and m.literal("t") is not None
    if not constant or not shape or len(shape) < 2 or not isinstance(shape[-1], int):
        return Refusal("it is no scale and shift by constants", quiet=True)
    vectors = scale == shift and scale is not None and len(scale) <= len(shape) and scale[-1:] == shape[-1:]
    if not vectors or any(size != 1 for size in (scale or ())[:-1]):
        return Refusal("its constants are not one value for each channel", quiet=True)
    return None


RULES = (BatchNorm(), ScaleAndShift())
