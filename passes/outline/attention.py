"""Softmax attention, as Einsums or as batched products, scaled or not, with an added mask, a selected one, or none.

Einsum(Softmax(Einsum(q, k) * scale + mask), v)                                          =>      call @attention(q, k, mask, v)
BatchMatMulV2(Select(m, Softmax(Select(m, Transpose(BatchMatMulV2(k, q)), low)), 0), v)  =>      call @attention(k, q, m, v)
"""

from __future__ import annotations

from compiler.ir.graph import Value
from compiler.rewrite.builder import Builder
from compiler.rewrite.matcher import Match
from compiler.rewrite.rule import Capture, NodePattern, Pattern, PatternBuilder, Refusal, Rule
from passes.outline.body import inside, outlined


def _weights(op: PatternBuilder, scores: Pattern, scale: Capture, mask: Capture, low: Capture, zero: Capture) -> Pattern:
    """Softmax of the scores; keras-hub masks before and after it, so that a row of which nothing is left is zero."""
    scaled = op.one_of(scores, op.Mul(scores, scale), op.RealDiv(scores, scale))
    softmax = op.Softmax(op.one_of(op.AddV2(scaled, mask), op.SelectV2(mask, scaled, low), scaled))
    return op.one_of(softmax, op.SelectV2(mask, softmax, zero))


class EinsumAttention(Rule):
    """Keras's MultiHeadAttention"""

    def pattern(
        self, op: PatternBuilder, q: Capture, k: Capture, v: Capture, scale: Capture, mask: Capture, low: Capture, zero: Capture
    ) -> Pattern:
        return op.Einsum(_weights(op, op.Einsum(q, k, equation=op.Any), scale, mask, low, zero), v, equation=op.Any)

    def check(self, m: Match) -> Refusal | None:
        return inside(m)

    def rewrite(self, op: Builder, m: Match) -> Value:
        return outlined(op, m, "attention")


class ProductAttention(Rule):
    """Batched products, with the transposes that tf.einsum and keras-hub put around them"""

    def pattern(
        self, op: PatternBuilder, q: Capture, k: Capture, v: Capture, scale: Capture, mask: Capture, low: Capture, zero: Capture,
        p: Capture, r: Capture,
    ) -> Pattern:  # fmt: skip
        product = op.BatchMatMulV2(q, k, adj_x=op.Any, adj_y=op.Any)
        weights = _weights(op, op.one_of(product, op.Transpose(product, p)), scale, mask, low, zero)
        weights = op.one_of(weights, op.Transpose(weights, r))
        products: tuple[NodePattern, ...] = tuple(
            op.BatchMatMulV2(*pair, adj_x=op.Any, adj_y=op.Any) for pair in ((weights, v), (v, weights))
        )
        return op.one_of(*products)

    def check(self, m: Match) -> Refusal | None:
        return inside(m)

    def rewrite(self, op: Builder, m: Match) -> Value:
        return outlined(op, m, "attention")


RULES = (EinsumAttention(), ProductAttention())
