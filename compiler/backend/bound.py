"""A placed module as a SavedModel bound to the tasks of a cluster: flat, so that a v1 Session over these tasks can load and run it.

    with tf.compat.v1.Session("grpc://10.0.0.7:2222", graph=tf.Graph()) as session:
        tf.compat.v1.saved_model.loader.load(session, ["serve"], BOUND)

Each signature's nodes stand under its name; variables get their values from an init op, which the loader runs.  Weights are constants of
the graph, each on its task, so all of them together stay below what one graph holds.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from tensorflow.core.framework import graph_pb2, types_pb2
from tensorflow.core.protobuf import meta_graph_pb2, saved_model_pb2

from compiler.backend.cluster import bodies_follow, refuse_unplaced
from compiler.backend.graphdef import GRAPH_BYTES, Emission, emit_flat
from compiler.backend.profiles import PROFILES
from compiler.backend.protos import dtype_enum, shape_proto, tensor_proto
from compiler.backend.saved_model import copy_saved_model, refuse_taken
from compiler.ir.errors import CleaveError
from compiler.ir.graph import Graph
from compiler.ir.module import Module
from compiler.ir.types import TensorType
from compiler.ir.weights import Stores
from compiler.ops.opdefs import tensorflow_version

_INIT = "__saved_model_init_op"
_METHOD = "tensorflow/serving/predict"


def save_bound(module: Module, out_dir: str | Path, aliases: Mapping[str, str], overwrite: bool = False) -> Path:
    """Writes the folder, whole or not at all; `aliases`: further signature -> the entry that it is."""
    target = Path(out_dir).absolute()
    refuse_taken(target, overwrite)
    following = bodies_follow(module)
    meta = meta_graph_pb2.MetaGraphDef()
    meta.meta_info_def.tags.append("serve")
    meta.meta_info_def.tensorflow_version = tensorflow_version()
    initializers: dict[str, str] = {}
    for entry in module.entries:
        emission = emit_flat(following, entry, PROFILES["cluster"])
        refuse_unplaced(emission.graph_def, entry)
        _add(meta, entry, module.entries[entry], _with_values(emission, module.stores), initializers)
    for alias, entry in sorted(aliases.items()):
        meta.signature_def[alias].CopyFrom(meta.signature_def[entry])
    _add_init(meta, initializers)
    if meta.ByteSize() > GRAPH_BYTES:
        raise CleaveError(
            f"the weights take {meta.ByteSize() >> 20} MiB, a bound model holds {GRAPH_BYTES >> 20}; use `cleave run --cluster`"
        )
    with tempfile.TemporaryDirectory(prefix="cleave-bound-") as directory:
        model = Path(directory) / "model"
        model.mkdir()
        saved = saved_model_pb2.SavedModel(saved_model_schema_version=1, meta_graphs=[meta])
        (model / "saved_model.pb").write_bytes(saved.SerializeToString(deterministic=True))
        copy_saved_model(model, target, overwrite)
    return target


def _with_values(emission: Emission, stores: Stores) -> Emission:
    """Initial values that would be fed stand in the graph."""
    for node in emission.graph_def.node:
        if f"{node.name}:0" in emission.fed:
            literal = emission.fed[f"{node.name}:0"]
            node.op = "Const"
            node.ClearField("attr")
            node.attr["dtype"].type = dtype_enum(literal.dtype)
            node.attr["value"].tensor.CopyFrom(tensor_proto(literal, stores))
    return replace(emission, fed={})


def _add(meta: meta_graph_pb2.MetaGraphDef, entry: str, graph: Graph, emission: Emission, initializers: dict[str, str]) -> None:
    """One signature, its nodes under its name; a variable that several have is given its value by the first."""
    refs = {emission.handles[node.input[0]]: node.name for node in emission.graph_def.node if node.name in emission.initializers}
    known = set(initializers)
    initializers |= {ref: f"{entry}/{name}" for ref, name in refs.items() if ref not in known}
    for node in emission.graph_def.node:
        copy = meta.graph_def.node.add()
        copy.CopyFrom(node)
        copy.name = f"{entry}/{node.name}"
        del copy.input[:]
        copy.input.extend(f"^{entry}/{source[1:]}" if source.startswith("^") else f"{entry}/{source}" for source in node.input)
    _add_functions(meta.graph_def, emission.graph_def)
    meta.graph_def.versions.CopyFrom(emission.graph_def.versions)
    signature = meta.signature_def[entry]
    signature.method_name = _METHOD
    for name in graph.inputs:
        _set(signature.inputs[name], f"{entry}/{emission.feeds[name]}", graph.node(name).type)
    for output in graph.outputs:
        _set(signature.outputs[output.name], f"{entry}/{emission.fetches[output.name]}", graph.type_of(output.value))


def _add_functions(whole: graph_pb2.GraphDef, part: graph_pb2.GraphDef) -> None:
    known = {function.signature.name for function in whole.library.function}
    whole.library.function.extend(f for f in part.library.function if f.signature.name not in known)


def _set(info: meta_graph_pb2.TensorInfo, tensor: str, type_: TensorType) -> None:
    info.name, info.dtype = tensor, dtype_enum(type_.dtype)
    info.tensor_shape.CopyFrom(shape_proto(type_.shape))


def _add_init(meta: meta_graph_pb2.MetaGraphDef, initializers: Mapping[str, str]) -> None:
    """The op that the loader runs; each assignment runs on its variable's task."""
    if not initializers:
        return
    meta.graph_def.node.add(name="init", op="NoOp", input=[f"^{name}" for name in sorted(initializers.values())])
    info = meta.signature_def[_INIT].outputs[_INIT]
    info.name, info.dtype = "init", types_pb2.DT_INVALID
    info.tensor_shape.unknown_rank = True
