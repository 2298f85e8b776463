"""A TensorFlow checkpoint (`variables.index`, `variables.data-00000-of-00001`) read without TensorFlow's runtime.

prefix  =>  name -> Entry (dtype, shape, file, offset, bytes), a tensor on demand: numbers are mapped from the file, strings decoded

A variable saved in slices (partitioned, or by several writers) is an entry without bytes of its own; its slices are entries of their own,
under keys in the ordered code of `_slice_key`, and must cover it exactly. Every size is checked against the files before anything is
allocated; a damaged or hostile file ends in one CheckpointError.
"""

import math
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
from google.protobuf.message import DecodeError
from tensorflow.core.framework import types_pb2
from tensorflow.core.protobuf import tensor_bundle_pb2, trackable_object_graph_pb2

from compiler.frontend.crc32c import crc32c, unmasked
from compiler.frontend.sstable import TableError, read_table, varint

Array = npt.NDArray[Any]

OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
STRING = "string"

_MAX_RANK = 64  # numpy's
_MAX_ELEMENTS = 1 << 59

_RENAMED = {"half": "float16", "float": "float32", "double": "float64", "qint8": "int8", "qint16": "int16", "qint32": "int32"}
_RENAMED |= {"quint8": "uint8", "quint16": "uint16"}
_NUMPY = "bool uint8 uint16 uint32 uint64 int8 int16 int32 int64 float16 float32 float64 complex64 complex128"
_ML_DTYPES = "bfloat16 float8_e5m2 float8_e4m3fn float8_e4m3fnuz float8_e4m3b11fnuz float8_e5m2fnuz int2 uint2 int4 uint4"
_DTYPES = {name: np.dtype(name) for name in _NUMPY.split()}
_DTYPES |= {name: np.dtype(getattr(ml_dtypes, name)) for name in _ML_DTYPES.split() if hasattr(ml_dtypes, name)}


class CheckpointError(ValueError):
    """A checkpoint that cannot be read: the file, what is wrong, what was expected."""


@dataclass(frozen=True)
class Slice:
    """A part of a variable: where it begins in each dimension, and where its bytes are."""

    starts: tuple[int, ...]
    entry: "Entry"


@dataclass(frozen=True)
class Entry:
    """A saved tensor. `dtype` is numpy's name (`float32`, `bfloat16`), `string`, or TensorFlow's own for what has no array (`variant`).

    `nbytes` bytes at `offset` of `shard_file`, unless it is made of `slices`.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    shard_file: Path
    offset: int
    nbytes: int
    crc32c: int = 0
    slices: tuple[Slice, ...] = ()


def read_index(prefix: str | Path) -> dict[str, Entry]:
    """The entries of the checkpoint at `prefix` (`.../variables/variables`), by name, in order."""
    index_file = Path(f"{prefix}.index")
    try:
        pairs = read_table(index_file.read_bytes())
    except OSError as error:
        raise CheckpointError(f"{index_file}: {error.strerror or error}; expected a checkpoint's index") from None
    except TableError as error:
        raise CheckpointError(f"{index_file}: {error}") from None
    reader = _Index(index_file, pairs, _shard_files(index_file, pairs))
    return {name: reader.entry(key, name) for key in pairs if key and key[0] != 0 for name in [reader.name(key)]}


def read_tensor(entry: Entry, *, verify: bool = False) -> Array:
    """The tensor: numbers as a read-only view of the file, strings as an object array of bytes, slices assembled in memory.

    `verify` reads all bytes and checks them; strings are always checked.
    """
    if entry.slices:
        return _assembled(entry, verify)
    if entry.dtype == STRING:
        return _strings(entry)
    if entry.dtype not in _DTYPES:
        raise CheckpointError(f"{entry.shard_file}: {entry.name!r} is a {entry.dtype}, expected numbers or strings")
    data = _mapped(entry)
    if verify and crc32c(data) != entry.crc32c:
        raise _damaged(entry)
    return data.view(_DTYPES[entry.dtype]).reshape(entry.shape)


def object_graph(entries: Mapping[str, Entry]) -> trackable_object_graph_pb2.TrackableObjectGraph | None:
    """The saved objects and which entry holds which attribute; None in a checkpoint of names only."""
    entry = entries.get(OBJECT_GRAPH)
    if entry is None:
        return None
    if entry.dtype != STRING or entry.shape != ():
        raise CheckpointError(f"{entry.shard_file}: {OBJECT_GRAPH} is {entry.dtype}{list(entry.shape)}, expected one string")
    graph = trackable_object_graph_pb2.TrackableObjectGraph()
    try:
        graph.ParseFromString(read_tensor(entry).item())
    except DecodeError:
        raise CheckpointError(f"{entry.shard_file}: {OBJECT_GRAPH} is not a TrackableObjectGraph") from None
    return graph


def _shard_files(index_file: Path, pairs: Mapping[bytes, bytes]) -> list[Path]:
    header = tensor_bundle_pb2.BundleHeaderProto()
    if b"" not in pairs:
        raise CheckpointError(f"{index_file}: no header, expected one under the empty key")
    _parse(header, pairs[b""], index_file, "the header")
    if header.endianness != tensor_bundle_pb2.BundleHeaderProto.LITTLE:
        raise CheckpointError(f"{index_file}: big-endian data, expected little-endian")
    if not 1 <= header.num_shards <= 99999:
        raise CheckpointError(f"{index_file}: {header.num_shards} shards, expected 1 to 99999")
    stem = index_file.name.removesuffix(".index")
    return [index_file.with_name(f"{stem}.data-{shard:05d}-of-{header.num_shards:05d}") for shard in range(header.num_shards)]


def _parse(message: Any, data: bytes, file: Path, what: str) -> None:
    try:
        message.ParseFromString(data)
    except DecodeError:
        raise CheckpointError(f"{file}: {what} is not a {type(message).__name__}") from None


class _Index:
    """The index's pairs on the way to entries, with the sizes of the shards seen so far."""

    def __init__(self, file: Path, pairs: Mapping[bytes, bytes], shard_files: list[Path]) -> None:
        self._file, self._pairs, self._shard_files = file, pairs, shard_files
        self._sizes: dict[int, int] = {}

    def name(self, key: bytes) -> str:
        try:
            return key.decode()
        except UnicodeDecodeError:
            raise CheckpointError(f"{self._file}: {key!r} is not a name in UTF-8") from None

    def entry(self, key: bytes, name: str) -> Entry:
        proto = tensor_bundle_pb2.BundleEntryProto()
        _parse(proto, self._pairs[key], self._file, repr(name))
        shape = self._shape(proto, name)
        if proto.slices:
            slices = tuple(self._slice(proto, saved, key, name, shape) for saved in proto.slices)
            self._check_cover(name, shape, slices)
            return Entry(name, self._dtype(proto, name), shape, slices[0].entry.shard_file, 0, 0, 0, slices)
        if not 0 <= proto.shard_id < len(self._shard_files):
            raise CheckpointError(f"{self._file}: {name!r} lies in shard {proto.shard_id}, expected one of {len(self._shard_files)}")
        file = self._shard_files[proto.shard_id]
        entry = Entry(name, self._dtype(proto, name), shape, file, proto.offset, proto.size, unmasked(proto.crc32c))
        self._check_bounds(entry, self._size(proto.shard_id))
        return entry

    def _dtype(self, proto: tensor_bundle_pb2.BundleEntryProto, name: str) -> str:
        try:
            own: str = types_pb2.DataType.Name(proto.dtype).removeprefix("DT_").lower()
        except ValueError:
            raise CheckpointError(f"{self._file}: {name!r} has dtype number {proto.dtype}, which TensorFlow does not have") from None
        return _RENAMED.get(own, own)

    def _shape(self, proto: tensor_bundle_pb2.BundleEntryProto, name: str) -> tuple[int, ...]:
        shape = tuple(dim.size for dim in proto.shape.dim)
        if proto.shape.unknown_rank or len(shape) > _MAX_RANK or any(size < 0 for size in shape):
            raise CheckpointError(f"{self._file}: {name!r} has shape {list(shape)}, expected at most {_MAX_RANK} sizes of 0 or more")
        if math.prod(max(size, 1) for size in shape) >= _MAX_ELEMENTS:  # also where a 0 hides it: no array can be that large
            raise CheckpointError(f"{self._file}: {name!r} has shape {list(shape)}, expected fewer than 2^59 elements")
        return shape

    def _size(self, shard: int) -> int:
        if shard not in self._sizes:
            try:
                self._sizes[shard] = self._shard_files[shard].stat().st_size
            except OSError as error:
                raise CheckpointError(f"{self._shard_files[shard]}: {error.strerror}; expected by {self._file.name}") from None
        return self._sizes[shard]

    def _check_bounds(self, entry: Entry, file_size: int) -> None:
        if entry.offset < 0 or entry.nbytes < 0 or entry.offset + entry.nbytes > file_size:
            span = f"{entry.nbytes} bytes at {entry.offset}"
            raise CheckpointError(f"{entry.shard_file}: {entry.name!r} has {span}, expected them within the file's {file_size}")
        elements = math.prod(entry.shape)
        if entry.dtype == STRING and entry.nbytes < elements + 4:
            raise CheckpointError(f"{entry.shard_file}: {entry.name!r} has {entry.nbytes} bytes, expected more for {elements} strings")
        if entry.dtype in _DTYPES and entry.nbytes != elements * _DTYPES[entry.dtype].itemsize:
            expected = f"{elements * _DTYPES[entry.dtype].itemsize} for {entry.dtype}{list(entry.shape)}"
            raise CheckpointError(f"{entry.shard_file}: {entry.name!r} has {entry.nbytes} bytes, expected {expected}")

    def _slice(self, whole: Any, saved: Any, key: bytes, name: str, shape: tuple[int, ...]) -> Slice:
        if len(saved.extent) != len(shape):
            raise CheckpointError(f"{self._file}: a slice of {name!r} has {len(saved.extent)} dimensions, expected {len(shape)}")
        extents = [(extent.start, extent.length if extent.HasField("length") else -1) for extent in saved.extent]
        starts = tuple(start for start, _ in extents)
        lengths = tuple(size - start if length < 0 else length for size, (start, length) in zip(shape, extents, strict=True))
        if any(start < 0 or length < 0 or start + length > size for start, length, size in zip(starts, lengths, shape, strict=True)):
            raise CheckpointError(f"{self._file}: {name!r} has a slice from {list(starts)} of {list(lengths)}, beyond {list(shape)}")
        slice_key = _slice_key(key, extents)
        if slice_key not in self._pairs:
            raise CheckpointError(f"{self._file}: {name!r} lacks its slice from {list(starts)} of {list(lengths)}")
        part = self.entry(slice_key, name) if not self._is_sliced(slice_key) else None
        if part is None:
            raise CheckpointError(f"{self._file}: a slice of {name!r} is itself sliced")
        if part.shape != lengths or part.dtype != self._dtype(whole, name):
            got = f"{part.dtype}{list(part.shape)}"
            raise CheckpointError(f"{self._file}: a slice of {name!r} is {got}, expected {self._dtype(whole, name)}{list(lengths)}")
        return Slice(starts, part)

    def _is_sliced(self, key: bytes) -> bool:
        proto = tensor_bundle_pb2.BundleEntryProto()
        _parse(proto, self._pairs[key], self._file, repr(key))
        return len(proto.slices) > 0

    def _check_cover(self, name: str, shape: tuple[int, ...], slices: tuple[Slice, ...]) -> None:
        """Slices that are as many elements as the whole and of which no two meet cover it."""
        covered = sum(math.prod(part.entry.shape) for part in slices)
        if covered != math.prod(shape):
            raise CheckpointError(f"{self._file}: the slices of {name!r} hold {covered} elements, expected {math.prod(shape)}")
        filled = [part for part in slices if math.prod(part.entry.shape)]
        starts = np.array([part.starts for part in filled], np.int64).reshape(len(filled), len(shape))
        ends = starts + np.array([part.entry.shape for part in filled], np.int64).reshape(starts.shape)
        for index in range(len(filled)):
            meets = (starts[:index] < ends[index]) & (starts[index] < ends[:index])
            if meets.all(axis=1).any():
                raise CheckpointError(f"{self._file}: slices of {name!r} overlap at {starts[index].tolist()}")


def _slice_key(name: bytes, extents: list[tuple[int, int]]) -> bytes:
    """TensorFlow's ordered code of 0, the name, the rank, and each dimension's start and length (-1: all of it)."""
    escaped = re.sub(rb"[\x00\xff]", lambda match: b"\x00\xff" if match[0] == b"\x00" else b"\xff\x00", name)
    rank = len(extents).to_bytes(1, "big")
    head = b"\x00" + escaped + b"\x00\x01" + (b"\x01" + rank if extents else b"\x00")
    return head + b"".join(_signed_code(number) for extent in extents for number in extent)


def _signed_code(number: int) -> bytes:
    """A number whose leading bits say how many bytes it has, so that the codes sort as the numbers do."""
    magnitude = ~number if number < 0 else number
    length = magnitude.bit_length() // 7 + 1
    header = ((1 << length) - 1) << (8 * length - length)
    return ((number & ((1 << 8 * length) - 1)) ^ header).to_bytes(length, "big")


def _mapped(entry: Entry) -> npt.NDArray[np.uint8]:
    if entry.nbytes == 0:
        return np.empty(0, np.uint8)
    try:
        mapped = np.memmap(entry.shard_file, np.uint8, "r", entry.offset, (entry.nbytes,))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{entry.shard_file}: {error}; expected {entry.nbytes} bytes at {entry.offset} for {entry.name!r}") from None
    return mapped.view(np.ndarray)


def _strings(entry: Entry) -> Array:
    """lengths (varints) . their masked checksum (u32) . the bytes; the entry's own is of lengths (u32 each) . checksum . bytes"""
    data = _mapped(entry).tobytes()
    count = math.prod(entry.shape)
    lengths, position = [], 0
    try:
        for _ in range(count):
            length, position = varint(data, position)
            lengths.append(length)
    except TableError:
        raise _damaged(entry) from None
    start = position + 4
    if start + sum(lengths) != len(data):
        raise _damaged(entry)
    checked = b"".join(struct.pack("<I" if length < 1 << 32 else "<Q", length) for length in lengths)
    (stored,) = struct.unpack_from("<I", data, position)
    if crc32c(checked) != unmasked(stored) or crc32c(checked + data[position:]) != entry.crc32c:
        raise _damaged(entry)
    strings = np.empty(count, object)
    for index, length in enumerate(lengths):
        strings[index] = data[start : start + length]
        start += length
    return strings.reshape(entry.shape)


def _assembled(entry: Entry, verify: bool) -> Array:
    whole = np.empty(entry.shape, object if entry.dtype == STRING else _DTYPES.get(entry.dtype, object))
    for part in entry.slices:
        where = tuple(slice(start, start + size) for start, size in zip(part.starts, part.entry.shape, strict=True))
        whole[where] = read_tensor(part.entry, verify=verify)
    return whole


def _damaged(entry: Entry) -> CheckpointError:
    return CheckpointError(f"{entry.shard_file}: the {entry.nbytes} bytes of {entry.name!r} at {entry.offset} do not match their checksum")
