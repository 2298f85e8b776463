"""Which checkpoint entry each variable of a graph is restored from, read off the graph's own restore function.

    RestoreV2(prefix, names, slices) -> Identity -> AssignVariableOp(handle)   =>   handle <- names[k], or the part slices[k] of it

The saver is in the graph: at the top (v1), or in a function called with the handles (v2).  Its file names nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import EllipsisType

import tensorflow as tf
from tensorflow.core.framework import function_pb2, graph_pb2, node_def_pb2, types_pb2

from compiler.frontend.checkpoint import CheckpointError, Entry, read_index, read_tensor
from compiler.ir.errors import CleaveError, IrError
from compiler.ir.types import DType, TensorType, compatible
from compiler.ir.weights import Literal, Stores, WeightRef, literal_type

_ASSIGNS = ("AssignVariableOp", "Assign")


@dataclass(frozen=True)
class Stored:
    """A checkpoint entry, or the part (start, size for each dimension) of it that one variable of a partitioned one holds."""

    name: str
    part: tuple[tuple[int, int], ...] | None = None


def restored_names(graph_def: graph_pb2.GraphDef, library: Mapping[str, function_pb2.FunctionDef]) -> dict[str, Stored]:
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


def _assigned(nodes: Iterable[node_def_pb2.NodeDef]) -> dict[str, Stored]:
    """Handle -> entry, for the assignments of restored values among these nodes."""
    by_name = {node.name: node for node in nodes}
    found = {}
    for node in by_name.values():
        if node.op in _ASSIGNS and len(node.input) >= 2:
            entry = _restored(by_name, node.input[1])
            if entry is not None:
                found[node.input[0].split(":")[0]] = entry
    return found


def _restored(by_name: Mapping[str, node_def_pb2.NodeDef], reference: str) -> Stored | None:
    """The entry a value is restored from, looking through identities."""
    for _ in range(8):
        name, *rest = reference.split(":")
        node = by_name.get(name)
        if node is None or not node.input:
            return None
        if node.op == "RestoreV2" and len(node.input) >= 3:
            index = int(rest[-1]) if rest and rest[-1].isdigit() else 0
            names, slices = (_strings(by_name.get(text.split(":")[0])) for text in node.input[1:3])
            if index >= len(names) or index >= len(slices):
                return None
            return Stored(names[index], _part(slices[index], names[index]))
        if node.op != "Identity":
            return None
        reference = node.input[0]
    return None


def _strings(node: node_def_pb2.NodeDef | None) -> list[str]:
    if node is None or node.op != "Const" or node.attr["value"].tensor.dtype != types_pb2.DT_STRING:
        return []
    return [bytes(item).decode(errors="replace") for item in tf.make_ndarray(node.attr["value"].tensor).reshape(-1)]


def _part(text: str, name: str) -> tuple[tuple[int, int], ...] | None:
    """`8 4 0,4:-` (the sizes of the whole, then start and size, `-` for all of a dimension) => ((0, 4), (0, 4)); "" is the whole."""
    *sizes, extents = text.split()[:64] or [""]
    if not text:
        return None
    try:
        spans = [(0, int(size)) if e == "-" else tuple(map(int, e.split(","))) for size, e in zip(sizes, extents.split(":"), strict=True)]
        return tuple((start, size) for start, size in spans)
    except ValueError:
        raise CleaveError(f"variable {name!r} is restored from the slice {text!r}, expected sizes and START,SIZE for each") from None


class Checkpoint:
    """The stored values of a SavedModel, as references into its files."""

    def __init__(self, directory: Path, stores: Stores) -> None:
        self._prefix, self._stores = directory / "variables" / "variables", stores
        self._entries: Mapping[str, Entry] | None = None

    def literal(self, stored: Stored, variable: str, type_: TensorType) -> Literal:
        """The value of a variable of that type."""
        try:
            literal = self._literal(stored, variable, type_.dtype)
        except (CheckpointError, IrError) as error:
            raise CleaveError(str(error)) from None
        if not compatible(literal_type(literal), type_):
            kept = f"{self._prefix}.index keeps {literal_type(literal)}"
            raise CleaveError(f"{kept} for variable {variable!r} of type {type_}; is it the checkpoint of this model?")
        return literal

    def _literal(self, stored: Stored, variable: str, declared: DType) -> Literal:
        if self._entries is None:
            self._entries = read_index(self._prefix)
        if stored.name not in self._entries:
            raise CleaveError(f"{self._prefix}.index has no entry {stored.name!r} for variable {variable!r}; is the model complete?")
        entry = self._entries[stored.name]
        dtype = DType(entry.dtype)
        dtype = declared if declared.numpy == dtype.numpy else dtype  # a checkpoint's reader says int8 for qint8
        if entry.slices or dtype == "string":
            array = read_tensor(entry)
            part: tuple[slice | EllipsisType, ...] = (*(slice(start, start + size) for start, size in stored.part or ()), ...)
            return self._stores.constant(array[part], dtype)  # of no part of a scalar string `array[()]` is its bytes
        store = entry.shard_file.name
        self._stores.add(store, entry.shard_file)
        whole = WeightRef(store, entry.offset, dtype, entry.shape)
        return whole if stored.part is None else whole.slice(*map(tuple, zip(*stored.part, strict=True)))
