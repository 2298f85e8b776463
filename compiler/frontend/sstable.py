"""A LevelDB table as a sorted list of (key, value): the container of a checkpoint's index.

file = data blocks . metaindex block . index block . footer (two handles, padding, magic), 48 bytes
block = entries . restart offsets (u32 each) . their count (u32), then on disk its type (0 raw, 1 snappy) and a masked CRC-32C
entry = shared, unshared, value length (varints) . key's unshared bytes . value
"""

import struct
from collections.abc import Iterator

from compiler.frontend.crc32c import crc32c, unmasked

_FOOTER_BYTES = 48
_TRAILER_BYTES = 5
_MAGIC = 0xDB4775248B80FB57
_VARINT_BITS = 64
_MAX_KEY_BYTES = 1 << 28


class TableError(ValueError):
    """Not a table, or a damaged one: what is wrong and what was expected."""


def read_table(data: bytes) -> dict[bytes, bytes]:
    """All pairs of the table, in order; every block's checksum is verified."""
    if len(data) < _FOOTER_BYTES:
        raise TableError(f"{len(data)} bytes; a table has a footer of {_FOOTER_BYTES}")
    (magic,) = struct.unpack_from("<Q", data, len(data) - 8)
    if magic != _MAGIC:
        raise TableError(f"ends in {magic:#018x}, expected a table's magic number {_MAGIC:#018x}")
    metaindex, position = _handle(data, len(data) - _FOOTER_BYTES)
    index, position = _handle(data, position)
    if any(data[position:-8]):
        raise TableError("a footer whose padding is not zeros")
    _block(data, *metaindex)
    pairs: dict[bytes, bytes] = {}
    last: bytes | None = None
    expanded = 0
    for _, handle in _entries(_block(data, *index)):
        for key, value in _entries(_block(data, *_handle(handle, 0)[0])):
            if last is not None and key <= last:
                raise TableError(f"key {key!r} follows {last!r}, expected ascending keys")
            expanded += len(key)
            if expanded > _MAX_KEY_BYTES:  # keys that share their beginnings grow quadratically
                raise TableError(f"keys of more than {_MAX_KEY_BYTES} bytes together")
            pairs[key] = value
            last = key
    return pairs


def varint(data: bytes, position: int) -> tuple[int, int]:
    """(value, position behind it)"""
    value = shift = 0
    while shift < _VARINT_BITS:
        if position >= len(data):
            raise TableError("ends inside a number")
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
    raise TableError(f"a number of more than {_VARINT_BITS} bits")


def _handle(data: bytes, position: int) -> tuple[tuple[int, int], int]:
    offset, position = varint(data, position)
    size, position = varint(data, position)
    return (offset, size), position


def _block(data: bytes, offset: int, size: int) -> bytes:
    end = offset + size
    if end + _TRAILER_BYTES > len(data) - _FOOTER_BYTES:
        raise TableError(f"block at {offset} of {size} bytes reaches beyond the file's {len(data)}")
    kind, stored = struct.unpack_from("<BI", data, end)
    if crc32c(data[offset : end + 1]) != unmasked(stored):
        raise TableError(f"block at {offset} does not match its checksum")
    if kind == 1:
        raise TableError(f"block at {offset} is compressed with snappy, expected the plain blocks TensorFlow writes")
    if kind != 0:
        raise TableError(f"block at {offset} has compression type {kind}, expected 0 (none)")
    return data[offset:end]


def _entries(block: bytes) -> Iterator[tuple[bytes, bytes]]:
    if len(block) < 4:
        raise TableError(f"a block of {len(block)} bytes, expected at least its count of restarts")
    (restarts,) = struct.unpack_from("<I", block, len(block) - 4)
    end = len(block) - 4 - 4 * restarts
    if end < 0:
        raise TableError(f"{restarts} restarts in a block of {len(block)} bytes")
    entries, position, key = block[:end], 0, b""
    while position < end:
        shared, position = varint(entries, position)
        unshared, position = varint(entries, position)
        length, position = varint(entries, position)
        if shared > len(key) or position + unshared + length > end:
            raise TableError("an entry reaches beyond its block")
        key = key[:shared] + entries[position : position + unshared]
        position += unshared + length
        yield key, entries[position - length : position]
