"""Problems as files: the JSON of the IOPDDL contest (google/iopddl), which may be gzipped.

    {"problem": {"name": ..., "nodes": {"intervals": [[start, end], ...], "costs": [[...], ...], "usages": [[...], ...]},
                 "edges": {"nodes": [[i, j], ...], "costs": [[... row by row ...], ...]}, "usage_limit": L}}

The same list of costs stands on thousands of edges (55,000 edges of the contest's instance A share 1,560 matrices).  So lists are interned
as text before they are parsed: equal lists become one array, and neither time nor memory is spent on the copies.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from compiler.ir.errors import CleaveError
from passes.split.problem import FORBIDDEN, Problem, Vector

_INNERMOST = re.compile(r'"(?:[^"\\]|\\.)*"|\[[^\[\]"]*\]')
"""A string, which stays, or a list of numbers, which becomes its index."""


def read_problem(path: Path) -> Problem:
    """The problem in `path`; parallel edges are kept apart, an edge from a node to itself becomes a cost of the node."""
    try:
        raw = path.read_bytes()
        text = (gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw).decode()
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise CleaveError(f"cannot read {path}: {error}") from None
    lists: dict[str, int] = {}

    def interned(match: re.Match[str]) -> str:
        found = match.group()
        return found if found[0] == '"' else str(lists.setdefault(found, len(lists)))

    try:
        data = json.loads(_INNERMOST.sub(interned, text))["problem"]
        return _problem(data, [np.array(json.loads(found), dtype=np.float64) for found in lists])
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise CleaveError(f"{path} is not an IOPDDL problem, expected the contest's JSON: {type(error).__name__} {error}") from None


def _problem(data: Any, lists: list[Vector]) -> Problem:
    """`data` with the indices of lists where its innermost lists were."""

    def column(of: Any) -> list[Vector]:
        return [lists[k] for k in of] if isinstance(of, list) else []

    nodes, edges = data["nodes"], data["edges"]
    costs = column(nodes["costs"])
    shaped: dict[tuple[int, int, int], Vector] = {}
    found = []
    for ends, values in zip(column(edges["nodes"]), edges["costs"] if isinstance(edges["costs"], list) else [], strict=True):
        i, j = (int(end) for end in (ends if len(ends) == 2 else [*ends, *ends]))
        key = (values, len(costs[i]), len(costs[j]))
        if key not in shaped:
            shaped[key] = lists[values].reshape(len(costs[i]), len(costs[j])) if len(ends) == 2 else np.diag(lists[values])
        if i == j:
            costs[i] = costs[i] + np.diagonal(shaped[key])
        else:
            found.append((i, j, shaped[key]) if i < j else (j, i, shaped[key].T))
    limit = data.get("usage_limit")
    intervals = tuple((int(start), int(end)) for start, end in column(nodes["intervals"])) if "intervals" in nodes else ()
    usage = tuple(column(nodes["usages"])) if "usages" in nodes else ()
    return Problem(tuple(costs), tuple(found), usage, None if limit is None else float(limit), intervals)


def write_problem(problem: Problem, name: str, path: Path) -> None:
    path.write_bytes(problem_bytes(problem, name, path.suffix == ".gz"))


def problem_bytes(problem: Problem, name: str, compressed: bool = False) -> bytes:
    """`problem` in the contest's format.  Its costs are whole numbers: costs that are whole stay, others are counted in `_unit`."""
    usage = problem.usage or tuple(np.zeros(len(cost)) for cost in problem.costs)
    intervals = problem.intervals or ((0, 1),) * len(problem.costs)
    unit = _unit([*problem.costs, *(matrix for _, _, matrix in problem.edges)])
    nodes = {
        "intervals": [list(interval) for interval in intervals],
        "costs": [_whole(cost, unit) for cost in problem.costs],
        "usages": [[int(np.ceil(bytes_)) for bytes_ in used] for used in usage],
    }
    edges = {"nodes": [[i, j] for i, j, _ in problem.edges], "costs": [_whole(matrix.ravel(), unit) for _, _, matrix in problem.edges]}
    data: dict[str, object] = {"name": name, "nodes": nodes, "edges": edges}
    if problem.limit is not None:
        data["usage_limit"] = int(problem.limit)
    text = json.dumps({"problem": data}, separators=(",", ":")).encode()
    return gzip.compress(text, mtime=0) if compressed else text


def _unit(costs: Iterable[Vector]) -> float:
    """1 if all are whole; else a picosecond, or more where costs are so large that sums would leave what float64 counts exactly."""
    allowed = [cost[cost < FORBIDDEN] for cost in costs]
    if all(bool((cost == np.rint(cost)).all()) for cost in allowed):
        return 1.0
    return max(1e-12, max(float(np.abs(cost).max(initial=0.0)) for cost in allowed) / 1e12)


def _whole(values: Iterable[float], unit: float) -> list[int]:
    return [int(FORBIDDEN) if value >= FORBIDDEN else round(value / unit) for value in values]
