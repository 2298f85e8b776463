"""The problem while it is being shrunk: a graph of nodes whose strategies, costs and edges change, and the way back.

    total = constant + sum_i cost_i(s_i) + sum_(i,j) link_ij(s_i, s_j)
    sum of terms live at t of term(s_i) <= slack[t]        a node has one term per interval: what it and its followers use then
    s_i = table[s_a, s_b, ...]                             for each removed node, last removed first        `Network.expand`

Forbidden costs are infinite here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from passes.split.problem import Integers, Mask, Vector

Interval = tuple[int, int]


@dataclass(frozen=True, eq=False)
class Follow:
    """The strategy of `node` is `table` at the strategies of its leaders (none: a constant; itself: a renumbering)."""

    node: int
    leaders: tuple[int, ...]
    table: Integers


@dataclass
class Network:
    """The only place where the shrinking problem is changed."""

    costs: dict[int, Vector]
    links: dict[int, dict[int, Vector]]
    """links[i][j] has a row for each strategy of i; links[j][i] is its transpose."""
    terms: dict[int, dict[Interval, Vector]]
    slack: Vector
    prices: Vector
    """What a byte is held to cost at each time: kept beside the slack, so that one round's prices are the next one's first guess."""
    constant: float = 0.0
    follows: list[Follow] = field(default_factory=list)

    def keep(self, node: int, mask: Mask) -> None:
        """Only these strategies of `node`."""
        self.follows.append(Follow(node, (node,), np.flatnonzero(mask)))
        self.costs[node] = self.costs[node][mask]
        terms, self.terms[node] = self.terms[node], {}
        self.add_terms(node, ((interval, usage[mask]) for interval, usage in terms.items()))
        for other, link in self.links[node].items():
            self._join(node, other, link[mask])

    def unlink(self, a: int, b: int) -> Vector:
        del self.links[b][a]
        return self.links[a].pop(b)

    def link(self, a: int, b: int, matrix: Vector) -> None:
        """Add `matrix` between a and b to what is there."""
        self._join(a, b, matrix + self.links[a][b] if b in self.links[a] else matrix)

    def _join(self, a: int, b: int, matrix: Vector) -> None:
        self.links[a][b], self.links[b][a] = matrix, matrix.T

    def drop(self, node: int, leaders: tuple[int, ...], table: Integers) -> None:
        """Remove an unlinked node: its strategy follows."""
        assert not self.links[node]
        self.follows.append(Follow(node, leaders, table))
        del self.costs[node], self.links[node], self.terms[node]

    def follow(self, node: int, leader: int, table: Integers) -> list[int]:
        """`node` takes strategy table[s_leader]: its costs, usage and links become its leader's.  Returns the new neighbours."""
        strategies = np.arange(len(table))
        self.costs[leader] = self.costs[leader] + self.unlink(leader, node)[strategies, table] + self.costs[node][table]
        self.add_terms(leader, ((interval, usage[table]) for interval, usage in self.terms[node].items()))
        others = list(self.links[node])
        for other in others:
            self.link(leader, other, self.unlink(node, other)[table])
        self.drop(node, (leader,), table)
        return others

    def add_terms(self, node: int, terms: Iterable[tuple[Interval, Vector]]) -> None:
        """What can't matter is taken out at once: the least of each term is constant."""
        for (start, end), usage in terms:
            least = usage.min()
            self.slack[start:end] -= least
            if usage.max() > least:
                found = self.terms[node].get((start, end))
                self.terms[node][start, end] = usage - least if found is None else found + (usage - least)

    def retime(self, keep: Mask) -> None:
        """Only these times, numbered anew; terms that now live and die together become one."""
        position = np.concatenate([[0], np.cumsum(keep)]).tolist()
        self.slack, self.prices = self.slack[keep], self.prices[keep]
        for node, terms in self.terms.items():
            moved: dict[Interval, list[Vector]] = {}
            for (start, end), usage in terms.items():
                if position[start] < position[end]:
                    moved.setdefault((position[start], position[end]), []).append(usage)
            self.terms[node] = {interval: usages[0] for interval, usages in moved.items() if len(usages) == 1}
            self.add_terms(node, ((interval, sum(usages, np.zeros(1))) for interval, usages in moved.items() if len(usages) > 1))

    def copy(self) -> Network:
        links = {node: dict(mine) for node, mine in self.links.items()}
        terms = {node: dict(mine) for node, mine in self.terms.items()}
        return Network(dict(self.costs), links, terms, self.slack.copy(), self.prices.copy(), self.constant, list(self.follows))

    def expand(self, chosen: Mapping[int, int], since: int = 0) -> dict[int, int]:
        """Strategies of all nodes from those of the remaining ones; or of the nodes there were after `since` follows."""
        found = dict(chosen)
        for step in reversed(self.follows[since:]):
            found[step.node] = int(step.table[tuple(found[leader] for leader in step.leaders)])
        return found

    def room(self) -> Vector:
        """What is left at each time if every node takes the most it could: where that is not negative, memory can't bind."""
        change = np.zeros(len(self.slack) + 1)
        for terms in self.terms.values():
            for (start, end), usage in terms.items():
                change[start] += usage.max()
                change[end] -= usage.max()
        return self.slack - np.cumsum(change[:-1])
