"""Sequential tree-reweighted message passing (TRW-S) with a price on memory.

    theta_s(x)   = cost_s(x) + sum_t use_s,t(x) * price_t                               `priced`
    belief_s(x)  = theta_s(x) + sum_r M_rs(x)
    M_st(y)      = min_x [ gamma_s * belief_s(x) - M_ts(x) + edge_st(x, y) ]  less its least value, the shift      `sweep`
    gamma_s      = 1 / max(neighbours before s, neighbours after s, 1)
    bound        = shifts of a backward sweep + sum_s (1 - gamma_s * before_s) * min belief_s  -  sum_t price_t * slack_t
    penalty_s(x) = how much the bound rises at least if s takes x                       `penalties`

Every loop here reads `Tables` and runs as it stands in Python; `passes.split.solver.compiled` compiles it where the work is worth it.
Source: Kolmogorov, "Convergent Tree-Reweighted Message Passing for Energy Minimization" (PAMI 2006), figure 3; penalties from the
reparametrisation in Kolmogorov, "A New Look at Reweighted Message Passing" (PAMI 2015).
"""

from __future__ import annotations

import numpy as np

from passes.split.problem import Vector
from passes.split.solver.tables import Tables


def priced(tables: Tables, price: Vector, theta: Vector) -> None:
    """theta = cost + usage at the prices."""
    total = np.zeros(len(price) + 1)
    for t in range(len(price)):
        total[t + 1] = total[t] + price[t]
    for k in range(len(theta)):
        theta[k] = tables.cost[k]
    for node in range(len(tables.offset) - 1):
        start, size = tables.offset[node], tables.offset[node + 1] - tables.offset[node]
        for s in range(tables.segment[node], tables.segment[node + 1]):
            weight = total[tables.last[s]] - total[tables.first[s]]
            if weight > 0.0:
                at = tables.of_segment[s]
                for x in range(size):
                    theta[start + x] += weight * tables.use[at + x]


def sweep(tables: Tables, theta: Vector, messages: Vector, forward: bool, belief: Vector, out: Vector) -> float:
    """One sweep; after a backward one the value is the bound, prices not yet taken off.  `belief`, `out`: room for the largest node."""
    nodes = len(tables.offset) - 1
    bound = 0.0
    for step in range(nodes):
        node = step if forward else nodes - 1 - step
        size = tables.offset[node + 1] - tables.offset[node]
        begin, middle, end = tables.around[node], tables.later[node], tables.around[node + 1]
        _believe(tables, theta, messages, node, belief)
        gamma = 1.0 / max(middle - begin, end - middle, 1)
        least = np.inf
        for x in range(size):
            least = min(least, belief[x])
        bound += least * (1.0 - gamma * (middle - begin))
        for a in range(middle if forward else begin, end if forward else middle):
            bound += _send(tables, messages, tables.edge[a], node, gamma, belief, out)
    return bound


def _believe(tables: Tables, theta: Vector, messages: Vector, node: int, belief: Vector) -> None:
    start, size = tables.offset[node], tables.offset[node + 1] - tables.offset[node]
    for x in range(size):
        belief[x] = theta[start + x]
    for a in range(tables.around[node], tables.around[node + 1]):
        e = tables.edge[a]
        inbox = tables.box_left[e] if tables.left[e] == node else tables.box_right[e]
        for x in range(size):
            belief[x] += messages[inbox + x]


def _send(tables: Tables, messages: Vector, e: int, node: int, gamma: float, belief: Vector, out: Vector) -> float:
    """Update the message from `node` along edge e; its shift."""
    rows = tables.offset[tables.left[e] + 1] - tables.offset[tables.left[e]]
    columns = tables.offset[tables.right[e] + 1] - tables.offset[tables.right[e]]
    outbox, size = tables.box_left[e], rows
    if tables.left[e] == node:
        outbox, size = tables.box_right[e], columns
        _rightward(tables, messages, e, gamma, belief, out, rows, columns)
    else:
        _leftward(tables, messages, e, gamma, belief, out, rows, columns)
    shift = np.inf
    for y in range(size):
        shift = min(shift, out[y])
    for y in range(size):
        messages[outbox + y] = out[y] - shift
    return shift


def _rightward(tables: Tables, messages: Vector, e: int, gamma: float, belief: Vector, out: Vector, rows: int, columns: int) -> None:
    at, inbox = tables.matrix[e], tables.box_left[e]
    for y in range(columns):
        out[y] = np.inf
    for x in range(rows):
        reach = gamma * belief[x] - messages[inbox + x]
        for y in range(columns):
            out[y] = min(out[y], reach + tables.entries[at + x * columns + y])


def _leftward(tables: Tables, messages: Vector, e: int, gamma: float, belief: Vector, out: Vector, rows: int, columns: int) -> None:
    at, inbox = tables.matrix[e], tables.box_right[e]
    for x in range(rows):
        least = np.inf
        for y in range(columns):
            least = min(least, gamma * belief[y] - messages[inbox + y] + tables.entries[at + x * columns + y])
        out[x] = least


def penalties(tables: Tables, theta: Vector, messages: Vector, on_strategy: Vector, on_entry: Vector) -> None:
    """What a backward sweep would leave above the bound: at each strategy by itself, and at each entry of each edge.

    Every assignment costs at least the bound + the penalties of its strategies and of its entries, each counted once.
    """
    belief, shifted = np.zeros(len(on_strategy)), 0.0
    for node in range(len(tables.offset) - 1):
        start, size = tables.offset[node], tables.offset[node + 1] - tables.offset[node]
        begin, middle, end = tables.around[node], tables.later[node], tables.around[node + 1]
        _believe(tables, theta, messages, node, belief)
        gamma = 1.0 / max(middle - begin, end - middle, 1)
        least = np.inf
        for x in range(size):
            least = min(least, belief[x])
        for x in range(size):
            on_strategy[start + x] = (belief[x] - least) * max(0.0, 1.0 - gamma * (middle - begin))
        for a in range(begin, middle):
            e = tables.edge[a]
            at = tables.matrix[e]
            rows = tables.offset[tables.left[e] + 1] - tables.offset[tables.left[e]]
            shifted = np.inf
            for x in range(rows):
                for y in range(size):
                    rest = gamma * belief[y] - messages[tables.box_right[e] + y] - messages[tables.box_left[e] + x]
                    on_entry[at + x * size + y] = rest + tables.entries[at + x * size + y]
                    shifted = min(shifted, on_entry[at + x * size + y])
            for k in range(at, at + rows * size):
                on_entry[k] -= shifted
