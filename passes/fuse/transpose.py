"""A transpose of a product's operand becomes the product's attribute: the kernel reads it the other way round instead of copying it.

    MatMul(Transpose(x, [1, 0]), y)                       =>  MatMul(x, y, transpose_a=True)
    BatchMatMulV2(x, Transpose(y, [0, 1, 3, 2]))          =>  BatchMatMulV2(x, y, adj_y=True)          real types only

Only a permutation that swaps exactly the last two axes is one of these.
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


@dataclass(frozen=True)
class FoldTranspose(Pass):
    """The kernels for the two readings may round differently, so it is not exact."""

    name = "fold-transpose"
    requires = frozenset({TYPED})
    numerics = Numerics.REASSOCIATES

    def run(self, module: Module, context: Context) -> None:
        apply_rules(module, RULES, context)


def _swaps_last_two(m: Match) -> Refusal | None:
    perm = m.const("perm")
    if not isinstance(perm, tuple) or len(perm) < 2:
        return Refusal("the permutation is not constant")
    rank = len(perm)
    wanted = (*range(rank - 2), rank - 1, rank - 2)
    return None if perm == wanted else Refusal("the permutation is not a swap of the last two axes", perm)


class TransposeIntoMatMul(Rule):
    """MatMul(Transpose(x), y), MatMul(x, Transpose(y))"""

    def pattern(self, op: PatternBuilder, x: Capture, y: Capture, perm: Capture) -> Pattern:
        left = op.MatMul(op.Transpose(x, perm), y, transpose_a=False, transpose_b=op.Any, named="left")
        right = op.MatMul(x, op.Transpose(y, perm), transpose_a=op.Any, transpose_b=False, named="right")
        return op.one_of(left, right)

    def check(self, m: Match) -> Refusal | None:
        return _swaps_last_two(m)

    def rewrite(self, op: Builder, m: Match) -> Value:
        side, attr = ("left", "transpose_a") if m.has("left") else ("right", "transpose_b")
        return op.MatMul(m.x, m.y, **{**m.attrs(side), attr: True})


class TransposeIntoBatchMatMul(Rule):
    """BatchMatMulV2(Transpose(x), y), BatchMatMulV2(x, Transpose(y))"""

    def pattern(self, op: PatternBuilder, x: Capture, y: Capture, perm: Capture) -> Pattern:
        left = op.BatchMatMulV2(op.Transpose(x, perm), y, adj_x=False, adj_y=op.Any, named="left")
        right = op.BatchMatMulV2(x, op.Transpose(y, perm), adj_x=op.Any, adj_y=False, named="right")
        return op.one_of(left, right)

    def check(self, m: Match) -> Refusal | None:
        if m.type("x").dtype.is_complex:
            return Refusal("adj_x and adj_y would conjugate")
        return _swaps_last_two(m)

    def rewrite(self, op: Builder, m: Match) -> Value:
        side, attr = ("left", "adj_x") if m.has("left") else ("right", "adj_y")
        return op.BatchMatMulV2(m.x, m.y, **{**m.attrs(side), attr: True})


RULES = (TransposeIntoMatMul(), TransposeIntoBatchMatMul())
