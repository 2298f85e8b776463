"""Variables made on the tasks that hold them, filled a piece at a time through a session with that task alone.

    %w : f32[100000,1000] on task 1, 400 MB   =>   Empty there, then 400 pieces of 1 MB, each fed and written into its rows

So no task sees another's weights, the client reads each piece off its mapped file, and a task needs room for its shard and two pieces more.
A weight that comes in pieces is a variable of TensorFlow's older kind (VariableV2): of the newer kind, one that was written in pieces is
copied at every read from then on.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import attr_value_pb2, graph_pb2, node_def_pb2

from compiler.backend.cluster_probe import short
from compiler.backend.frames import mapped
from compiler.backend.loaded import RequestError
from compiler.execution import Array, FileTensor, GraphDefArtefact

if TYPE_CHECKING:
    from compiler.backend.cluster_session import Watch

v1 = tf.compat.v1

PIECE_BYTES = 1 << 20
Region = tuple[tuple[int, int], ...]
"""(first, number) for each dimension."""


def read_only(graph_def: graph_pb2.GraphDef, initializers: Collection[str]) -> frozenset[str]:
    """Handles of variables that the graph itself reads and does nothing else with."""
    handles = {node.name for node in graph_def.node if node.op == "VarHandleOp"}
    for node in graph_def.node:
        if node.op != "ReadVariableOp" and node.name not in initializers:
            handles.difference_update(source.partition(":")[0] for source in node.input)
    return frozenset(handles)


def as_references(graph_def: graph_pb2.GraphDef, artefact: GraphDefArtefact) -> None:
    """Large weights become variables of the older kind, reading them their Identity."""
    constant = read_only(graph_def, artefact.initializers)
    nodes = {node.name: node for node in graph_def.node}
    large = {nodes[name].input[0] for name in artefact.initializers if _in_pieces(artefact, nodes[name].input[1])} & constant
    for node in graph_def.node:
        if node.name in large:
            node.op = "VariableV2"
            for key in set(node.attr) - {"dtype", "shape", "container", "shared_name"}:
                del node.attr[key]
        elif node.input and node.input[0] in large and node.op in ("ReadVariableOp", "AssignVariableOp"):
            dtype = node.attr["dtype"].type
            node.ClearField("attr")
            node.op = "Identity" if node.op == "ReadVariableOp" else "Assign"
            node.attr["T"].type = dtype


def _in_pieces(artefact: GraphDefArtefact, source: str) -> bool:
    return f"{source}:0" in artefact.initial and mapped(artefact.initial[f"{source}:0"]).nbytes > PIECE_BYTES


def fill(
    graph_def: graph_pb2.GraphDef,
    artefact: GraphDefArtefact,
    tasks: Mapping[str, str],
    config_for: Callable[[str], Any],
    watch: Watch,
) -> None:
    """Every variable that an initializer assigns has its value afterwards."""
    nodes = {node.name: node for node in graph_def.node}
    by_task: dict[str, list[str]] = {}
    for name in artefact.initializers:
        by_task.setdefault(nodes[nodes[name].input[0]].device.partition("/device:")[0], []).append(name)
    for task, names in by_task.items():
        _Task(task, tasks[task], nodes, artefact.initial, watch).fill(names, config_for(task))


@dataclass
class _Task:
    """One task's variables."""

    task: str
    address: str
    nodes: Mapping[str, node_def_pb2.NodeDef]
    initial: Mapping[str, FileTensor]
    watch: Watch

    def fill(self, initializers: Sequence[str], config: Any) -> None:
        graph = tf.Graph()
        with graph.as_default():
            tf.graph_util.import_graph_def(self._part(initializers), name="")
            steps = [self._steps(graph, name) for name in initializers]
        with v1.Session(f"grpc://{self.address}", graph, config) as session:
            for name, found in zip(initializers, steps, strict=True):
                self._run(session, self.nodes[name].input[0], found)

    def _part(self, initializers: Sequence[str]) -> graph_pb2.GraphDef:
        """The handles, the assignments and what is assigned."""
        part = graph_pb2.GraphDef()
        for name in dict.fromkeys(n for i in initializers for n in (*self.nodes[i].input, i)):
            part.node.add().CopyFrom(self.nodes[name])
            del part.node[-1].input[:]
            part.node[-1].input.extend(source for source in self.nodes[name].input if not source.startswith("^"))
        return part

    def _steps(self, graph: Any, name: str) -> Iterator[tuple[Any, dict[Any, Array]]]:
        """What to run, in order, with what it is fed."""
        source = self.nodes[name].input[1]
        if f"{source}:0" not in self.initial:
            return iter([(graph.get_operation_by_name(name), {})])
        array = mapped(self.initial[f"{source}:0"])
        variable = graph.get_operation_by_name(self.nodes[name].input[0])
        if variable.type == "VarHandleOp":
            return iter([(graph.get_operation_by_name(name), {graph.get_tensor_by_name(f"{source}:0"): np.ascontiguousarray(array)})])
        with tf.device(variable.device):
            return self._pieces(variable.outputs[0], array)

    def _pieces(self, variable: Any, array: Array) -> Iterator[tuple[Any, dict[Any, Array]]]:
        dtype = tf.as_dtype(array.dtype)
        whole = tf.raw_ops.Empty(shape=tf.constant(array.shape, tf.int32), dtype=dtype)
        made = tf.raw_ops.Assign(ref=variable, value=whole)
        made.op._set_attr("_grappler_relax_allocator_constraints", attr_value_pb2.AttrValue(b=True))  # else it copies what it is given
        begin, end = (v1.placeholder(tf.int32, [array.ndim]) for _ in range(2))
        piece = v1.placeholder(dtype, [None] * array.ndim)
        ones = tf.ones([array.ndim], tf.int32)
        write = tf.raw_ops.StridedSliceAssign(ref=variable, begin=begin, end=end, strides=ones, value=piece)
        return itertools.chain([(made.op, {})], ((write.op, _feed(array, region, begin, end, piece)) for region in regions(array)))

    def _run(self, session: Any, variable: str, steps: Iterator[tuple[Any, dict[Any, Array]]]) -> None:
        for operation, feed in steps:
            try:
                self.watch(lambda options: session.run(operation, feed, options=options), again=True)  # noqa: B023 - called at once
            except (tf.errors.ResourceExhaustedError, tf.errors.InvalidArgumentError) as error:
                if isinstance(error, tf.errors.InvalidArgumentError) and "Invalid TensorProto" not in str(error):
                    raise  # TensorFlow's words for a feed that finds no room
                held = self.nodes[variable].attr["shape"].shape
                size = math.prod(d.size for d in held.dim) * tf.as_dtype(self.nodes[variable].attr["dtype"].type).size
                raise RequestError(
                    "memory",
                    f"task {short(self.task)} has no room for {_name(self.nodes[variable])!r} ({size:,} bytes): its limit is reached",
                ) from error


def _name(handle: node_def_pb2.NodeDef) -> str:
    """A variable's name; a weight that was made one, by its own."""
    name: str = handle.attr["shared_name"].s.decode(errors="replace") or handle.name
    return name.removeprefix("weight/")


def regions(array: Array) -> Iterator[Region]:
    """Blocks of at most `PIECE_BYTES`, of whole rows where these are small enough."""
    axis, inner = 0, array.nbytes // max(1, array.shape[0])
    while inner > PIECE_BYTES and axis + 1 < array.ndim:
        axis += 1
        inner //= array.shape[axis]
    count = max(1, PIECE_BYTES // inner)
    for outer in np.ndindex(*array.shape[:axis]):
        for first in range(0, array.shape[axis], count):
            rest = ((0, size) for size in array.shape[axis + 1 :])
            yield (*((i, 1) for i in outer), (first, min(count, array.shape[axis] - first)), *rest)


def _feed(array: Array, region: Region, begin: Any, end: Any, piece: Any) -> dict[Any, Array]:
    starts, sizes = np.array([s for s, _ in region], np.int32), np.array([n for _, n in region], np.int32)
    return {begin: starts, end: starts + sizes, piece: np.ascontiguousarray(array[tuple(slice(s, s + n) for s, n in region)])}
