"""An original's state by name, and the part of its object tree that a new model keeps: in the child that saves.

"dense/kernel", "layers.0.kernel", "layers/0/kernel/.ATTRIBUTES/VARIABLE_VALUE"  =>  the live variable

New objects stand where the old ones stood, so a checkpoint of either restores the other.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tensorflow as tf
from tensorflow.core.framework import node_def_pb2
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow.python.trackable.autotrackable import AutoTrackable
from tensorflow.python.trackable.data_structures import ListWrapper, _DictWrapper
from tensorflow.python.trackable.resource import CapturableResource

from compiler.backend.loaded import load_object
from compiler.backend.save_values import hollow
from compiler.execution import SavedModelArtefact
from compiler.ir.errors import CleaveError

_LOADED = re.compile(r"_load_\d+(_\d+)?$")
_ATTRIBUTE = "/.ATTRIBUTES/VARIABLE_VALUE"
_TABLES = ("HashTable", "HashTableV2", "MutableHashTable", "MutableHashTableV2", "MutableDenseHashTableV2", "MutableHashTableOfTensorsV2")


@dataclass
class Original:
    """A loaded SavedModel: its objects by path, its state by every name it is known under."""

    root: Any = None
    edges: list[tuple[Any, str, Any]] = field(default_factory=list)
    known: dict[str, list[Any]] = field(default_factory=dict)
    nodes: dict[str, node_def_pb2.NodeDef] = field(default_factory=dict)
    """A v1 graph's table nodes: they are shared by name, not held by an object."""
    tables: dict[str, tuple[str, Any]] = field(default_factory=dict)
    """The file's shared name of a table -> its name once loaded, and the object that makes or fills it."""
    checkpoint: str | None = None
    """Where the variables' values are; None if they were loaded (a v1 graph has no objects that say which is which)."""

    def find(self, ref: str) -> Any | None:
        """The variable, table or asset of that name, None where there is none or several; of twins (Keras exports them) the one in use."""
        found = self.known.get(ref, []) or self._at(ref.removesuffix(_ATTRIBUTE).split("/")) or self._at(ref.split("."))
        if len(found) > 1:
            used = by_capture(self, _concrete_functions(self))
            found = [item for item in found if any(item is other for other in used)]
        return found[0] if len(found) == 1 else None

    def _at(self, path: list[str]) -> list[Any]:
        """What lies at a path (of a checkpoint, escapes and all); `known` has only those through an object's first parent."""
        item = self.root
        for part in path:
            name = part.replace(".S", "/").replace("..", ".")
            item = tf.train.TrackableView.children(item).get(name) if item is not None else None
        return [item] if isinstance(item, tf.Variable | CapturableResource | tf.saved_model.Asset) else []


def load_original(path: str, tags: tuple[str, ...]) -> Original:
    hollowed = _has_objects(Path(path), tags)
    root = load_object(SavedModelArtefact(path, tags=tags, variable_devices=True), values=not hollowed)
    original = Original(root, checkpoint=str(Path(path) / "variables" / "variables") if hollowed else None)
    paths = _walk(original)
    for item, places in paths.values():
        if isinstance(item, tf.Variable):
            _name(original, item, [item.name.removesuffix(":0"), item._shared_name, *_paths(places, _ATTRIBUTE)])
            if hollowed:
                hollow(item)
        elif isinstance(item, CapturableResource | tf.saved_model.Asset):
            shared = _shared_names(item)
            original.tables |= {name: (loaded, item) for name, loaded in shared.items()}
            _name(original, item, [*shared, *_paths(places, "")])
    if not hasattr(root, "_serialized_attributes") and hasattr(root, "graph"):
        original.nodes.update(_table_nodes(root, Path(path), tags))
    return original


def _has_objects(path: Path, tags: tuple[str, ...]) -> bool:
    return any(len(m.object_graph_def.nodes) > 0 for m in _meta_graphs(path, tags)) and (path / "variables" / "variables.index").exists()


def _meta_graphs(path: Path, tags: tuple[str, ...]) -> list[Any]:
    saved = saved_model_pb2.SavedModel.FromString((path / "saved_model.pb").read_bytes())
    return [m for m in saved.meta_graphs if set(m.meta_info_def.tags) == set(tags)]


def _walk(original: Original) -> dict[int, tuple[Any, list[str]]]:
    """Every object with its paths, each object's children once, in order of discovery."""
    found: dict[int, tuple[Any, list[str]]] = {id(original.root): (original.root, [""])}
    queue = [original.root]
    for parent in queue:
        if not _is_plain(parent) or isinstance(parent, tf.Variable | tf.saved_model.Asset):
            continue
        for name, child in tf.train.TrackableView.children(parent).items():  # in the file's order, from which checkpoints take names
            original.edges.append((parent, name, child))
            prefix = found[id(parent)][1][0]
            if id(child) not in found:
                found[id(child)] = (child, [])
                queue.append(child)
            found[id(child)][1].append(f"{prefix}.{name}" if prefix else name)
    return found


def _shared_names(item: Any) -> dict[str, str]:
    """What the file calls the tables an object makes or fills, and with the suffix that loading adds."""
    nodes = [node for function in setup_functions(item) for node in _all_nodes(function.graph.as_graph_def())]
    names = [node.attr["shared_name"].s.decode(errors="replace") for node in nodes if node.op in _TABLES]
    return {_LOADED.sub("", name): name for name in names if name}


def setup_functions(item: Any) -> list[Any]:
    """What a table runs when it is loaded; what these capture must be there with it."""
    methods = [getattr(item, name, None) for name in ("_create_resource", "_initialize")]
    return [function for method in methods for function in getattr(method, "concrete_functions", ())]


def _all_nodes(graph_def: Any) -> list[Any]:
    return [*graph_def.node, *(node for function in graph_def.library.function for node in function.node_def)]


def _paths(places: Iterable[str], suffix: str) -> list[str]:
    return [form for place in places for form in (place, place.replace(".", "/"), place.replace(".", "/") + suffix)]


def _name(original: Original, item: Any, names: Iterable[str]) -> None:
    for name in dict.fromkeys(names):
        held = original.known.setdefault(name, [])
        if not any(item is other for other in held):
            held.append(item)


def _table_nodes(root: Any, path: Path, tags: tuple[str, ...]) -> dict[str, node_def_pb2.NodeDef]:
    """By node name and by the name the file shares them under. TensorFlow gives shared names a suffix when it loads, so as not to share."""
    chosen = _meta_graphs(path, tags)
    if not chosen:
        raise CleaveError(f"{path}: no meta graph with tags {sorted(tags)}")
    loaded = {node.name: node for node in root.graph.as_graph_def().node if node.op in _TABLES}
    found = dict(loaded)
    for node in chosen[0].graph_def.node:
        if node.name in loaded:
            found[node.attr["shared_name"].s.decode() or node.name] = loaded[node.name]
    return found


def rebuild(original: Original, kept: Iterable[Any]) -> AutoTrackable:
    """A new tree of plain objects that holds `kept` where the original holds them, and nothing else."""
    needed = _ancestors(original, list(kept))
    built: dict[int, Any] = {id(item): item for item in kept}
    root = AutoTrackable()
    built[id(original.root)] = root
    for _, _, child in original.edges:
        if id(child) in needed and id(child) not in built:
            built[id(child)] = _empty_like(child)
    for parent, name, child in original.edges:
        if id(parent) in needed and id(child) in built and _is_plain(parent):
            _attach(built[id(parent)], name, built[id(child)])
    return root


def _empty_like(container: Any) -> Any:
    if isinstance(container, ListWrapper):
        return ListWrapper([])
    return _DictWrapper({}) if isinstance(container, _DictWrapper) else AutoTrackable()


def _ancestors(original: Original, kept: list[Any]) -> set[int]:
    """Ids of the objects from which something kept is reached (ids of live objects only: the original holds them all)."""
    parents: dict[int, list[Any]] = {}
    for parent, _, child in original.edges:
        if _is_plain(parent):
            parents.setdefault(id(child), []).append(parent)
    needed = {id(original.root)}
    waiting = list(kept)
    while waiting:
        for parent in parents.get(id(waiting.pop()), ()):
            if id(parent) not in needed:
                needed.add(id(parent))
                waiting.append(parent)
    return needed


def _is_plain(item: Any) -> bool:
    """A container, not a function: functions are made anew."""
    return (
        not hasattr(item, "concrete_functions")
        and not hasattr(item, "structured_input_signature")
        and type(item).__name__ != "_SignatureMap"
    )


def _attach(parent: Any, name: str, child: Any) -> None:
    if isinstance(parent, ListWrapper):
        if not any(child is other for other in parent):
            parent.append(child)
    elif isinstance(parent, _DictWrapper):
        parent[name] = child
    elif parent is not child and name not in tf.train.TrackableView.children(parent):
        setattr(parent, name, child) if name.isidentifier() else parent._track_trackable(child, name=name)


def _concrete_functions(original: Original) -> list[Any]:
    children = [child for _, _, child in original.edges if not _is_plain(child)]
    signatures = list(getattr(original.root, "signatures", {}).values())
    return signatures + [function for child in children for function in getattr(child, "concrete_functions", ())]


def by_capture(original: Original, functions: Iterable[Any]) -> list[Any]:
    """The stateful objects whose handles the functions capture."""
    handles: Mapping[int, Any] = {id(_handle(item)): item for items in original.known.values() for item in items}
    found: list[Any] = []
    for function in functions:
        for tensor in function.captured_inputs:
            item = handles.get(id(tensor))
            if item is not None and not any(item is other for other in found):
                found.append(item)
    return found


def _handle(item: Any) -> Any:
    if isinstance(item, tf.Variable):
        return item.handle
    return item.asset_path if isinstance(item, tf.saved_model.Asset) else item.resource_handle


def handle_of(item: Any) -> Any:
    """What a function captures of a variable, table or asset."""
    return _handle(item)
