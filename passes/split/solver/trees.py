"""Moves of many nodes at once: a random tree of the graph is solved exactly, everything around it held still.

    grow     from a random node, neighbours that touch the tree at exactly one node: all edges among members are the tree's   `_grow`
    up       value_v(x) = weight_v(x) + sum over edges to nodes outside of edge(x, choice) + sum over children of best_child(x)
             best_v(y)  = min_x value_v(x) + edge_v,parent(x, y)                                                               `_up`
    down     from the root, each node takes the best strategy that fits what is used by then, given its parent's               `_down`
    keep     if that costs no more than before; otherwise put everything back                                                  `move_trees`

Without a limit this is dynamic programming on a tree; with one, the way down keeps it.  The weights may hold prices on memory; what is kept
is judged by cost.  Conditioning on random induced trees: Hamze and de Freitas, "From fields to trees" (UAI 2004), minima for samples.
"""

from __future__ import annotations

import numpy as np

from passes.split.problem import Vector
from passes.split.solver.decode import excess, occupy
from passes.split.solver.tables import Index, Tables

_FAR = np.inf


def draw(state: Index, below: int) -> int:
    """The next number of Park and Miller's generator (1988): small enough that Python's arithmetic and the machine's agree."""
    state[0] = state[0] * 48271 % 2147483647
    return int(state[0] % below)


def move_trees(tables: Tables, weights: Vector, choice: Index, used: Vector, moves: int, most: int, state: Index) -> float:
    """Try `moves` trees of up to `most` nodes, changing `choice` and `used`; by how much the cost fell."""
    nodes = len(choice)
    largest = 1
    for node in range(nodes):
        largest = max(largest, tables.offset[node + 1] - tables.offset[node])
    touch, members = np.zeros(nodes, dtype=np.int64), np.zeros(most, dtype=np.int64)
    parent, link, before = np.zeros(most, dtype=np.int64), np.zeros(most, dtype=np.int64), np.zeros(most, dtype=np.int64)
    place = np.full(nodes, -1, dtype=np.int64)
    value, out = np.zeros((most, largest)), np.zeros(largest)
    gained = 0.0
    for _ in range(moves):
        count = _grow(tables, 2 + draw(state, most - 1), members, parent, link, place, touch, state)
        old = _energy(tables, choice, members, place, count)
        for p in range(count):
            before[p] = choice[members[p]]
            occupy(tables, members[p], before[p], -1.0, used)
        _up(tables, weights, choice, used, members, parent, link, place, value, out, count)
        placed = _down(tables, choice, used, members, parent, link, value, out, count)
        new = _energy(tables, choice, members, place, count) if placed == count else _FAR
        if new <= old:
            gained += old - new
        else:
            for p in range(count):
                if p < placed:
                    occupy(tables, members[p], choice[members[p]], -1.0, used)
                choice[members[p]] = before[p]
                occupy(tables, members[p], before[p], 1.0, used)
        for p in range(count):
            place[members[p]] = -1
    return gained


def _grow(
    tables: Tables, wanted: int, members: Index, parent: Index, link: Index, place: Index, touch: Index, state: Index
) -> int:  # fmt: skip
    """Members in the order in which they joined, with the place of their parent and the edge to it."""
    root = draw(state, len(place))
    members[0], parent[0], place[root] = root, -1, 0
    count, stuck = 1, 0
    for a in range(tables.around[root], tables.around[root + 1]):
        touch[_other(tables, tables.edge[a], root)] += 1
    while count < wanted and stuck < 8:
        # A random edge of a random member: cheaper than keeping a list of candidates, and it prefers no part of the tree.
        p = draw(state, count)
        degree = tables.around[members[p] + 1] - tables.around[members[p]]
        node = members[p]
        if degree > 0:
            e = tables.edge[tables.around[members[p]] + draw(state, degree)]
            node = _other(tables, e, members[p])
        if place[node] >= 0 or touch[node] != 1:
            stuck += 1
            continue
        members[count], parent[count], link[count], place[node] = node, p, e, count
        count, stuck = count + 1, 0
        for a in range(tables.around[node], tables.around[node + 1]):
            touch[_other(tables, tables.edge[a], node)] += 1
    for p in range(count):
        for a in range(tables.around[members[p]], tables.around[members[p] + 1]):
            touch[_other(tables, tables.edge[a], members[p])] = 0
    return count


def _other(tables: Tables, e: int, node: int) -> int:
    other: int = tables.right[e] if tables.left[e] == node else tables.left[e]
    return other


def _entry(tables: Tables, e: int, node: int, mine: int, theirs: int) -> float:
    columns = tables.offset[tables.right[e] + 1] - tables.offset[tables.right[e]]
    at: int = mine * columns + theirs if tables.left[e] == node else theirs * columns + mine
    entry: float = tables.entries[tables.matrix[e] + at]
    return entry


def _energy(tables: Tables, choice: Index, members: Index, place: Index, count: int) -> float:
    """Cost of the members and of every edge at them, each once."""
    found = 0.0
    for p in range(count):
        node = members[p]
        found += tables.cost[tables.offset[node] + choice[node]]
        for a in range(tables.around[node], tables.around[node + 1]):
            other = _other(tables, tables.edge[a], node)
            if place[other] < p:
                found += _entry(tables, tables.edge[a], node, choice[node], choice[other])
    return found


def _up(
    tables: Tables, weights: Vector, choice: Index, used: Vector,
    members: Index, parent: Index, link: Index, place: Index, value: Vector, out: Vector, count: int,
) -> None:  # fmt: skip
    for p in range(count):
        node = members[p]
        start, size = tables.offset[node], tables.offset[node + 1] - tables.offset[node]
        limited = tables.segment[node + 1] > tables.segment[node]
        for x in range(size):
            value[p, x] = weights[start + x]
            if limited and excess(tables, node, x, used, 0.0) > 0.0:
                value[p, x] = np.inf
        for a in range(tables.around[node], tables.around[node + 1]):
            e = tables.edge[a]
            other = _other(tables, e, node)
            if place[other] < 0:
                for x in range(size):
                    value[p, x] += _entry(tables, e, node, x, choice[other])
    for p in range(count - 1, 0, -1):
        node, above = members[p], members[parent[p]]
        _toward(tables, link[p], node, value[p], out)
        for y in range(tables.offset[above + 1] - tables.offset[above]):
            value[parent[p], y] += out[y]


def _toward(tables: Tables, e: int, node: int, value: Vector, out: Vector) -> None:
    """out[y] = min_x value[x] + entry(x, y), y the strategies of the edge's other end."""
    rows = tables.offset[tables.left[e] + 1] - tables.offset[tables.left[e]]
    columns = tables.offset[tables.right[e] + 1] - tables.offset[tables.right[e]]
    at = tables.matrix[e]
    if tables.left[e] == node:
        for y in range(columns):
            out[y] = np.inf
        for x in range(rows):
            for y in range(columns):
                out[y] = min(out[y], value[x] + tables.entries[at + x * columns + y])
        return
    for x in range(rows):
        least = np.inf
        for y in range(columns):
            least = min(least, value[y] + tables.entries[at + x * columns + y])
        out[x] = least


def _down(
    tables: Tables, choice: Index, used: Vector, members: Index, parent: Index, link: Index, value: Vector, out: Vector, count: int
) -> int:  # fmt: skip
    """How many members found a strategy that fits; all of them, or up to the first that did not."""
    for p in range(count):
        node = members[p]
        size = tables.offset[node + 1] - tables.offset[node]
        for x in range(size):
            out[x] = value[p, x]
            if p > 0:
                out[x] += _entry(tables, link[p], node, x, choice[members[parent[p]]])
        best = -1
        while True:
            best = -1
            for x in range(size):
                if out[x] < np.inf and (best < 0 or out[x] < out[best]):
                    best = x
            if best < 0:
                return p
            if excess(tables, node, best, used, 0.0) <= 0.0:
                break
            out[best] = np.inf
        choice[node] = best
        occupy(tables, node, best, 1.0, used)
    return count
