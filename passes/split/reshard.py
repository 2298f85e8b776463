"""Changing how a value lies on the mesh, with plain operators: Slice, ConcatV2, AddN and their like.

A value has *forms*: one tuple of local values for each sharding it was asked in, and its whole (`None`): each is made at most once.

    whole        => sharded      a Slice on each device; for a constant, smaller constants (weights are divided, not copied)
    whole        => replicated   the one value, read by all
    sharded(d)   => replicated   all-gather: ConcatV2 on each device
    sharded(d)   => sharded(e)   all-to-all: slices of every part, concatenated
    partial      => replicated   all-reduce: AddN (Maximum, ...) on each device
    partial      => sharded(d)   reduce-scatter: slices of every part, added
    replicated   => sharded      a local Slice
    anything     => whole        gathered on the device that `place` chooses
    sharded(d)   => windowed(d)  halo exchange: each device's own rows, and slices of its neighbours' for the rows its window lacks
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from compiler.ir.dims import KnownDim
from compiler.ir.errors import IrError
from compiler.ir.graph import Value
from compiler.ir.sharding import Mesh, Sharding, Window, Windowed, extent, rows_at, without
from compiler.ir.types import DType, TensorType
from compiler.ir.weights import Literal, Splat, Tensor, WeightRef, literal_bytes
from compiler.rewrite.emitter import Emitter
from passes.split.derivation import Derivation, Share
from passes.split.factors import region, window_rows
from passes.split.sizes import Sizes

COPY_BYTES = 4096
"""A constant this small is repeated on every device rather than sent to it."""
_PAIRWISE = {"max": "Maximum", "min": "Minimum", "prod": "Mul", "any": "LogicalOr", "all": "LogicalAnd"}
Locals = tuple[Value, ...]
Form = Sharding | Windowed | None


@dataclass
class Resharder:
    """The forms of every value of one graph."""

    emitter: Emitter
    sizes: Sizes
    mesh: Mesh
    derivation: Derivation
    divided: dict[str, None] = field(default_factory=dict)
    """Constants that were asked for in parts."""
    _forms: dict[Value, dict[Form, Locals]] = field(default_factory=dict)
    _homes: dict[Value, tuple[TensorType, Sharding]] = field(default_factory=dict)

    @cached_property
    def _coordinates(self) -> list[dict[str, int]]:
        return list(self.mesh.coordinates())

    def settle(self, value: Value, type_: TensorType, sharding: Sharding, parts: Sequence[Value]) -> None:
        """Record that `value`, of whole type `type_`, was made as `parts`, one for each device."""
        self._homes[value] = (type_, sharding)
        self._forms[value] = {sharding: tuple(parts)}

    def whole(self, value: Value) -> Value:
        """The value in one piece."""
        if value not in self._homes:
            return value
        forms = self._forms[value]
        if None not in forms:
            type_, sharding = self._homes[value]
            forms[None] = (self._gather(value, type_, sharding, forms[sharding]),)
        return forms[None][0]

    def local(self, value: Value, wanted: Sharding | Windowed) -> Locals:
        """The value's parts under `wanted`, one for each device of the mesh."""
        forms = self._forms.setdefault(value, {})
        if wanted not in forms:
            if value not in self._homes:
                forms[wanted] = self._divide(value, wanted)
            elif isinstance(wanted, Windowed):
                forms[wanted] = self._overlapping(value, *self._homes[value], wanted)
            else:
                type_, sharding = self._homes[value]
                forms[wanted] = self._convert(value, type_, sharding, wanted, forms[sharding])
        return forms[wanted]

    # ---- from the whole

    def _divide(self, value: Value, wanted: Sharding | Windowed) -> Locals:
        graph = self.emitter.graph
        literal = graph.node(value.node).attrs.get("value")
        if graph.node(value.node).op == "Const" and isinstance(literal, Tensor | Splat | WeightRef):
            return self._divide_constant(value, literal, wanted)
        if isinstance(wanted, Sharding) and wanted.is_replicated:
            return (value,) * len(self.mesh.devices)
        type_ = graph.type_of(value)
        parts = [region(type_, wanted, at, self.mesh) for at in self._coordinates]
        return tuple(self._slice(value, part, type_, k, value) for k, part in enumerate(parts))

    def _divide_constant(self, value: Value, literal: Literal, wanted: Sharding | Windowed) -> Locals:
        """One smaller constant for each distinct region; a big one that nobody divides stays one."""
        if isinstance(wanted, Sharding) and wanted.is_replicated and literal_bytes(literal) > COPY_BYTES:
            return (value,) * len(self.mesh.devices)
        self.divided[value.node] = None
        type_ = TensorType(literal.dtype, literal.shape)
        made: dict[object, Value] = {}
        parts: list[Value] = []
        for k, at in enumerate(self._coordinates):
            bounds = tuple((_static(s), _static(n)) for s, n in region(type_, wanted, at, self.mesh))
            key = k if literal_bytes(literal) <= COPY_BYTES else bounds
            if key not in made:
                origin = self.emitter.graph.node(value.node).origin or (value.node,)
                part = _literal_slice(literal, bounds)
                made[key] = self.emitter.constant(part, name=f"{value.node}/{k}", device=self.mesh.devices[k], origin=origin)
                self.derivation.shares[made[key].node] = Share(value.node, bounds)
            parts.append(made[key])
        return tuple(parts)

    # ---- to the whole

    def _gather(self, value: Value, type_: TensorType, sharding: Sharding, parts: Locals) -> Value:
        """Combine and concatenate, axis by axis, on the device that `place` chooses."""
        held = {tuple(sorted(at.items())): part for at, part in zip(self._coordinates, parts, strict=True)}
        combines = dict(sharding.partial)
        dim_of = {axis: d for d, axes in enumerate(sharding.dims) for axis in axes}
        minor_first = [axis for axes in sharding.dims for axis in reversed(axes)]
        others = [a.name for a in self.mesh.axes if a.name not in combines and a.name not in dim_of]
        for axis in [*combines, *minor_first, *others]:
            grouped: dict[tuple[tuple[str, int], ...], list[Value]] = {}
            for at, part in held.items():
                grouped.setdefault(tuple(c for c in at if c[0] != axis), []).append(part)
            if axis in combines:
                held = {at: self._combine(combines[axis], ps, "", value) for at, ps in grouped.items()}
            elif axis in dim_of:
                held = {at: self._concat(ps, dim_of[axis], "", value) for at, ps in grouped.items()}
            else:
                held = {at: ps[0] for at, ps in grouped.items()}
        (whole,) = held.values()
        return whole

    # ---- on the mesh

    def _convert(self, value: Value, type_: TensorType, source: Sharding, wanted: Sharding, parts: Locals) -> Locals:
        current, dims = list(parts), [list(axes) for axes in source.dims]

        def step(axis: str, leaves: int | None, combine: str | None) -> None:
            enters = _enters(axis, dims, wanted)
            current[:] = self._exchange(value, type_, current, dims, axis, leaves, combine, enters)
            if leaves is not None:
                dims[leaves].pop()
            if enters is not None:
                dims[enters].append(axis)

        for axis, combine in source.partial:
            if (axis, combine) not in wanted.partial:
                step(axis, None, combine)
        for d, axes in enumerate(dims):
            while tuple(axes) != wanted.dims[d][: len(axes)]:
                step(axes[-1], d, None)
        for d, wanted_axes in enumerate(wanted.dims):
            for axis in wanted_axes[len(dims[d]) :]:
                current[:] = self._exchange(value, type_, current, dims, axis, None, None, d)
                dims[d].append(axis)
        if tuple(map(tuple, dims)) != wanted.dims or set(wanted.partial) - set(source.partial):
            raise IrError(f"{value}: no way from sharding {source} to {wanted}")
        return tuple(current)

    def _exchange(
        self,
        value: Value,
        type_: TensorType,
        parts: Sequence[Value],
        dims: Sequence[Sequence[str]],
        axis: str,
        leaves: int | None,
        combine: str | None,
        enters: int | None,
    ) -> list[Value]:
        """One step over one axis: it leaves a dimension or a partial result, and may enter a dimension."""
        sharding = Sharding(tuple(map(tuple, dims)))
        made = []
        for k, at in enumerate(self._coordinates):
            group = self._group(k, axis) if leaves is not None or combine is not None else [k]
            pieces = [parts[j] for j in group]
            if enters is not None:
                pieces = [self._part_for(value, type_, sharding, parts[j], j, at[axis], axis, enters) for j in group]
            device = self.mesh.devices[k]
            if combine is not None:
                made.append(self._combine(combine, pieces, device, value))
            elif leaves is not None:
                made.append(self._concat(pieces, leaves, device, value))
            else:
                made.append(pieces[0])
        return made

    def _part_for(
        self, value: Value, type_: TensorType, sharding: Sharding, part: Value, holder: int, index: int, axis: str, dim: int
    ) -> Value:
        """Of the part that `holder` has, the rows along `dim` for position `index` of `axis`; cut where they are."""
        rows = [size for _, size in region(type_, sharding, self._coordinates[holder], self.mesh)]
        bounds: list[tuple[KnownDim, KnownDim]] = [(0, size) for size in rows]
        bounds[dim] = extent(rows[dim], self.mesh.axis(axis), index)
        return self._slice(part, bounds, self.emitter.graph.type_of(part), holder, value)

    def _group(self, device: int, axis: str) -> list[int]:
        """Devices that differ from `device` along `axis` only, in the axis's order."""
        return self._line(device, (axis,))

    # ---- windows

    def _overlapping(self, value: Value, type_: TensorType, source: Sharding, wanted: Windowed) -> Locals:
        """Rows that every device has whole are cut where they are; of divided ones, only those that a window lacks move."""
        base = wanted.base
        windowed = [d for d, _ in wanted.windows]
        held = [d for d in windowed if not source.dims[d] and not source.axes() & set(base.dims[d])]
        parts = self.local(value, without(base, held))
        cut = without(base, [d for d in range(len(base.dims)) if d not in held])
        if held:
            windows = tuple((d, w) for d, w in wanted.windows if d in held)
            parts = tuple(self._cut(value, parts[k], Windowed(cut, windows), at, k) for k, at in enumerate(self._coordinates))
        for dim, window in wanted.windows:
            if dim not in held:
                parts = self._exchange_halo(value, type_, parts, base.dims[dim], dim, window)
        return parts

    def _cut(self, value: Value, part: Value, windows: Windowed, at: Mapping[str, int], device: int) -> Value:
        """Of a part that is whole along the windowed dimensions, what the windows read."""
        type_ = self.emitter.graph.type_of(part)
        return self._slice(part, region(type_, windows, at, self.mesh), type_, device, value)

    def _exchange_halo(self, value: Value, type_: TensorType, parts: Locals, axes: tuple[str, ...], dim: int, window: Window) -> Locals:
        """Each device's rows of `dim`, its neighbours' before and after them."""
        size = (type_.shape or ())[dim]
        assert isinstance(size, int), "windowed dimensions are static"
        own = [rows_at(size, axes, self.mesh, at) for at in self._coordinates]
        made = []
        for k, at in enumerate(self._coordinates):
            first, rows = window_rows(window, size, axes, at, self.mesh)
            wanted = [(j, _overlap(own[j], first, first + rows)) for j in self._line(k, axes)]
            pieces = [self._rows_of(value, parts[j], j, dim, part) for j, part in wanted if part[1]]
            made.append(self._concat(pieces or [self._rows_of(value, parts[k], k, dim, (0, 0))], dim, self.mesh.devices[k], value))
        return tuple(made)

    def _rows_of(self, value: Value, part: Value, holder: int, dim: int, rows: tuple[int, int]) -> Value:
        """(first, number) of the rows of a part, cut where they are."""
        type_ = self.emitter.graph.type_of(part)
        bounds: list[tuple[KnownDim, KnownDim]] = [(0, size if size is not None else 0) for size in type_.shape or ()]
        bounds[dim] = rows
        return self._slice(part, bounds, type_, holder, value)

    def _line(self, device: int, axes: Sequence[str]) -> list[int]:
        """Devices that differ from `device` along `axes` only, in the order of their rows."""
        mine = {a: i for a, i in self._coordinates[device].items() if a not in axes}
        line = [k for k, at in enumerate(self._coordinates) if all(at[a] == i for a, i in mine.items())]
        return sorted(line, key=lambda k: tuple(self._coordinates[k][a] for a in axes))

    # ---- operators

    def _slice(self, part: Value, bounds: Sequence[tuple[KnownDim, KnownDim]], type_: TensorType, device: int, whole: Value) -> Value:
        shape = type_.shape or ()
        if all(start == 0 and (size == full or full is None) for (start, size), full in zip(bounds, shape, strict=True)):
            return part
        begin = self.sizes.vector([start for start, _ in bounds])
        size = self.sizes.vector([-1 if full is None or start + n == full else n for (start, n), full in zip(bounds, shape, strict=True)])
        return self._add("Slice", [part, begin, size], {}, self.mesh.devices[device], whole, f"slice_{device}")

    def _concat(self, parts: Sequence[Value], dim: int, device: str, whole: Value) -> Value:
        if len(parts) == 1:
            return parts[0]
        axis = self.sizes.scalar(dim)
        return self._add("ConcatV2", [*parts, axis], {}, device, whole, "gather")

    def _combine(self, combine: str, parts: Sequence[Value], device: str, whole: Value) -> Value:
        if len(parts) == 1:
            return parts[0]
        if combine == "sum":
            return self._add("AddN", list(parts), {}, device, whole, "sum")
        total = parts[0]
        for part in parts[1:]:
            total = self._add(_PAIRWISE[combine], [total, part], {}, device, whole, combine)
        return total

    def _add(self, op: str, operands: Sequence[Value], attrs: Mapping[str, DType], device: str, whole: Value, what: str) -> Value:
        origin = self.emitter.graph.node(whole.node).origin or (whole.node,)
        suffix = f"_{device.rpartition(':')[2]}" if device and not what.startswith("slice") else ""
        made = self.emitter.add(op, operands, attrs, name=f"{whole.node}/{what}{suffix}", device=device, origin=origin)
        self.derivation.moves[made.node] = whole
        return made


def _overlap(own: tuple[KnownDim, KnownDim], first: int, end: int) -> tuple[int, int]:
    """(first, number), counted from where they begin, of one's own rows that lie in [first, end)."""
    start, size = _static(own[0]), _static(own[1])
    low, high = max(start, first), min(start + size, end)
    return low - start, max(0, high - low)


def _static(dim: KnownDim) -> int:
    assert isinstance(dim, int), "constants and windowed dimensions are static"
    return dim


def _enters(axis: str, dims: Sequence[Sequence[str]], wanted: Sharding) -> int | None:
    """The dimension that `axis` is the next to divide in `wanted`, given what divides it already."""
    for d, axes in enumerate(wanted.dims):
        present = tuple(a for a in dims[d] if a != axis)
        if axis in axes and axes[: len(present) + 1] == (*present, axis) and axis not in dims[d]:
            return d
    return None


def _literal_slice(literal: Literal, bounds: Sequence[tuple[int, int]]) -> Literal:
    if isinstance(literal, WeightRef):
        return literal.slice(tuple(s for s, _ in bounds), tuple(n for _, n in bounds))
    if isinstance(literal, Splat):
        return Splat(literal.item, tuple(n for _, n in bounds))
    return Tensor(literal.dtype, literal.array[tuple(slice(s, s + n) for s, n in bounds)])
