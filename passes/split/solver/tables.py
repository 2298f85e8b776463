"""A shrunk problem as flat arrays, in the order in which sweeps visit its nodes.

    strategies of node k      offset[k] .. offset[k+1]            in `cost` and in everything kept per strategy
    edges at node k           edge[around[k] .. around[k+1]]      those to earlier nodes first, up to `later[k]`
    matrix of edge e          entries[matrix[e] ..]               row by row, a row for each strategy of left[e]
    messages along edge e     box_left[e], box_right[e]           where those to its left and to its right end begin
    usage of node k           segments segment[k] .. segment[k+1], disjoint: at times first .. last, use[of_segment ..] of each strategy

A named tuple of arrays, because that is what both Python and compiled loops read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from passes.split.problem import Vector
from passes.split.solver.network import Interval, Network

Index = npt.NDArray[np.int64]


class Tables(NamedTuple):
    offset: Index
    cost: Vector
    around: Index
    later: Index
    edge: Index
    left: Index
    right: Index
    matrix: Index
    box_left: Index
    box_right: Index
    entries: Vector
    segment: Index
    first: Index
    last: Index
    of_segment: Index
    use: Vector
    slack: Vector

    @property
    def nodes(self) -> int:
        return len(self.offset) - 1

    def total(self, choice: Index) -> float:
        """Its cost."""
        columns = np.diff(self.offset)[self.right]
        entries = self.entries[self.matrix[:-1] + choice[self.left] * columns + choice[self.right]]
        return float(self.cost[self.offset[:-1] + choice].sum() + entries.sum())

    @property
    def work(self) -> int:
        """What one sweep there and back touches."""
        return 2 * len(self.entries) + 2 * len(self.use) + len(self.slack) + 20 * len(self.left)


def tabulate(network: Network) -> tuple[list[int], Tables]:
    """The names of the nodes in order, and the arrays."""
    names = sorted(network.costs)
    position = {name: k for k, name in enumerate(names)}
    sizes = np.array([len(network.costs[name]) for name in names], dtype=np.int64)
    pairs = [(position[a], position[b], network.links[a][b]) for a in names for b in sorted(network.links[a]) if a < b]
    left, right = (np.array([pair[side] for pair in pairs], dtype=np.int64) for side in (0, 1))
    boxes = _starts(np.stack([sizes[left], sizes[right]], axis=1).ravel()) if pairs else np.zeros(1, dtype=np.int64)
    around, later, edge = _incidence(len(names), left, right)
    return names, Tables(
        _starts(sizes), _joined([network.costs[name] for name in names]), around, later, edge, left, right,
        _starts([matrix.size for _, _, matrix in pairs]), boxes[0:-1:2].copy(), boxes[1::2].copy(),
        _joined([matrix.ravel() for _, _, matrix in pairs]), *_segments([network.terms[name] for name in names]), network.slack.copy(),
    )  # fmt: skip


def _starts(sizes: Sequence[int] | Index) -> Index:
    return np.concatenate([[0], np.cumsum(np.asarray(sizes, dtype=np.int64))]).astype(np.int64)


def _joined(parts: Sequence[Vector]) -> Vector:
    return np.concatenate([*parts, np.zeros(0)]).astype(np.float64)


def _incidence(count: int, left: Index, right: Index) -> tuple[Index, Index, Index]:
    """Edges by node; those that come from earlier nodes (the node is their right end) first."""
    numbers = np.arange(len(left))
    ends = np.concatenate([right, left])
    order = np.argsort(ends, kind="stable")
    around = _starts(np.bincount(ends, minlength=count))
    later = around[:-1] + np.bincount(right, minlength=count)
    return around, later.astype(np.int64), np.concatenate([numbers, numbers])[order].astype(np.int64)


def _segments(terms: Sequence[Mapping[Interval, Vector]]) -> tuple[Index, Index, Index, Index, Vector]:
    """Overlapping terms of a node cut at each other's ends and added up."""
    counts, firsts, lasts, uses = [], [], [], []
    for mine in terms:
        pieces = _pieces(mine)
        counts.append(len(pieces))
        firsts += [start for start, _, _ in pieces]
        lasts += [end for _, end, _ in pieces]
        uses += [use for _, _, use in pieces]
    where = _starts([len(use) for use in uses])[:-1]
    return _starts(counts), np.array(firsts, dtype=np.int64), np.array(lasts, dtype=np.int64), where, _joined(uses)


def _pieces(terms: Mapping[Interval, Vector]) -> list[tuple[int, int, Vector]]:
    if not terms:
        return []
    cuts = sorted({time for interval in terms for time in interval})
    place = {time: k for k, time in enumerate(cuts)}
    change = np.zeros((len(cuts), len(next(iter(terms.values())))))
    for (start, end), usage in sorted(terms.items(), key=lambda term: term[0]):
        change[place[start]] += usage
        change[place[end]] -= usage
    level = np.cumsum(change, axis=0)
    found: list[tuple[int, int, Vector]] = []
    for k, (start, end) in enumerate(pairwise(cuts)):
        if found and (found[-1][2] == level[k]).all() and found[-1][1] == start:
            found[-1] = (found[-1][0], end, level[k])
        else:
            found.append((start, end, level[k]))
    return [piece for piece in found if piece[2].any()]
