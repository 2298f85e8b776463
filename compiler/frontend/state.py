"""Which checkpoint entry each variable of a graph is restored from, read off the graph's own restore function.

    RestoreV2(prefix, names, ...) -> Identity -> AssignVariableOp(handle)      =>   handle <- names[k]

The saver is in the graph: at the top (v1), or in a function called with the handles (v2).  Its file names nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import tensorflow as tf
from tensorflow.core.framework import function_pb2, graph_pb2, node_def_pb2

from compiler.frontend.checkpoint import CheckpointError, Entry, read_index, read_tensor
from compiler.ir.errors import CleaveError
from compiler.ir.types import DType
from compiler.ir.weights import Literal, Stores, WeightRef

_ASSIGNS = ("AssignVariableOp", "Assign")
_PASSES = ("Identity", "Cast", "Reshape")


def restored_names(graph_def: graph_pb2.GraphDef, library: Mapping[str, function_pb2.FunctionDef]) -> dict[str, str]:
    """Top-level node of a variable's handle -> the checkpoint entry it is restored from."""
    found = _assigned(graph_def.node)
    for node in graph_def.node:
        function = library.get(node.attr["f"].func.name) if node.op in ("StatefulPartitionedCall", "PartitionedCall") else None
        if function is None or not any(n.op == "RestoreV2" for n in function.node_def):
            continue
        arguments = [a.name for a in function.signature.input_arg]
        inner = _assigned(function.node_def)
        for argument, handle in zip(arguments, node.input, strict=False):
            if argument in inner:
                found.setdefault(handle.split(":")[0], inner[argument])
    return found


def _assigned(nodes: Iterable[node_def_pb2.NodeDef]) -> dict[str, str]:
    """Handle -> entry, for the assignments of restored values among these nodes."""
    by_name = {node.name: node for node in nodes}
    found = {}
    for node in by_name.values():
        if node.op in _ASSIGNS and len(node.input) >= 2:
            entry = _restored(by_name, node.input[1])
            if entry is not None:
                found[node.input[0].split(":")[0]] = entry
    return found


def _restored(by_name: Mapping[str, node_def_pb2.NodeDef], reference: str) -> str | None:
    """The entry a value is restored from, looking through identities."""
    for _ in range(8):
        name, *rest = reference.split(":")
        node = by_name.get(name)
        if node is None:
            return None
        if node.op == "RestoreV2":
            names = by_name.get(node.input[1].split(":")[0])
            if names is None or names.op != "Const":
                return None
            listed = tf.make_ndarray(names.attr["value"].tensor).reshape(-1)
            index = int(rest[-1]) if rest and rest[-1].isdigit() else 0
            return str(listed[index].decode()) if index < len(listed) else None
        if node.op not in _PASSES or not node.input:
            return None
        reference = node.input[0]
    return None


class Checkpoint:
    """The stored values of a SavedModel, as references into its files."""

    def __init__(self, directory: Path, stores: Stores) -> None:
        self._prefix, self._stores = directory / "variables" / "variables", stores
        self._entries: Mapping[str, Entry] | None = None

    def literal(self, name: str, variable: str) -> Literal:
        """The value of an entry."""
        if self._entries is None:
            try:
                self._entries = read_index(self._prefix)
            except CheckpointError as error:
                raise CleaveError(str(error)) from None
        if name not in self._entries:
            raise CleaveError(f"{self._prefix}.index has no entry {name!r} for variable {variable!r}; is the model complete?")
        entry = self._entries[name]
        dtype = DType(entry.dtype)
        if entry.slices or dtype == "string":
            try:
                return self._stores.constant(read_tensor(entry), dtype)
            except CheckpointError as error:
                raise CleaveError(str(error)) from None
        store = entry.shard_file.name
        self._stores.add(store, entry.shard_file)
        return WeightRef(store, entry.offset, dtype, entry.shape)
