"""Pick one strategy for each node: shrink, search, prove.

    prune -> merge followers -> eliminate                                exact, leaves few nodes         `arcs`, `followers`, `eliminate`
    repeat  message passing with prices on memory, decode                a bound and assignments         `search`
            what can't be better than the best is forbidden; shrink      exact                           `_forbid`
    small enough: an integer program                                     optimal, or that none exists    `exact`
    large: parts of it, the rest held still                              better assignments              `neighbours`

The bound and the cost meet on most problems; then the assignment is proven optimal.  Limits are counted (iterations, entries, branches), so
the same problem gives the same answer; `Limits.stop` may ask for an early end, and the solution then says that it was cut short.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace

import numpy as np

from passes.split.problem import Problem, Solution, Unsolvable, evaluate
from passes.split.solver.arcs import prune
from passes.split.solver.compiled import compiled, interpreted
from passes.split.solver.eliminate import shrink
from passes.split.solver.exact import solve_exactly
from passes.split.solver.followers import merge_followers
from passes.split.solver.network import Network
from passes.split.solver.search import Search
from passes.split.solver.tables import Index, Tables, tabulate

_MARGIN = 1e-9
"""Relative rounding of sums of costs."""
_WORTH_COMPILING = 30_000_000
"""Entries and strategies visited from which machine code pays for being loaded, or made."""


@dataclass(frozen=True)
class Limits:
    """Counted work; `seconds_left` only ends what a clock must, and what it ends is no longer repeatable."""

    rounds: int = 6
    entries: int = 60_000
    """An integer program may have so many entries."""
    branches: int = 2_000
    seconds_left: Callable[[], float] = lambda: np.inf


@dataclass
class _Incumbent:
    """The best assignment of the whole problem so far, and what no assignment can cost less than."""

    problem: Problem
    whole: bool
    choice: tuple[int, ...] | None = None
    cost: float = np.inf
    bound: float = -np.inf
    notes: list[str] = field(default_factory=list)

    def offer(self, choice: Sequence[int]) -> None:
        found = evaluate(self.problem, choice)
        if found.feasible and found.total < self.cost:
            self.choice, self.cost = tuple(choice), found.total

    def raise_bound(self, bound: float) -> None:
        lifted = np.ceil(bound - _MARGIN * abs(bound)) if self.whole and np.isfinite(bound) else bound
        self.bound = max(self.bound, float(lifted))

    @property
    def proven(self) -> bool:
        return self.bound >= self.cost - _MARGIN * abs(self.cost)

    @property
    def goal(self) -> float:
        """What an assignment must cost at most to be worth finding."""
        return self.cost - float(self.whole) + _MARGIN * abs(self.cost)


def solve(problem: Problem, iterations: int = 60, starts: Sequence[Sequence[int]] = (), limits: Limits | None = None) -> Solution:
    """The best assignment found; `starts` are assignments worth comparing (such as: nothing split).

    Raises `Unsolvable` where no assignment keeps the rules, or none was found that does.
    """
    limits = limits or Limits()
    pruned = prune(problem)
    incumbent = _Incumbent(problem, pruned.whole)
    for start in starts:
        incumbent.offer(start)
    network = merge_followers(pruned)
    try:
        shrink(network)
        _search(network, incumbent, iterations, limits)
    except Unsolvable:
        # Only what might beat the best was left: so nothing does.
        if incumbent.choice is None:
            raise
        incumbent.raise_bound(incumbent.cost)
    if incumbent.choice is None:
        raise Unsolvable("no assignment within the memory limit was found, and none was proven impossible; raise the limit or the effort")
    bound = incumbent.cost if incumbent.proven else incumbent.bound
    return Solution(incumbent.choice, incumbent.cost, bound, "; ".join(incumbent.notes))


def _search(network: Network, incumbent: _Incumbent, iterations: int, limits: Limits) -> None:
    for _ in range(limits.rounds):
        names, tables = tabulate(network)
        if not names:
            _report(network, [], np.zeros(0, dtype=np.int64), 0.0, incumbent)
            return
        search = Search(tables, _loops(tables, iterations), network.prices * network.slack)
        search.run(iterations, incumbent.cost - network.constant, lambda: limits.seconds_left() <= 0)
        _report(network, names, search.best, search.bound, incumbent)
        if incumbent.proven:
            return
        if limits.seconds_left() <= 0:
            incumbent.notes.append("out of time while searching")
            return
        if np.isfinite(incumbent.cost):
            _forbid(network, names, search, incumbent)
        if _finite_entries(network) <= limits.entries:
            _finish(network, incumbent, limits)
            return


def _report(network: Network, names: Sequence[int], best: Index | None, bound: float, incumbent: _Incumbent) -> None:
    incumbent.raise_bound(bound + network.constant)
    if best is not None:
        chosen = network.expand({name: int(strategy) for name, strategy in zip(names, best, strict=True)})
        incumbent.offer([chosen[i] for i in range(len(incumbent.problem.costs))])


def _forbid(network: Network, names: Sequence[int], search: Search, incumbent: _Incumbent) -> None:
    """Entries and strategies that can't be in a better assignment become infinite, and the network shrinks."""
    tables = search.tables
    strategies, entries = search.hopeless(incumbent.goal - network.constant)
    network.prices = search.multipliers.best / np.maximum(tables.slack, 1e-300)
    for e in range(len(tables.left)):
        a, b = names[tables.left[e]], names[tables.right[e]]
        link = network.links[a][b]
        hopeless = entries[tables.matrix[e] : tables.matrix[e] + link.size].reshape(link.shape)
        if hopeless.any():
            network.link(a, b, np.where(hopeless, np.inf, 0.0))
    for k, name in enumerate(names):
        lost = strategies[tables.offset[k] : tables.offset[k + 1]]
        if lost.any():
            network.costs[name] = np.where(lost, np.inf, network.costs[name])
    shrink(network)


def _finish(network: Network, incumbent: _Incumbent, limits: Limits) -> None:
    names, tables = tabulate(network)
    if not names:
        _report(network, [], np.zeros(0, dtype=np.int64), 0.0, incumbent)
        return
    found = solve_exactly(tables, limits.seconds_left(), limits.branches, prices=network.prices)
    _report(network, names, found.choice, found.bound, incumbent)
    if found.timed_out:
        incumbent.notes.append("the integer program was cut short")


def _loops(tables: Tables, iterations: int) -> SimpleNamespace:
    return compiled() if tables.work * iterations > _WORTH_COMPILING else interpreted()


def _finite_entries(network: Network) -> int:
    return sum(int(np.isfinite(link).sum()) for links in network.links.values() for link in links.values()) // 2
