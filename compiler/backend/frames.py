"""The language of a parent and its child: length-prefixed frames over a socket, a JSON header and raw buffers.

frame = header length (u32) . header (JSON, with a dtype and a shape for each array) . the arrays' bytes, one after the other

Nothing is pickled, so a frame can hold data only. A string array travels as its n lengths (i64) and its bytes, joined.
"""

import json
import math
import socket
import struct
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np

from compiler.execution import Array, Artefact, FileTensor, GraphDefArtefact, SavedModelArtefact

Json: TypeAlias = dict[str, Any]

_PREFIX = struct.Struct("<I")
_STRING = "string"
_WRITE_BYTES = 1 << 20


class ConnectionEnded(Exception):
    """The other side closed its end."""


class DeadlineExceeded(Exception):
    """The other side did not answer in time."""


class Channel:
    """One end of the conversation; `deadline` is a moment of `time.monotonic`, None waits for ever."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self.deadline: float | None = None

    def close(self) -> None:
        self._connection.close()

    def send(self, header: Json, arrays: Sequence[Array] = ()) -> None:
        encoded = [_encode(array) for array in arrays]
        text = json.dumps({**header, "arrays": [description for description, _ in encoded]}).encode()
        self._write(memoryview(_PREFIX.pack(len(text)) + text))
        for _, buffers in encoded:
            for buffer in buffers:
                self._write(buffer)

    def receive(self) -> tuple[Json, list[Array]]:
        (length,) = _PREFIX.unpack(self._read(_PREFIX.size))
        header: Json = json.loads(bytes(self._read(length)))
        return header, [_decode(description, self._read) for description in header.pop("arrays")]

    def _write(self, buffer: memoryview) -> None:
        for start in range(0, len(buffer), _WRITE_BYTES):  # a timeout counts for a whole sendall, so in pieces
            self._await()
            try:
                self._connection.sendall(buffer[start : start + _WRITE_BYTES])
            except TimeoutError:
                raise DeadlineExceeded from None
            except OSError:
                raise ConnectionEnded from None

    def _read(self, size: int) -> memoryview:
        buffer = np.empty(size, np.uint8).data
        done = 0
        while done < size:
            self._await()
            try:
                count = self._connection.recv_into(buffer[done:])
            except TimeoutError:
                raise DeadlineExceeded from None
            except OSError:
                raise ConnectionEnded from None
            if count == 0:
                raise ConnectionEnded
            done += count
        return buffer

    def _await(self) -> None:
        if self.deadline is None:
            self._connection.settimeout(None)
            return
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise DeadlineExceeded
        self._connection.settimeout(left)


def _encode(array: Array) -> tuple[Json, list[memoryview]]:
    shape = list(array.shape)
    if array.dtype.kind in "OSUT":
        items = [item.encode() if isinstance(item, str) else bytes(item) for item in array.reshape(-1).tolist()]
        lengths = np.array([len(item) for item in items], np.int64)
        joined = b"".join(items)
        return {"dtype": _STRING, "shape": shape, "bytes": len(joined)}, [_raw(lengths), memoryview(joined)]
    if array.dtype.names:  # a quantized type of TensorFlow's, a record of one integer
        array = array.view(array.dtype[0])
    return {"dtype": array.dtype.name, "shape": shape}, [_raw(array)]


def _raw(array: Array) -> memoryview:
    if array.size == 0:
        return memoryview(b"")
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def _decode(description: Json, read: Callable[[int], memoryview]) -> Array:
    shape = tuple(description["shape"])
    count = math.prod(shape)
    if description["dtype"] != _STRING:
        dtype = dtype_named(description["dtype"])
        return np.frombuffer(read(count * dtype.itemsize), dtype).reshape(shape)
    lengths = np.frombuffer(read(count * 8), np.int64).tolist()
    joined = bytes(read(description["bytes"]))
    strings = np.empty(count, object)
    start = 0
    for index, length in enumerate(lengths):
        strings[index] = joined[start : start + length]
        start += length
    return strings.reshape(shape)


def dtype_named(name: str) -> "np.dtype[Any]":
    """`float32` and `bfloat16` alike, by the name a dtype gives itself."""
    return np.dtype(getattr(ml_dtypes, name)) if hasattr(ml_dtypes, name) else np.dtype(name)


def encode_artefact(artefact: Artefact) -> tuple[Json, list[Array]]:
    """Paths become absolute (the child has a directory of its own); a serialized graph travels as bytes."""
    if isinstance(artefact, SavedModelArtefact):
        path = str(Path(artefact.path).absolute())
        return {
            "type": "saved_model",
            "path": path,
            "signature": artefact.signature,
            "tags": list(artefact.tags),
            "method": artefact.method,
            "loader": artefact.loader,
            "variable_devices": artefact.variable_devices,
        }, []
    inline = isinstance(artefact.graph_def, bytes)
    return {
        "type": "graph_def",
        "path": None if inline else str(Path(str(artefact.graph_def)).absolute()),
        "feeds": dict(artefact.feeds),
        "fetches": dict(artefact.fetches),
        "targets": list(artefact.targets),
        "initializers": list(artefact.initializers),
        "initial": {tensor: asdict(value) | {"path": str(Path(value.path).absolute())} for tensor, value in artefact.initial.items()},
    }, [np.frombuffer(artefact.graph_def, np.uint8)] if isinstance(artefact.graph_def, bytes) else []


def decode_artefact(header: Json, arrays: Sequence[Array]) -> Artefact:
    if header["type"] == "saved_model":
        return SavedModelArtefact(
            path=header["path"],
            signature=header["signature"],
            tags=tuple(header["tags"]),
            method=header["method"],
            loader=header["loader"],
            variable_devices=header["variable_devices"],
        )
    return GraphDefArtefact(
        graph_def=header["path"] if header["path"] is not None else arrays[0].tobytes(),
        feeds=header["feeds"],
        fetches=header["fetches"],
        targets=tuple(header["targets"]),
        initializers=tuple(header["initializers"]),
        initial={tensor: _decode_file(value) for tensor, value in header["initial"].items()},
    )


def _decode_file(value: Json) -> FileTensor:
    region = value["region"]
    regions = None if region is None else tuple((start, size) for start, size in region)
    return FileTensor(value["path"], value["offset"], value["dtype"], tuple(value["shape"]), regions)


def mapped(value: FileTensor) -> Array:
    """The array, memory-mapped: only what is read of it is loaded."""
    dtype = dtype_named(value.dtype)
    if math.prod(value.shape) == 0:
        return np.zeros([size for _, size in value.region or ((0, size) for size in value.shape)], dtype)
    whole = np.memmap(value.path, dtype, "r", value.offset, value.shape)
    return whole if value.region is None else whole[tuple(slice(start, start + size) for start, size in value.region)]
