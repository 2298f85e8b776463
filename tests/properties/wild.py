"""Choices that nobody would make: every node divided in some legal way or other, so that every rule and every reshard is met.

The solver seldom divides small operators, and never badly; what is legal must be right all the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from compiler.ir.module import Module
from compiler.pipeline.base import ANNOTATED, TYPED, Context, Pass
from cost_model.cluster import Cluster
from cost_model.model import CostModel
from passes.split.choose import Objective, _Chooser
from passes.split.mesh import mesh_over
from passes.split.problem import Solution


@dataclass(frozen=True)
class ChooseWildly(Pass):
    """Each node's strategy by lot: divided five times in six, where it may be."""

    name = "choose-wildly"
    requires = frozenset({TYPED})
    establishes = frozenset({ANNOTATED})
    seed: int = 0

    def run(self, module: Module, context: Context) -> None:
        workers = tuple(d.name for d in context.service(Cluster).workers)
        if len(workers) < 2:
            return
        module.mesh = mesh_over(workers)
        rng = Random(self.seed)
        for graph in module.entries.values():
            chooser = _Chooser(module, graph, module.mesh, CostModel(context.service(Cluster)), Objective.THROUGHPUT, context)
            chooser.enumerate()
            picks = tuple(rng.randrange(rng.randrange(6) > 0 and len(c.strategies) > 1, len(c.strategies)) for c in chooser.considered)
            chooser._annotate(Solution(picks, 0.0, 0.0))
