"""One random program through the orders it is put to: what each pass saw and changed, and what went wrong.

    explore(seed)   draw, run the original once, run each order's result, compare

Children stay warm, and one serves for folding too; the original's answers are remembered for the orders that follow.
"""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from compiler.backend.executor import GraphExecutor
from compiler.backend.pool import Pool
from compiler.execution import Arrays, RunResult, RuntimeConfig
from compiler.ir.errors import CleaveError
from compiler.ir.module import Module
from compiler.ir.text import equal, parse_module, print_module
from compiler.pipeline.base import Context, Pass
from compiler.pipeline.instruments import VerifyEach
from compiler.pipeline.manager import Silent, run_pipeline
from compiler.pipeline.probe import Probe
from compiler.pipeline.text import parse_pipeline
from passes import PASSES
from passes.pipelines import PIPELINES
from passes.split.choose import Objective
from tests.programs import program, requests
from tests.properties.judge import PLAIN, Judge
from tests.properties.laws import context, is_exact, random_order

ORDERS = ("default", "random")
CHILDREN = 3
REMEMBERED = 8
LAWS_ONE_IN = 8
"""So often an order is run twice, and its result printed and read: the same text, and the same module."""


@dataclass(frozen=True)
class Trial:
    """One order a program is put to."""

    order: str
    pipeline: str
    devices: int
    objective: Objective

    def __str__(self) -> str:
        return f"{self.order} order on {self.devices} devices for {self.objective.value}"


@dataclass(frozen=True)
class Failure:
    """What went wrong; `text` is the exception or the first difference."""

    seed: int
    trial: Trial
    text: str


@dataclass
class Outcome:
    """One program.  `seen` and `changed` count (pass, op); `original` says why the program itself does not run, "" if it does."""

    seed: int
    seconds: float = 0.0
    original: str = ""
    trials: int = 0
    failures: list[Failure] = field(default_factory=list)
    seen: Counter[tuple[str, str]] = field(default_factory=Counter)
    changed: Counter[tuple[str, str]] = field(default_factory=Counter)
    thorough: int = 0


def trials(seed: int, orders: Sequence[str]) -> Iterator[Trial]:
    """1, 2 and 3 devices and every objective in turn; the two orders of one program on different numbers of devices."""
    for place, order in enumerate(orders):
        objective = tuple(Objective)[seed // 3 % len(Objective)]
        pipeline = random_order(seed) if order == "random" else PIPELINES[order]
        yield Trial(order, pipeline, 1 + (seed + place) % 3, objective)


class Explorer:
    """A pool and what it remembers: one for each process."""

    def __init__(self, orders: Sequence[str] = ORDERS) -> None:
        self.orders = tuple(orders)
        self.pool = Pool(max_children=CHILDREN)
        self.runner = _Remembering(GraphExecutor(self.pool))
        self.judge = Judge(self.runner)  # type: ignore[arg-type]

    def close(self) -> None:
        self.pool.close()

    def explore(self, seed: int) -> Outcome:
        begin, before = time.perf_counter(), self.judge.thorough
        outcome = Outcome(seed)
        module, given = program(seed), requests(program(seed), seed=seed)
        self.runner.forget()
        answers = self.judge.run(module, given)
        if all(answer.error for answer in answers):
            outcome.original = str(answers[0].error)
        else:
            for trial in trials(seed, self.orders):
                outcome.trials += 1
                text = self._fault(module, given, trial, outcome)
                outcome.failures += [Failure(seed, trial, text)] if text else []
        outcome.seconds, outcome.thorough = time.perf_counter() - begin, self.judge.thorough - before
        return outcome

    def _fault(self, module: Module, given: Sequence[Arrays], trial: Trial, outcome: Outcome) -> str:
        changed, steps = module.copy(), parse_pipeline(trial.pipeline, PASSES)
        coverage = _Coverage(outcome)
        try:
            run_pipeline(changed, steps, self.context(trial), [coverage, VerifyEach()])
            if outcome.seed % LAWS_ONE_IN == 0:
                self._laws(module, changed, trial)
        except Exception as error:  # whatever a pass raises is what is looked for
            return f"{type(error).__name__}: {error}"
        return "\n".join(self.judge.differences(module, changed, given, exact=is_exact(steps)))

    def context(self, trial: Trial) -> Context:
        return context(self.judge, trial.devices, trial.objective)

    def _laws(self, module: Module, changed: Module, trial: Trial) -> None:
        again, text = module.copy(), print_module(changed)
        run_pipeline(again, parse_pipeline(trial.pipeline, PASSES), self.context(trial))
        if print_module(again) != text:
            raise CleaveError("two runs of the order differ")
        if not equal(parse_module(text, stores=changed.stores), changed):
            raise CleaveError("printed and parsed, the result is another module")

    def probe(self, failure: Failure) -> Probe:
        """The question that bisection and reduction ask: is this module wrong after these steps?"""
        exact = is_exact(parse_pipeline(failure.trial.pipeline, PASSES))

        def differs(original: Module, candidate: Module) -> str:
            found = self.judge.differences(original, candidate, requests(original, seed=failure.seed), exact=exact)
            if found and found[0].startswith("the original fails"):
                raise CleaveError(found[0])
            return "\n".join(found)

        return Probe(lambda: self.context(failure.trial), differs)


class _Remembering:
    """A ModuleExecutor that uses one child wherever it can, and remembers what one module answered."""

    def __init__(self, runner: GraphExecutor) -> None:
        self._runner = runner
        self._known: list[tuple[Module, str, list[RunResult]]] = []

    def forget(self) -> None:
        self._known = []

    def run_module(
        self,
        module: Module,
        entry: str,
        requests: Sequence[Arrays],
        *,
        config: RuntimeConfig = PLAIN,
        timeout_seconds: float = 60.0,
        want_variables: bool = False,
        **others: Any,
    ) -> list[RunResult]:
        if config == RuntimeConfig(intra_threads=1):
            config = PLAIN  # folding: the same kernels on the same number of threads
        key = f"{entry} {module.version} {config} {want_variables} {[_digest(r) for r in requests]}"
        for known, name, results in self._known:
            if known is module and name == key:
                return results
        results = self._runner.run_module(
            module, entry, requests, config=config, timeout_seconds=timeout_seconds, want_variables=want_variables, **others
        )
        self._known = [*self._known[-REMEMBERED:], (module, key, results)]
        return results


def _digest(request: Arrays) -> str:
    digest = hashlib.sha256()
    for name, array in request.items():
        digest.update(f"{name} {array.dtype} {array.shape}".encode())
        digest.update(repr(array.tolist()).encode() if array.dtype == object else np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


class _Coverage(Silent):
    """Which ops each pass saw, and which it changed, removed or added."""

    def __init__(self, outcome: Outcome) -> None:
        self._outcome = outcome
        self._version = -1
        self._nodes: dict[tuple[str, str], Any] = {}
        self._ops: frozenset[str] = frozenset()

    def before_pass(self, position: int, step: Pass, module: Module) -> None:
        if module.version != self._version:
            self._look(module)
        self._outcome.seen.update((step.name, op) for op in self._ops)

    def after_pass(self, position: int, step: Pass, module: Module) -> None:
        if module.version == self._version:
            return
        before = self._nodes
        self._look(module)
        self._outcome.changed.update((step.name, op) for op in _differing(before, self._nodes))

    def _look(self, module: Module) -> None:
        graphs = module.graphs.items()
        self._version = module.version
        self._nodes = {(g, n.name): (n, graph.operands(n.name), graph.controls(n.name)) for g, graph in graphs for n in graph}
        self._ops = frozenset(n.op for _, graph in graphs for n in graph)


def _differing(before: dict[tuple[str, str], Any], after: dict[tuple[str, str], Any]) -> set[str]:
    gone = {before[key][0].op for key in before.keys() - after.keys()}
    made = {after[key][0].op for key in after.keys() - before.keys()}
    kept = before.keys() & after.keys()
    changed = {n.op for key in kept for n in (before[key][0], after[key][0]) if not _same(before[key], after[key])}
    return gone | made | changed


def _same(old: Any, new: Any) -> bool:
    return old[0] is new[0] and old[1:] == new[1:]
