"""The solver: brute force equalled on small problems with memory over time, published optima, a bound that holds, the same answer twice."""

import gzip
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.iopddl import FIXTURES
from compiler.ir.errors import CleaveError
from passes.split.iopddl import read_problem, write_problem
from passes.split.problem import FORBIDDEN, Problem, Unsolvable, evaluate
from passes.split.solve import Limits, solve

WEIGHTS = st.integers(0, 20).map(float)
OR_NEVER = st.one_of(WEIGHTS, WEIGHTS, WEIGHTS, st.just(FORBIDDEN))
SEARCH_ONLY = Limits(entries=0, windows=200, window_entries=8)
"""No integer program at the end, so that sweeps, prices, trees and windows must do it alone."""


@st.composite
def problems(draw: st.DrawFn, most: int = 7) -> Problem:
    """Up to 7 nodes; entries may be forbidden, memory may bind at some times, lives may be empty."""
    sizes = draw(st.lists(st.integers(1, 3), min_size=1, max_size=most))
    costs = tuple(np.array(draw(st.lists(OR_NEVER, min_size=n, max_size=n))) for n in sizes)
    pairs = [(i, j) for i in range(len(sizes)) for j in range(i + 1, len(sizes))]
    chosen = draw(st.lists(st.sampled_from(pairs), unique=True, max_size=9)) if pairs else []
    edges = tuple(
        (i, j, np.array(draw(st.lists(OR_NEVER, min_size=sizes[i] * sizes[j], max_size=sizes[i] * sizes[j]))).reshape(sizes[i], sizes[j]))
        for i, j in sorted(chosen)
    )
    if not draw(st.booleans()):
        return Problem(costs, edges)
    usage = tuple(np.array(draw(st.lists(WEIGHTS, min_size=n, max_size=n))) for n in sizes)
    moments = st.integers(0, 6)
    intervals = tuple(draw(st.tuples(moments, moments).map(sorted).map(tuple)) for _ in sizes)
    return Problem(costs, edges, usage, float(draw(st.integers(0, 60))), intervals)  # type: ignore[arg-type]


def brute_force(problem: Problem) -> float:
    found = (evaluate(problem, choice) for choice in product(*(range(len(c)) for c in problem.costs)))
    return min((e.total for e in found if e.feasible), default=np.inf)


@given(problems())
def test_brute_force_is_equalled_and_proven(problem: Problem) -> None:
    best = brute_force(problem)
    if best == np.inf:
        with pytest.raises(Unsolvable):
            solve(problem)
        return
    solution = solve(problem)
    found = evaluate(problem, solution.choice)
    assert found.feasible and solution.cost == found.total == best
    assert solution.bound == best and solution.gap == 0


@given(problems())
def test_bound_is_below_and_cost_above_the_optimum_without_an_integer_program(problem: Problem) -> None:
    best = brute_force(problem)
    try:
        solution = solve(problem, 20, limits=SEARCH_ONLY)
    except Unsolvable:
        return
    assert solution.bound <= best + 1e-9 <= solution.cost + 2e-9
    assert evaluate(problem, solution.choice).feasible


@given(problems())
def test_the_same_problem_gives_the_same_choice(problem: Problem) -> None:
    try:
        assert solve(problem, limits=SEARCH_ONLY) == solve(problem, limits=SEARCH_ONLY)
    except Unsolvable:
        with pytest.raises(Unsolvable):
            solve(problem, limits=SEARCH_ONLY)


def test_usage_that_is_not_whole_keeps_its_limit_exactly() -> None:
    rng = np.random.default_rng(3)
    for _ in range(30):
        costs, usage = tuple(rng.random((7, 3))), tuple(rng.random((7, 3)))
        problem = Problem(costs, (), usage, float(sum(u.min() for u in usage)) * 1.3)
        solution = solve(problem)
        assert evaluate(problem, solution.choice).feasible
        assert solution.cost == pytest.approx(brute_force(problem), rel=1e-9)


def test_random_dense_problems_are_solved_to_optimality() -> None:
    rng = np.random.default_rng(0)
    for _ in range(60):
        sizes = rng.integers(1, 4, rng.integers(2, 8))
        costs = tuple(rng.random(n) * 10 for n in sizes)
        edges = tuple(
            (i, j, rng.random((sizes[i], sizes[j])) * 5) for i in range(len(sizes)) for j in range(i + 1, len(sizes)) if rng.random() < 0.5
        )
        problem = Problem(costs, edges)
        assert solve(problem).cost == pytest.approx(brute_force(problem), abs=1e-9)


def test_a_given_start_is_never_made_worse() -> None:
    problem = Problem((np.array([1.0, 0.0]), np.array([1.0, 0.0])), ((0, 1, np.array([[0.0, 9.0], [9.0, 8.0]])),))
    assert solve(problem, iterations=0, starts=[(0, 0)]).cost == 2.0


def test_what_nothing_allows_is_named() -> None:
    never = np.array([[FORBIDDEN, FORBIDDEN]])
    with pytest.raises(Unsolvable, match=r"node [01] has no strategy left"):
        solve(Problem((np.zeros(1), np.zeros(2)), ((0, 1, never),)))
    with pytest.raises(Unsolvable, match=r"step 0: the least usage of all is over the limit 5 by 2"):
        solve(Problem((np.zeros(1), np.zeros(2)), (), (np.array([4.0]), np.array([3.0, 4.0])), 5.0))


@pytest.mark.parametrize(("name", "cost"), [("example.json", 445), ("B.json.gz", 532843), ("G.json.gz", 217039)])
def test_contest_instances_are_solved_and_proven(name: str, cost: int) -> None:
    problem = read_problem(FIXTURES / name)
    solution = solve(problem, 200)
    assert (solution.cost, solution.bound, solution.aborted) == (cost, cost, "")
    assert evaluate(problem, solution.choice).feasible


def test_the_examples_known_choice() -> None:
    assert solve(read_problem(FIXTURES / "example.json")).choice == (0, 0, 2, 1, 0)


@given(problems())
def test_a_written_problem_reads_back(problem: Problem) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        for name in ("p.json", "p.json.gz"):
            write_problem(problem, "p", Path(folder) / name)
            again = read_problem(Path(folder) / name)
            assert all((a == b).all() for a, b in zip(problem.costs, again.costs, strict=True))
            assert [(i, j, m.tolist()) for i, j, m in problem.edges] == [(i, j, m.tolist()) for i, j, m in again.edges]
            assert again.limit == problem.limit and (not problem.usage or again.intervals == problem.intervals)


def test_seconds_are_written_as_whole_numbers_that_keep_their_proportions(tmp_path: Path) -> None:
    problem = Problem((np.array([1e-6, 2.5e-6]), np.array([3e-3])), ((0, 1, np.array([[FORBIDDEN], [0.0]])),))
    write_problem(problem, "seconds", tmp_path / "p.json")
    again = read_problem(tmp_path / "p.json")
    assert [c.tolist() for c in again.costs] == [[1e6, 2.5e6], [3e9]]
    assert again.edges[0][2].tolist() == [[FORBIDDEN], [0.0]]


def test_edges_to_itself_backwards_and_of_one_node(tmp_path: Path) -> None:
    nodes = '"nodes": {"intervals": [[0, 1], [0, 1]], "costs": [[1, 2], [3, 4, 5]], "usages": [[0, 0], [0, 0, 0]]}'
    edges = '"edges": {"nodes": [[1, 0], [0, 0], [1]], "costs": [[1, 2, 3, 4, 5, 6], [7, 0, 0, 8], [10, 20, 30]]}'
    (tmp_path / "p.json").write_text(f'{{"problem": {{"name": "[odd]", {nodes}, {edges}}}}}')
    problem = read_problem(tmp_path / "p.json")
    assert [c.tolist() for c in problem.costs] == [[8.0, 10.0], [13.0, 24.0, 35.0]]
    assert [(i, j, m.tolist()) for i, j, m in problem.edges] == [(0, 1, [[1.0, 3.0, 5.0], [2.0, 4.0, 6.0]])]


@pytest.mark.parametrize(
    "text", ["", "[]", '{"problem": {}}', '{"problem": {"nodes": {"costs": [[1]]}, "edges": {"nodes": [[0, 5]], "costs": [[1]]}}}']
)
def test_other_files_are_refused_in_a_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "p.json").write_text(text)
    (tmp_path / "p.json.gz").write_bytes(gzip.compress(text.encode())[:-3])
    for name in ("p.json", "p.json.gz", "nothing.json"):
        with pytest.raises(CleaveError, match=name):
            read_problem(tmp_path / name)
