"""CRC-32C (Castagnoli) of bytes, as LevelDB's tables and TensorFlow's checkpoints use it, in numpy.

crc(A . B) = advance(crc(A), len(B)) xor crc(B), with crc linear over GF(2) (start 0, no final inversion)

`advance` over n zero bytes is a 32 x 32 matrix over GF(2), kept as four tables of 256 (`_advance_tables`). So the bytes are cut into lanes,
all lanes take their byte in one numpy step (`_lanes`), and neighbours are joined pairwise (`_joined`).
"""

import functools
from typing import Any

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint32]

_POLYNOMIAL = 0x82F63B78
_MASK_DELTA = 0xA282EAD8
_LANE_BYTES = 64
_PIECE_BYTES = 1 << 22
_FULL = 0xFFFFFFFF


def crc32c(data: "bytes | memoryview | npt.NDArray[Any]") -> int:
    """The checksum of all bytes; 0 for none."""
    view = np.frombuffer(data, np.uint8)
    crc = _FULL
    for start in range(0, len(view), _PIECE_BYTES):
        crc = _extend(crc, view[start : start + _PIECE_BYTES])
    return crc ^ _FULL


def unmasked(stored: int) -> int:
    """The checksum behind its stored form: rotated and shifted, so that checksums of checksums stay good."""
    rotated = (stored - _MASK_DELTA) & _FULL
    return (rotated >> 17 | rotated << 15) & _FULL


def _extend(crc: int, piece: npt.NDArray[np.uint8]) -> int:
    """A power of two of whole lanes at a time, what is left byte by byte."""
    while len(piece) >= 2 * _LANE_BYTES:
        lanes = 1 << ((len(piece) // _LANE_BYTES).bit_length() - 1)
        size = lanes * _LANE_BYTES
        crc = _advanced(crc, size) ^ _joined(_lanes(piece[:size].reshape(lanes, _LANE_BYTES)))
        piece = piece[size:]
    table = _byte_list()
    for byte in piece.tolist():
        crc = table[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc


def _lanes(lanes: npt.NDArray[np.uint8]) -> Words:
    """Each row's checksum."""
    table = _byte_table()
    crc = np.zeros(len(lanes), np.uint32)
    for column in np.ascontiguousarray(lanes.T):
        crc = table[(crc ^ column) & 0xFF] ^ (crc >> 8)
    return crc


def _joined(crcs: Words) -> int:
    """The checksum of the lanes one after the other."""
    size = _LANE_BYTES
    while len(crcs) > 1:
        crcs = _apply(_advance_tables(size), crcs[0::2]) ^ crcs[1::2]
        size *= 2
    return int(crcs[0])


def _advanced(crc: int, size: int) -> int:
    return int(_apply(_advance_tables(size), np.array([crc], np.uint32))[0])


def _apply(tables: Words, crcs: Words) -> Words:
    """A matrix times each word."""
    product: Words = tables[0][crcs & 0xFF] ^ tables[1][crcs >> 8 & 0xFF] ^ tables[2][crcs >> 16 & 0xFF] ^ tables[3][crcs >> 24]
    return product


@functools.cache
def _advance_tables(size: int) -> Words:
    """The matrix of `size` zero bytes, a power of two: a square of squares."""
    if size > 1:
        half = _advance_tables(size // 2)
        return np.stack([_apply(half, table) for table in half])
    words = np.arange(256, dtype=np.uint32)[None, :] << np.arange(0, 32, 8, dtype=np.uint32)[:, None]
    advanced: Words = _byte_table()[words & 0xFF] ^ (words >> 8)
    return advanced


@functools.cache
def _byte_table() -> Words:
    crc = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        crc = np.where(crc & 1, crc >> 1 ^ np.uint32(_POLYNOMIAL), crc >> 1).astype(np.uint32)
    return crc


@functools.cache
def _byte_list() -> list[int]:
    return [int(word) for word in _byte_table()]
