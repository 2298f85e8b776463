"""The choice of splits as plain data: pick one strategy for each node so that the total is least.

    minimise   sum_i cost[i][s_i]  +  sum_(i,j) edge[i,j][s_i, s_j]
    subject to sum_i usage[i][s_i] <= limit            (bytes on the fullest device; no limit: None)

`evaluate` states what an assignment costs and by how much it breaks the limit, term by term.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Problem:
    """`costs[i]` seconds of each strategy of node i; `edges` (i, j, matrix) with i < j; `usage[i]` bytes of each strategy."""

    costs: tuple[Vector, ...]
    edges: tuple[tuple[int, int, Vector], ...]
    usage: tuple[Vector, ...] = ()
    limit: float | None = None


@dataclass(frozen=True)
class Evaluation:
    node_cost: float
    edge_cost: float
    usage: float
    excess: float

    @property
    def total(self) -> float:
        return self.node_cost + self.edge_cost


@dataclass(frozen=True)
class Solution:
    """`choice[i]` strategies, their cost, and a lower bound on any assignment's."""

    choice: tuple[int, ...]
    cost: float
    bound: float

    @property
    def gap(self) -> float:
        """(cost - bound) / bound; 0 when proven optimal."""
        return (self.cost - self.bound) / self.bound if self.bound > 0 else 0.0


def evaluate(problem: Problem, choice: Sequence[int]) -> Evaluation:
    nodes = sum(float(cost[choice[i]]) for i, cost in enumerate(problem.costs))
    edges = sum(float(matrix[choice[i], choice[j]]) for i, j, matrix in problem.edges)
    used = sum(float(usage[choice[i]]) for i, usage in enumerate(problem.usage))
    return Evaluation(nodes, edges, used, max(0.0, used - problem.limit) if problem.limit is not None else 0.0)
