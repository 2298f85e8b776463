"""Layer normalisation, as Keras 3 and keras-hub open it, as tf.nn.batch_normalization does, and as tf_keras puts it into FusedBatchNormV3.

mean = Mean(x, axes)   v = Mean(SquaredDifference(x, mean), axes)   s = Rsqrt(v + epsilon) * gamma
x * s + (-mean * s + beta)          x * s + (beta - mean * s)                               =>      call @layer_norm(x, gamma, beta)
Reshape(FusedBatchNormV3(Reshape(x), 1, 0, [], []), shape of x) * gamma + beta              =>      call @layer_norm(...)
"""

from __future__ import annotations

from compiler.ir.graph import Value
from compiler.rewrite.builder import Builder
from compiler.rewrite.matcher import Match
from compiler.rewrite.rule import Capture, NodePattern, Pattern, PatternBuilder, Refusal, Rule
from passes.outline.body import inside, outlined


class LayerNorm(Rule):
    """x * s + (-mean * s + beta), x * s + (beta - mean * s); without gamma or beta where the layer has none"""

    def pattern(self, op: PatternBuilder, x: Capture, axes: Capture, epsilon: Capture, gamma: Capture, beta: Capture) -> Pattern:
        mean = op.Mean(x, axes, keep_dims=True)
        spread = op.SquaredDifference(x, op.one_of(mean, op.StopGradient(mean)))
        inverse = op.Rsqrt(op.AddV2(op.Mean(spread, axes, keep_dims=True), epsilon))
        return op.one_of(*(normalised(op, x, mean, scale, beta) for scale in (op.Mul(inverse, gamma), inverse)))

    def check(self, m: Match) -> Refusal | None:
        return inside(m) or (None if m.literal("axes") is not None else Refusal("the axes are not constant", m.axes))

    def rewrite(self, op: Builder, m: Match) -> Value:
        return outlined(op, m, "layer_norm")


class FusedLayerNorm(Rule):
    """Reshape(FusedBatchNormV3(Reshape(x), ...)) * gamma + beta: each row is a channel of one image in training"""

    def pattern(
        self, op: PatternBuilder, x: Capture, rows: Capture, shape: Capture, one: Capture, zero: Capture, mean: Capture, variance: Capture,
        gamma: Capture, beta: Capture,
    ) -> Pattern:  # fmt: skip
        rowwise = op.FusedBatchNormV3(op.Reshape(x, rows), one, zero, mean, variance, data_format="NCHW", epsilon=op.Any, is_training=True)
        return op.AddV2(op.Mul(op.Reshape(rowwise[0], shape), gamma), beta)

    def check(self, m: Match) -> Refusal | None:
        return inside(m)

    def rewrite(self, op: Builder, m: Match) -> Value:
        return outlined(op, m, "layer_norm")


def normalised(op: PatternBuilder, x: Capture, mean: Pattern, scale: NodePattern, beta: Capture) -> Pattern:
    """`x * scale` less `mean * scale`, and more by `beta` where there is one."""
    negative = op.Mul(op.Neg(mean), scale)
    shift = op.one_of(op.AddV2(negative, beta), op.Sub(beta, op.Mul(mean, scale)), negative)
    return op.AddV2(op.Mul(x, scale), shift)


RULES = (LayerNorm(), FusedLayerNorm())
