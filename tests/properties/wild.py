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
from passes.split.problem import FORBIDDEN, Problem, Solution, Vector


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
            chooser._annotate(Solution(_picks(chooser._problem(), rng), 0.0, 0.0))


def _picks(problem: Problem, rng: Random) -> tuple[int, ...]:
    """One strategy a node, producers first; none that its producers' forms can't be brought to."""
    into: dict[int, list[tuple[int, Vector]]] = {}
    for i, j, matrix in problem.edges:
        into.setdefault(j, []).append((i, matrix))
    picks: list[int] = []
    for j, costs in enumerate(problem.costs):
        least = int(len(costs) > 1 and rng.randrange(6) > 0)
        may = [s for s in range(len(costs)) if all(matrix[picks[i], s] < FORBIDDEN for i, matrix in into.get(j, ()))]
        picks.append(rng.choice([s for s in may if s >= least] or may))
    return tuple(picks)
