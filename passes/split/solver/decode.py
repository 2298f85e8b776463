"""From messages to assignments that keep the limit, and better ones nearby.

    greedy     nodes in order, each taking the least of cost + edges to what is decided + messages of what is not,
               among the strategies that still fit                                                                      `assign`
    improve    one node at a time to its best strategy that fits, while that helps (iterated conditional modes, ICM)    `improve`

    repair     the same with cost + rate * bytes over the limit, the rate fourfold each sweep, until nothing is over    `repair`

`used` holds what the assignment uses at each time.
"""

from __future__ import annotations

import numpy as np

from passes.split.problem import Vector
from passes.split.solver.tables import Index, Tables


def occupy(tables: Tables, node: int, strategy: int, sign: float, used: Vector) -> None:
    for s in range(tables.segment[node], tables.segment[node + 1]):
        amount = sign * tables.use[tables.of_segment[s] + strategy]
        if amount != 0.0:
            for t in range(tables.first[s], tables.last[s]):
                used[t] += amount


def excess(tables: Tables, node: int, strategy: int, used: Vector, most: float) -> float:
    """By how much the times of `node` are over their slack, summed, if it takes `strategy` too; counting stops beyond `most`."""
    found: float = 0.0
    for s in range(tables.segment[node], tables.segment[node + 1]):
        amount = tables.use[tables.of_segment[s] + strategy]
        for t in range(tables.first[s], tables.last[s]):
            beyond: float = used[t] + amount - tables.slack[t]
            if beyond > 0.0:
                found += beyond
                if found > most:
                    return found
    return found


def scores(tables: Tables, weights: Vector, messages: Vector, choice: Index, node: int, out: Vector) -> None:
    """What each strategy of `node` costs beside its neighbours: a decided one's entry, an undecided (-1) one's message."""
    start, size = tables.offset[node], tables.offset[node + 1] - tables.offset[node]
    for x in range(size):
        out[x] = weights[start + x]
    for a in range(tables.around[node], tables.around[node + 1]):
        e = tables.edge[a]
        is_left = tables.left[e] == node
        other = tables.right[e] if is_left else tables.left[e]
        columns = tables.offset[tables.right[e] + 1] - tables.offset[tables.right[e]]
        if choice[other] < 0:
            inbox = tables.box_left[e] if is_left else tables.box_right[e]
            for x in range(size):
                out[x] += messages[inbox + x]
        elif is_left:
            at = tables.matrix[e] + choice[other]
            for x in range(size):
                out[x] += tables.entries[at + x * columns]
        else:
            at = tables.matrix[e] + choice[other] * columns
            for x in range(size):
                out[x] += tables.entries[at + x]


def fitting(tables: Tables, node: int, used: Vector, score: Vector, least: float) -> int:
    """The strategy of least score below `least` that fits; -1 if there is none.  Scores tried are lost."""
    size = tables.offset[node + 1] - tables.offset[node]
    while True:
        best = -1
        for x in range(size):
            if score[x] < least and (best < 0 or score[x] < score[best]):
                best = x
        if best < 0 or excess(tables, node, best, used, 0.0) <= 0.0:
            return best
        score[best] = np.inf


def assign(tables: Tables, weights: Vector, messages: Vector, limited: bool, choice: Index, used: Vector, score: Vector) -> None:
    """Decide every node in order into `choice`; `used` becomes what they use.  Unlimited: the slack is not looked at."""
    for t in range(len(used)):
        used[t] = 0.0
    for node in range(len(choice)):
        choice[node] = -1
    for node in range(len(choice)):
        scores(tables, weights, messages, choice, node, score)
        best = fitting(tables, node, used, score, np.inf) if limited else -1
        if best < 0:
            scores(tables, weights, messages, choice, node, score)
            best = 0
            for x in range(1, tables.offset[node + 1] - tables.offset[node]):
                if score[x] < score[best]:
                    best = x
        choice[node] = best
        occupy(tables, node, best, 1.0, used)


def improve(tables: Tables, weights: Vector, choice: Index, used: Vector, score: Vector, sweeps: int) -> None:
    """ICM under the limit."""
    nothing = np.zeros(1)
    for _ in range(sweeps):
        changed = False
        for node in range(len(choice)):
            scores(tables, weights, nothing, choice, node, score)
            now = choice[node]
            occupy(tables, node, now, -1.0, used)
            best = fitting(tables, node, used, score, score[now] - 1e-12 * abs(score[now]))
            if best >= 0:
                choice[node], changed = best, True
            occupy(tables, node, choice[node], 1.0, used)
        if not changed:
            return


def repair(tables: Tables, choice: Index, used: Vector, score: Vector, sweeps: int) -> None:
    """Trade cost for excess, dearer and dearer, until there is none or `sweeps` are over."""
    nothing = np.zeros(1)
    rate = 1e-3 * (abs(total(tables, choice)) + 1e-300) / max(over(tables, used), 1e-300)
    for _ in range(sweeps):
        for node in range(len(choice)):
            now = choice[node]
            occupy(tables, node, now, -1.0, used)
            present = excess(tables, node, now, used, np.inf)
            if present > 0.0:
                scores(tables, tables.cost, nothing, choice, node, score)
                best, least = now, score[now] + rate * present
                for x in range(tables.offset[node + 1] - tables.offset[node]):
                    if score[x] < least:
                        price = score[x] + rate * excess(tables, node, x, used, (least - score[x]) / rate)
                        if price < least:
                            best, least = x, price
                choice[node] = best
            occupy(tables, node, choice[node], 1.0, used)
        if over(tables, used) <= 0.0:
            return
        rate *= 4.0


def occupied(tables: Tables, choice: Index, used: Vector) -> None:
    for t in range(len(used)):
        used[t] = 0.0
    for node in range(len(choice)):
        occupy(tables, node, choice[node], 1.0, used)


def total(tables: Tables, choice: Index) -> float:
    found = 0.0
    for node in range(len(choice)):
        found += tables.cost[tables.offset[node] + choice[node]]
    for e in range(len(tables.left)):
        columns = tables.offset[tables.right[e] + 1] - tables.offset[tables.right[e]]
        found += tables.entries[tables.matrix[e] + choice[tables.left[e]] * columns + choice[tables.right[e]]]
    return found


def over(tables: Tables, used: Vector) -> float:
    found = 0.0
    for t in range(len(used)):
        found += max(0.0, used[t] - tables.slack[t])
    return found
