"""One pool of child processes for all tests that execute modules."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from compiler.execution import Arrays, RunResult, RuntimeConfig
from compiler.ir.module import Module

RunModule = Callable[..., list[RunResult]]


@pytest.fixture(scope="session")
def run_module() -> Iterator[RunModule]:
    """(module, requests, devices=1) -> results of its only entry, in a child process."""
    from compiler.backend.executor import GraphExecutor
    from compiler.backend.pool import Pool

    with Pool() as pool:
        executor = GraphExecutor(pool)

        def run(module: Module, requests: Sequence[Arrays], devices: int = 1, **options: Any) -> list[RunResult]:
            (entry,) = module.entries
            return executor.run_module(module, entry, requests, config=RuntimeConfig(devices=devices), **options)

        yield run
