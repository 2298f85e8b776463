"""SavedModels of either version, through their flat graph: placeholders => outputs of each signature, state by its restore function."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from google.protobuf.message import DecodeError
from tensorflow.core.framework import function_pb2, node_def_pb2
from tensorflow.core.protobuf import meta_graph_pb2, saved_model_pb2
from tensorflow.python.saved_model.nested_structure_coder import decode_proto

from compiler.execution import SavedModelArtefact
from compiler.frontend.attributes import producer_defaults
from compiler.frontend.devices import canonical_device
from compiler.frontend.element_types import dtype_of, shape_of
from compiler.frontend.files import refuse_files, refuse_setup_files
from compiler.frontend.graphdef import VARIABLES, Importer, import_entry, library_of
from compiler.frontend.interface import interfaces, signature_keys
from compiler.frontend.objects import Held, has_methods, held_objects, signature_calls
from compiler.frontend.source import SourceModel
from compiler.frontend.state import Checkpoint, Stored, restored_names
from compiler.ir.errors import CleaveError
from compiler.ir.module import Module, Resource, Variable
from compiler.ir.types import DType, TensorType
from compiler.ops import opdefs
from compiler.ops.effects import ANY_STATE, Bodies, reads, writes


@dataclass
class State:
    """Nodes that yield state (node -> pseudo-op, name in the module, type), and where the original keeps it, by name in the module."""

    handles: dict[str, tuple[str, str, TensorType]] = field(default_factory=dict)
    locations: dict[str, str] = field(default_factory=dict)


def load(
    path: Path, signature: str | None = None, tags: tuple[str, ...] | None = None, allow_files: bool = False, label: str | None = None
) -> SourceModel:
    """Read a SavedModel directory; `label` names it in messages.  A signature without dense inputs and outputs is kept as it is."""
    where = label or str(path)
    meta, others = _meta_graph(path, tags)
    library = library_of(meta.graph_def)
    refuse_setup_files(meta, library, allow_files, where)
    if not signature_keys(meta) and has_methods(meta):
        from compiler.frontend import methods

        return methods.load_signed(path, signature, tuple(meta.meta_info_def.tags), allow_files, where)
    readable, unreadable = interfaces(meta, where, signature)
    module = Module(path.resolve().name)
    state = _state(meta, library, module, path)
    importer = Importer(module, library, producer_defaults(meta.meta_info_def.stripped_op_list), tuple(readable))
    calls = signature_calls(meta)
    for key, interface in readable.items():
        targets = [*interface.operations, *([calls[key]] if key in calls else [])]
        graph = import_entry(importer, key, meta.graph_def, interface.inputs, interface.outputs, state.handles, targets)
        module.entries[key] = graph
    importer.finish()
    left = () if signature is None else tuple(k for k in readable if k != signature)
    _leave_out(module, left, bool(unreadable))
    refuse_files(module, allow_files, where)
    chosen = tuple(meta.meta_info_def.tags)
    kind = "saved_model" if meta.HasField("object_graph_def") else "saved_model_v1"
    artefact = SavedModelArtefact(path, next(iter(module.entries)), chosen)
    locations = {name: place for name, place in state.locations.items() if name in module.variables or name in module.resources}
    infos = {key: interface.info for key, interface in readable.items()}
    return SourceModel(module, artefact, kind, path, chosen, infos, locations, tuple(sorted({*left, *unreadable})), where, others=others)


def method_results(path: Path, method: str) -> Any:
    """What a method of the saved object returns: a structure of specs, None where it has no trace or several."""
    tree = _meta_graph(path, None)[0].object_graph_def
    index = next((child.node_id for child in tree.nodes[0].children if child.local_name == method), 0)
    names = tree.nodes[index].function.concrete_functions
    return decode_proto(tree.concrete_functions[names[0]].output_signature) if len(names) == 1 else None


def _meta_graph(path: Path, tags: tuple[str, ...] | None) -> tuple[meta_graph_pb2.MetaGraphDef, tuple[tuple[str, ...], ...]]:
    """The graph of these tags; where none are given the one for serving, and the tags of those passed over."""
    file = path / "saved_model.pb"
    if not file.is_file():
        raise CleaveError(f"{path} is not a SavedModel: it has no saved_model.pb")
    proto = saved_model_pb2.SavedModel()
    try:
        proto.ParseFromString(file.read_bytes())
    except (DecodeError, OSError) as error:
        raise CleaveError(f"{file} cannot be read: {error or 'not a SavedModel proto'}; is it truncated?") from None
    found = {tuple(sorted(m.meta_info_def.tags)): m for m in proto.meta_graphs}
    if not found:
        raise CleaveError(f"{file} holds no graph; is it truncated?")
    others: tuple[tuple[str, ...], ...] = ()
    if tags is None:
        serving = [t for t in found if "serve" in t]
        tags = ("serve",) if ("serve",) in found else serving[0] if serving else next(iter(found))
        others = tuple(t for t in found if t != tuple(sorted(tags)))
    wanted = tuple(sorted(tags))
    if wanted not in found:
        raise CleaveError(f"{path} has no graph with tags {list(wanted)}, expected one of {[list(t) for t in found]}")
    return found[wanted], others


def _state(meta: meta_graph_pb2.MetaGraphDef, library: Mapping[str, function_pb2.FunctionDef], module: Module, path: Path) -> State:
    """The variables and resources of the flat graph, entered into the module."""
    entries = restored_names(meta.graph_def, library)
    objects = held_objects(meta)
    checkpoint = Checkpoint(path, module.stores)
    state = State()
    shared: dict[str, str] = {}
    for node in meta.graph_def.node:
        held = objects.get(node.name, Held("", ""))
        if node.op in VARIABLES:
            first = node.name if objects else shared.setdefault(node.attr["shared_name"].s.decode(errors="replace") or node.name, node.name)
            if first == node.name:
                module.variables[first] = _variable(node, entries.get(first), checkpoint, held.trainable)
                state.locations[first] = held.path or (entries[first].name if first in entries and not entries[first].part else first)
            state.handles[node.name] = ("Variable", first, TensorType(DType("resource"), (), handle=module.variables[first].type))
        elif held.kind == "asset" or _yields_resource(node.op):
            type_ = TensorType(DType("string" if held.kind == "asset" else "resource"), ())
            module.resources[node.name] = Resource(node.name, type_, "asset" if held.kind == "asset" else "table")
            state.handles[node.name] = ("Resource", node.name, type_)
            state.locations[node.name] = held.path or node.attr["shared_name"].s.decode(errors="replace") or node.name
    return state


def _variable(node: node_def_pb2.NodeDef, stored: Stored | None, checkpoint: Checkpoint, trainable: bool) -> Variable:
    """Its declared type, which a later assignment must fit, and the value it is restored to."""
    type_ = TensorType(dtype_of(node.attr["dtype"].type), shape_of(node.attr["shape"].shape))
    initial = checkpoint.literal(stored, node.name, type_) if stored is not None else None
    return Variable(node.name, type_, initial, trainable, canonical_device(node.device))


def _yields_resource(op: str) -> bool:
    """A source of a resource: a table, an iterator, ..."""
    definition = opdefs.get(op)
    return definition is not None and not definition.inputs and any(a.dtype == "resource" for a in definition.outputs)


def _leave_out(module: Module, kept: tuple[str, ...], others: bool) -> None:
    """Signatures that stay as they are leave the module, as does what nobody uses; what they read and write of its variables is noted.

    `others`: there are more signatures, nobody knows what they do.
    """
    bodies = Bodies(module)
    read: set[str] = {ANY_STATE} if others else set()
    written = set(read)
    for key in kept:
        graph = module.entries.pop(key)
        for node in graph:
            read |= reads(module, graph, node.name, bodies)
            written |= writes(module, graph, node.name, bodies)
    for name, variable in module.variables.items():
        is_read = f"@{name}" in read or ANY_STATE in read
        is_written = f"@{name}" in written or ANY_STATE in written
        if is_read or is_written:
            module.variables[name] = replace(variable, read_elsewhere=is_read, written_elsewhere=is_written)
    needed = set(module.reachable_functions())
    module.functions = {name: body for name, body in module.functions.items() if name in needed}
    used = {str(node.attrs["ref"]) for graph in module.entries.values() for node in graph if node.op in ("Variable", "Resource")}
    module.variables = {name: variable for name, variable in module.variables.items() if name in used}
    module.resources = {name: resource for name, resource in module.resources.items() if name in used}
