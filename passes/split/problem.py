"""The choice of splits as plain data: pick one strategy for each node so that the total is least and memory never overflows.

    minimise   sum_i cost[i][s_i]  +  sum_(i,j) edge[i,j][s_i, s_j]                      `evaluate`
    subject to sum_(i live at t) usage[i][s_i] <= limit        at every time t            `usage_profile`

Node i is live from intervals[i][0] up to, not including, intervals[i][1]; without intervals everything lives at once.  A cost of
`FORBIDDEN` or more may not be chosen.  The form is that of the IOPDDL contest (google/iopddl); `iopddl` reads and writes its files.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from compiler.ir.errors import CleaveError

Vector = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

FORBIDDEN = 1e18
"""Costs from here on mean: never.  (The contest's own value.)"""


class Unsolvable(CleaveError):
    """No assignment keeps the rules; the message says which node or time proves it, and by how much."""


@dataclass(frozen=True, eq=False)
class Problem:
    """`costs[i]` of each strategy of node i; `edges` (i, j, matrix) with i < j; `usage[i]` bytes of each strategy while i is live."""

    costs: tuple[Vector, ...]
    edges: tuple[tuple[int, int, Vector], ...]
    usage: tuple[Vector, ...] = ()
    limit: float | None = None
    intervals: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class Evaluation:
    """Cost by terms; the peak usage and by how much it is over the limit; how many chosen costs are forbidden ones."""

    node_cost: float
    edge_cost: float
    usage: float
    excess: float
    forbidden: int = 0

    @property
    def total(self) -> float:
        return self.node_cost + self.edge_cost

    @property
    def feasible(self) -> bool:
        return self.excess <= 0 and self.forbidden == 0


@dataclass(frozen=True)
class Solution:
    """`choice[i]` strategies, their cost, and a lower bound on any assignment's; `aborted` says what a wall clock cut short, if one did."""

    choice: tuple[int, ...]
    cost: float
    bound: float
    aborted: str = ""

    @property
    def gap(self) -> float:
        """(cost - bound) / bound; 0 when proven optimal."""
        return (self.cost - self.bound) / self.bound if self.bound > 0 else 0.0


def evaluate(problem: Problem, choice: Sequence[int]) -> Evaluation:
    nodes = [float(cost[choice[i]]) for i, cost in enumerate(problem.costs)]
    edges = [float(matrix[choice[i], choice[j]]) for i, j, matrix in problem.edges]
    peak = float(max(usage_profile(problem, [float(u[choice[i]]) for i, u in enumerate(problem.usage)]), default=0.0))
    excess = max(0.0, peak - problem.limit) if problem.limit is not None else 0.0
    return Evaluation(sum(nodes), sum(edges), peak, excess, sum(value >= FORBIDDEN for value in nodes + edges))


def usage_profile(problem: Problem, usage: Sequence[float]) -> Vector:
    """Bytes in use at each time at which some node's life begins, in the order of time."""
    if not problem.usage:
        return np.zeros(0)
    if not problem.intervals:
        return np.array([sum(usage)])
    live = [(start, end, used) for (start, end), used in zip(problem.intervals, usage, strict=True) if start < end]
    times = np.unique([start for start, _, _ in live])
    if not live:
        return times.astype(np.float64)
    change = np.zeros(len(times) + 1)
    starts, ends, used = (np.array(column) for column in zip(*live, strict=True))
    np.add.at(change, np.searchsorted(times, starts), used)
    np.subtract.at(change, np.searchsorted(times, ends), used)
    return np.cumsum(change[:-1])
