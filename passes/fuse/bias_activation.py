"""A convolution or a product, its bias and its activation become one outlined function, for whoever has a kernel for the three.

    Relu(BiasAdd(Conv2D(x, W), b))      =>      call @fused(x, W, b)      function @fused_1f0c... {kind="fused"} {the three as they are}
    BiasAdd(MatMul(x, W), b)            =>      call @fused(x, W, b)

Every attribute stays on its node in the body, so the values are bit for bit the same.  An addition is a bias only where its constant has
one value for each output channel and is the same everywhere else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from compiler.ir.graph import Value
from compiler.ir.module import Module
from compiler.pipeline.base import TYPED, Context, Pass
from compiler.rewrite.builder import Builder
from compiler.rewrite.engine import apply_rules
from compiler.rewrite.matcher import Match
from compiler.rewrite.rule import Capture, NodePattern, Pattern, PatternBuilder, Refusal, Rule
from passes.fuse.channels import per_channel
from passes.fuse.elementwise import FUSED
from passes.outline.body import inside, outlined


@dataclass(frozen=True)
class FuseBiasActivation(Pass):
    """Those with an activation first, then those without."""

    name = "fuse-bias-activation"
    requires = frozenset({TYPED})

    def run(self, module: Module, context: Context) -> None:
        apply_rules(module, (LinearBiasActivation(),), context)
        apply_rules(module, (LinearBias(),), context)


def _biased(op: PatternBuilder, x: Capture, w: Capture, b: Capture) -> Pattern:
    makers: tuple[Callable[..., NodePattern], ...] = (op.Conv2D, op.DepthwiseConv2dNative, op.MatMul, op.BatchMatMulV2)
    linear = op.one_of(*(make(x, w, named="linear", others=op.Any) for make in makers))
    return op.one_of(op.BiasAdd(linear, b, data_format=op.Any), op.AddV2(linear, b, named="add"))


def _no_bias(m: Match) -> Refusal | None:
    """An addition of something computed (a residual) is none of this pass's business; of another constant it is news."""
    if inside(m) or not m.has("add"):
        return inside(m)
    if m.literal("b") is None:
        return Refusal("what is added is no constant", quiet=True)
    return per_channel(m, "linear", "b")


class LinearBiasActivation(Rule):
    """activation(linear(x, W) + b)"""

    def pattern(self, op: PatternBuilder, x: Capture, w: Capture, b: Capture) -> Pattern:
        biased = _biased(op, x, w, b)
        plain: tuple[Callable[..., NodePattern], ...] = (op.Relu, op.Relu6, op.Elu, op.Selu, op.Tanh, op.Sigmoid, op.Softplus, op.Softsign)
        return op.one_of(*(make(biased) for make in plain), op.LeakyRelu(biased, alpha=op.Any))

    def check(self, m: Match) -> Refusal | None:
        return _no_bias(m)

    def rewrite(self, op: Builder, m: Match) -> Value:
        return outlined(op, m, FUSED)


class LinearBias(Rule):
    """linear(x, W) + b"""

    def pattern(self, op: PatternBuilder, x: Capture, w: Capture, b: Capture) -> Pattern:
        return _biased(op, x, w, b)

    def check(self, m: Match) -> Refusal | None:
        return _no_bias(m)

    def rewrite(self, op: Builder, m: Match) -> Value:
        return outlined(op, m, FUSED)
