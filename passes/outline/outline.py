"""Compound functions that were opened into small nodes become calls of a body of their kind.

    %m = Mul(%x, %s)   %s = Sigmoid(%x)      =>      %m = Call(%x) {f=@swish_1f0c...}

A kind is a file of rules beside this one.  The body is the matched nodes as they are, so a call computes the same bits, and
`inline-kinds` opens it again.  What others need stays open: an inner value that is read, fetched or waited for elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from compiler.ir.errors import CleaveError
from compiler.ir.module import Module
from compiler.pipeline.base import OUTLINED, TYPED, Context, Pass
from compiler.rewrite.engine import apply_rules
from compiler.rewrite.rule import Rule
from passes.outline import activation, attention, batch_norm, layer_norm

RULES: Mapping[str, tuple[Rule, ...]] = MappingProxyType(
    {
        "layer_norm": layer_norm.RULES,  # before batch-norm: it is one whose mean is the input's own
        "batch_norm": batch_norm.RULES,
        "attention": attention.RULES,
        "activation": activation.RULES,
    }
)


@dataclass(frozen=True)
class Outline(Pass):
    """Every kind in turn, or the `only` one."""

    name = "outline"
    requires = frozenset({TYPED})
    establishes = frozenset({OUTLINED})
    only: str = ""

    def run(self, module: Module, context: Context) -> None:
        if self.only not in ("", *RULES):
            raise CleaveError(f"pass 'outline': only is {self.only!r}, expected one of {', '.join(RULES)}")
        for kind in (self.only,) if self.only else tuple(RULES):
            apply_rules(module, RULES[kind], context)
