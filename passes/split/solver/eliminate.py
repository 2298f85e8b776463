"""Nodes that can be decided from their neighbours, without loss, go.

    no edges, no usage            s_i = argmin cost_i                                                        `_lone`
    link_ij(x,y) = f(x) + g(y)    the edge goes: cost_i += f, cost_j += g                                    `_separate`
    x determined by y             i follows j (a permutation, or few edges to redraw)                        `_determined`
    one neighbour j               s_i = argmin_x cost_i(x) + link_ij(x, y), if that x also uses least        `_leaf`
    two neighbours, no usage      link_jk(y,z) += min_x link_ij(x,y) + cost_i(x) + link_ik(x,z)              `_series`
    b no worse than a             strategy a goes: cost_b - cost_a + sum_j max_y link(b,y) - link(a,y) <= 0
                                  and b uses no more at any time                                             `_dominated`
    x uses more than is left      strategy x goes                                                            `_oversized`

Sources: Dechter, "Bucket elimination" (1999), limited to eliminations that add no entries; Goldstein's criterion (1994) for dominance.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from passes.split.problem import Integers, Mask, Unsolvable, Vector
from passes.split.solver.arcs import range_minimum
from passes.split.solver.network import Network
from passes.split.solver.times import compress

_MOST_DOMINANCE_WORK = 4_000_000
"""Entries compared for one node, at most: strategies x strategies x its neighbours' strategies."""
_FEW_ENTRIES = 64
_BEYOND = 1e30


def shrink(network: Network) -> None:
    """Until no rule applies."""
    compress(network)
    work = _Worklist(network)
    work.add(network.costs)
    while True:
        work.run()
        touched, work.touched = work.touched, set()
        work.add(node for node in sorted(touched) if node in network.costs and _dominated(network, node))
        work.add(_oversized(network))
        work.add(compress(network))
        if not work.queue:
            return


@dataclass
class _Worklist:
    network: Network
    queue: deque[int] = field(default_factory=deque)
    _queued: set[int] = field(default_factory=set)
    touched: set[int] = field(default_factory=set)
    """Queued since it was last compared with what dominates."""

    def add(self, nodes: Iterable[int]) -> None:
        for node in nodes:
            if node not in self._queued:
                self._queued.add(node)
                self.touched.add(node)
                self.queue.append(node)

    def run(self) -> None:
        while self.queue:
            node = self.queue.popleft()
            self._queued.discard(node)
            if node in self.network.costs:
                self._simplify(node)

    def _simplify(self, node: int) -> None:
        network = self.network
        mask = np.isfinite(network.costs[node])
        for link in network.links[node].values():
            mask &= np.isfinite(link).any(1)
        if not mask.any():
            raise Unsolvable(f"node {node} has no strategy left that its neighbours and the limit allow")
        if not mask.all():
            network.keep(node, mask)
            self.add(network.links[node])
        for other in list(network.links[node]):
            if _separate(network, node, other):
                self.add([other])
        if _lone(network, node):
            return
        for rule in (_determined, _leaf, _series):
            touched = rule(network, node)
            if touched:
                self.add(touched)
                return


def _lone(network: Network, node: int) -> bool:
    if network.links[node] or network.terms[node]:
        return False
    best = int(network.costs[node].argmin())
    network.constant += float(network.costs[node][best])
    network.drop(node, (), np.array(best))
    return True


def _separate(network: Network, a: int, b: int) -> bool:
    link = network.links[a][b]
    by_row = link[:, :1]
    if not np.isfinite(link).all() or ((link - by_row) != (link[:1] - by_row[:1])).any():
        return False
    network.unlink(a, b)
    network.costs[a] = network.costs[a] + link[:, 0]
    network.costs[b] = network.costs[b] + (link[0] - link[0, 0])
    return True


def _determined(network: Network, node: int) -> list[int]:
    """For some neighbour: each of its strategies allows exactly one of ours, and following it makes no link much larger."""
    for leader, link in network.links[node].items():
        finite = np.isfinite(link)
        if (finite.sum(0) == 1).all() and (link.shape[0] == link.shape[1] or len(network.links[node]) <= 2):
            return [leader, *network.follow(node, leader, finite.argmax(0))]
    return []


def _leaf(network: Network, node: int) -> list[int]:
    if len(network.links[node]) != 1:
        return []
    ((leader, link),) = network.links[node].items()
    usage = list(network.terms[node].values())
    total = link + network.costs[node][:, None]
    table = _cheapest(total, usage)
    columns = np.arange(len(table))
    for used in usage:
        if (used[table] > np.where(np.isfinite(total), used[:, None], np.inf).min(0)).any():
            return []
    # What the leader can't have with any of ours was forbidden already: total[table] is finite for what is left.
    if not np.isfinite(total[table, columns]).all():
        return []
    network.follow(node, leader, table)
    return [leader]


def _cheapest(total: Vector, usage: list[Vector]) -> Integers:
    """The row of the least entry of each column, of equals the one that uses least."""
    if not usage:
        return np.asarray(total.argmin(0))
    used = sum(usage, np.zeros(1))
    return np.asarray(np.where(total == total.min(0), used[:, None], np.inf).argmin(0))


def _series(network: Network, node: int) -> list[int]:
    if len(network.links[node]) != 2 or network.terms[node]:
        return []
    (a, to_a), (b, to_b) = network.links[node].items()
    size = to_a.shape[1] * to_b.shape[1]
    known = size if b in network.links[a] else 0
    if size - known > max(to_a.size + to_b.size, _FEW_ENTRIES) or size * len(to_a) > _MOST_DOMINANCE_WORK:
        return []
    through = (to_a + network.costs[node][:, None])[:, :, None] + to_b[:, None, :]
    network.unlink(node, a)
    network.unlink(node, b)
    network.link(a, b, through.min(0))
    network.drop(node, (a, b), through.argmin(0))
    return [a, b]


def _oversized(network: Network) -> list[int]:
    """Forbid strategies that don't fit even where everything else takes its least; the nodes that had some."""
    if (network.slack < 0).any():
        at = int(network.slack.argmin())
        raise Unsolvable(f"step {at} of those that bind: the least usage of all is over the limit by {-network.slack[at]:.0f}")
    found = [(node, interval, usage) for node in sorted(network.terms) for interval, usage in network.terms[node].items()]
    if not found:
        return []
    starts, ends = np.array([interval for _, interval, _ in found], dtype=np.int64).T
    lost = set()
    for (node, _, usage), most in zip(found, range_minimum(network.slack, starts, ends).tolist(), strict=True):
        if usage.max() > most and np.isfinite(network.costs[node][usage > most]).any():
            network.costs[node] = np.where(usage > most, np.inf, network.costs[node])
            lost.add(node)
    return sorted(lost)


def _dominated(network: Network, node: int) -> bool:
    """Remove strategies that another is no worse than, whatever the neighbours do; whether there were any."""
    costs, links = network.costs[node], list(network.links[node].values())
    width = sum(link.shape[1] for link in links)
    if len(costs) ** 2 * width > _MOST_DOMINANCE_WORK:
        return False
    rise = costs[None, :] - costs[:, None]
    if links:
        # Every strategy has a finite entry in every link, so that this stand-in for the infinite can't cancel out.
        joined = np.minimum(np.concatenate(links, axis=1), _BEYOND)
        starts = np.cumsum([0, *(link.shape[1] for link in links[:-1])])
        rise = rise + np.maximum.reduceat(joined[None, :, :] - joined[:, None, :], starts, axis=2).sum(2)
    no_worse = rise <= 0
    for used in network.terms[node].values():
        no_worse &= used[None, :] <= used[:, None]
    np.fill_diagonal(no_worse, False)
    keep: Mask = np.ones(len(costs), dtype=bool)
    for a in range(len(costs) - 1, -1, -1):
        keep[a] = not (no_worse[a] & keep).any()
    if not keep.all():
        network.keep(node, keep)
    return not keep.all()
