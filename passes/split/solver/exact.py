"""Small problems exactly, as an integer program, by HiGHS.

    minimise   sum cost_i(x) s_i(x) + sum edge_ij(x,y) z_ij(x,y)          s binary, z >= 0, no variable where the entry is forbidden
    subject to sum_x s_i(x) = 1;   sum_y z_ij(x,y) = s_i(x);   sum_x z_ij(x,y) = s_j(y)          `_structure`
               sum_i use_i,t(x) s_i(x) <= slack_t                                                `_row`

Memory rows are added when a solution breaks them, the worst of each stretch of time first, so that thousands of times cost a handful of
rows.  The relaxation's bound holds for the whole problem, since rows are only ever missing.  Source of the formulation: Zheng et al.,
"Alpa" (OSDI 2022), equation 1; the equalities are the local polytope's, which is what message passing bounds by.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_matrix, vstack

from passes.split.problem import Unsolvable, Vector
from passes.split.solver.tables import Index, Tables

_RELATIVE = 1e-9
_FIRST_ROWS = 8
_MOST_MEMORY_ROWS = 64
"""With more, HiGHS may spend minutes at the root alone, which no count limits; windows do better there."""


@dataclass(frozen=True)
class Exact:
    """`choice` keeps every limit and is optimal if `proven`; None if none was found.  No assignment costs less than `bound`."""

    choice: Index | None
    bound: float
    proven: bool


@dataclass
class _Program:
    tables: Tables
    costs: Vector
    """One for each variable: strategies first, then finite entries."""
    rows: csr_matrix
    right: Vector
    memory: list[int] = field(default_factory=list)


def solve_exactly(
    tables: Tables, seconds_left: Callable[[], float], nodes: int = 500, rounds: int = 30, prices: Vector | None = None
) -> Exact:
    """At most `nodes` branches in each round; the times of highest price are rows from the beginning.

    Raises `Unsolvable` where there is no solution.
    """
    program = _structure(tables)
    if prices is not None:
        dearest = np.argsort(-prices, kind="stable")[:_FIRST_ROWS]
        program.memory = sorted(int(t) for t in dearest if prices[t] > 0)
    whole, bound = False, -np.inf
    for _ in range(rounds):
        found = _run(program, whole, seconds_left(), nodes)
        if found is None:
            raise Unsolvable("no assignment keeps the memory limit, by the integer program")
        values, objective, done = found
        bound = max(bound, objective)
        added = _violated(program, values)
        if not done:
            sound = whole and not added and values.any()
            return Exact(_choice(tables, values) if sound else None, bound, False)
        program.memory += added
        if len(program.memory) > _MOST_MEMORY_ROWS:
            break
        if not added and whole:
            return Exact(_choice(tables, values), bound, True)
        whole = whole or not added
    return Exact(None, bound, False)


def _structure(tables: Tables) -> _Program:
    strategies = len(tables.cost)
    sizes = np.diff(tables.offset)
    owner = np.repeat(np.arange(len(sizes)), sizes)
    rows, columns, signs = [owner], [np.arange(strategies)], [np.ones(strategies)]
    right, costs, height, width = [np.ones(len(sizes))], [tables.cost], len(sizes), strategies
    for e in range(len(tables.left)):
        i, j = int(tables.left[e]), int(tables.right[e])
        m, n = int(sizes[i]), int(sizes[j])
        entries = tables.entries[tables.matrix[e] : tables.matrix[e] + m * n].reshape(m, n)
        x, y = np.nonzero(np.isfinite(entries))
        z = width + np.arange(len(x))
        rows += [height + x, height + m + y, height + np.arange(m), height + m + np.arange(n)]
        columns += [z, z, tables.offset[i] + np.arange(m), tables.offset[j] + np.arange(n)]
        signs += [np.ones(2 * len(x)), -np.ones(m + n)]
        costs.append(entries[x, y])
        right.append(np.zeros(m + n))
        height, width = height + m + n, width + len(x)
    matrix = csr_matrix((np.concatenate(signs), (np.concatenate(rows), np.concatenate(columns))), shape=(height, width))
    return _Program(tables, np.concatenate(costs), matrix, np.concatenate(right))


def _run(program: _Program, whole: bool, seconds: float, nodes: int) -> tuple[Vector, float, bool] | None:
    """Values, a bound on any solution, and whether it is the optimum; None where there is no solution."""
    memory = [_row(program.tables, t, program.rows.shape[1]) for t in program.memory]
    matrix = vstack([program.rows, *memory], format="csr")
    lower = np.concatenate([program.right, np.full(len(memory), -np.inf)])
    upper = np.concatenate([program.right, np.ones(len(memory))])
    scale = max(float(np.abs(program.costs).max()), 1e-300) / 1e4
    integral = np.zeros(matrix.shape[1])
    integral[: len(program.tables.cost)] = whole
    result = milp(
        program.costs / scale, constraints=LinearConstraint(matrix, lower, upper), bounds=Bounds(0, 1), integrality=integral,
        options={"mip_rel_gap": 0.0, "node_limit": nodes, "time_limit": min(max(seconds, 0.1), 1e6)},
    )  # fmt: skip
    if result.status == 2:
        return None
    if result.x is None:
        return np.zeros(matrix.shape[1]), -np.inf if result.get("mip_dual_bound") is None else result.mip_dual_bound * scale, False
    bound = result.mip_dual_bound if whole else result.fun
    return result.x, bound * scale, result.status == 0


def _row(tables: Tables, time: int, width: int) -> csr_matrix:
    columns, values = _uses(tables, time)
    return csr_matrix((values / tables.slack[time], (np.zeros(len(columns), dtype=np.int64), columns)), shape=(1, width))


def _uses(tables: Tables, time: int) -> tuple[Index, Vector]:
    """Strategies that use something at `time`, and how much."""
    live = np.flatnonzero((tables.first <= time) & (time < tables.last))
    nodes = np.searchsorted(tables.segment, live, side="right") - 1
    starts, sizes = tables.offset[nodes], np.diff(tables.offset)[nodes]
    columns = np.concatenate([np.arange(a, a + n) for a, n in zip(starts, sizes, strict=True)] or [np.zeros(0, dtype=np.int64)])
    at = tables.of_segment[live]
    values = np.concatenate([tables.use[a : a + n] for a, n in zip(at, sizes, strict=True)] or [np.zeros(0)])
    return columns, values


def _violated(program: _Program, values: Vector) -> list[int]:
    """In each stretch of times over the limit, the fullest."""
    tables = program.tables
    profile = np.zeros(len(tables.slack) + 1)
    sizes = np.diff(tables.offset)
    for node in range(len(sizes)):
        share = values[tables.offset[node] : tables.offset[node + 1]]
        for s in range(tables.segment[node], tables.segment[node + 1]):
            amount = float(share @ tables.use[tables.of_segment[s] : tables.of_segment[s] + sizes[node]])
            profile[tables.first[s]] += amount
            profile[tables.last[s]] -= amount
    ratio = np.cumsum(profile[:-1]) / tables.slack - 1.0
    ratio[program.memory] = 0.0
    over = ratio > _RELATIVE
    edges = np.flatnonzero(np.diff(np.concatenate([[False], over, [False]]).astype(np.int8)))
    return [int(start + ratio[start:end].argmax()) for start, end in zip(edges[::2], edges[1::2], strict=True)]


def _choice(tables: Tables, values: Vector) -> Index:
    sizes = np.diff(tables.offset)
    return np.array([int(values[start : start + size].argmax()) for start, size in zip(tables.offset, sizes, strict=False)], dtype=np.int64)
