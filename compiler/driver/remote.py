"""A compiled model on the tasks of its cluster: called there, checked there, its memory measured there."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from compiler.backend.cluster import ClusterExecutor
from compiler.backend.cluster_probe import in_words, probe, silent
from compiler.backend.executor import by_reference
from compiler.backend.function import ArrayFunction, EntryFunction
from compiler.backend.pool import Pool
from compiler.driver.plan import DeviceLoad
from compiler.execution import Array, Arrays, Artefact, ModuleExecutor, RunError, RunResult
from compiler.ir.errors import CleaveError
from compiler.ir.module import Module
from compiler.validate import Subject, Validator, Verdict
from cost_model.cluster import Cluster
from cost_model.devices import task_of


class TaskLost(CleaveError):
    """Tasks that a call needs are gone or silent: `tasks`, as `/job:worker/task:1`.  The others may go on: `compiled.without(*tasks)`."""

    def __init__(self, message: str, tasks: tuple[str, ...]) -> None:
        super().__init__(message)
        self.tasks = tasks


@dataclass(frozen=True)
class MemoryRow:
    """One task's CPU memory: predicted, and as its allocator counted (None: the task does not tell)."""

    task: str
    predicted_bytes: int
    measured_bytes: int | None


@dataclass
class Remote:
    """The module's entries, each emitted once."""

    executor: ClusterExecutor
    module: Module
    _artefacts: dict[str, tuple[Artefact, Mapping[str, str]]] = field(default_factory=dict)

    def absent(self) -> str:
        """Who does not answer, in words; "" where all do."""
        pulses = self.executor.pulses()
        return in_words(self.executor.tasks, pulses) if silent(pulses) else ""

    def artefact(self, entry: str) -> tuple[Artefact, Mapping[str, str]]:
        if entry not in self._artefacts:
            self._artefacts[entry] = self.executor.artefact(self.module, entry)
        return self._artefacts[entry]

    def function(self, entry: str) -> EntryFunction:
        """The entry as a callable on this process's tensors."""
        return ArrayFunction(lambda inputs: self.call(entry, inputs))

    def call(self, entry: str, inputs: Arrays) -> dict[str, Array]:
        """One call; state stays where it is.  TaskLost, or CleaveError in the words of whatever failed."""
        (result,) = self.executor.run(self.artefact(entry)[0], [inputs], keep_state=True)
        if result.error is not None:
            raise _raised(result.error)
        return result.outputs

    def check(
        self, original: Subject, entry: str, pool: Pool, modules: ModuleExecutor, numerics: str, places: Mapping[str, str]
    ) -> Verdict:
        """The verdict on what the tasks compute, the original run on this machine; `places`: its variables' paths."""
        artefact, handles = self.artefact(entry)
        runner = _Sides(pool, self.executor, artefact, handles, places)
        return Validator(runner, modules, numerics, grappler=(False,)).check(original, artefact)

    def reset_memory(self) -> None:
        """Peaks count from here; tasks that do not tell stay as they are."""
        with contextlib.suppress(CleaveError):
            self.executor.memory(reset=True)

    def memory(self, loads: Sequence[DeviceLoad]) -> tuple[MemoryRow, ...]:
        """Predicted and measured bytes of each task."""
        predicted: dict[str, int] = {}
        for load in loads:
            if "/device:CPU:" in load.device:
                predicted[task_of(load.device)] = predicted.get(task_of(load.device), 0) + load.peak_bytes
        try:
            measured = {task: found.peak for task, found in self.executor.memory().items()}
        except CleaveError:
            measured = {}
        return tuple(MemoryRow(task, predicted.get(task, 0), measured.get(task)) for task in self.executor.tasks)


def refuse_absent(cluster: Cluster, seconds: float) -> None:
    """Before the work, not after: TaskLost where a task does not answer."""
    tasks = {task.name: task.address for task in cluster.tasks}
    pulses = probe(tasks, seconds)
    if silent(pulses):
        raise TaskLost(in_words(tasks, pulses), silent(pulses))


def _raised(error: RunError) -> CleaveError:
    return TaskLost(error.message, error.tasks) if error.kind == "lost" else CleaveError(str(error))


@dataclass
class _Sides:
    """An Executor: the candidate runs on the cluster, whatever else in the pool.

    The original calls a namesake `name@path`; `places` are the paths of the module's variables, so its word for each is found when it ran.
    """

    pool: Pool
    cluster: ClusterExecutor
    candidate: Artefact
    handles: Mapping[str, str]
    places: Mapping[str, str]
    _words: dict[str, str] = field(default_factory=dict)

    def run(self, artefact: Artefact, requests: Sequence[Arrays], **asked: Any) -> list[RunResult]:
        if artefact is self.candidate:
            names = {node: self._words.get(self.places.get(ref, ""), ref) for node, ref in self.handles.items()}
            return [by_reference(result, names) for result in self.cluster.run(artefact, requests, **asked)]
        results = self.pool.run(artefact, requests, **asked)
        for result in results:
            self._words |= {name.partition("@")[2]: name for name in result.variables or {} if "@" in name}
        return results
