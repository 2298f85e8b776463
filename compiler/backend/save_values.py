"""A saved model's checkpoint, written part by part, so that no more than one part's values stand in memory.

hollow variables + where each value comes from  =>  variables/variables.index, variables/variables.data-0000i-of-0000n

TensorFlow saves variables from memory, all at once. Here they are saved empty, and then what they hold is streamed into the checkpoint
under the same keys: from the module's files, and for state that the original keeps from the original's own checkpoint.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import tensorflow as tf
from tensorflow.core.protobuf import trackable_object_graph_pb2
from tensorflow.python.ops import resource_variable_ops

PART_BYTES = 256 << 20
"""A part of the checkpoint holds this many bytes, or one tensor that is larger."""

Place: TypeAlias = tuple[int, str]
"""An object that is alive and the name of one of its attributes."""
Source: TypeAlias = Callable[[], Any]

_GRAPH_KEY = "_CHECKPOINTABLE_OBJECT_GRAPH"


def hollow(variable: Any) -> None:
    """Give a variable an empty value: whatever its declared shape, it can be saved and takes no memory."""
    empty = tf.constant([], dtype=variable.dtype) if variable.dtype == tf.string else tf.zeros([0], variable.dtype)
    tf.raw_ops.AssignVariableOp(resource=variable.handle, value=empty, validate_shape=False)


def hollow_variable(shape: tf.TensorShape, dtype: str, name: str, trainable: bool) -> tf.Variable:
    """A new one, empty."""
    made = resource_variable_ops.UninitializedVariable(shape=shape, dtype=dtype, name=name, trainable=trainable)
    hollow(made)
    return made


def rewrite_checkpoint(directory: Path, root: Any, declared: Iterable[tuple[Any, Source]], original: tuple[Any, str] | None) -> None:
    """Replace the checkpoint of the SavedModel at `directory`, saved from `root`, by one with the values.

    `declared`: variables and what they hold. `original`: the loaded object whose parts `root` may share, and its checkpoint's prefix;
    keys of neither (the object graph, values that were in memory) are taken over as they were saved.
    """
    prefix = str(directory / "variables" / "variables")
    sources: dict[Place, Source] = {(id(variable), "VARIABLE_VALUE"): source for variable, source in declared}
    if original is not None:
        held = _places(original[0], original[1])
        sources = {place: _stored(original[1], key) for place, key in held.items()} | sources
    wanted = {key: sources[place] for place, key in _places(root, prefix).items() if place in sources}
    if wanted:
        _write(directory, prefix, wanted)


def _places(root: Any, prefix: str) -> dict[Place, str]:
    """Where each key of a checkpoint belongs: the saved object graph walked beside the live one."""
    reader = tf.train.load_checkpoint(prefix)
    if not reader.has_tensor(_GRAPH_KEY):
        return {}
    nodes = trackable_object_graph_pb2.TrackableObjectGraph.FromString(reader.get_tensor(_GRAPH_KEY)).nodes
    found: dict[Place, str] = {}
    seen = {0}
    queue: list[tuple[Any, int]] = [(root, 0)]
    for item, index in queue:
        found |= {(id(item), attribute.name): attribute.checkpoint_key for attribute in nodes[index].attributes}
        children = tf.train.TrackableView.children(item)
        for child in nodes[index].children:
            if child.node_id not in seen and child.local_name in children:
                seen.add(child.node_id)
                queue.append((children[child.local_name], child.node_id))
    return found


def _stored(prefix: str, key: str) -> Source:
    return lambda: _restored(prefix, key, tf.train.load_checkpoint(prefix).get_variable_to_dtype_map()[key])


def _restored(prefix: str, key: str, dtype: Any) -> Any:
    return tf.raw_ops.RestoreV2(prefix=prefix, tensor_names=[key], shape_and_slices=[""], dtypes=[dtype])[0]


def _write(directory: Path, prefix: str, wanted: Mapping[str, Source]) -> None:
    keys = tf.train.load_checkpoint(prefix).get_variable_to_dtype_map()
    values = ((key, wanted[key]() if key in wanted else _restored(prefix, key, keys[key])) for key in sorted(keys))
    fresh = directory / "variables.parts"
    parts: list[str] = []
    for names, tensors in _grouped((key, tf.convert_to_tensor(value)) for key, value in values):
        part = fresh / f"part{len(parts)}"
        part.mkdir(parents=True)
        parts.append(str(part / "part"))
        tf.raw_ops.SaveV2(prefix=parts[-1], tensor_names=names, shape_and_slices=[""] * len(names), tensors=tensors)
    tf.raw_ops.MergeV2Checkpoints(checkpoint_prefixes=parts, destination_prefix=str(fresh / "variables"), delete_old_dirs=False)
    for written in parts:
        shutil.rmtree(Path(written).parent, ignore_errors=True)
    shutil.rmtree(directory / "variables")
    fresh.rename(directory / "variables")


def _grouped(values: Iterable[tuple[str, Any]]) -> Iterator[tuple[list[str], list[Any]]]:
    names: list[str] = []
    tensors: list[Any] = []
    held = 0
    for name, tensor in values:
        size = 0 if tensor.dtype == tf.string else int(tf.size(tensor)) * tensor.dtype.size
        if names and held + size > PART_BYTES:
            yield names, tensors
            names, tensors, held = [], [], 0
        names.append(name)
        tensors.append(tensor)
        held += size
    if names:
        yield names, tensors
