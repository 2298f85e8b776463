"""What the nodes of a SavedModel's flat graph are in its object tree, read off what its functions are bound to.

flat graph: y = StatefulPartitionedCall[f](x, kernel_1);  object graph: f is bound to object 3  =>  kernel_1 is object 3, `dense.kernel`

A function's captured arguments come last, in the order of its bound objects.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tensorflow.core.framework import node_def_pb2
from tensorflow.core.protobuf import meta_graph_pb2, saved_object_graph_pb2

from compiler.frontend.references import graph_reference

_CONTAINERS = ("user_object", "resource")


@dataclass(frozen=True)
class Held:
    """An object with state: its `kind` (variable, resource, asset, ...), the dotted path to it ("" where none), a variable's flag."""

    kind: str
    path: str
    trainable: bool = True


def held_objects(meta: meta_graph_pb2.MetaGraphDef) -> dict[str, Held]:
    """Top-level node -> the object whose handle (or path, for an asset) it yields; empty for a model without objects."""
    tree = meta.object_graph_def
    if not tree.nodes:
        return {}
    paths = _paths(tree)
    found: dict[str, Held] = {}
    for node in meta.graph_def.node:
        function = tree.concrete_functions.get(node.attr["f"].func.name) if "f" in node.attr else None
        if function is not None:
            for name, index in _bound(node, function.bound_inputs):
                if 0 <= index < len(tree.nodes):
                    found.setdefault(name, _held(tree.nodes[index], paths.get(index, "")))
    return found


def _bound(node: node_def_pb2.NodeDef, objects: Iterable[int]) -> Iterable[tuple[str, int]]:
    """(captured node, object) for one call."""
    indices = list(objects)
    data = [text for text in node.input if not text.startswith("^")]
    captured = data[len(data) - len(indices) :] if 0 < len(indices) <= len(data) else []
    return zip((graph_reference(text, node.name).node for text in captured), indices, strict=len(captured) > 0)


def _held(saved: saved_object_graph_pb2.SavedObject, path: str) -> Held:
    kind = saved.WhichOneof("kind") or "user_object"
    return Held(kind, path, saved.variable.trainable if kind == "variable" else True)


def _paths(tree: saved_object_graph_pb2.SavedObjectGraph) -> Mapping[int, str]:
    """Object -> the first path to it, breadth first, children by name; through objects that hold others, not through functions."""
    found = {0: ""}
    queue = [0]
    for index in queue:
        if tree.nodes[index].WhichOneof("kind") not in _CONTAINERS:
            continue
        for child in sorted(tree.nodes[index].children, key=lambda c: c.local_name):
            if child.node_id not in found and 0 <= child.node_id < len(tree.nodes):
                found[child.node_id] = f"{found[index]}.{child.local_name}" if found[index] else child.local_name
                queue.append(child.node_id)
    return found
