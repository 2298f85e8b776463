"""Layer normalisation as Keras 3, keras-hub and tf.nn.batch_normalization open it.

mean = Mean(x, axes)   v = Mean(SquaredDifference(x, mean), axes)   s = Rsqrt(v + epsilon) * gamma
x * s + (-mean * s + beta)          x * s + (beta - mean * s)          =>      call @layer_norm(x, gamma, beta)
"""

from __future__ import annotations

from dataclasses import dataclass

from compiler.ir.graph import Value
from compiler.ir.module import Module
from compiler.pipeline.base import TYPED, Context, Pass
from compiler.rewrite.builder import Builder
from compiler.rewrite.engine import apply_rules
from compiler.rewrite.matcher import Match
from compiler.rewrite.rule import Capture, NodePattern, Pattern, PatternBuilder, Refusal, Rule
from passes.outline.body import inside, outlined


@dataclass(frozen=True)
class OutlineLayerNorm(Pass):
    """Any axes, kept; the shift may be folded either way."""

    name = "outline-layer-norm"
    requires = frozenset({TYPED})

    def run(self, module: Module, context: Context) -> None:
        apply_rules(module, RULES, context)


def _scale(op: PatternBuilder, x: Capture, axes: Capture, epsilon: Capture, gamma: Capture, mean: NodePattern) -> NodePattern:
    spread = op.SquaredDifference(x, op.one_of(mean, op.StopGradient(mean)))
    variance = op.Mean(spread, axes, keep_dims=True)
    return op.Mul(op.Rsqrt(op.AddV2(variance, epsilon)), gamma)


class LayerNorm(Rule):
    """x * s + (-mean * s + beta), x * s + (beta - mean * s)"""

    def pattern(self, op: PatternBuilder, x: Capture, axes: Capture, epsilon: Capture, gamma: Capture, beta: Capture) -> Pattern:
        mean = op.Mean(x, axes, keep_dims=True)
        scale = _scale(op, x, axes, epsilon, gamma, mean)
        shift = op.one_of(op.AddV2(op.Mul(op.Neg(mean), scale), beta), op.Sub(beta, op.Mul(mean, scale)))
        return op.AddV2(op.Mul(x, scale), shift)

    def check(self, m: Match) -> Refusal | None:
        return inside(m) or (None if m.literal("axes") is not None else Refusal("the axes are not constant", m.axes))

    def rewrite(self, op: Builder, m: Match) -> Value:
        return outlined(op, m, "layer_norm")


RULES = (LayerNorm(),)
