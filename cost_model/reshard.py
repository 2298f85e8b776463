"""What it costs to change how a value lies on a mesh: one collective for each mesh axis that changes its role.

    replicated -> divided      a local slice                divided -> replicated   all_gather of the whole
    partial    -> replicated   all_reduce                   partial -> divided      reduce_scatter
    divided by one dimension -> divided by another          all_to_all
    another stage, or the same axes in another order        a send of the shard
    divided    -> windowed      the rows a window lacks, from the neighbours (`halo_seconds`)

They run in the order that keeps bytes small: slices, reduce-scatters, all-to-alls, all-reduces, gathers.  What a device copies or adds
in its own memory overlaps with the transfer: each step costs the latency and the longer of the two.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from compiler.ir.sharding import Mesh, Sharding, Windowed, rows_at, without
from compiler.ir.types import TensorType
from cost_model.analytic import size_of_dim, type_bytes
from cost_model.cluster import Cluster
from cost_model.collective import COLLECTIVES

_STEPS = ("slice", "reduce_scatter", "all_to_all", "all_reduce", "all_gather")


@dataclass(frozen=True)
class Step:
    """One collective of a reshard: its kind, the mesh axis it runs over, and the bytes the formulas of `collective.py` speak of."""

    kind: str
    axis: str
    bytes: float


def line(mesh: Mesh, axis: str) -> tuple[str, ...]:
    """The devices that differ in one axis only, the others at index 0."""
    names = [a.name for a in mesh.axes]
    stride = 1
    for other in reversed(mesh.axes):
        if other.name == axis:
            break
        stride *= other.size
    assert axis in names, f"mesh {mesh} has no axis {axis!r}"
    return tuple(mesh.devices[i * stride] for i in range(mesh.axis(axis).size))


def steps(type_: TensorType, source: Sharding, target: Sharding, mesh: Mesh, sizes: Mapping[str, int]) -> tuple[Step, ...]:
    """The collectives, in order; `send` for a change of stage or of the order of axes."""
    roles = {a.name: (_role(source, a.name), _role(target, a.name)) for a in mesh.axes}
    wanted = sorted(
        ((_kind(old, new), axis) for axis, (old, new) in roles.items() if _kind(old, new)), key=lambda s: (_STEPS.index(s[0]), s[1])
    )
    divided = {axis for axis, (old, _) in roles.items() if old.isdigit()}
    whole, found = type_bytes(type_.with_sharding(None), sizes), []
    for kind, axis in wanted:
        size = mesh.axis(axis).size
        local = whole
        for name in divided:
            local = -(-local // mesh.axis(name).size)
        # All but all_to_all and all_gather speak of what a device holds before; those two of what the group holds together.
        found.append(Step(kind, axis, local * size if kind in ("all_to_all", "all_gather") else local))
        divided = divided | {axis} if kind in ("slice", "reduce_scatter") else divided - {axis} if kind == "all_gather" else divided
    moved = source.stage != target.stage or (not wanted and source.dims != target.dims)
    if moved:
        found.append(Step("send", "", type_bytes(type_.with_sharding(target), sizes, mesh)))
    return tuple(found)


def _role(sharding: Sharding, axis: str) -> str:
    for dim, axes in enumerate(sharding.dims):
        if axis in axes:
            return str(dim)
    return next((combine for name, combine in sharding.partial if name == axis), "")


def _kind(old: str, new: str) -> str:
    """The collective that turns one role of an axis into another, "" for none; a whole value is a partial result already, up to zeros."""
    if old == new or (not old and not new.isdigit()):
        return ""
    if not old:
        return "slice"
    if new.isdigit():
        return "all_to_all" if old.isdigit() else "reduce_scatter"
    return "all_gather" if old.isdigit() else "all_reduce"


def reshard_seconds(cluster: Cluster, type_: TensorType, source: Sharding, target: Sharding, mesh: Mesh, sizes: Mapping[str, int]) -> float:
    """The sum of the steps."""
    return sum(step_seconds(cluster, step, mesh) for step in steps(type_, source, target, mesh, sizes))


def step_seconds(cluster: Cluster, step: Step, mesh: Mesh) -> float:
    if step.kind == "send":
        return _send_seconds(cluster, step, mesh)
    devices = line(mesh, step.axis)
    bandwidth = min(cluster.device(d).memory_bandwidth for d in devices)
    local = _local_traffic(step, len(devices)) / bandwidth
    if step.kind == "slice":
        return local
    group = cluster.group(devices)
    linked = COLLECTIVES[step.kind](step.bytes, group)
    alpha = COLLECTIVES[step.kind](0.0, group)
    return alpha + max(linked - alpha, local)


def halo_seconds(cluster: Cluster, type_: TensorType, windowed: Windowed, dim: int, mesh: Mesh, sizes: Mapping[str, int]) -> float:
    """From a device's own rows of `dim` to those its window reads: rows of neighbours are sent, and all are copied into one piece."""
    window, axes = dict(windowed.windows)[dim], windowed.base.dims[dim]
    assert type_.shape is not None and isinstance(type_.shape[dim], int), "windowed dimensions are static"
    rows = size_of_dim(type_.shape[dim], sizes)
    lacking, copied = 0, 0
    for at in _line_coordinates(mesh, axes):
        start, size = (size_of_dim(d, sizes) for d in rows_at(rows, axes, mesh, at))
        shard = [size_of_dim(d, sizes) for d in rows_at(window.rows, axes, mesh, at)]
        first, count = window.reads(shard[0], shard[1], rows)
        kept = max(0, min(start + size, first + count) - max(start, first))
        lacking = max(lacking, count - kept)
        copied = max(copied, count if (first, count) != (start, size) else 0)
    whole = type_bytes(type_.with_sharding(without(windowed.base, (dim,))), sizes, mesh) / max(1, rows)
    local = 2 * copied * whole / min(cluster.device(d).memory_bandwidth for d in mesh.devices)
    if not lacking:
        return local
    link = cluster.link(*line(mesh, axes[-1])[:2])
    return link.seconds(0) + max(link.seconds(lacking * whole) - link.seconds(0), local)


def _line_coordinates(mesh: Mesh, axes: Sequence[str]) -> Iterator[dict[str, int]]:
    """The coordinates that differ along `axes` only, every other axis at 0."""
    for indices in product(*(range(mesh.axis(a).size) for a in axes)):
        yield {**{a.name: 0 for a in mesh.axes}, **dict(zip(axes, indices, strict=True))}


def _local_traffic(step: Step, count: int) -> float:
    """Bytes a device reads and writes in its own memory: what is cut out of a part is copied, then joined or added."""
    match step.kind:
        case "slice":
            return 2 * step.bytes / count
        case "reduce_scatter":
            return 3 * step.bytes + step.bytes / count
        case "all_to_all":
            return 4 * step.bytes / count
        case "all_gather":
            return 2 * step.bytes
        case _:
            return (count + 1) * step.bytes


def _send_seconds(cluster: Cluster, step: Step, mesh: Mesh) -> float:
    """Between the first device and the one farthest in the mesh's order: stages lie one after another."""
    if len(mesh.devices) < 2:
        return 0.0
    return cluster.link(mesh.devices[0], mesh.devices[-1]).seconds(step.bytes)
