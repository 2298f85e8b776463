"""Sweeps, prices and decoding, taking turns: a lower bound that rises and assignments that get better.

    each iteration   sweep there and back at the present prices -> bound; unlimited decode -> new prices      `Search.iterate`
    every tenth      limited decode, improved at the prices, then at cost                                       `Search.decode`
    at the end       strategies and entries whose penalty lifts the bound over the best cost can't be better   `Search.hopeless`

Work is counted in `Tables.work`, never timed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace

import numpy as np

from passes.split.problem import Mask, Vector
from passes.split.solver.multipliers import Multipliers
from passes.split.solver.tables import Index, Tables

_DECODE_EVERY = 10
_WARM_UP = 10
"""Iterations before prices move: messages must say something first."""
_FIRST_STEP = 0.01
_ICM_SWEEPS = 20
_TREE_SIZES = (20, 50)
_TREES_PER_NODE = 10
_SETTLED = 1e-9
_STILL = 1e-6


@dataclass
class Search:
    """One shrunk problem; `loops` are the functions of `messages` and `decode`, interpreted or compiled."""

    tables: Tables
    loops: SimpleNamespace
    mu: Vector | None = None
    best: Index | None = None
    cost: float = np.inf
    bound: float = -np.inf
    multipliers: Multipliers = field(init=False)

    def __post_init__(self) -> None:
        tables, largest = self.tables, int(np.diff(self.tables.offset).max(initial=0))
        self.theta, self.messages = tables.cost.copy(), np.zeros(_boxes(tables))
        self.room, self.out = np.zeros(largest), np.zeros(largest)
        self.used = np.zeros(len(tables.slack))
        self.random = np.array([1], dtype=np.int64)
        self.multipliers = Multipliers.start(tables.slack, 0.0, self.mu)

    def run(self, iterations: int, target: float, stop: Callable[[], bool]) -> None:
        """Until `iterations` are done, the bound meets `target` or our own cost, or nothing moves any more."""
        before = -np.inf
        for number in range(iterations):
            self.iterate(number)
            if number % _DECODE_EVERY == _DECODE_EVERY - 1 or number == 0:
                before_cost = self.cost
                self.decode()
                if self.cost < before_cost:
                    self.refine(_TREES_PER_NODE * self.tables.nodes)
                goal = min(self.cost, target)
                still = not self.multipliers.mu.any() and number > 2 * _DECODE_EVERY and self.bound - before <= _STILL * abs(self.bound)
                if self.bound >= goal - _SETTLED * abs(goal) or still or stop():
                    return
                before = self.bound

    def iterate(self, number: int) -> None:
        tables, multipliers = self.tables, self.multipliers
        self.loops.priced(tables, multipliers.prices, self.theta)
        self.loops.sweep(tables, self.theta, self.messages, True, self.room, self.out)
        bound = self.loops.sweep(tables, self.theta, self.messages, False, self.room, self.out) - float(multipliers.mu.sum())
        multipliers.seen(bound)
        self.bound = max(self.bound, bound)
        if number < _WARM_UP or not len(tables.slack):
            return
        choice = np.zeros(tables.nodes, dtype=np.int64)
        self.loops.assign(tables, self.theta, self.messages, False, choice, self.used, self.room)
        if number == _WARM_UP:
            spent = self.loops.total(tables, choice)
            multipliers.step = _FIRST_STEP * max(abs(spent) if np.isfinite(spent) else 0.0, abs(self.bound), 1e-300)
        multipliers.move(self.used)

    def decode(self) -> None:
        """Once keeping the limit on the way, once repairing what does not."""
        for limited in (True, False) if len(self.tables.slack) else (False,):
            choice = np.zeros(self.tables.nodes, dtype=np.int64)
            self.loops.assign(self.tables, self.theta, self.messages, limited, choice, self.used, self.room)
            if not limited:
                self.loops.improve(self.tables, self.theta, choice, self.used, self.room, _ICM_SWEEPS)
            self.polish(choice)

    def refine(self, trees: int) -> None:
        """Tree moves on the best assignment, in a few sizes, while they help."""
        if self.best is None:
            return
        tables, choice = self.tables, self.best.copy()
        self.loops.occupied(tables, choice, self.used)
        for most in _TREE_SIZES:
            for weights in (self.theta, tables.cost):
                self.loops.move_trees(tables, weights, choice, self.used, max(1, trees // most), most, self.random)
        cost = self.loops.total(tables, choice)
        if cost < self.cost:
            self.cost, self.best = cost, choice

    def polish(self, choice: Index) -> None:
        """Improve an assignment whose usage is in `used`, and remember it if it is the best that keeps the limit."""
        tables = self.tables
        if self.loops.over(tables, self.used) > 0.0:
            self.loops.repair(tables, choice, self.used, self.room, _ICM_SWEEPS)
        if self.loops.over(tables, self.used) > 0.0:
            return
        for weights in (self.theta, tables.cost):
            self.loops.improve(tables, weights, choice, self.used, self.room, _ICM_SWEEPS)
        cost = self.loops.total(tables, choice)
        if cost < self.cost:
            self.cost, self.best = cost, choice

    def hopeless(self, limit: float) -> tuple[Mask, Mask]:
        """Strategies and entries with which nothing costs `limit` or less."""
        tables, multipliers = self.tables, self.multipliers
        multipliers.mu = multipliers.best.copy()
        self.loops.priced(tables, multipliers.prices, self.theta)
        for _ in range(_WARM_UP):
            self.loops.sweep(tables, self.theta, self.messages, True, self.room, self.out)
            bound = self.loops.sweep(tables, self.theta, self.messages, False, self.room, self.out) - float(multipliers.mu.sum())
        self.bound = max(self.bound, bound)
        on_strategy, on_entry = np.zeros(len(tables.cost)), np.zeros(len(tables.entries))
        self.loops.penalties(tables, self.theta, self.messages, on_strategy, on_entry)
        return _combined(tables, on_strategy, on_entry, limit - bound)


def _combined(tables: Tables, on_strategy: Vector, on_entry: Vector, spare: float) -> tuple[Mask, Mask]:
    """A strategy brings its own penalty and at least the least of each of its edges' entries."""
    sizes = np.diff(tables.offset)
    least: list[tuple[Vector, Vector]] = []
    total = on_strategy.copy()
    for e in range(len(tables.left)):
        i, j = tables.left[e], tables.right[e]
        block = _block(tables, sizes, on_entry, e)
        least.append((block.min(1), block.min(0)))
        total[tables.offset[i] : tables.offset[i + 1]] += least[e][0]
        total[tables.offset[j] : tables.offset[j + 1]] += least[e][1]
    entries = np.zeros(len(on_entry), dtype=bool)
    for e, (by_row, by_column) in enumerate(least):
        i, j = tables.left[e], tables.right[e]
        rows = total[tables.offset[i] : tables.offset[i + 1]] - by_row
        columns = total[tables.offset[j] : tables.offset[j + 1]] - by_column
        block = _block(tables, sizes, on_entry, e)
        at = tables.matrix[e]
        entries[at : at + block.size] = (block + rows[:, None] + columns[None, :] > spare).ravel()
    return total > spare, entries


def _block(tables: Tables, sizes: Index, values: Vector, e: int) -> Vector:
    rows, columns = sizes[tables.left[e]], sizes[tables.right[e]]
    return values[tables.matrix[e] : tables.matrix[e] + rows * columns].reshape(rows, columns)


def _boxes(tables: Tables) -> int:
    if not len(tables.left):
        return 0
    last = tables.right[-1]
    return int(tables.box_right[-1] + tables.offset[last + 1] - tables.offset[last])
