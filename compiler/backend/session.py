"""A flat graph run in a v1 Session: a GraphDef with named feeds and fetches, or a SavedModel's signature.

With Grappler off the older optimizer (constant folding, common subexpressions, function inlining) is off too: opt_level L0.
A Session is also the only door to a trace: which node ran where, and for how long.
"""

import functools
import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf
from tensorflow.core.framework import graph_pb2
from tensorflow.core.protobuf import config_pb2

from compiler.backend.frames import mapped
from compiler.backend.loaded import Leaf, RequestError, Trace, is_stateful, match_inputs, numpy_of, rewritten_copy, tensor_bytes
from compiler.backend.protos import envelope_config
from compiler.execution import Array, Arrays, GraphDefArtefact, RuntimeConfig, SavedModelArtefact, TraceEvent

v1 = tf.compat.v1


def session_config(config: RuntimeConfig) -> config_pb2.ConfigProto:
    proto = config_pb2.ConfigProto(
        allow_soft_placement=config.soft_placement,
        intra_op_parallelism_threads=config.intra_threads,
        inter_op_parallelism_threads=config.inter_threads,
    )
    proto.device_count["CPU"] = config.devices
    if not config.grappler:
        proto.graph_options.optimizer_options.opt_level = config_pb2.OptimizerOptions.L0
        proto.graph_options.rewrite_options.disable_meta_optimizer = True
    return proto


class LoadedGraph:
    """A Session over a graph, its inputs and outputs by name."""

    def __init__(self, graph: Any, session: Any, feeds: Mapping[str, str], fetches: Mapping[str, str], targets: tuple[str, ...]) -> None:
        self._graph, self._session = graph, session
        self._feeds = {name: _element(graph, tensor) for name, tensor in feeds.items()}
        self._fetches = {name: _element(graph, tensor) for name, tensor in fetches.items()}
        self._targets = [_element(graph, target) for target in targets]
        self._leaves = [Leaf(name, tf.TensorSpec(tensor.shape, tensor.dtype)) for name, tensor in sorted(self._feeds.items())]
        self.stateful = self.broken = False

    def bind(self, inputs: Arrays) -> Callable[[], Any]:
        arrays = match_inputs(self._leaves, inputs)
        values = [arrays[name] for name in self._feeds]
        return functools.partial(self._callable, *values)

    @functools.cached_property
    def _callable(self) -> Any:
        return self._session.make_callable([self._fetches, self._targets], feed_list=list(self._feeds.values()))

    def outputs(self, raw: Any) -> dict[str, Array]:
        return {name: numpy_of(value) for name, value in raw[0].items()}

    @functools.cached_property
    def _states(self) -> dict[str, tuple[Any, Any]]:
        return state_readers(self._graph)

    def variable_bytes(self) -> dict[str, int]:
        ready = self._session.run({name: state[0] for name, state in self._states.items()})
        return {name: tensor_bytes(state[1]) for name, state in self._states.items() if ready[name]}

    def variables(self, names: Sequence[str]) -> dict[str, Array]:
        values = self._session.run({name: self._states[name][1] for name in names})
        return {name: numpy_of(value) for name, value in values.items()}

    def traced(self, inputs: Arrays) -> tuple[Any, Trace]:
        arrays = match_inputs(self._leaves, inputs)
        metadata = config_pb2.RunMetadata()
        options = config_pb2.RunOptions(trace_level=config_pb2.RunOptions.FULL_TRACE)
        feed = {tensor: arrays[name] for name, tensor in self._feeds.items()}
        raw = self._session.run([self._fetches, self._targets], feed_dict=feed, options=options, run_metadata=metadata)
        return raw, _trace(metadata)

    def close(self) -> None:
        self._session.close()


def load_graph_def(artefact: GraphDefArtefact, config: RuntimeConfig) -> LoadedGraph:
    graph_def = graph_pb2.GraphDef()
    data = artefact.graph_def if isinstance(artefact.graph_def, bytes) else Path(artefact.graph_def).read_bytes()
    graph_def.ParseFromString(data)
    graph = tf.Graph()
    with graph.as_default():
        if not config.grappler:
            disable_in_calls(graph_def)
        tf.graph_util.import_graph_def(graph_def, name="")
        session = v1.Session(graph=graph, config=session_config(config))
        loaded = LoadedGraph(graph, session, artefact.feeds, artefact.fetches, artefact.targets)
        for initializer in artefact.initializers:
            operation = _element(graph, initializer)
            session.run(
                operation, {tensor: mapped(artefact.initial[tensor.name]) for tensor in operation.inputs if tensor.name in artefact.initial}
            )
    loaded.stateful = is_stateful(graph_def, frozenset(artefact.initializers))
    return loaded


def load_saved_graph(artefact: SavedModelArtefact, config: RuntimeConfig) -> LoadedGraph:
    if artefact.method is not None:
        raise RequestError("load", "the v1 loader runs signatures only; method needs loader='v2'")
    graph = tf.Graph()
    with graph.as_default():
        session = v1.Session(graph=graph, config=session_config(config))
        meta_graph = _load(session, artefact, config)
        if artefact.signature not in meta_graph.signature_def:
            raise RequestError("load", f"no signature {artefact.signature!r}; the model has {sorted(meta_graph.signature_def)}")
        signature = meta_graph.signature_def[artefact.signature]
        loaded = LoadedGraph(graph, session, _tensor_names(signature.inputs), _tensor_names(signature.outputs), ())
    loaded.stateful = is_stateful(*_reached(meta_graph.graph_def, list(_tensor_names(signature.outputs).values())))
    return loaded


def _load(session: Any, artefact: SavedModelArtefact, config: RuntimeConfig) -> Any:
    """The meta graph, loaded into the session. A session's options do not reach the calls that TensorFlow wrote its own into."""
    if config.grappler:
        return v1.saved_model.loader.load(session, list(artefact.tags), str(artefact.path))
    with rewritten_copy(Path(artefact.path), lambda meta_graph: disable_in_calls(meta_graph.graph_def)) as directory:
        return v1.saved_model.loader.load(session, list(artefact.tags), str(directory))


def disable_in_calls(graph_def: Any) -> None:
    """Grappler off in every call with a configuration of its own."""
    for node in [*graph_def.node, *(node for function in graph_def.library.function for node in function.node_def)]:
        if "config_proto" in node.attr and node.attr["config_proto"].s:
            node.attr["config_proto"].s = envelope_config(node.attr["config_proto"].s)


def artefact_key(artefact: SavedModelArtefact | GraphDefArtefact) -> str:
    """What a loaded artefact is remembered by: where it lies and when its files changed, or its bytes."""
    if isinstance(artefact, GraphDefArtefact) and isinstance(artefact.graph_def, bytes):
        stamp = [hashlib.sha256(artefact.graph_def).hexdigest()]
        return repr((stamp, artefact.feeds, artefact.fetches, artefact.targets, artefact.initializers, artefact.initial))
    path = Path(artefact.path if isinstance(artefact, SavedModelArtefact) else str(artefact.graph_def))
    files = sorted([path, *path.glob("*"), *path.glob("variables/*"), *path.glob("assets/*")])
    return repr((artefact, [(str(file), file.stat().st_mtime_ns, file.stat().st_size) for file in files if file.exists()]))


def _reached(graph_def: Any, fetches: list[str]) -> tuple[Any, frozenset[str]]:
    """The graph and, as its setup, the nodes that no fetch reaches: savers, initializers, other signatures."""
    kept = {node.name for node in v1.graph_util.extract_sub_graph(graph_def, [name.split(":")[0] for name in fetches]).node}
    return graph_def, frozenset(node.name for node in graph_def.node if node.name not in kept)


def _tensor_names(infos: Mapping[str, Any]) -> dict[str, str]:
    """Tensor names by key; a sparse or composite value by component."""
    names: dict[str, str] = {}
    for key, info in infos.items():
        parts = [info.name]
        if info.WhichOneof("encoding") == "coo_sparse":
            sparse = info.coo_sparse
            parts = [sparse.indices_tensor_name, sparse.values_tensor_name, sparse.dense_shape_tensor_name]
        elif info.WhichOneof("encoding") == "composite_tensor":
            parts = [component.name for component in info.composite_tensor.components]
        names |= {key: parts[0]} if info.WhichOneof("encoding") == "name" else {f"{key}/{index}": name for index, name in enumerate(parts)}
    return names


def _element(graph: Any, name: str) -> Any:
    try:
        return graph.as_graph_element(name)
    except (KeyError, ValueError) as error:
        raise RequestError("load", f"no {name!r} in the graph: {error}") from None


def state_readers(graph: Any) -> dict[str, tuple[Any, Any]]:
    """Each top-level variable's (is initialized, value), by its node's name."""
    readers: dict[str, tuple[Any, Any]] = {}
    with graph.as_default(), graph.device(None), tf.control_dependencies(None):
        for operation in graph.get_operations():
            if operation.type == "VarHandleOp":
                handle, dtype = operation.outputs[0], operation.get_attr("dtype")
                is_ready = tf.raw_ops.VarIsInitializedOp(resource=handle)
                readers[operation.name] = is_ready, tf.raw_ops.ReadVariableOp(resource=handle, dtype=dtype)
            elif operation.type in ("VariableV2", "Variable"):
                reference = operation.outputs[0]
                readers[operation.name] = v1.is_variable_initialized(reference), tf.identity(reference)
    return readers


def _trace(metadata: config_pb2.RunMetadata) -> Trace:
    devices = {device.device: list(device.node_stats) for device in metadata.step_stats.dev_stats}
    first = min((node.all_start_micros for nodes in devices.values() for node in nodes), default=0)
    return {
        device: tuple(
            TraceEvent(node.node_name, (node.all_start_micros - first) * 1e-6, node.all_end_rel_micros * 1e-6)
            for node in sorted(nodes, key=lambda node: (node.all_start_micros, node.node_name))
        )
        for device, nodes in sorted(devices.items())
    }
