"""Optima known in closed form: networks of matrix products over a line of devices, with Alpa's prices of collectives.

    two layers, B=1024, H=128    data parallel, 2 AR(4 H H)
    two layers, B=128, H=1024    columns then rows (Megatron), 1 AR(4 B H)
    n layers                     data parallel n AR(4 H H), model parallel (n-1) AR(4 B H)
    attention forward            by heads, 1 AR(4 B S H)

Source: Zheng et al., "Alpa" (OSDI 2022), tests of its solver.
"""

import numpy as np
import pytest

from cost_model.cluster import LinkGroup
from cost_model.collective import all_gather_seconds, all_reduce_seconds, all_to_all_seconds
from cost_model.devices import Link
from passes.split.problem import Problem, Vector
from passes.split.solve import solve

GROUP = LinkGroup(((4, Link("line", 1e-6, 1e9), 1),))
WAYS = ("data", "column", "row")
"""x[b,i] w[i,o] = y[b,o] divided by b (weights' gradients are reduced), by o (x's gradient is), by i (y is)."""
TAKES = {"data": "batch", "column": "whole", "row": "feature"}
GIVES = {"data": "batch", "column": "feature", "row": "whole"}


def moved(given: str, taken: str, count: float) -> float:
    """Forward, and the gradient back; cutting what every device has is free, and its gradient must then be gathered."""
    if given == taken:
        return 0.0
    gathered = all_gather_seconds(count, GROUP)
    if "whole" in (given, taken):
        return gathered
    return 2 * all_to_all_seconds(count, GROUP)


def layers(count: int, batch: int, hidden: int) -> Problem:
    weights, activations = all_reduce_seconds(4.0 * hidden * hidden, GROUP), all_reduce_seconds(4.0 * batch * hidden, GROUP)
    first = np.array([weights, 0.0, activations])  # nobody asks for the gradient of the input
    later = np.array([weights, activations, activations])
    matrix: Vector = np.array([[moved(GIVES[a], TAKES[b], 4.0 * batch * hidden) for b in WAYS] for a in WAYS])
    return Problem((first, *[later] * (count - 1)), tuple((k, k + 1, matrix) for k in range(count - 1)))


@pytest.mark.parametrize("count", [2, 3, 4, 6, 12, 40])
def test_data_parallel_where_weights_are_small(count: int) -> None:
    solution = solve(layers(count, 1024, 128))
    assert solution.cost == pytest.approx(count * all_reduce_seconds(4.0 * 128 * 128, GROUP), rel=1e-12)
    assert {WAYS[k] for k in solution.choice} == {"data"}
    assert solution.gap == 0


@pytest.mark.parametrize("count", [2, 4, 6, 12, 40])
def test_columns_then_rows_where_weights_are_large(count: int) -> None:
    solution = solve(layers(count, 128, 1024))
    assert solution.cost == pytest.approx((count - 1) * all_reduce_seconds(4.0 * 128 * 1024, GROUP), rel=1e-12)
    assert [WAYS[k] for k in solution.choice] == ["column", "row"] * (count // 2)
    assert solution.gap == 0


def test_attention_is_divided_by_heads() -> None:
    """q, k, v, scores, softmax, context, output; strategies: heads, or the same on every device at four times the work."""
    batch, length, hidden = 1, 512, 1024
    count = 4.0 * batch * length * hidden
    work = 3e-3
    reduced = all_reduce_seconds(count, GROUP)
    gathered, heads = all_gather_seconds(count, GROUP), np.array([0.0, work])
    between = np.array([[0.0, gathered], [0.0, 0.0]])
    costs = (*[heads] * 6, np.array([reduced, work]))
    edges = tuple((i, j, between) for i, j in [(0, 3), (1, 3), (3, 4), (4, 5), (2, 5), (5, 6)])
    solution = solve(Problem(costs, edges))
    assert solution.cost == pytest.approx(reduced, rel=1e-12)
    assert solution.choice == (0,) * 7
