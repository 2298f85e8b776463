"""Frozen GraphDefs: placeholders are the inputs, what nobody reads the outputs, and only what lies between is the model."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from google.protobuf.message import DecodeError
from tensorflow.core.framework import graph_pb2, node_def_pb2

from compiler.execution import GraphDefArtefact
from compiler.frontend.element_types import dtype_of, shape_of
from compiler.frontend.files import refuse_files
from compiler.frontend.graphdef import VARIABLES, Importer, import_entry, library_of, reached
from compiler.frontend.interface import Sizes
from compiler.frontend.references import graph_reference
from compiler.frontend.source import SignatureInfo, SourceModel
from compiler.ir.errors import CleaveError
from compiler.ir.module import Module
from compiler.ir.types import TensorType
from compiler.ops import opdefs

ENTRY = "serving_default"
_PLACEHOLDERS = ("Placeholder", "PlaceholderV2", "PlaceholderWithDefault")
_SCALAR_SHAPES = 24
"""The GraphDef version from which a placeholder's shape without dimensions is a scalar; before, it was unknown."""


def load(path: Path, outputs: tuple[str, ...] | None = None, allow_files: bool = False) -> SourceModel:
    """Read a frozen graph; `outputs` are node or tensor names (default: what depends on a placeholder and nobody reads)."""
    graph_def = graph_pb2.GraphDef()
    try:
        graph_def.ParseFromString(path.read_bytes())
    except (DecodeError, OSError) as error:
        raise CleaveError(f"{path} cannot be read as a GraphDef: {error or 'not a proto'}; is it truncated?") from None
    if not graph_def.node:
        raise CleaveError(f"{path} has no nodes, expected a frozen GraphDef")
    placeholders = {n.name: n for n in graph_def.node if n.op in _PLACEHOLDERS}
    ends = outputs or _sinks(path, graph_def, placeholders)
    nodes = reached(graph_def, [graph_reference(e, str(path)).node for e in ends], placeholders)
    _refuse_state(path, nodes)
    used = [n for n in nodes if n.name in placeholders]
    inputs = _inputs(path, used, graph_def.versions.producer)
    fetches = {_key(e): e if ":" in e else f"{e}:0" for e in ends}
    module = Module(path.stem)
    importer = Importer(module, library_of(graph_def), entries=(ENTRY,))
    module.entries[ENTRY] = import_entry(importer, ENTRY, graph_def, inputs, fetches, {})
    importer.finish()
    refuse_files(module, allow_files, str(path))
    artefact = GraphDefArtefact(path, {k: f"{t}:0" for k, (t, _) in inputs.items()}, fetches)
    info = SignatureInfo({k: t for k, (_, t) in inputs.items()}, tuple(fetches))
    return SourceModel(module, artefact, "frozen", path, ("serve",), {ENTRY: info}, label=str(path))


def _key(end: str) -> str:
    name, _, port = end.partition(":")
    return name if port in ("", "0") else f"{name}_{port}"


def _inputs(path: Path, placeholders: Iterable[node_def_pb2.NodeDef], producer: int) -> dict[str, tuple[str, TensorType]]:
    found: dict[str, tuple[str, TensorType]] = {}
    sizes = Sizes()
    for node in sorted(placeholders, key=lambda n: n.name):
        shape = shape_of(node.attr["shape"].shape) if "shape" in node.attr else None
        if shape == () and producer < _SCALAR_SHAPES:
            shape = None
        found[node.name] = (node.name, TensorType(dtype_of(node.attr["dtype"].type), sizes.named(shape)))
    if not found:
        raise CleaveError(f"{path}: no placeholder reaches the outputs, expected at least one input")
    return found


def _sinks(path: Path, graph_def: graph_pb2.GraphDef, placeholders: Iterable[str]) -> tuple[str, ...]:
    """Values that depend on a placeholder and that nobody reads.

    What a dataset iterator feeds is beside the network (losses, accuracies): there the last values before it are the outputs.
    """
    by_name = {node.name: node for node in graph_def.node}
    sources = {name: [graph_reference(text, str(path)).node for text in node.input] for name, node in by_name.items()}
    users: dict[str, list[str]] = {}
    for name, read in sources.items():
        for source in read:
            users.setdefault(source, []).append(name)
    functions = {function.signature.name: bool(function.signature.output_arg) for function in graph_def.library.function}
    fed = _downstream(placeholders, users, ())
    beside = _downstream([n for n, node in by_name.items() if "Iterator" in node.op], users, frozenset(placeholders))
    found = []
    for name, node in by_name.items():
        definition = opdefs.get(node.op)
        yields = functions.get(node.op, True) if definition is None else bool(definition.outputs)
        if name not in fed or name in beside or name in placeholders or not yields:
            continue
        if all(user in beside for user in users.get(name, ())):
            found.append(name)
    if not found:
        raise CleaveError(f"{path}: no output found, name the outputs")
    return tuple(found)


def _downstream(roots: Iterable[str], users: Mapping[str, Iterable[str]], stop: Collection[str]) -> set[str]:
    """The roots and everything that depends on them, but nothing behind `stop`."""
    found = set(roots)
    stack = list(found)
    while stack:
        for user in users.get(stack.pop(), ()):
            if user not in found and user not in stop:
                found.add(user)
                stack.append(user)
    return found


def _refuse_state(path: Path, nodes: Iterable[node_def_pb2.NodeDef]) -> None:
    for node in nodes:
        if node.op in _PLACEHOLDERS and node.attr["dtype"].type == 20:
            raise CleaveError(
                f"{path}: placeholder {node.name!r} stands for a table or variable that a frozen graph cannot carry; use the SavedModel"
            )
        if node.op in VARIABLES or (node.op.endswith("TableV2") and not node.input):
            raise CleaveError(f"{path}: {node.op} {node.name!r} has state that a frozen graph cannot carry; use the SavedModel")
