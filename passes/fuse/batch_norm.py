"""An inference batch-norm behind a convolution or a product goes into its weight and bias.

    Mul(Conv2D(x, W), s)                                    =>  Conv2D(x, W * s)
    AddV2(Conv2D(x, W), t)                                  =>  BiasAdd(Conv2D(x, W), t)
    AddV2(Mul(BiasAdd(Conv2D(x, W), b), s), t)              =>  BiasAdd(Conv2D(x, W * s), b * s + t)
    FusedBatchNormV3(Conv2D(x, W), s, o, m, v)              =>  BiasAdd(Conv2D(x, W * i), o - m * i)       i = s * rsqrt(v + epsilon)
    FusedBatchNormV3(BiasAdd(Conv2D(x, W), b), s, o, m, v)  =>  BiasAdd(Conv2D(x, W * i), o - (m - b) * i)

s, t, b have one value for each output channel and are constants, and so is W: `W * s` is a new constant (folded by TensorFlow's own
kernels), so whoever else reads W is not touched.  The output channel is W's last axis, for a depthwise filter its last two.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from compiler.ir.graph import Value
from compiler.ir.module import Module
from compiler.ir.weights import Array
from compiler.pipeline.base import CANONICAL, TYPED, Context, Numerics, Pass
from compiler.rewrite.builder import Builder
from compiler.rewrite.engine import apply_rules
from compiler.rewrite.matcher import Match
from compiler.rewrite.rule import Capture, NodePattern, Pattern, PatternBuilder, Refusal, Rule
from passes.fuse.channels import FLOATS, channel_axis, per_channel


@dataclass(frozen=True)
class FoldBatchNorm(Pass):
    """Scales and shifts into weights and biases."""

    name = "fold-batch-norm"
    requires = frozenset({TYPED})
    breaks = frozenset({CANONICAL})
    numerics = Numerics.REASSOCIATES

    def run(self, module: Module, context: Context) -> None:
        apply_rules(module, RULES, context)


def _linear(op: PatternBuilder, x: Capture, w: Capture) -> Pattern:
    """The operators whose output channels are columns of a weight."""
    makers: tuple[Callable[..., NodePattern], ...] = (op.Conv2D, op.DepthwiseConv2dNative, op.MatMul)
    return op.one_of(*(make(x, w, named="linear", others=op.Any) for make in makers))


def _shaped(m: Match, array: Array) -> Array:
    """One value for each output channel, shaped to multiply the weight."""
    flat, shape = array.reshape(-1), m.type("w").shape or ()
    if m.node("linear").op == "DepthwiseConv2dNative":
        return flat.reshape(1, 1, int(shape[2] or 0), int(shape[3] or 0))  # type: ignore[arg-type]
    return flat.reshape(-1, 1) if m.node("linear").attrs.get("transpose_b") is True else flat


def _scaled(op: Builder, m: Match, factor: Value) -> Value:
    """The linear operator again, its weight times `factor`."""
    weight = op.Mul(m.w, factor)
    return op.node(m.node("linear").op, m.x, weight, **m.attrs("linear"))


def _array(m: Match, name: str) -> Array:
    array = m.array(name)
    assert array is not None, "checked to be constant"
    return np.asarray(array)


def _bias(op: Builder, m: Match, linear: Value, bias: Value) -> Value:
    rank = len(m.type("linear").shape or ())
    last = channel_axis(m, "linear") == rank - 1
    return op.BiasAdd(linear, bias, data_format="NHWC" if last else "NCHW")


def _weight_refusal(m: Match) -> Refusal | None:
    if m.literal("w") is None:
        return Refusal("the weight is not a constant", m.w)
    return None if m.type("w").dtype in FLOATS else Refusal(f"the weight is {m.type('w')}, expected a float", m.w)


class ScaleIntoWeight(Rule):
    """Mul(linear(x, W), s)  =>  linear(x, W * s)"""

    def pattern(self, op: PatternBuilder, x: Capture, w: Capture, s: Capture) -> Pattern:
        return op.Mul(_linear(op, x, w), s)

    def check(self, m: Match) -> Refusal | None:
        return _weight_refusal(m) or per_channel(m, "linear", "s")

    def rewrite(self, op: Builder, m: Match) -> Value:
        return _scaled(op, m, op.constant(_shaped(m, _array(m, "s"))))


class BatchNormIntoBias(Rule):
    """AddV2(Mul(BiasAdd(linear(x, W), b), s), t)  =>  BiasAdd(linear(x, W * s), b * s + t)"""

    def pattern(self, op: PatternBuilder, x: Capture, w: Capture, b: Capture, s: Capture, t: Capture) -> Pattern:
        return op.AddV2(op.Mul(op.BiasAdd(_linear(op, x, w), b, data_format=op.Any, named="bias"), s), t)

    def check(self, m: Match) -> Refusal | None:
        return _weight_refusal(m) or per_channel(m, "bias", "s") or per_channel(m, "bias", "t") or _constant_bias(m)

    def rewrite(self, op: Builder, m: Match) -> Value:
        scale, shift = _array(m, "s").reshape(-1), _array(m, "t").reshape(-1)
        bias = op.AddV2(op.Mul(m.b, op.constant(scale)), op.constant(shift))
        return _bias(op, m, _scaled(op, m, op.constant(_shaped(m, scale))), bias)


def _constant_bias(m: Match) -> Refusal | None:
    return None if m.literal("b") is not None else Refusal("the bias is not a constant", m.b)


class AddIsBias(Rule):
    """AddV2(linear(x, W), t)  =>  BiasAdd(linear(x, W), t)"""

    def pattern(self, op: PatternBuilder, x: Capture, w: Capture, t: Capture) -> Pattern:
        return op.AddV2(_linear(op, x, w), t)

    def check(self, m: Match) -> Refusal | None:
        return per_channel(m, "linear", "t")

    def rewrite(self, op: Builder, m: Match) -> Value:
        linear = op.node(m.node("linear").op, m.x, m.w, **m.attrs("linear"))
        return _bias(op, m, linear, op.constant(_array(m, "t").reshape(-1)))


class FusedBatchNormIntoWeight(Rule):
    """FusedBatchNormV3(linear(x, W) [+ b], s, o, m, v), inference  =>  BiasAdd(linear(x, W * i), o - (m [- b]) * i)"""

    versions: ClassVar[tuple[str, ...]] = ("FusedBatchNormV3", "FusedBatchNormV2", "FusedBatchNorm")

    def pattern(
        self, op: PatternBuilder, x: Capture, w: Capture, b: Capture, scale: Capture, offset: Capture, mean: Capture, variance: Capture
    ) -> Pattern:
        linear = op.one_of(_linear(op, x, w), op.BiasAdd(_linear(op, x, w), b, data_format=op.Any, named="bias"))
        norms = (
            op.node(
                name, (linear, scale, offset, mean, variance),
                {"is_training": False, "epsilon": op.Any, "data_format": op.Any, "exponential_avg_factor": op.Any, "named": "norm"},
            )
            for name in self.versions
        )  # fmt: skip
        return op.one_of(*norms)

    def check(self, m: Match) -> Refusal | None:
        for port in range(1, len(m.node("norm").types)):
            if m.graph.needs(Value(m.root, port)).anyone:
                return Refusal("its statistics are used", m.root)
        axes = {channel_axis(m, label) for label in ("linear", "norm", "bias") if m.has(label)}
        if len(axes) > 1:
            return Refusal("it normalises another axis than the channels", m.root)
        if m.has("b") and (refusal := _constant_bias(m)) is not None:
            return refusal
        parameters = (per_channel(m, "linear", name) for name in ("scale", "offset", "mean", "variance"))
        return _weight_refusal(m) or next((refusal for refusal in parameters if refusal is not None), None)

    def rewrite(self, op: Builder, m: Match) -> tuple[Value, ...]:
        dtype = m.type("variance").dtype
        epsilon = op.constant(np.asarray(m.attr("norm", "epsilon"), dtype.numpy))
        inverse = op.Mul(m.scale, op.Rsqrt(op.AddV2(m.variance, epsilon)))
        shape = _shaped(m, np.arange(int(m.type("variance").elements or 0))).shape  # type: ignore[arg-type]
        factor = op.Reshape(inverse, op.constant(np.array(shape, np.int32)))
        mean = op.Sub(m.mean, m.b) if m.has("b") else m.mean
        shift = op.Sub(m.offset, op.Mul(mean, inverse))
        made = _bias(op, m, _scaled(op, m, factor), shift)
        return (made, *(Value(m.root, port) for port in range(1, len(m.node("norm").types))))


RULES = (BatchNormIntoBias(), ScaleIntoWeight(), AddIsBias(), FusedBatchNormIntoWeight())
