"""Zeros around an image that only a convolution reads become the convolution's own padding: nothing is copied.

    Conv2D(Pad(x, [[0, 0], [1, 1], [2, 2], [0, 0]]), W, padding="VALID")   =>   Conv2D(x, W, padding="EXPLICIT", explicit_paddings=...)

Only zeros, only rows and columns, and only a convolution: a pooling would leave out its padding instead of reading zeros.
"""

from __future__ import annotations

from dataclasses import dataclass

from compiler.ir.graph import Value
from compiler.ir.module import Module
from compiler.pipeline.base import TYPED, Context, Numerics, Pass
from compiler.rewrite.builder import Builder
from compiler.rewrite.engine import apply_rules
from compiler.rewrite.matcher import Match
from compiler.rewrite.rule import Capture, Pattern, PatternBuilder, Refusal, Rule
from passes.fuse.channels import FLOATS


@dataclass(frozen=True)
class PadIntoConv(Pass):
    """The kernel may go through its points in another order."""

    name = "pad-into-conv"
    requires = frozenset({TYPED})
    numerics = Numerics.REASSOCIATES

    def run(self, module: Module, context: Context) -> None:
        apply_rules(module, RULES, context)


class PadIntoConvolution(Rule):
    """Conv2D(Pad(x, p), W), DepthwiseConv2dNative(Pad(x, p), W)"""

    def pattern(self, op: PatternBuilder, x: Capture, w: Capture, paddings: Capture, value: Capture) -> Pattern:
        padded = op.one_of(op.Pad(x, paddings), op.PadV2(x, paddings, value))
        return op.one_of(*(make(padded, w, named="conv", others=op.Any) for make in (op.Conv2D, op.DepthwiseConv2dNative)))

    def check(self, m: Match) -> Refusal | None:
        if m.attr("conv", "padding") not in ("VALID", "EXPLICIT"):
            return Refusal(f"the convolution pads by itself: {m.attr('conv', 'padding')!r}", m.root)
        if m.has("value") and m.const("value") != 0.0:
            return Refusal(f"it pads with {m.const('value')}, a convolution pads with 0", m.root)
        if m.type("conv").dtype not in FLOATS or m.attr("conv", "data_format") != "NHWC":
            return Refusal(f"no such kernel for {m.type('conv')}, {m.attr('conv', 'data_format')!r}", m.root)
        return _pads_refusal(m.const("paddings"))

    def rewrite(self, op: Builder, m: Match) -> Value:
        own = m.attr("conv", "explicit_paddings")
        before = own if isinstance(own, tuple) and own else (0,) * 8
        pads = m.const("paddings")
        assert isinstance(pads, tuple), "checked to be constant"
        flat = [int(size) for pair in pads for size in pair]
        total = tuple(a + int(b) for a, b in zip(flat, before, strict=True))  # type: ignore[arg-type]
        return op.node(m.node("conv").op, m.x, m.w, **{**m.attrs("conv"), "padding": "EXPLICIT", "explicit_paddings": total})


def _pads_refusal(pads: object) -> Refusal | None:
    if not isinstance(pads, tuple) or len(pads) != 4:
        return Refusal("the paddings are not constant")
    if pads[0] != (0, 0) or pads[3] != (0, 0):
        return Refusal("it pads the batch or the channels", pads)
    return Refusal("it cuts", pads) if any(size < 0 for pair in pads for size in pair) else None


RULES = (PadIntoConvolution(),)
