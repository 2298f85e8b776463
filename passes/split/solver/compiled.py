"""Loops over arrays, compiled where that pays.

A sweep over a large problem touches millions of entries, hundreds of times: compiled by numba that takes a fiftieth of what Python's loops
take.  Small problems, which is what an ordinary compilation has left after shrinking, don't even import it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from types import FunctionType, SimpleNamespace
from typing import Any

from passes.split.solver import decode, messages, trees
from passes.split.solver.tables import Tables

_WORTH_COMPILING = 4_000_000
"""Entries and strategies visited from which machine code pays for being loaded, or made."""


def loops_for(tables: Tables, iterations: int) -> SimpleNamespace:
    return compiled() if tables.work * iterations > _WORTH_COMPILING else interpreted()


def interpreted() -> SimpleNamespace:
    """The loops as they stand."""
    return SimpleNamespace(**_functions())


@cache
def compiled() -> SimpleNamespace:
    """The same, as machine code, kept on disk where that can be written to."""
    import numba

    try:
        return _all(numba.njit(cache=True, nogil=True))
    except RuntimeError:  # there is no such place
        return _all(numba.njit(nogil=True))


def _functions() -> dict[str, FunctionType]:
    found = [
        f
        for module in (messages, decode, trees)
        for f in vars(module).values()
        if isinstance(f, FunctionType) and f.__module__ == module.__name__
    ]
    return {f.__name__: f for f in found}


def _all(jit: Callable[[FunctionType], Any]) -> SimpleNamespace:
    """Machine code can only call machine code, so the functions get a world of their own, in which all are."""
    functions = _functions()
    world: dict[str, Any] = {**vars(messages), **vars(decode), **vars(trees)}
    for name, function in functions.items():
        world[name] = jit(FunctionType(function.__code__, world, name))
    return SimpleNamespace(**{name: world[name] for name in functions})
