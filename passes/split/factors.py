"""Which factors of an annotated node run over which mesh axes, as the node carries it: `{_factors=["n:x"]}`.

A node without the attribute is *whole*: one copy, on the device that `place` gives it.  An empty list is a *replica* on every device.
`partition` consumes the attribute; nothing past it sees one.
"""

from __future__ import annotations

from collections.abc import Mapping

from compiler.ir.dims import KnownDim
from compiler.ir.errors import IrError
from compiler.ir.graph import Node
from compiler.ir.sharding import Mesh, Sharding, extent
from compiler.ir.types import TensorType
from compiler.ops.spec import Factor, Shard

ATTRIBUTE = "_factors"
Assignment = Mapping[str, str]
"""factor -> mesh axis."""


def assignment_of(node: Node) -> dict[str, str] | None:
    """The node's factors and their axes; None where the node is whole."""
    attr = node.attrs.get(ATTRIBUTE)
    if attr is None:
        return None
    if not isinstance(attr, tuple) or not all(isinstance(a, str) and a.count(":") == 1 for a in attr):
        raise IrError(f"{node.op} {node.name!r}: {ATTRIBUTE} is {attr!r}, expected a list such as ['n:x']")
    return dict(str(a).split(":") for a in attr)


def attribute(assignment: Assignment) -> tuple[str, ...]:
    """The attribute's value: `("n:x",)`, sorted."""
    return tuple(sorted(f"{factor}:{axis}" for factor, axis in assignment.items()))


def region(type_: TensorType, sharding: Sharding, coordinates: Mapping[str, int], mesh: Mesh) -> tuple[tuple[KnownDim, KnownDim], ...]:
    """(first row, rows) in each dimension of the part at mesh `coordinates`; several axes on one dimension nest, major first."""
    if type_.shape is None or len(type_.shape) != len(sharding.dims):
        raise IrError(f"sharding {sharding} does not fit a value of type {type_}")
    parts: list[tuple[KnownDim, KnownDim]] = []
    for size, axes in zip(type_.shape, sharding.dims, strict=True):
        if size is None and axes:
            raise IrError(f"sharding {sharding} divides an unknown dimension of {type_}")
        start: KnownDim = 0
        rows: KnownDim = size if size is not None else 0
        for axis in axes:
            first, rows = extent(rows, mesh.axis(axis), coordinates[axis])
            start = start + first
        parts.append((start, rows))
    return tuple(parts)


def local_type(type_: TensorType, sharding: Sharding, coordinates: Mapping[str, int], mesh: Mesh) -> TensorType:
    """The type of the part at `coordinates`; unknown dimensions stay unknown."""
    assert type_.shape is not None
    rows = [size for _, size in region(type_, sharding, coordinates, mesh)]
    shape = tuple(None if whole is None else part for whole, part in zip(type_.shape, rows, strict=True))
    return TensorType(type_.dtype, shape, None, type_.handle)


def shard_of(factors: Mapping[str, Factor], assignment: Assignment, coordinates: Mapping[str, int], mesh: Mesh) -> Shard:
    """What the device at `coordinates` does of each factor that is split."""
    index: dict[str, int] = {}
    count: dict[str, int] = {}
    start: dict[str, KnownDim] = {}
    size: dict[str, KnownDim] = {}
    for name, axis_name in sorted(assignment.items()):
        whole = factors[name].size
        if whole is None:
            raise IrError(f"factor {name!r} has no known size, it cannot be split over {axis_name!r}")
        axis = mesh.axis(axis_name)
        index[name], count[name] = coordinates[axis_name], axis.size
        start[name], size[name] = extent(whole, axis, coordinates[axis_name])
    return Shard(index, count, start, size)
