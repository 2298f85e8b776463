"""How a value lies on a mesh of devices.

A `Mesh` has named axes (`x=2, y=4`).  A `Sharding` gives, for each dimension of the value, the mesh axes that divide it
(major to minor), and the axes over which the value is a partial result that still has to be combined.
An axis that appears in neither replicates the value.  Text: `@[x,_]`, `@[_,_]+sum(y)`, with a stage `@[x,_]/1`.

Shard `i` of `n` of a dimension of size `d` holds the rows `[offset(i), offset(i+1))`, where `offset(i) = ceil(i*d/n)` unless the
mesh axis has weights: uneven sizes are ordinary, the first shards get the extra rows, and a shard may be empty.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import product

from compiler.ir.dims import KnownDim, add, ceil_div, mul
from compiler.ir.errors import IrError

COMBINES = ("sum", "max", "min", "prod", "any", "all")


def _is_axis_name(name: str) -> bool:
    return name.isidentifier() and name.isascii() and name != "_"


@dataclass(frozen=True)
class MeshAxis:
    """One axis: its size and, where devices differ in speed, the integer share of each index (rows go in proportion)."""

    name: str
    size: int
    shares: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not _is_axis_name(self.name):
            raise IrError(f"mesh axis name {self.name!r} is not usable, expected an identifier such as 'x'")
        if self.size < 1 or (self.shares and (len(self.shares) != self.size or min(self.shares) < 0 or sum(self.shares) < 1)):
            raise IrError(f"mesh axis {self.name!r}: size {self.size} with shares {self.shares}, expected one share for each index")

    def __str__(self) -> str:
        return f"{self.name}={self.size}" + (f"({','.join(map(str, self.shares))})" if self.shares else "")


@dataclass(frozen=True)
class Mesh:
    """Named axes over `devices`, row-major: coordinate (i, j) of axes (x, y) is `devices[i*size(y) + j]`."""

    axes: tuple[MeshAxis, ...]
    devices: tuple[str, ...]

    def __post_init__(self) -> None:
        if math.prod(a.size for a in self.axes) != len(self.devices):
            raise IrError(f"mesh {self}: {len(self.devices)} devices do not fill the axes")

    def __str__(self) -> str:
        return "[" + ", ".join(map(str, self.axes)) + "]"

    def axis(self, name: str) -> MeshAxis:
        for axis in self.axes:
            if axis.name == name:
                return axis
        raise IrError(f"mesh {self} has no axis {name!r}")

    def coordinates(self) -> Iterator[dict[str, int]]:
        """One `{axis: index}` for each device, in device order."""
        names = [a.name for a in self.axes]
        for indices in product(*(range(a.size) for a in self.axes)):
            yield dict(zip(names, indices, strict=True))


@dataclass(frozen=True)
class Sharding:
    """`dims[d]` names the mesh axes that divide dimension d; `partial` pairs each unreduced axis with its combine operator."""

    dims: tuple[tuple[str, ...], ...]
    partial: tuple[tuple[str, str], ...] = ()
    stage: int = 0
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        used = [a for axes in self.dims for a in axes] + [a for a, _ in self.partial]
        if self.stage < 0 or not all(map(_is_axis_name, used)):
            raise IrError(f"sharding {self}: expected mesh axes with names such as 'x', and a stage of 0 or more")
        if len(used) != len(set(used)):
            raise IrError(f"sharding {self} uses a mesh axis twice")
        for axis, combine in self.partial:
            if combine not in COMBINES:
                raise IrError(f"sharding {self}: {combine!r} over {axis!r} is no combine operator, expected one of {COMBINES}")
        object.__setattr__(self, "partial", tuple(sorted(self.partial)))
        object.__setattr__(self, "_hash", hash((self.dims, self.partial, self.stage)))

    def __hash__(self) -> int:
        return self._hash

    def __str__(self) -> str:
        dims = ",".join("*".join(axes) or "_" for axes in self.dims)
        partial = "".join(f"+{combine}({axis})" for axis, combine in self.partial)
        return f"[{dims}]{partial}" + (f"/{self.stage}" if self.stage else "")

    @property
    def is_replicated(self) -> bool:
        return not self.partial and not any(self.dims)

    def axes(self) -> frozenset[str]:
        return frozenset(a for axes in self.dims for a in axes) | {a for a, _ in self.partial}


@dataclass(frozen=True)
class Window:
    """Shard [s, e) of `rows` rows reads the rows [s*stride - lo, (e-1)*stride + 1 + hi) of another dimension, those of them that exist."""

    rows: int
    lo: int
    hi: int
    stride: int

    def reads(self, start: int, size: int, rows: int) -> tuple[int, int]:
        """(first row, number of rows) that the shard of `size` rows from `start` reads of a dimension of `rows`."""
        first = min(max(0, start * self.stride - self.lo), rows)
        end = min(max(first, (start + size - 1) * self.stride + 1 + self.hi), rows)
        return first, end - first if size else 0


@dataclass(frozen=True)
class Windowed:
    """Parts that overlap: as `base`, but along dimension d of each `(d, window)` a part is what its window reads.  Only operands lie so."""

    base: Sharding
    windows: tuple[tuple[int, Window], ...]

    def __str__(self) -> str:
        return f"{self.base}" + "".join(f"~{d}({w.lo},{w.hi},{w.stride} of {w.rows})" for d, w in self.windows)


_SHARDING = re.compile(r"\[([^\]]*)\]((?:\+\w+\(\w+\))*)(?:/(\d+))?")


def parse_sharding(text: str) -> Sharding:
    """The inverse of `str`: `[x,_]`, `[x*y,_]+sum(z)/1`."""
    match = _SHARDING.fullmatch(text)
    if match is None:
        raise IrError(f"{text!r} is not a sharding, expected the form '[x,_]' or '[x*y,_]+sum(z)/1'")
    dims = tuple(() if dim.strip() == "_" else tuple(a.strip() for a in dim.split("*")) for dim in match[1].split(",")) if match[1] else ()
    partial = tuple((axis, combine) for combine, axis in re.findall(r"\+(\w+)\((\w+)\)", match[2]))
    return Sharding(dims, partial, int(match[3] or 0))


def replicated(rank: int) -> Sharding:
    return Sharding(((),) * rank)


def sharded(rank: int, dim: int, axis: str) -> Sharding:
    """Dimension `dim` divided over one mesh axis, everything else whole."""
    return Sharding(tuple((axis,) if d == dim else () for d in range(rank)))


def without(sharding: Sharding, dims: Collection[int]) -> Sharding:
    """The same, the dimensions `dims` whole."""
    return replace(sharding, dims=tuple(() if d in dims else axes for d, axes in enumerate(sharding.dims)))


def offset(size: KnownDim, axis: MeshAxis, index: int) -> KnownDim:
    """The first row of shard `index` (0..n) of a dimension of `size` rows: ceil(index*size/n), or by the axis's shares."""
    if axis.shares:
        return ceil_div(mul(sum(axis.shares[:index]), size), sum(axis.shares))
    return ceil_div(mul(index, size), axis.size)


def extent(size: KnownDim, axis: MeshAxis, index: int) -> tuple[KnownDim, KnownDim]:
    """(first row, number of rows) of shard `index`."""
    start = offset(size, axis, index)
    return start, add(offset(size, axis, index + 1), mul(-1, start))


def rows_at(size: KnownDim, axes: Iterable[str], mesh: Mesh, coordinates: Mapping[str, int]) -> tuple[KnownDim, KnownDim]:
    """(first row, number of rows) at mesh `coordinates` of a dimension divided over `axes`: they nest, major first."""
    start: KnownDim = 0
    for axis in axes:
        first, size = extent(size, mesh.axis(axis), coordinates[axis])
        start = add(start, first)
    return start, size
