"""Which factors of an annotated node run over which mesh axes, as the node carries it: `{_factors=["n:x"]}`.

A node without the attribute is *whole*: one copy, on the device that `place` gives it.  An empty list is a *replica* on every device.
`partition` consumes the attribute; nothing past it sees one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from compiler.ir.dims import Dim, KnownDim
from compiler.ir.errors import IrError
from compiler.ir.graph import Node
from compiler.ir.sharding import Mesh, Sharding, Window, Windowed, rows_at
from compiler.ir.types import TensorType
from compiler.ops.spec import PARTIAL, Factor, Shard, ShardingRule, axes_of

ATTRIBUTE = "_factors"
Assignment = Mapping[str, str]
"""factor -> mesh axis, or several of them, major first: `x*y`."""


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


def region(
    type_: TensorType, lies: Sharding | Windowed, coordinates: Mapping[str, int], mesh: Mesh
) -> tuple[tuple[KnownDim, KnownDim], ...]:
    """(first row, rows) in each dimension of the part at mesh `coordinates`; several axes on one dimension nest, major first."""
    sharding = lies.base if isinstance(lies, Windowed) else lies
    if type_.shape is None or len(type_.shape) != len(sharding.dims):
        raise IrError(f"sharding {sharding} does not fit a value of type {type_}")
    parts: list[tuple[KnownDim, KnownDim]] = []
    for size, axes in zip(type_.shape, sharding.dims, strict=True):
        if size is None and axes:
            raise IrError(f"sharding {sharding} divides an unknown dimension of {type_}")
        parts.append(rows_at(size if size is not None else 0, axes, mesh, coordinates))
    for dim, window in lies.windows if isinstance(lies, Windowed) else ():
        parts[dim] = window_rows(window, type_.shape[dim], sharding.dims[dim], coordinates, mesh)
    return tuple(parts)


def window_rows(window: Window, size: Dim, axes: tuple[str, ...], coordinates: Mapping[str, int], mesh: Mesh) -> tuple[int, int]:
    """(first row, rows) that the window at `coordinates` reads of a dimension of `size`."""
    start, rows = rows_at(window.rows, axes, mesh, coordinates)
    assert isinstance(size, int) and isinstance(start, int) and isinstance(rows, int), "windows are static"
    return window.reads(start, rows, size)


def wanted(rule: ShardingRule, assignment: Assignment, operands: Sequence[TensorType]) -> tuple[Sharding | Windowed | None, ...]:
    """How each operand of a shard must lie: overlapping where a factor has a halo."""
    shardings, _ = rule.shardings(assignment)
    return tuple(_windowed(rule, slot, s, t, assignment) for slot, (s, t) in enumerate(zip(shardings, operands, strict=True)))


def _windowed(
    rule: ShardingRule, slot: int, sharding: Sharding | None, type_: TensorType, assignment: Assignment
) -> Sharding | Windowed | None:
    if sharding is None or type_.shape is None:
        return sharding
    windows = tuple((d, w) for d, w in rule.windows(slot, assignment) if w != Window(_rows(type_.shape[d]), 0, 0, 1))
    return Windowed(sharding, windows) if windows else sharding


def _rows(dim: Dim) -> int:
    return dim if isinstance(dim, int) else -1


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
    for name, axes in sorted(assignment.items()):
        if name == PARTIAL:
            continue
        whole = factors[name].size
        if whole is None:
            raise IrError(f"factor {name!r} has no known size, it cannot be split over {axes!r}")
        index[name], count[name] = 0, 1
        for axis in map(mesh.axis, axes_of(axes)):
            index[name], count[name] = index[name] * axis.size + coordinates[axis.name], count[name] * axis.size
        start[name], size[name] = rows_at(whole, axes_of(axes), mesh, coordinates)
    return Shard(index, count, start, size)
