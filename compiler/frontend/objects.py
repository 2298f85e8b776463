"""What the nodes of a SavedModel's flat graph are in its object tree, read off what its functions are bound to.

flat graph: y = StatefulPartitionedCall[f](x, kernel_1);  object graph: f is bound to object 3  =>  kernel_1 is object 3, `dense.kernel`

A function's captured arguments come last, in the order of its bound objects.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tensorflow.core.framework import node_def_pb2
from tensorflow.core.protobuf import meta_graph_pb2, saved_object_graph_pb2, trackable_object_graph_pb2

from compiler.frontend.references import graph_reference

_CONTAINERS = ("user_object", "resource")
_SETUP = ("_create_resource", "_initialize", "_destroy_resource")


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


def signature_calls(meta: meta_graph_pb2.MetaGraphDef) -> dict[str, str]:
    """Signature -> the top-level node that calls its function, which runs for what it does even if it returns nothing."""
    tree = meta.object_graph_def
    calls = {node.attr["f"].func.name: node.name for node in meta.graph_def.node if "f" in node.attr}
    found = {}
    for child in _children(tree, 0):
        if child.local_name == "signatures":
            for signature in _children(tree, child.node_id):
                function = tree.nodes[signature.node_id].bare_concrete_function.concrete_function_name
                if function in calls:
                    found[signature.local_name] = calls[function]
    return found


def has_methods(meta: meta_graph_pb2.MetaGraphDef) -> bool:
    """Does the saved object itself have a method with a trace?"""
    tree = meta.object_graph_def
    return any(is_method_name(c.local_name) and any(_functions(tree, c.node_id)) for c in _children(tree, 0))


def is_method_name(name: str) -> bool:
    """Is it a name that users call?"""
    return name == "__call__" or not name.startswith("_")


def setup_functions(meta: meta_graph_pb2.MetaGraphDef) -> list[tuple[str, list[int]]]:
    """The functions that loading runs (they make and fill tables), each with the objects it is bound to."""
    tree = meta.object_graph_def
    setup = {child.node_id for node in tree.nodes for child in node.children if child.local_name in _SETUP}
    names = {name for index in setup for name in _functions(tree, index)}
    return [(name, list(tree.concrete_functions[name].bound_inputs)) for name in sorted(names) if name in tree.concrete_functions]


def _functions(tree: saved_object_graph_pb2.SavedObjectGraph, index: int) -> list[str]:
    if not 0 <= index < len(tree.nodes):
        return []
    node = tree.nodes[index]
    return [*node.function.concrete_functions, node.bare_concrete_function.concrete_function_name]


def _children(
    tree: saved_object_graph_pb2.SavedObjectGraph, index: int
) -> Iterable[trackable_object_graph_pb2.TrackableObjectGraph.TrackableObject.ObjectReference]:
    inside = tree.nodes[index].children if 0 <= index < len(tree.nodes) else ()
    return [child for child in inside if 0 <= child.node_id < len(tree.nodes)]
