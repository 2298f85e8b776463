"""Parts of a large network solved nearly exactly, one after another, the rest held still.

    window      a ball around a node, or what is live when memory is tightest and a ball around that, of so many entries        `_ball`
    its problem cost_v(x) + sum over edges to nodes outside of edge(x, choice);  slack_t - what the outside uses at t            `_part`
    kept        if it costs less

Each part is shrunk, searched and proven like a problem of its own: held-still neighbours make most of its strategies dominated.
Source: large neighbourhood search (Shaw 1998); the order is drawn from a fixed seed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from passes.split.problem import Vector
from passes.split.solver.network import Network

Choice = dict[int, int]
Solver = Callable[[Network, Choice, float], tuple[Choice, float] | None]
"""Network, its present choice and that choice's cost -> a better one, if there is one."""
_SEED = 1


def improve_by_windows(
    network: Network, choice: Choice, entries: int, budget: float, solver: Solver, stop: Callable[[], bool]
) -> tuple[Choice, float]:
    """Windows of `entries` entries, each pass over the network twice as large, until they are `budget` together.

    The new choice, and what it costs less than before.
    """
    choice, gained = dict(choice), 0.0
    used = _profile(network, choice, network.costs)
    for members in _windows(network, used, entries, budget):
        if stop():
            break
        part = _part(network, choice, used, members)
        now = {node: choice[node] for node in members}
        cost = _cost(part, now)
        found = solver(part, now, cost)
        if found is not None and found[1] < cost:
            used += _profile(network, found[0], members) - _profile(network, now, members)
            choice |= found[0]
            gained += cost - found[1]
    return choice, gained


def _windows(network: Network, used: Vector, entries: int, budget: float) -> Iterator[list[int]]:
    """Every node is the middle of a window or in one, then again from the start in another order."""
    random, nodes = np.random.default_rng(_SEED), sorted(network.costs)
    given, spent, whole = 0, 0.0, False
    while nodes and not whole:
        covered: set[int] = set()
        for at in random.permutation(len(nodes)).tolist():
            if nodes[at] in covered:
                continue
            first = [nodes[at]]
            if given % 3 == 2 and len(network.slack):
                first += _live(network, _tight(network, used, random), nodes)
            members, size = _ball(network, first, entries)
            spent, given, whole = spent + size, given + 1, len(members) == len(nodes)
            if spent > budget:
                return
            covered.update(members)
            yield members
        entries *= 2


def _tight(network: Network, used: Vector, random: np.random.Generator) -> int:
    """One of the fullest times."""
    room = network.slack - used
    fullest = np.argsort(room / np.maximum(network.slack, 1e-300), kind="stable")[: max(1, len(room) // 4)]
    return int(fullest[random.integers(len(fullest))])


def _live(network: Network, time: int, nodes: Sequence[int]) -> list[int]:
    return [node for node in nodes if any(start <= time < end for start, end in network.terms[node])]


def _ball(network: Network, first: Sequence[int], entries: int) -> tuple[list[int], int]:
    """Breadth first, and its entries: a node counts with its edges to those inside."""
    inside: set[int] = set()
    waiting, total = deque(first), 0
    while waiting:
        node = waiting.popleft()
        if node in inside:
            continue
        size = sum(link.size for other, link in network.links[node].items() if other in inside) + len(network.costs[node])
        if inside and total + size > entries:
            break
        total += size
        inside.add(node)
        waiting.extend(other for other in network.links[node] if other not in inside)
    return sorted(inside), total


def _part(network: Network, choice: Choice, used: Vector, members: Sequence[int]) -> Network:
    inside = set(members)
    costs, links = {}, {}
    for node in members:
        cost = network.costs[node]
        for other, link in network.links[node].items():
            if other not in inside:
                cost = cost + link[:, choice[other]]
        costs[node] = cost
        links[node] = {other: link for other, link in network.links[node].items() if other in inside}
    slack = network.slack - (used - _profile(network, choice, members))
    return Network(costs, links, {node: dict(network.terms[node]) for node in members}, slack, network.prices.copy())


def _profile(network: Network, choice: Choice, members: Sequence[int] | dict[int, Vector]) -> Vector:
    change = np.zeros(len(network.slack) + 1)
    for node in members:
        for (start, end), usage in network.terms[node].items():
            change[start] += usage[choice[node]]
            change[end] -= usage[choice[node]]
    return np.cumsum(change[:-1])


def _cost(network: Network, choice: Choice) -> float:
    nodes = sum(float(cost[choice[node]]) for node, cost in network.costs.items())
    edges = (float(link[choice[a], choice[b]]) for a, links in network.links.items() for b, link in links.items() if a < b)
    return nodes + sum(edges)
