"""Running a model on the tasks of a cluster: an `Executor` whose graphs name them, served by a client in a killable child process.

    ClusterExecutor(cluster, pool).run_module(module, "serving_default", [{"x": array}])   =>   [RunResult(outputs={"y": ...})]

There are two ways to run one graph over several `tf.distribute.Server`s.  Measured on two workers of one core each, an MLP 1024-4096-1024
split by columns and rows, batch 256 (1 MB in, 1 MB out), TensorFlow 2.21, with other work on the machine:

                                    eager: connect_to_cluster, tf.function   v1 Session over a flat GraphDef
    median of a call                33-43 ms                                 51-54 ms (inputs go through the first task)
    first call                      418-673 ms                               82-154 ms
    a worker is killed              UnavailableError after 0.23 s            the same after 0.27 s, naming the task
    a worker is stopped (SIGSTOP)   hangs (ended after 30 s)                 DeadlineExceededError at RunOptions' limit: 2.00 s of 2 s
    afterwards                      the client must end: it cannot           a session with device_filters goes on with those that are left,
                                    connect again (touching an old           and reads what they hold
                                    variable ends it by a segfault)

So: the Session.  What it costs is a hop of inputs and results through the first task, and that functions may not span tasks: graphs are
emitted flat, bodies of functions run on the task that calls them.
"""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Self

from tensorflow.core.framework import graph_pb2

from compiler.backend.cluster_probe import Pulse, probe
from compiler.backend.executor import artefact_of, by_reference
from compiler.backend.graphdef import emit_flat, serialize
from compiler.backend.pool import Child, Pool
from compiler.backend.profiles import PROFILES
from compiler.backend.protos import dtype_enum
from compiler.backend.weights import SMALL_BYTES, place_weights
from compiler.backend.worker_child import MEMORY_TOKEN, RESET_TOKEN
from compiler.execution import Arrays, Artefact, GraphDefArtefact, RunError, RunResult, RuntimeConfig
from compiler.ir.errors import CleaveError
from compiler.ir.module import Module
from compiler.ir.types import DType
from cost_model.cluster import Cluster

DEADLINE_SECONDS = 10.0
_LONGEST_CLOSE = 5.0


@dataclass(frozen=True)
class TaskMemory:
    """Bytes of a task's CPU tensors: in use, and the most in use at once since the last reset."""

    current: int
    peak: int


class ClusterExecutor:
    """Graphs that name tasks run on the cluster, everything else in the pool; state stays on the tasks from run to run where asked."""

    def __init__(self, cluster: Cluster, pool: Pool, deadline_seconds: float = DEADLINE_SECONDS) -> None:
        if not cluster.tasks:
            raise CleaveError(f"cluster {cluster.name!r} gives no addresses, add a [[tasks]] entry with name and address for each task")
        self.cluster, self._pool, self._deadline = cluster, pool, deadline_seconds
        self.tasks = {task.name: task.address for task in cluster.tasks}
        self._children: dict[RuntimeConfig, Child] = {}
        self._directory = tempfile.TemporaryDirectory(prefix="cleave-cluster-")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Gives the tasks their memory back and ends the client; the executor may be used again."""
        for child in self._children.values():
            child.close(_LONGEST_CLOSE)
        self._children.clear()

    def pulses(self, seconds: float = 1.0) -> dict[str, Pulse]:
        """Who is there."""
        return probe(self.tasks, seconds)

    def run(
        self,
        artefact: Artefact,
        requests: Sequence[Arrays],
        *,
        config: RuntimeConfig = RuntimeConfig(),  # noqa: B008 - frozen
        timeout_seconds: float = 600.0,
        want_variables: bool = False,
        repeat: int = 0,
        trace: bool = False,
        keep_state: bool = False,
    ) -> list[RunResult]:
        """One result per request; the first lost task ends the run, and is named in the error of each request that is left."""
        if not isinstance(artefact, GraphDefArtefact):
            return self._pool.run(
                artefact, requests, config=config, timeout_seconds=timeout_seconds, want_variables=want_variables, repeat=repeat,
                trace=trace, keep_state=keep_state,
            )  # fmt: skip
        options = {"variables": want_variables, "repeat": repeat, "trace": trace, "keep_state": keep_state}
        child = self._child(config)
        with child.lock:
            try:
                return _one_fault(child.run(artefact, requests, options, timeout_seconds))
            except BaseException:
                child.kill()
                raise

    def run_module(
        self,
        module: Module,
        entry: str,
        requests: Sequence[Arrays],
        *,
        config: RuntimeConfig = RuntimeConfig(),  # noqa: B008 - frozen
        timeout_seconds: float = 600.0,
        want_variables: bool = False,
        repeat: int = 0,
    ) -> list[RunResult]:
        """Emit a placed module and run it."""
        try:
            artefact, handles = self.artefact(module, entry)
        except CleaveError as error:
            return [RunResult(error=RunError("load", str(error))) for _ in requests]
        results = self.run(artefact, requests, config=config, timeout_seconds=timeout_seconds, want_variables=want_variables, repeat=repeat)
        return [by_reference(result, handles) for result in results]

    def artefact(self, module: Module, entry: str) -> tuple[GraphDefArtefact, Mapping[str, str]]:
        """The entry for this cluster: flat, bodies without devices, all but small weights as variables that are filled piece by piece."""
        placed = place_weights(bodies_follow(module), limit_bytes=SMALL_BYTES)
        emission = emit_flat(placed, entry, PROFILES["cluster"])
        refuse_unplaced(emission.graph_def, entry)
        directory = Path(tempfile.mkdtemp(dir=self._directory.name))
        return artefact_of(emission, placed.stores, directory), emission.handles

    def memory(self, reset: bool = False) -> dict[str, TaskMemory]:
        """What each task's CPU holds, as its allocator counts; for tasks that `cleave worker` started.  `reset` starts the peaks anew."""
        (result,) = self.run(_memory_graph(self.tasks, RESET_TOKEN if reset else MEMORY_TOKEN), [{}])
        if result.error is not None:
            raise CleaveError(f"the tasks do not tell their memory ({result.error}); those started by `cleave worker` do")
        found = {task: [int(n) for n in values.reshape(-1)] for task, values in result.outputs.items()}
        return {task: TaskMemory(numbers[0], numbers[-1]) for task, numbers in found.items()}

    def _child(self, config: RuntimeConfig) -> Child:
        known = replace(config, devices=1, memory_limit_mb=None)
        if known not in self._children:
            container = f"cleave-{uuid.uuid4().hex}"
            job = {"config": vars(known), "tasks": self.tasks, "deadline_seconds": self._deadline, "container": container}
            self._children[known] = Child(known, 120.0, "compiler.backend.cluster_child", job)
        return self._children[known]


def _one_fault(results: list[RunResult]) -> list[RunResult]:
    """What fails because of an earlier loss says what was lost."""
    lost: RunError | None = None
    found = []
    for result in results:
        if result.error is not None and result.error.kind == "lost":
            lost = lost or result.error
            result = replace(result, error=lost)
        found.append(result)
    return found


def bodies_follow(module: Module) -> Module:
    """A copy whose functions name no devices: a body runs where its caller stands."""
    copy = module.copy()
    for graph in copy.functions.values():
        for name in graph.order():
            if graph.node(name).device:
                graph.set_device(name, "")
    return copy


def refuse_unplaced(graph_def: graph_pb2.GraphDef, entry: str) -> None:
    for node in graph_def.node:
        if "/task:" not in node.device:
            raise CleaveError(
                f"{entry!r}: {node.op} {node.name!r} is on {node.device or 'no device'!r}, expected a task of the cluster; place it"
            )


def _memory_graph(tasks: Mapping[str, str], token: str) -> GraphDefArtefact:
    """A PyFunc on each task."""
    graph_def = graph_pb2.GraphDef()
    fetches = {}
    for position, task in enumerate(tasks):
        node = graph_def.node.add(name=f"memory_{position}", op="PyFunc", device=f"{task}/device:CPU:0")
        node.attr["token"].s = token.encode()
        node.attr["Tin"].list.SetInParent()
        node.attr["Tout"].list.type.append(dtype_enum(DType("int64")))
        fetches[task] = f"memory_{position}:0"
    return GraphDefArtefact(serialize(graph_def), {}, fetches)
