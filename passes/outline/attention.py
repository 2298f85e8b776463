"""Softmax attention, as Einsum or as batched products, with a scale before or none, with a mask or none.

Einsum(Softmax(Einsum(q, k) * scale + mask), v)      =>      call @attention(q, k, mask, v)
"""

from __future__ import annotations

from dataclasses import dataclass

from compiler.ir.graph import Value
from compiler.ir.module import Module
from compiler.pipeline.base import TYPED, Context, Pass
from compiler.rewrite.builder import Builder
from compiler.rewrite.engine import apply_rules
from compiler.rewrite.matcher import Match
from compiler.rewrite.rule import Capture, Pattern, PatternBuilder, Refusal, Rule
from passes.outline.body import inside, outlined


@dataclass(frozen=True)
class OutlineAttention(Pass):
    """Scores, scale, mask, softmax, weighted sum: one function."""

    name = "outline-attention"
    requires = frozenset({TYPED})

    def run(self, module: Module, context: Context) -> None:
        apply_rules(module, RULES, context)


def _weights(op: PatternBuilder, scores: Pattern, scale: Capture, mask: Capture, low: Capture) -> Pattern:
    """Softmax of the scores, scaled or not, with an added mask, a selected one, or none."""
    scaled = op.one_of(scores, op.Mul(scores, scale), op.RealDiv(scores, scale))
    return op.Softmax(op.one_of(op.AddV2(scaled, mask), op.SelectV2(mask, scaled, low), scaled))


class EinsumAttention(Rule):
    """Keras's MultiHeadAttention"""

    def pattern(self, op: PatternBuilder, q: Capture, k: Capture, v: Capture, scale: Capture, mask: Capture, low: Capture) -> Pattern:
        return op.Einsum(_weights(op, op.Einsum(q, k, equation=op.Any), scale, mask, low), v, equation=op.Any)

    def check(self, m: Match) -> Refusal | None:
        return inside(m)

    def rewrite(self, op: Builder, m: Match) -> Value:
        return outlined(op, m, "attention")


class ProductAttention(Rule):
    """Batched products, with the transposes that tf.einsum puts around them"""

    def pattern(
        self, op: PatternBuilder, q: Capture, k: Capture, v: Capture, scale: Capture, mask: Capture, low: Capture, p: Capture, r: Capture
    ) -> Pattern:
        product = op.BatchMatMulV2(q, k, adj_x=op.Any, adj_y=op.Any)
        softmax = _weights(op, op.one_of(product, op.Transpose(product, p)), scale, mask, low)
        weights = op.one_of(softmax, op.Transpose(softmax, r))
        return op.one_of(
            op.BatchMatMulV2(weights, v, adj_x=op.Any, adj_y=op.Any),
            op.BatchMatMulV2(v, weights, adj_x=op.Any, adj_y=op.Any),
        )

    def check(self, m: Match) -> Refusal | None:
        return inside(m)

    def rewrite(self, op: Builder, m: Match) -> Value:
        return outlined(op, m, "attention")


RULES = (EinsumAttention(), ProductAttention())
