"""Strategies that no assignment can choose are removed before anything else looks at the problem.

    x stays at node i  iff  cost_i(x) is not forbidden,
                       and  for every edge (i,j) some y that stays at j has edge_ij(x, y) not forbidden          `_revise`
                       and  usage_i(x) <= limit - sum over the others live at t of their least usage, at all t   `_fits`

Source: arc consistency (AC-3, Mackworth 1977), applied to matrices instead of edges: equal matrices are one object here (`Matrices`), and
what was found out about one holds for the thousands of edges that share it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from passes.split.problem import FORBIDDEN, Integers, Mask, Problem, Unsolvable, Vector


@dataclass
class Matrices:
    """Equal matrices are one number; forbidden entries are infinite."""

    values: list[Vector] = field(default_factory=list)
    finite: list[Mask] = field(default_factory=list)
    _numbers: dict[tuple[tuple[int, ...], bytes], int] = field(default_factory=dict)
    _cut: dict[tuple[int, bytes, bytes], int] = field(default_factory=dict)

    def number(self, matrix: Vector) -> int:
        matrix = np.ascontiguousarray(matrix, dtype=np.float64)
        key = (matrix.shape, matrix.tobytes())
        if key not in self._numbers:
            self._numbers[key] = len(self.values)
            self.values.append(np.where(matrix < FORBIDDEN, matrix, np.inf))
            self.finite.append(matrix < FORBIDDEN)
        return self._numbers[key]

    def cut(self, number: int, rows: Integers, columns: Integers) -> int:
        """The matrix of those rows and columns, repeated and in that order."""
        key = (number, rows.tobytes(), columns.tobytes())
        if key not in self._cut:
            self._cut[key] = self.number(self.values[number][np.ix_(rows, columns)])
        return self._cut[key]


@dataclass(frozen=True)
class Pruned:
    """What is left of a problem: `kept[i]` original strategies of node i, their costs and usage, edges by number of matrix."""

    kept: list[Integers]
    costs: list[Vector]
    usage: list[Vector]
    intervals: list[tuple[int, int]]
    edges: list[tuple[int, int, int]]
    matrices: Matrices
    slack: Vector
    """At each time at which a life begins: what is left of the limit (infinite without one)."""

    @property
    def whole(self) -> bool:
        """All costs are whole numbers, so that a better assignment is better by 1 at least."""
        parts = [*self.costs, *(values[finite] for values, finite in zip(self.matrices.values, self.matrices.finite, strict=True))]
        return all(bool((part == np.rint(part)).all()) for part in parts)


def prune(problem: Problem) -> Pruned:
    """Raises `Unsolvable` where a node has nothing left, or where the least usage of all is too much."""
    matrices = Matrices()
    edges = [(i, j, matrices.number(matrix)) for i, j, matrix in problem.edges]
    masks = [cost < FORBIDDEN for cost in problem.costs]
    intervals, slack = _timeline(problem)
    usage = [_exact(u, problem.limit) for u in problem.usage] or [np.zeros(len(cost)) for cost in problem.costs]
    around = _around(len(masks), edges)
    changed = _suspects(masks, edges, matrices)
    while True:
        _revise(masks, edges, around, matrices, changed)
        changed = _fits(masks, usage, intervals, slack)
        if not changed:
            break
    kept = [np.flatnonzero(mask) for mask in masks]
    cut = [(i, j, _shrunk(matrices, m, masks[i], masks[j], kept[i], kept[j])) for i, j, m in edges]
    costs = [cost[keep] for cost, keep in zip(problem.costs, kept, strict=True)]
    return Pruned(kept, costs, [u[keep] for u, keep in zip(usage, kept, strict=True)], intervals, cut, matrices, slack)


def _timeline(problem: Problem) -> tuple[list[tuple[int, int]], Vector]:
    """Lives in steps at which some life begins, and the limit at each: memory can only be fullest just after a beginning."""
    lives = problem.intervals or ((0, 1),) * len(problem.costs)
    times = np.unique(np.array([start for start, end in lives if start < end], dtype=np.int64))
    starts, ends = (np.searchsorted(times, np.array(column, dtype=np.int64)) for column in zip(*lives, strict=True)) if lives else ((), ())
    limit = np.inf if problem.limit is None or not problem.usage else problem.limit
    return [(int(start), max(int(start), int(end))) for start, end in zip(starts, ends, strict=True)], np.full(len(times), limit)


def _exact(usage: Vector, limit: float | None) -> Vector:
    """Rounded up to a multiple of 2**-40 of the limit, where it is not whole: then sums are exact, in whatever order they are taken."""
    if limit is None or (usage == np.rint(usage)).all():
        return usage
    quantum = 2.0 ** (np.floor(np.log2(max(limit, 1e-300))) - 40)
    return np.asarray(np.ceil(usage / quantum) * quantum)


def _around(count: int, edges: Sequence[tuple[int, int, int]]) -> list[list[int]]:
    found: list[list[int]] = [[] for _ in range(count)]
    for number, (i, j, _) in enumerate(edges):
        found[i].append(number)
        found[j].append(number)
    return found


def _suspects(masks: Sequence[Mask], edges: Sequence[tuple[int, int, int]], matrices: Matrices) -> list[int]:
    """Nodes that something may follow from: those that lack strategies, and the ends of edges that support less than everything."""
    lacking = [not (finite.any(0).all() and finite.any(1).all()) for finite in matrices.finite]
    found = {i for i, mask in enumerate(masks) if not mask.all()}
    for i, j, number in edges:
        if lacking[number]:
            found |= {i, j}
    return sorted(found)


def _revise(
    masks: list[Mask], edges: Sequence[tuple[int, int, int]], around: Sequence[Sequence[int]], matrices: Matrices, changed: Sequence[int]
) -> None:
    """Until nothing changes: what has lost its support beside a changed node goes."""
    known: dict[tuple[int, bool, bytes], Mask] = {}
    waiting, queued = deque(changed), set(changed)
    while waiting:
        node = waiting.popleft()
        queued.discard(node)
        if not masks[node].any():
            raise Unsolvable(f"node {node} has no strategy left that its neighbours and the limit allow")
        for i, j, number in (edges[e] for e in around[node]):
            other, forward = (j, True) if i == node else (i, False)
            key = (number, forward, masks[node].tobytes())
            if key not in known:
                finite = matrices.finite[number] if forward else matrices.finite[number].T
                known[key] = np.asarray(finite[masks[node]].any(0))
            if (masks[other] & ~known[key]).any():
                masks[other] = _both(masks[other], known[key])
                if other not in queued:
                    queued.add(other)
                    waiting.append(other)
            # The edge may also take strategies from the changed node itself, once: its other end has not changed.
            back = (number, not forward, masks[other].tobytes())
            if back not in known:
                finite = matrices.finite[number].T if forward else matrices.finite[number]
                known[back] = np.asarray(finite[masks[other]].any(0))
            if (masks[node] & ~known[back]).any():
                masks[node] = _both(masks[node], known[back])
                if node not in queued:
                    queued.add(node)
                    waiting.append(node)


def _both(a: Mask, b: Mask) -> Mask:
    return a & b


def _fits(masks: list[Mask], usage: Sequence[Vector], intervals: Sequence[tuple[int, int]], slack: Vector) -> list[int]:
    """Remove what does not fit beside the least usage of everything else; the nodes that lost something."""
    if not len(slack) or not np.isfinite(slack[0]):
        return []
    least = np.array([u[mask].min() for u, mask in zip(usage, masks, strict=True)])
    change = np.zeros(len(slack) + 1)
    starts, ends = np.array(intervals, dtype=np.int64).T
    np.add.at(change, starts, least)
    np.subtract.at(change, ends, least)
    room = slack - np.cumsum(change[:-1])
    if room.min() < 0:
        at = int(room.argmin())
        raise Unsolvable(f"step {at}: the least usage of all is over the limit {slack[at]:.0f} by {-room[at]:.0f}")
    spare = range_minimum(room, starts, ends)
    lost = []
    for i, (u, mask) in enumerate(zip(usage, masks, strict=True)):
        if starts[i] < ends[i] and (u > least[i] + spare[i])[mask].any():
            masks[i] = mask & (u <= least[i] + spare[i])
            lost.append(i)
    return lost


def range_minimum(values: Vector, starts: Integers, ends: Integers) -> Vector:
    """min(values[start:end]) of each range; infinite where it is empty.  A sparse table: all ranges of lengths 1, 2, 4, ..."""
    found = np.full(len(starts), np.inf)
    lengths = ends - starts
    table, span = values, 1
    while (lengths >= span).any():
        here = (lengths >= span) & (lengths < 2 * span)
        found[here] = np.minimum(table[starts[here]], table[ends[here] - span])
        table, span = np.minimum(table[:-span], table[span:]) if len(table) > span else table, 2 * span
    return found


def _shrunk(matrices: Matrices, number: int, rows: Mask, columns: Mask, kept_rows: Integers, kept_columns: Integers) -> int:
    return number if rows.all() and columns.all() else matrices.cut(number, kept_rows, kept_columns)
