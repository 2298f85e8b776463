"""Explorers in processes of their own, each given one seed after another; one that dies or hangs is replaced, and its seed is told."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from tests.fuzz.explore import Explorer, Outcome
from tests.fuzz.filing import Filed, file_failure

HANG_SECONDS = 600.0
"""A seed that takes so long, its hunting included, hangs."""
GRACE_SECONDS = 20.0


@dataclass(frozen=True)
class Lost:
    """A seed whose process died or hung."""

    seed: int
    what: str


Answer = tuple[Outcome, list[Filed]] | Lost


def explore_all(seeds: Iterator[int], jobs: int, orders: Sequence[str], directory: Path, deadline: float | None) -> Iterator[Answer]:
    """Answers in the order they come; no seed is begun after the deadline (of `time.monotonic`)."""
    workers = [_Worker(orders, directory) for _ in range(jobs)]
    busy: list[_Worker] = []
    try:
        for worker in workers:
            busy += [worker] if _begin(worker, seeds, deadline) else []
        while busy:
            ready = wait([w.connection for w in busy], timeout=1.0)
            for worker in list(busy):
                if worker.connection in ready:
                    yield worker.answer()
                elif time.monotonic() - worker.since > HANG_SECONDS:
                    yield worker.give_up()
                else:
                    continue
                if not _begin(worker, seeds, deadline):
                    busy.remove(worker)
    finally:
        for worker in workers:
            worker.end()


def _begin(worker: _Worker, seeds: Iterator[int], deadline: float | None) -> bool:
    if deadline is not None and time.monotonic() > deadline:
        return False
    seed = next(seeds, None)
    if seed is None:
        return False
    worker.begin(seed)
    return True


class _Worker:
    def __init__(self, orders: Sequence[str], directory: Path) -> None:
        self._arguments = (tuple(orders), directory)
        self._start()

    def _start(self) -> None:
        spawn = multiprocessing.get_context("spawn")
        self.connection: Connection
        self.connection, theirs = spawn.Pipe()
        self._process: Any = spawn.Process(target=_serve, args=(theirs, *self._arguments))
        self._process.start()
        theirs.close()
        self.seed, self.since = -1, time.monotonic()

    def begin(self, seed: int) -> None:
        if not self._process.is_alive():
            self._replace("it died before its first seed")
        self.seed, self.since = seed, time.monotonic()
        self.connection.send(seed)

    def answer(self) -> Answer:
        try:
            found: Answer = self.connection.recv()
        except (EOFError, ConnectionError):
            self._process.join()
            return self._replace(f"its process ended with status {self._process.exitcode}")
        return found

    def give_up(self) -> Answer:
        return self._replace(f"no answer within {HANG_SECONDS:g} s")

    def _replace(self, what: str) -> Lost:
        lost = Lost(self.seed, what)
        self._process.kill()
        self.end()
        self._start()
        return lost

    def end(self) -> None:
        """An idle one ends by itself, its children before it, so that their processor time is counted."""
        self.connection.close()
        self._process.join(timeout=GRACE_SECONDS)
        self._process.kill()
        self._process.join()


def _serve(connection: Connection, orders: Sequence[str], directory: Path) -> None:
    explorer = Explorer(orders)
    while True:
        try:
            seed: int = connection.recv()
        except EOFError:
            return explorer.close()
        outcome = explorer.explore(seed)
        connection.send((outcome, [file_failure(explorer, failure, directory) for failure in outcome.failures]))
