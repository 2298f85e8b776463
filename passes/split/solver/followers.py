"""Nodes that must all be split alike become one node.

    edge_ij allows exactly one y for each x and one x for each y   =>   s_j = perm(s_i)          `_permutations`
    so a class of nodes joined by such edges has one strategy, its root's:                        `_classes`
    cost_root(x) = sum over members i of cost_i(map_i(x)) + sum over edges within of edge_ij(map_i(x), map_j(x))
    edge_root,root'(x, x') = sum over edges between the classes of edge_ij(map_i(x), map_j(x'))   `_between`

Elementwise operators, reshapes and transposes follow their operand this way.  Of the 34,932 nodes of the contest's instance A, 283 remain
after this and `eliminate`.  Everything here is linear in the edges: maps and matrices are numbers, and each product is taken once.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from dataclasses import dataclass, field

import numpy as np

from passes.split.problem import Integers, Vector
from passes.split.solver.arcs import Matrices, Pruned
from passes.split.solver.network import Follow, Interval, Network


@dataclass
class _Maps:
    """Equal maps are one number, so that pairs of (matrix, map) can be remembered."""

    values: list[Integers] = field(default_factory=list)
    _numbers: dict[bytes, int] = field(default_factory=dict)

    def number(self, values: Integers) -> int:
        key = values.tobytes()
        if key not in self._numbers:
            self._numbers[key] = len(self.values)
            self.values.append(values)
        return self._numbers[key]


@dataclass(frozen=True)
class _Classes:
    root: list[int]
    map: list[int]
    """`maps.values[map[i]][x]` is node i's strategy when its root's is x."""
    maps: _Maps


def merge_followers(pruned: Pruned) -> Network:
    """The classes as a network, roots numbered as in the problem."""
    classes = _classes(pruned)
    root, maps = classes.root, classes.maps
    members = [maps.values[number] for number in classes.map]
    roots = [i for i in range(len(root)) if root[i] == i]
    costs = {i: np.zeros(len(pruned.costs[i])) for i in roots}
    follows = []
    for i, cost in enumerate(pruned.costs):
        costs[root[i]] = costs[root[i]] + cost[members[i]]
        if root[i] != i:
            follows.append(Follow(i, (root[i],), members[i]))
    for i, within in _within(pruned, classes).items():
        costs[i] = costs[i] + within
    renumbered = [Follow(i, (i,), kept) for i, kept in enumerate(pruned.kept)]
    links: dict[int, dict[int, Vector]] = {i: {} for i in roots}
    free = np.zeros(len(pruned.slack))
    network = Network(costs, links, {i: {} for i in roots}, pruned.slack.copy(), free, follows=renumbered + follows)
    for (a, b), matrix in sorted(_between(pruned, classes).items()):
        network.link(a, b, matrix)
    _terms(pruned, root, members, network)
    return network


def _terms(pruned: Pruned, root: list[int], members: list[Integers], network: Network) -> None:
    """Usage by root and interval; where nothing binds there is none."""
    if not len(pruned.slack) or not np.isfinite(pruned.slack).any():
        return
    sums: dict[tuple[int, Interval], Vector] = {}
    for i, (usage, (start, end)) in enumerate(zip(pruned.usage, pruned.intervals, strict=True)):
        if start < end:
            key = (root[i], (start, end))
            taken = usage[members[i]]
            sums[key] = sums[key] + taken if key in sums else taken
    change = np.zeros(len(pruned.slack) + 1)
    for (node, (start, end)), usage in sums.items():
        # All at once, not `add_terms` of each: tens of thousands of intervals, each as long as the program.
        least = usage.min()
        change[start] += least
        change[end] -= least
        if usage.max() > least:
            network.terms[node][start, end] = usage - least
    network.slack -= np.cumsum(change[:-1])


def _permutations(matrices: Matrices, used: set[int]) -> dict[int, Integers]:
    """For each matrix with exactly one finite entry in every row and column: the column of each row."""
    found = {}
    for number in sorted(used):
        finite = matrices.finite[number]
        if finite.shape[0] == finite.shape[1] and (finite.sum(0) == 1).all() and (finite.sum(1) == 1).all():
            found[number] = finite.argmax(1)
    return found


def _classes(pruned: Pruned) -> _Classes:
    forward = _permutations(pruned.matrices, {number for _, _, number in pruned.edges})
    backward = {number: np.argsort(permutation) for number, permutation in forward.items()}
    around: list[list[tuple[int, Integers]]] = [[] for _ in pruned.costs]
    for i, j, number in pruned.edges:
        if number in forward:
            around[i].append((j, forward[number]))
            around[j].append((i, backward[number]))
    maps = _Maps()
    root, map_ = [-1] * len(around), [-1] * len(around)
    for start in range(len(around)):
        if root[start] < 0:
            root[start], map_[start] = start, maps.number(np.arange(len(pruned.costs[start])))
            waiting = deque([start])
            while waiting:
                node = waiting.popleft()
                for other, permutation in around[node]:
                    if root[other] < 0:
                        root[other], map_[other] = start, maps.number(permutation[maps.values[map_[node]]])
                        waiting.append(other)
    return _Classes(root, map_, maps)


def _within(pruned: Pruned, classes: _Classes) -> dict[int, Vector]:
    """Costs of the edges inside each class, by its root's strategy; infinite where the edges of a cycle disagree."""
    counted: dict[int, Counter[tuple[int, int, int]]] = defaultdict(Counter)
    for i, j, number in pruned.edges:
        if classes.root[i] == classes.root[j]:
            counted[classes.root[i]][number, classes.map[i], classes.map[j]] += 1
    maps = classes.maps.values
    known = {
        key: pruned.matrices.values[key[0]][maps[key[1]], maps[key[2]]]
        for key in dict.fromkeys(k for count in counted.values() for k in count)
    }
    return {node: sum((times * known[key] for key, times in counts.items()), np.zeros(1)) for node, counts in counted.items()}


def _between(pruned: Pruned, classes: _Classes) -> dict[tuple[int, int], Vector]:
    """Summed matrices between classes; equal ones are multiplied, not added up one by one."""
    counted: dict[tuple[int, int], Counter[tuple[int, bool]]] = defaultdict(Counter)
    for i, j, number in pruned.edges:
        a, b = classes.root[i], classes.root[j]
        if a != b:
            cut = pruned.matrices.cut(number, classes.maps.values[classes.map[i]], classes.maps.values[classes.map[j]])
            counted[min(a, b), max(a, b)][cut, a < b] += 1

    def oriented(number: int, forward: bool) -> Vector:
        return pruned.matrices.values[number] if forward else pruned.matrices.values[number].T

    return {pair: sum((times * oriented(*key) for key, times in counts.items()), np.zeros(1)) for pair, counts in counted.items()}
