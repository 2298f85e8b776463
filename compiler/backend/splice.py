"""Weights put into a written SavedModel, straight from their files: the proto that holds them never stands in memory.

Const() {value=splat(f32[4096,4096], 0), _cleave_weight="3"} + weights["3"]  =>  Const() {value=tensor_content of weights["3"]}

TensorFlow copies every constant a dozen times while it traces and saves.  So what it saves are splats with a mark, and the file is then
rewritten as bytes: only the lengths of the messages around a weight change.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np
from tensorflow.core.framework import node_def_pb2

from compiler.ir.errors import IrError
from compiler.ir.module import Module
from compiler.ir.types import DType
from compiler.ir.weights import Splat, Stores, Tensor, WeightRef

MARK = "_cleave_weight"
HOLLOW_BYTES = 1 << 16
"""Smaller ones, which shapes may depend on, stay."""

_FLOATS = ("float16", "bfloat16", "float32", "float64", "complex64", "complex128")
_INTEGERS = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
_PLAIN = frozenset((*_FLOATS, *_INTEGERS))
"""The element types whose `tensor_content` is their memory."""
# SavedModel.meta_graphs, MetaGraphDef.graph_def, GraphDef.library, FunctionDefLibrary.function, FunctionDef.node_def
_PATH_TO_NODES = (2, 2, 2, 1, 3)
_ATTR, _KEY, _VALUE, _TENSOR, _CONTENT = 5, 1, 2, 8, 4

Piece: TypeAlias = "bytes | WeightRef"


def hollow_weights(module: Module) -> tuple[Module, dict[str, WeightRef]]:
    """A copy whose large weights are marked splats, and the weights by mark."""
    weights: dict[str, WeightRef] = {}
    hollowed = module.copy()
    for graph in hollowed.graphs.values():
        for node in list(graph):
            literal = node.attrs.get("value") if node.op == "Const" else None
            if isinstance(literal, WeightRef) and literal.nbytes >= HOLLOW_BYTES and literal.dtype in _PLAIN:
                mark = str(len(weights))
                weights[mark] = literal
                zero = np.zeros((), DType(literal.dtype).numpy)
                graph.set_attrs(node.name, {**node.attrs, "value": Splat(Tensor(literal.dtype, zero), literal.shape), MARK: mark})
    return hollowed, weights


def fill(file: Path, weights: Mapping[str, WeightRef], stores: Stores) -> str:
    """Rewrite `saved_model.pb` with the weights where their marks are; the SHA-256 of what it now holds, in hex."""
    left = dict(weights)
    pieces, _ = _spliced(file.read_bytes(), _PATH_TO_NODES, left)
    if left:
        raise IrError(f"{file}: {len(left)} of {len(weights)} weights have no place, expected one marked Const for each")
    digest = hashlib.sha256()
    sibling = file.with_suffix(".filled")
    with sibling.open("wb") as out:
        for piece in pieces:
            data = piece if isinstance(piece, bytes) else _content(piece, stores)
            digest.update(data)
            out.write(data)
    sibling.replace(file)
    return digest.hexdigest()


def _content(weight: WeightRef, stores: Stores) -> memoryview:
    return np.ascontiguousarray(stores.load(weight)).reshape(-1).view(np.uint8).data


def _spliced(data: bytes, path: Sequence[int], left: dict[str, WeightRef]) -> tuple[list[Piece], int]:
    """A message's pieces and their length together, with every message at `path` below it filled."""
    if MARK.encode() not in data:
        return [data], len(data)
    if not path:
        return _filled(data, left)
    pieces: list[Piece] = []
    length = 0
    for number, start, content, end in _fields(data):
        if number != path[0]:
            pieces.append(data[start:end])
            length += end - start
            continue
        inner, size = _spliced(data[content:end], path[1:], left)
        head = _tag(number) + _varint(size)
        pieces += [head, *inner]
        length += len(head) + size
    return pieces, length


def _filled(data: bytes, left: dict[str, WeightRef]) -> tuple[list[Piece], int]:
    """A Const's NodeDef; `value` is the last of its attributes in their order."""
    node = node_def_pb2.NodeDef.FromString(data)
    if MARK not in node.attr:
        return [data], len(data)
    weight = left.pop(node.attr[MARK].s.decode())
    tensor = node.attr["value"].tensor
    shape, dtype = tensor.tensor_shape, tensor.dtype
    tensor.Clear()
    tensor.dtype = dtype
    tensor.tensor_shape.CopyFrom(shape)
    header = tensor.SerializeToString(deterministic=True)
    del node.attr[MARK], node.attr["value"]
    pieces: list[Piece] = [weight]
    size = weight.nbytes
    # from inside out: a tensor's content, a value's tensor, a map entry's value, a node's attribute, and what comes before each
    levels = ((_CONTENT, header), (_TENSOR, b""), (_VALUE, _field(_KEY, b"value")), (_ATTR, node.SerializeToString(deterministic=True)))
    for number, before in levels:
        head = before + _tag(number) + _varint(size)
        pieces.insert(0, head)
        size += len(head)
    return pieces, size


def _field(number: int, content: bytes) -> bytes:
    return _tag(number) + _varint(len(content)) + content


def _fields(data: bytes) -> Iterator[tuple[int, int, int, int]]:
    """(number, where the field starts, where its content starts, where it ends), in order."""
    position = 0
    while position < len(data):
        start = position
        key, position = _read_varint(data, position)
        kind = key & 7
        if kind == 2:
            size, position = _read_varint(data, position)
            content, position = position, position + size
        elif kind == 0:
            content = position
            _, position = _read_varint(data, position)
        elif kind in (1, 5):
            content, position = position, position + (8 if kind == 1 else 4)
        else:
            raise IrError(f"a proto's field {key >> 3} has wire type {kind}, expected 0, 1, 2 or 5")
        yield key >> 3, start, content, position


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, position
        shift += 7


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def _tag(number: int) -> bytes:
    return _varint(number << 3 | 2)
