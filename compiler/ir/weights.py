"""Constants: small ones inline, splats as splats, big ones as references into files.

A `WeightRef` names a store, an offset, a type and optionally a region of it; the bytes stay in the file and are memory-mapped on demand
(`Stores.load`).  `Stores` maps store names to files, and owns one scratch file for constants that passes compute.
"""

from __future__ import annotations

import math
import os
import tempfile
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from compiler.ir.errors import IrError
from compiler.ir.types import DType, TensorType

Array: TypeAlias = npt.NDArray[np.generic]
INLINE_ELEMENTS = 64
"""Constants with at most this many elements are printed in the text; larger ones are references."""


@dataclass(frozen=True, eq=False)
class Tensor:
    """A small constant held in the IR; equal when dtype, shape and bytes are (so NaN equals the same NaN, and 0.0 differs from -0.0)."""

    dtype: DType
    array: Array

    def __post_init__(self) -> None:
        array: Array = np.array(self.array, dtype=self.dtype.numpy, copy=True, order="C")
        if array.dtype == object:
            array = _encoded(array)
        array.setflags(write=False)
        object.__setattr__(self, "array", array)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    @property
    def key(self) -> tuple[str, tuple[int, ...], object]:
        data: object = tuple(self.array.ravel().tolist()) if self.array.dtype == object else self.array.tobytes()
        return (str(self.dtype), self.shape, data)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tensor) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


def _encoded(array: Array) -> Array:
    """Strings are bytes, as TensorFlow gives them; text is taken as UTF-8."""
    encoded = np.empty(array.size, object)
    encoded[:] = [item.encode() if isinstance(item, str) else bytes(item) for item in array.reshape(-1).tolist()]
    return encoded.reshape(array.shape)


@dataclass(frozen=True)
class Splat:
    """One element repeated over a shape; `item` is 0-d."""

    item: Tensor
    shape: tuple[int, ...]

    @property
    def dtype(self) -> DType:
        return self.item.dtype

    @property
    def array(self) -> Array:
        return np.broadcast_to(self.item.array, self.shape)


@dataclass(frozen=True)
class WeightRef:
    """`region` (start, size for each dimension) of the row-major tensor of `shape` at `offset` bytes into store `store`."""

    store: str
    offset: int
    dtype: DType
    full_shape: tuple[int, ...]
    region: tuple[tuple[int, int], ...] | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        return self.full_shape if self.region is None else tuple(size for _, size in self.region)

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.bits // 8

    def slice(self, starts: tuple[int, ...], sizes: tuple[int, ...]) -> WeightRef:
        """The sub-tensor at `starts` of `sizes`, still a reference into the same bytes."""
        for start, size, whole in zip(starts, sizes, self.shape, strict=True):
            if start < 0 or size < 0 or start + size > whole:
                raise IrError(f"slice {starts}+{sizes} of a weight of shape {self.shape} is out of range")
        base = [0] * len(starts) if self.region is None else [start for start, _ in self.region]
        region = tuple((b + s, n) for b, s, n in zip(base, starts, sizes, strict=True))
        whole_region = tuple((0, n) for n in self.full_shape)
        return WeightRef(self.store, self.offset, self.dtype, self.full_shape, None if region == whole_region else region)


Literal: TypeAlias = Tensor | Splat | WeightRef


def literal_type(literal: Literal) -> TensorType:
    return TensorType(literal.dtype, literal.shape)


def literal_bytes(literal: Literal) -> int:
    """Bytes the dense value takes (strings count a word each)."""
    return math.prod(literal.shape) * literal.dtype.bits // 8


class Stores:
    """Files that weights live in, by name, plus one scratch file for computed constants.  Shared by copies of a module."""

    SCRATCH = "scratch"

    def __init__(self, files: Mapping[str, Path] | None = None) -> None:
        self._files: dict[str, Path] = dict(files or {})
        self._scratch: str | None = None
        self._maps: dict[str, np.memmap] = {}
        self._known: dict[tuple[str, tuple[int, ...], bytes], WeightRef] = {}
        self._scratch_size = 0
        self.kept: list[object] = []
        """What must live as long as the files can be read: the owner of a temporary directory."""

    @property
    def files(self) -> Mapping[str, Path]:
        return self._files

    @property
    def scratch(self) -> str | None:
        """The name of the store these stores write, None before the first computed constant."""
        return self._scratch

    def size(self, name: str) -> int | None:
        """Bytes in a store, None where it is not known or not there."""
        try:
            return self._files[name].stat().st_size
        except (KeyError, OSError):
            return None

    def add(self, name: str, path: Path) -> None:
        if self._files.setdefault(name, path) != path:
            raise IrError(f"store {name!r} is already {self._files[name]}, not {path}")

    def hold(self, name: str) -> None:
        """Map a store now: it stays what it is even when another file takes its name."""
        self._map(name)

    def load(self, literal: Literal) -> Array:
        """The dense array, read-only; for a reference a memory map: only the pages touched are read."""
        if not isinstance(literal, WeightRef):
            return literal.array
        if math.prod(literal.full_shape) == 0:
            return np.zeros(literal.shape, literal.dtype.numpy)
        store = self._map(literal.store)
        end = literal.offset + math.prod(literal.full_shape) * literal.dtype.numpy.itemsize
        if literal.offset < 0 or end > store.size:
            raise IrError(f"weight store {literal.store!r} has {store.size} bytes, expected bytes {literal.offset} to {end} to be in it")
        whole: Array = np.ndarray(literal.full_shape, literal.dtype.numpy, store, literal.offset)
        if literal.region is None:
            return whole
        return whole[tuple(slice(start, start + size) for start, size in literal.region)]

    def constant(self, array: Array, dtype: DType | None = None) -> Literal:
        """The literal for an array: a splat, an inline tensor, or bytes appended to the scratch file (equal bytes are stored once)."""
        dtype = dtype or DType(str(array.dtype)) if array.dtype != object else DType("string")
        array = np.asarray(array, dtype.numpy, order="C")
        if array.size > 1 and array.dtype != object:
            first = array.reshape(-1)[:1]
            flat = array.reshape(-1).view(np.uint8).reshape(array.size, -1)
            if (flat == flat[0]).all():
                return Splat(Tensor(dtype, first.reshape(())), array.shape)
        if array.size <= INLINE_ELEMENTS or array.dtype == object:
            return Tensor(dtype, array)
        return self._append(array, dtype)

    def _append(self, array: Array, dtype: DType) -> WeightRef:
        import hashlib

        key = (str(dtype), array.shape, hashlib.sha256(array.reshape(-1).view(np.uint8).data).digest())
        if key not in self._known:
            name, path = self._scratch_store()
            offset = -(-self._scratch_size // 64) * 64
            with path.open("r+b") as file:
                file.seek(offset)
                array.tofile(file)
            self._scratch_size = offset + array.nbytes
            self._maps.pop(name, None)
            self._known[key] = WeightRef(name, offset, dtype, array.shape)
        return self._known[key]

    def _scratch_store(self) -> tuple[str, Path]:
        """The file computed constants go to: always one of our own, never a store that was read."""
        if self._scratch is None:
            descriptor, path = tempfile.mkstemp(prefix="cleave-weights-")
            os.close(descriptor)
            self._scratch = self.free_name(self.SCRATCH)
            self._files[self._scratch] = Path(path)
            weakref.finalize(self, _remove, path)
        return self._scratch, self._files[self._scratch]

    def free_name(self, base: str) -> str:
        """`base`, `base_1`, ...: a name no store has."""
        name, count = base, 0
        while name in self._files:
            count += 1
            name = f"{base}_{count}"
        return name

    def _map(self, store: str) -> np.memmap:
        if store not in self._maps:
            if store not in self._files:
                raise IrError(f"weight store {store!r} is not known here, expected one of {sorted(self._files)}")
            try:
                self._maps[store] = np.memmap(self._files[store], mode="r")
            except (OSError, ValueError) as error:
                raise IrError(f"weight store {store!r}: cannot read {self._files[store]}: {error}") from None
        return self._maps[store]


def _remove(name: str) -> None:
    Path(name).unlink(missing_ok=True)
