"""What was considered for one entry, kept so that the choice can be argued with: prices by neighbour, and other choices solved anew.

seconds(choice)  =  sum over operators of computing  +  sum over edges of moving data          `Study.seconds`
what_if          =  the same problem with some strategies forbidden, solved again               `Study.solved`
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from compiler.ops.spec import Operation
from passes.layers import Named
from passes.split.problem import FORBIDDEN, Problem, Solution, Vector, evaluate
from passes.split.solve import solve
from passes.split.wishes import allowed, fixed_by

MOST_LISTED = 4


@dataclass(frozen=True)
class Option:
    """One strategy of one operator: seconds of computing, bytes of weights on the fullest device."""

    label: str
    seconds: float
    weight_bytes: float


@dataclass(frozen=True)
class Candidate:
    """An operator, its strategies, what it is, and why it has no others where it has none."""

    name: str
    operation: Operation
    origin: tuple[str, ...]
    options: tuple[Option, ...]
    refusal: str = ""

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(option.label for option in self.options)

    @property
    def named(self) -> Named:
        return self.name, self.operation.op, self.origin


@dataclass(frozen=True)
class Neighbour:
    """What moving data to or from one other operator, as it is chosen, costs an option."""

    name: str
    label: str
    gives: bool
    """Does the neighbour give, or does it take?"""
    seconds: float


@dataclass(frozen=True)
class WhatIf:
    """Another choice: operators fixed, the rest chosen anew.  Seconds are the cost model's, of operators and moves one after another."""

    fixed: Mapping[str, str]
    seconds: float
    difference: float
    changes: tuple[tuple[str, str, str], ...]
    """(operator, as it is, as it would be), those that were fixed left out."""
    solution: Solution

    def __str__(self) -> str:
        listed = [f"{name} {label}" for name, label in self.fixed.items()]
        fixed = ", ".join(listed[:MOST_LISTED]) + (f" and {len(listed) - MOST_LISTED} more" if len(listed) > MOST_LISTED else "")
        lines = [f"with {fixed}: {self.seconds * 1e6:.1f} us in all, {self.difference * 1e6:+.1f} us"]
        lines += [f"  {name}: {old} -> {new}" for name, old, new in self.changes]
        return "\n".join(lines)


@dataclass(frozen=True, eq=False)
class Study:
    """Candidates in the order of the problem's nodes, the problem, what was chosen, and the objective it was chosen for."""

    candidates: tuple[Candidate, ...]
    problem: Problem
    solution: Solution
    iterations: int
    static_only: bool
    devices: int
    fixed: Mapping[int, str] = field(default_factory=dict)
    """Positions that a wish of the user's fixed."""

    @cached_property
    def position(self) -> dict[str, int]:
        return {candidate.name: i for i, candidate in enumerate(self.candidates)}

    @cached_property
    def _around(self) -> list[list[tuple[int, Vector, bool]]]:
        """For each node (the other end, matrix [own strategy, other's], does the other give?)."""
        found: list[list[tuple[int, Vector, bool]]] = [[] for _ in self.candidates]
        for i, j, matrix in self.problem.edges:
            found[i].append((j, matrix, False))
            found[j].append((i, matrix.T, True))
        return found

    def chosen(self, position: int) -> str:
        return self.candidates[position].options[self.solution.choice[position]].label

    def neighbours(self, position: int, option: int) -> Iterator[Neighbour]:
        """All operators around, with what the option pays to each as it is chosen."""
        for other, matrix, gives in self._around[position]:
            yield Neighbour(self.candidates[other].name, self.chosen(other), gives, float(matrix[option, self.solution.choice[other]]))

    def seconds(self, choice: Sequence[int]) -> float:
        """Of operators and moves, one after another; under the memory objective the problem's own costs weigh bytes as well."""
        own = tuple(np.array([option.seconds for option in candidate.options]) for candidate in self.candidates)
        return evaluate(Problem(own, self.problem.edges), choice).total

    def meant(self, wanted: str, strategy: str) -> dict[int, str]:
        """The operators that a name means and that can be divided so."""
        return fixed_by({wanted: strategy}, [(c.named, c.labels) for c in self.candidates])

    def what_if(self, fixed: Mapping[int, str]) -> WhatIf:
        """The best choice with these positions fixed, and those the user fixed unless they are among them."""
        every = {**self.fixed, **fixed}
        solution = solve(constrained(self.problem, every, self.candidates), self.iterations, self._starts(every))
        labels = [(c.name, self.chosen(i), c.options[solution.choice[i]].label) for i, c in enumerate(self.candidates)]
        before, after = self.seconds(self.solution.choice), self.seconds(solution.choice)
        changes = tuple(row for i, row in enumerate(labels) if i not in fixed and row[1] != row[2])
        return WhatIf({labels[i][0]: labels[i][2] for i in fixed}, after, after - before, changes, solution)

    def _starts(self, fixed: Mapping[int, str]) -> list[tuple[int, ...]]:
        """What is chosen, but for what is fixed."""
        start = list(self.solution.choice)
        for i, wish in fixed.items():
            start[i] = allowed(wish, self.candidates[i].labels).index(True)
        return [tuple(start)]


def constrained(problem: Problem, fixed: Mapping[int, str], candidates: Sequence[Candidate]) -> Problem:
    """All but the fixed strategies of the fixed nodes forbidden."""
    costs = list(problem.costs)
    for i, wish in fixed.items():
        costs[i] = np.where(allowed(wish, candidates[i].labels), costs[i], FORBIDDEN)
    return replace(problem, costs=tuple(costs))
