"""Pick one strategy for each node: shrink, search, prove.

    prune -> merge followers -> eliminate                                exact, leaves few nodes         `arcs`, `followers`, `eliminate`
    repeat  message passing with prices on memory, decode, tree moves    a bound and assignments         `search`
            what can't be better than the best is forbidden; shrink      exact                           `_forbid`
    small enough: an integer program                                     optimal, or that none exists    `exact`
    large: parts of it, the rest held still                              better assignments              `windows`

The bound and the cost meet on most problems; then the assignment is proven optimal.  Limits are counted (iterations, entries, branches), so
the same problem gives the same answer; `Limits.seconds_left` may ask for an early end, and the solution then says that it was cut short.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from passes.split.problem import Problem, Solution, Unsolvable, evaluate
from passes.split.solver.arcs import prune
from passes.split.solver.compiled import loops_for
from passes.split.solver.eliminate import shrink
from passes.split.solver.exact import solve_exactly
from passes.split.solver.followers import merge_followers
from passes.split.solver.network import Network
from passes.split.solver.search import Search
from passes.split.solver.tables import Tables, tabulate
from passes.split.solver.windows import Choice, improve_by_windows

_MARGIN = 1e-9
"""Relative rounding of sums of costs."""
_WORK_PER_SECOND = 2e7
"""For each second given, in each round: a tenth of what one core does."""
_WINDOWS_PER_SECOND = 150_000
_LEAST_ITERATIONS = 40
_LEAST_WINDOW = 1_000
_WINDOW_ITERATIONS = 300
_STUCK = 0.9
"""Forbidding that leaves more than this part of the entries is not repeated."""


@dataclass(frozen=True)
class Limits:
    """Counted work; `seconds_left` only ends what a clock must, and what it ends is no longer repeatable."""

    rounds: int = 6
    work: float = 4e9
    """Entries and strategies that the sweeps of one round may visit."""
    entries: int = 25_000
    """An integer program may have so many entries."""
    branches: int = 500
    """In each round of an integer program, fewer where it is large: `branch_work` entries in all."""
    branch_work: int = 300_000
    window_entries: int = 60_000
    windows: float = 3_000_000
    """Entries of all windows together."""
    seconds_left: Callable[[], float] = lambda: np.inf

    @staticmethod
    def for_seconds(seconds: float, left: Callable[[], float]) -> Limits:
        """Work that about fits into so many seconds of a slow core, and a last part of them kept for writing the answer down."""
        reserve = min(2.0 + 0.05 * seconds, 0.5 * seconds)
        return Limits(work=_WORK_PER_SECOND * seconds, windows=_WINDOWS_PER_SECOND * seconds, seconds_left=lambda: left() - reserve)

    def within_window(self) -> Limits:
        return replace(self, rounds=2, entries=8_000, branches=100, windows=0)


@dataclass
class _Incumbent:
    """The best assignment of a network so far, in the numbering it began with, and what no assignment can cost less than."""

    whole: bool
    choice: Choice | None = None
    cost: float = np.inf
    bound: float = -np.inf
    notes: list[str] = field(default_factory=list)

    def offer(self, choice: Choice, cost: float) -> bool:
        better = cost < self.cost
        if better:
            self.choice, self.cost = choice, cost
        return better

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
    pruned = prune(problem)
    incumbent = _Incumbent(pruned.whole)
    for start in starts:
        found = evaluate(problem, start)
        if found.feasible:
            incumbent.offer(dict(enumerate(start)), found.total)
    _solve(merge_followers(pruned), incumbent, iterations, limits or Limits())
    if incumbent.choice is None:
        raise Unsolvable("no assignment within the memory limit was found, and none was proven impossible; raise the limit or the effort")
    choice = tuple(incumbent.choice[i] for i in range(len(problem.costs)))
    cost = evaluate(problem, choice).total
    return Solution(choice, cost, cost if incumbent.proven else min(incumbent.bound, cost), "; ".join(incumbent.notes))


def _solve(network: Network, incumbent: _Incumbent, iterations: int, limits: Limits) -> None:
    try:
        shrink(network)
        _search(network, incumbent, iterations, limits)
    except Unsolvable:
        # Only what might beat the best was left: so nothing does.
        if incumbent.choice is None:
            raise
        incumbent.raise_bound(incumbent.cost)


def _search(network: Network, incumbent: _Incumbent, iterations: int, limits: Limits) -> None:
    whole, best, entries = network.copy(), _Incumbent(incumbent.whole), _finite_entries(network)
    for _ in range(limits.rounds):
        found = _round(network, incumbent, iterations, limits)
        if found is None or incumbent.proven or limits.seconds_left() <= 0:
            break
        names, search = found
        if search.best is not None:
            chosen = dict(zip(names, search.best.tolist(), strict=True))
            best.offer(network.expand(chosen, len(whole.follows)), search.cost + network.constant - whole.constant)
        if np.isfinite(incumbent.cost):
            _forbid(network, names, search, incumbent)
        if _finite_entries(network) <= limits.entries:
            _finish(network, incumbent, limits)
            break
        if np.isfinite(incumbent.cost) and _finite_entries(network) > _STUCK * entries:
            break
        entries = _finite_entries(network)
    if incumbent.proven:
        return
    if limits.seconds_left() <= 0:
        incumbent.notes.append("out of time")
    elif best.choice is not None and limits.windows:
        _windows(whole, best.choice, best.cost, incumbent, iterations, limits)


def _round(network: Network, incumbent: _Incumbent, iterations: int, limits: Limits) -> tuple[list[int], Search] | None:
    """One search; None where the network has nothing left to search."""
    names, tables = tabulate(network)
    if not names:
        incumbent.raise_bound(network.constant)
        incumbent.offer(network.expand({}), network.constant)
        return None
    iterations = min(iterations, max(_LEAST_ITERATIONS, int(limits.work / tables.work)))
    search = Search(tables, loops_for(tables, iterations), network.prices * network.slack)
    search.run(iterations, incumbent.cost - network.constant, lambda: limits.seconds_left() <= 0)
    _report(network, names, search.tables, search.best, search.bound, incumbent)
    return names, search


def _report(network: Network, names: Sequence[int], tables: Tables, best: object, bound: float, incumbent: _Incumbent) -> None:
    incumbent.raise_bound(bound + network.constant)
    if isinstance(best, np.ndarray):
        chosen = dict(zip(names, best.tolist(), strict=True))
        incumbent.offer(network.expand(chosen), tables.total(best) + network.constant)


def _forbid(network: Network, names: Sequence[int], search: Search, incumbent: _Incumbent) -> None:
    """Entries and strategies that can't be in a better assignment become infinite, and the network shrinks."""
    tables = search.tables
    strategies, entries = search.hopeless(incumbent.goal - network.constant)
    incumbent.raise_bound(search.bound + network.constant)
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
        incumbent.raise_bound(network.constant)
        incumbent.offer(network.expand({}), network.constant)
        return
    branches = max(1, min(limits.branches, limits.branch_work // max(1, _finite_entries(network))))
    found = solve_exactly(tables, limits.seconds_left, branches, prices=network.prices)
    _report(network, names, tables, found.choice, found.bound, incumbent)


def _windows(network: Network, choice: Choice, cost: float, incumbent: _Incumbent, iterations: int, limits: Limits) -> None:
    """`choice`, in this network's numbering, improved part by part."""

    def solver(part: Network, now: Choice, cost: float) -> tuple[Choice, float] | None:
        inner = _Incumbent(incumbent.whole, now, cost)
        _solve(part, inner, min(iterations, _WINDOW_ITERATIONS), limits.within_window())
        return (inner.choice, inner.cost) if inner.choice is not None and inner.cost < cost else None

    entries = min(limits.window_entries, max(_LEAST_WINDOW, _finite_entries(network) // 4))
    found, gained = improve_by_windows(
        network, choice, entries, limits.windows, solver, lambda: limits.seconds_left() <= 0
    )  # fmt: skip
    incumbent.offer(network.expand(found), cost - gained + network.constant)


def _finite_entries(network: Network) -> int:
    return sum(int(np.isfinite(link).sum()) for links in network.links.values() for link in links.values()) // 2
