"""The solver on instances of the IOPDDL contest: `python -m benchmarks.iopddl FILE.json.gz --time-limit S [--best C]`.

Prints cost, feasibility, seconds (reading included), the lower bound, the gap to it, and the ratio to C.  Exit status 1 if no feasible
assignment was found or it costs more than 1.05 C.  Without a file: the instances in `fixtures/iopddl`, against the best of the contest's
20 teams.  The recipe and its settings are the same for all; the time limit sets how much work is counted out, and the clock only aborts,
and says so.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import click

from compiler.ir.errors import CleaveError
from passes.split.iopddl import read_problem
from passes.split.problem import evaluate
from passes.split.solve import Limits, solve

FIXTURES = Path(__file__).parent.parent / "fixtures" / "iopddl"
BEST = {"example.json": 445, "B.json.gz": 532843, "G.json.gz": 217039}
MOST_RATIO = 1.05
ITERATIONS = 1000


@click.command()
@click.argument("files", nargs=-1, type=click.Path(path_type=Path))
@click.option("--time-limit", default=60.0, show_default=True, metavar="S", help="seconds for each file, reading included")
@click.option("--best", type=float, metavar="C", help="the cost to compare with")
@click.option("--json", "as_json", is_flag=True, help="print JSON, one line for each file")
def main(files: tuple[Path, ...], time_limit: float, best: float | None, as_json: bool) -> None:
    """Solve contest instances."""
    chosen = [(file, best) for file in files] or [(FIXTURES / name, float(cost)) for name, cost in BEST.items()]
    passed = [run(file, time_limit, compare, as_json) for file, compare in chosen]
    sys.exit(0 if all(passed) else 1)


def run(file: Path, time_limit: float, best: float | None, as_json: bool) -> bool:
    """Solve one and print it; whether it is feasible and near enough."""
    start = time.perf_counter()
    found: dict[str, object] = {"file": file.name, "feasible": False}
    ratio = None
    try:
        problem = read_problem(file)
        limits = Limits.for_seconds(time_limit, lambda: start + time_limit - time.perf_counter())
        solution = solve(problem, ITERATIONS, limits=limits)
        checked = evaluate(problem, solution.choice)
        ratio = checked.total / best if best else None
        found |= {"cost": checked.total, "feasible": checked.feasible, "bound": solution.bound, "gap": solution.gap, "ratio": ratio}
        found |= {"aborted": solution.aborted}
    except CleaveError as error:
        found |= {"error": str(error)}
    found["seconds"] = time.perf_counter() - start
    click.echo(json.dumps(found) if as_json else _line(found))
    return bool(found["feasible"]) and (ratio is None or ratio <= MOST_RATIO)


def _line(found: dict[str, object]) -> str:
    if "error" in found:
        return f"{found['file']}: {found['error']} ({found['seconds']:.1f} s)"
    proven = "optimal, proven" if found["gap"] == 0 else f"bound {found['bound']:.0f}, gap {found['gap']:.2%}"
    ratio = "" if found["ratio"] is None else f", {found['ratio']:.6f} of the best known"
    aborted = f", {found['aborted']}" if found["aborted"] else ""
    feasible = "feasible" if found["feasible"] else "INFEASIBLE"
    return f"{found['file']}: cost {found['cost']:.0f}, {feasible}, {found['seconds']:.1f} s, {proven}{ratio}{aborted}"


if __name__ == "__main__":
    main()
