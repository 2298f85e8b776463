"""A flat graph in a Session over the tasks of a cluster, every wait bounded, every lost task named.

    nodes on "/job:worker/task:k/device:CPU:0"   =>   one Session, mastered by the first task, that sees these tasks only (device_filters)

A killed task ends a call at once.  A stopped one ends it when its time is up, and the question who is silent is asked within that time.
A call that takes longer although every task is alive is given twice the time, and once more, if nothing it does can be done twice.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import tensorflow as tf
from tensorflow.core.framework import graph_pb2
from tensorflow.core.protobuf import config_pb2

from compiler.backend.cluster_fill import as_references, fill, read_only
from compiler.backend.cluster_probe import Pulse, clear, in_words, probe, short, silent
from compiler.backend.loaded import RequestError, Trace, is_stateful, match_inputs
from compiler.backend.session import LoadedGraph, disable_in_calls, session_config, state_readers
from compiler.execution import Arrays, GraphDefArtefact, RuntimeConfig

v1 = tf.compat.v1
T = TypeVar("T")

_PROBE_SHARE = 0.25
_LONGEST_PROBE = 1.0
_PATIENCE = 64
"""How much longer than the deadline a call may take while every task answers."""


class Watch:
    """Runs what waits for tasks: `watch(run)` calls `run(options)` with a time limit, and says who is to blame when it fails."""

    def __init__(self, tasks: Mapping[str, str], deadline_seconds: float) -> None:
        self._tasks, self._deadline = dict(tasks), deadline_seconds
        self.probe_seconds = min(_LONGEST_PROBE, _PROBE_SHARE * deadline_seconds)
        self._patience = 1
        self._born = self.pulses(deadline_seconds - self.probe_seconds)  # the rest is for what was open before
        self._refuse_silent(self._born)

    def pulses(self, seconds: float) -> dict[str, Pulse]:
        return probe(self._tasks, seconds)

    def clear(self, container: str) -> None:
        clear(self._tasks, container, self.probe_seconds)

    def refuse_missing(self, graph_def: graph_pb2.GraphDef) -> None:
        """Every device the graph names must be there."""
        for device in sorted({node.device for node in graph_def.node} - {""}):
            task = device.partition("/device:")[0]
            if task not in self._tasks:
                raise RequestError("load", f"the graph uses {device}, expected a device of {', '.join(map(short, self._tasks))}")
            there = self._born[task].devices
            if there and device not in there:
                raise RequestError("load", f"task {short(task)} at {self._tasks[task]} has no {device}, it has {', '.join(there)}")

    def __call__(self, run: Callable[[config_pb2.RunOptions], T], again: bool) -> T:
        while True:
            seconds = self._patience * self._deadline - self.probe_seconds
            try:
                return run(config_pb2.RunOptions(timeout_in_ms=max(1, round(seconds * 1e3))))
            except (tf.errors.DeadlineExceededError, tf.errors.CancelledError) as error:
                self._refuse_silent(self.pulses(self.probe_seconds))
                if not again or self._patience >= _PATIENCE:
                    raise RequestError("timeout", self._too_slow(seconds)) from error
                self._patience *= 2
            except (tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.InternalError) as error:
                self._refuse_silent(self.pulses(self.probe_seconds))
                self._refuse_restarted()
                raise error

    def _too_slow(self, seconds: float) -> str:
        return f"no result within {seconds:.3g} s, though every task is alive; if the call needs longer, give it a longer deadline"

    def _refuse_silent(self, pulses: Mapping[str, Pulse]) -> None:
        if silent(pulses):
            raise RequestError("lost", in_words(self._tasks, pulses), silent(pulses))

    def _refuse_restarted(self) -> None:
        now = self.pulses(self.probe_seconds)
        for task, pulse in sorted(now.items()):
            if pulse.incarnations and set(pulse.incarnations) != set(self._born[task].incarnations):
                raise RequestError(
                    "lost", f"task {short(task)} at {self._tasks[task]} was started anew: what it held for this model is gone", (task,)
                )


class ClusterGraph(LoadedGraph):
    """A `LoadedGraph` whose session is a cluster's, and whose variables are in a container of their own there."""

    def __init__(
        self, graph: Any, session: Any, artefact: GraphDefArtefact, watch: Watch, container: str, constant: frozenset[str]
    ) -> None:
        super().__init__(graph, session, artefact.feeds, artefact.fetches, artefact.targets)
        self._watch, self._container, self._constant = watch, container, constant

    @functools.cached_property
    def _states(self) -> dict[str, tuple[Any, Any]]:
        """Weights never change, and are not sent back to be looked at."""
        found = state_readers(self._graph)
        return {name: state for name, state in found.items() if name not in self._constant}

    def bind(self, inputs: Arrays) -> Callable[[], Any]:
        arrays = match_inputs(self._leaves, inputs)
        values = [arrays[name] for name in self._feeds]
        return lambda: self._bounded(lambda options: self._with_options(*values, options=options))

    @property
    def _with_options(self) -> Any:
        if self._call is None:
            feeds = list(self._feeds.values())
            self._call = self._session.make_callable([self._fetches, self._targets], feed_list=feeds, accept_options=True)
        return self._call

    _call: Any = None

    def traced(self, inputs: Arrays) -> tuple[Any, Trace]:
        return self._bounded(lambda _: super(ClusterGraph, self).traced(inputs))

    def _bounded(self, run: Callable[[config_pb2.RunOptions], T]) -> T:
        if self.broken:
            raise RequestError("lost", "the tasks that this model ran on were lost before")
        try:
            return self._watch(run, again=not self.stateful)
        except RequestError as error:
            self.broken = error.kind == "lost"
            raise

    def close(self) -> None:
        """In time, or without an end: a task that is lost while it is asked must not keep whoever comes next waiting."""
        closing = threading.Thread(target=self._close, daemon=True)
        closing.start()
        closing.join(self._watch.probe_seconds)

    def _close(self) -> None:
        """Where a task is lost the session, without its variables, stays with its master: closing it would wait for whoever is lost."""
        self._watch.clear(self._container)
        if not silent(self._watch.pulses(self._watch.probe_seconds)):
            super().close()


def open_on_cluster(
    artefact: GraphDefArtefact, config: RuntimeConfig, tasks: Mapping[str, str], deadline_seconds: float, container: str
) -> ClusterGraph:
    """The graph, its variables filled; RequestError of kind "lost" names the tasks that are not there."""
    graph_def = graph_pb2.GraphDef()
    graph_def.ParseFromString(artefact.graph_def if isinstance(artefact.graph_def, bytes) else Path(artefact.graph_def).read_bytes())
    watch = Watch(tasks, deadline_seconds)
    watch.refuse_missing(graph_def)
    for node in graph_def.node:
        if node.op == "VarHandleOp":
            node.attr["container"].s = container.encode()  # another client's variables have the same names
    constant = read_only(graph_def, artefact.initializers)
    as_references(graph_def, artefact)
    try:
        fill(graph_def, artefact, tasks, lambda task: cluster_config(config, [task], deadline_seconds), watch)
        graph, session = _session(graph_def, config, tasks, deadline_seconds)
    except BaseException:
        watch.clear(container)
        raise
    loaded = ClusterGraph(graph, session, artefact, watch, container, constant)
    loaded.stateful = is_stateful(graph_def, frozenset(artefact.initializers))
    return loaded


def _session(graph_def: graph_pb2.GraphDef, config: RuntimeConfig, tasks: Mapping[str, str], deadline_seconds: float) -> tuple[Any, Any]:
    """The graph in a session over all tasks, mastered by the first."""
    if not config.grappler:
        disable_in_calls(graph_def)
    graph = tf.Graph()
    with graph.as_default():
        tf.graph_util.import_graph_def(graph_def, name="")
        return graph, v1.Session(f"grpc://{next(iter(tasks.values()))}", graph, cluster_config(config, tasks, deadline_seconds))


def cluster_config(config: RuntimeConfig, tasks: Any, deadline_seconds: float) -> config_pb2.ConfigProto:
    """A session that sees these tasks only, and waits for none of them longer than the deadline."""
    proto = session_config(config)
    proto.ClearField("device_count")
    proto.device_filters.extend(tasks)
    proto.operation_timeout_in_ms = round(deadline_seconds * 1e3)
    return proto
