"""Sequential tree-reweighted message passing (TRW-S), decoded and polished.

    theta_s(x)   = cost_s(x) + sum_t M_ts(x)                                       `_belief`
    M_st(y)      = min_x [ gamma_s * theta_s(x) - M_ts(x) + edge_st(x, y) ]        `_send`, then shifted to a least value of 0
    gamma_s      = 1 / max(neighbours before s, neighbours after s, 1)
    bound        = sum of the shifts of one backward sweep + the roots' least beliefs

Source: Kolmogorov, "Convergent Tree-Reweighted Message Passing for Energy Minimization" (PAMI 2006), figure 3.  On a tree it is exact after
one sweep there and back.  Every sweep is decoded in node order; the best decode is polished by changing one node at a time (ICM).
Iterations are counted, never timed: the same problem gives the same answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from passes.split.problem import Problem, Solution, Vector, evaluate


@dataclass(frozen=True)
class _Link:
    """One edge as node s sees it: the other end, the matrix [own strategy, other's], and where the two messages are kept."""

    other: int
    matrix: Vector
    inbox: int
    outbox: int


@dataclass
class _Messages:
    problem: Problem
    before: list[list[_Link]] = field(init=False)
    after: list[list[_Link]] = field(init=False)
    values: list[Vector] = field(init=False)

    def __post_init__(self) -> None:
        count = len(self.problem.costs)
        self.before, self.after, self.values = [[] for _ in range(count)], [[] for _ in range(count)], []
        for i, j, matrix in self.problem.edges:
            box = len(self.values)
            self.values += [np.zeros(len(self.problem.costs[j])), np.zeros(len(self.problem.costs[i]))]
            self.after[i].append(_Link(j, matrix, box + 1, box))
            self.before[j].append(_Link(i, matrix.T, box, box + 1))

    def belief(self, node: int) -> Vector:
        links = self.before[node] + self.after[node]
        return self.problem.costs[node] + sum((self.values[link.inbox] for link in links), np.zeros(1))

    def gamma(self, node: int) -> float:
        return 1.0 / max(len(self.before[node]), len(self.after[node]), 1)

    def send(self, links: Sequence[_Link], belief: Vector, gamma: float) -> float:
        """Update the messages along `links`; returns the sum of their shifts."""
        shifts = 0.0
        for link in links:
            reach = (gamma * belief - self.values[link.inbox])[:, None] + link.matrix
            message = reach.min(axis=0)
            shift = float(message.min())
            self.values[link.outbox] = message - shift
            shifts += shift
        return shifts


def solve(problem: Problem, iterations: int = 60, starts: Sequence[Sequence[int]] = ()) -> Solution:
    """The best assignment found; `starts` are assignments worth comparing (such as: nothing split)."""
    messages = _Messages(problem)
    count = len(problem.costs)
    bound = -np.inf
    candidates = [tuple(start) for start in starts]
    for _ in range(iterations):
        for node in range(count):
            messages.send(messages.after[node], messages.belief(node), messages.gamma(node))
        bound, previous = max(bound, _backward(messages)), bound
        candidates.append(_decode(messages))
        if bound - previous <= 1e-12 * abs(bound):
            break
    best = min(dict.fromkeys(candidates), key=lambda c: evaluate(problem, c).total)
    polished = _polish(messages, best)
    return Solution(polished, evaluate(problem, polished).total, float(min(bound, evaluate(problem, polished).total)))


def _backward(messages: _Messages) -> float:
    """One backward sweep; its shifts and what is left at nodes with nobody before them make the lower bound."""
    bound = 0.0
    for node in range(len(messages.problem.costs) - 1, -1, -1):
        belief = messages.belief(node)
        shift = float(belief.min())
        gamma = messages.gamma(node)
        bound += messages.send(messages.before[node], belief, gamma)
        bound += shift * (1.0 - gamma * len(messages.before[node]))
    return bound


def _decode(messages: _Messages) -> tuple[int, ...]:
    """Fix nodes in order, each the best given those before it and the messages of those after."""
    choice: list[int] = []
    for node, cost in enumerate(messages.problem.costs):
        total = cost.copy()
        for link in messages.before[node]:
            total += link.matrix[:, choice[link.other]]
        for link in messages.after[node]:
            total += messages.values[link.inbox]
        choice.append(int(total.argmin()))
    return tuple(choice)


def _polish(messages: _Messages, start: Sequence[int], sweeps: int = 10) -> tuple[int, ...]:
    """Change one node at a time while that helps."""
    choice = list(start)
    for _ in range(sweeps):
        changed = False
        for node, cost in enumerate(messages.problem.costs):
            total = cost.copy()
            for link in messages.before[node] + messages.after[node]:
                total += link.matrix[:, choice[link.other]]
            best = int(total.argmin())
            if total[best] < total[choice[node]] - 1e-15:
                choice[node], changed = best, True
        if not changed:
            break
    return tuple(choice)
