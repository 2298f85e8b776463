"""The exact gelu by the error function itself instead of its complement, for which TensorFlow's kernel is several times slower.

    (0.5 * x) * Erfc(-x * 0.7071)      =>      (0.5 * x) * (1 + Erf(x * 0.7071))

Equal in real numbers.  For x far below zero 1 + Erf cancels: what should be -1e-7 becomes 0, an error of less than an ulp of 1 times x.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from compiler.ir.graph import Value
from compiler.ir.module import Module
from compiler.pipeline.base import TYPED, Context, Numerics, Pass
from compiler.rewrite.builder import Builder
from compiler.rewrite.engine import apply_rules
from compiler.rewrite.matcher import Match
from compiler.rewrite.rule import Capture, Pattern, PatternBuilder, Refusal, Rule
from passes.fuse.channels import FLOATS

TOLERANCE = 1e-6
"""Relative: the constants are one half and the root of a half as float32 has them; for others the two forms are different functions."""


@dataclass(frozen=True)
class GeluByErf(Pass):
    """Whole gelus only: elsewhere the complement's small values may be what is wanted."""

    name = "gelu-by-erf"
    requires = frozenset({TYPED})
    numerics = Numerics.REASSOCIATES

    def run(self, module: Module, context: Context) -> None:
        apply_rules(module, RULES, context)


class ErfcGelu(Rule):
    """(0.5 * x) * Erfc(-x * 0.7071), (0.5 * x) * Erfc(-x / 1.4142)"""

    def pattern(self, op: PatternBuilder, x: Capture, half: Capture, scale: Capture, sqrt2: Capture) -> Pattern:
        scaled = op.one_of(op.Mul(op.Neg(x), scale), op.RealDiv(op.Neg(x), sqrt2))
        return op.Mul(op.Mul(x, half), op.Erfc(scaled))

    def check(self, m: Match) -> Refusal | None:
        if m.type("x").dtype not in FLOATS:
            return Refusal(f"x is {m.type('x')}, expected float32 or float64", m.root)
        wanted = {"half": 0.5, "scale": 0.5**0.5, "sqrt2": 2.0**0.5}
        for name, value in wanted.items():
            found = m.const(name) if m.has(name) else value
            if not isinstance(found, float) or abs(found - value) > TOLERANCE * value:
                return Refusal(f"constant {name} is {found}, expected {value:.7f}")
        return None

    def rewrite(self, op: Builder, m: Match) -> Value:
        scaled = op.Mul(m.x, m.scale) if m.has("scale") else op.RealDiv(m.x, m.sqrt2)
        one = op.constant(np.ones((), m.type("x").dtype.numpy))
        return op.Mul(op.Mul(m.x, m.half), op.AddV2(one, op.Erf(scaled)))


RULES = (ErfcGelu(),)
