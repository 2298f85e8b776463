"""The solver: optimal on small problems by brute force, exact on trees, a bound that holds, the same answer twice."""

from itertools import product

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from passes.split.problem import Problem, evaluate
from passes.split.solve import solve

WEIGHTS = st.integers(0, 20).map(float)


@st.composite
def problems(draw: st.DrawFn, most: int = 6) -> Problem:
    sizes = draw(st.lists(st.integers(1, 3), min_size=1, max_size=most))
    costs = tuple(np.array(draw(st.lists(WEIGHTS, min_size=n, max_size=n))) for n in sizes)
    pairs = [(i, j) for i in range(len(sizes)) for j in range(i + 1, len(sizes))]
    chosen = draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    edges = tuple(
        (i, j, np.array(draw(st.lists(WEIGHTS, min_size=sizes[i] * sizes[j], max_size=sizes[i] * sizes[j]))).reshape(sizes[i], sizes[j]))
        for i, j in sorted(chosen)
    )
    return Problem(costs, edges)


def brute_force(problem: Problem) -> float:
    return min(evaluate(problem, choice).total for choice in product(*(range(len(c)) for c in problem.costs)))


@given(problems())
def test_bound_is_below_and_cost_is_above_the_optimum(problem: Problem) -> None:
    best, solution = brute_force(problem), solve(problem)
    assert solution.bound <= best + 1e-9
    assert best <= solution.cost + 1e-9
    assert solution.cost == evaluate(problem, solution.choice).total


@given(problems())
def test_a_chain_is_solved_exactly(problem: Problem) -> None:
    chain = Problem(problem.costs, tuple(e for e in problem.edges if e[1] == e[0] + 1))
    assert abs(solve(chain).cost - brute_force(chain)) < 1e-9


@given(problems())
def test_the_same_problem_gives_the_same_choice(problem: Problem) -> None:
    assert solve(problem) == solve(problem)


def test_random_dense_problems_are_solved_to_optimality() -> None:
    rng = np.random.default_rng(0)
    for _ in range(100):
        sizes = rng.integers(1, 4, rng.integers(2, 8))
        costs = tuple(rng.random(n) * 10 for n in sizes)
        edges = tuple(
            (i, j, rng.random((sizes[i], sizes[j])) * 5) for i in range(len(sizes)) for j in range(i + 1, len(sizes)) if rng.random() < 0.5
        )
        problem = Problem(costs, edges)
        assert abs(solve(problem).cost - brute_force(problem)) < 1e-9


def test_a_given_start_is_never_made_worse() -> None:
    problem = Problem((np.array([1.0, 0.0]), np.array([1.0, 0.0])), ((0, 1, np.array([[0.0, 9.0], [9.0, 8.0]])),))
    assert solve(problem, iterations=0, starts=[(0, 0)]).cost == 2.0
