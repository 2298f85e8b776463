"""What one shard of a divided node must be, by the op's sharding rule: which pieces it reads, what it runs, which pieces it yields.

    rule         dims as factors; a factor over a mesh axis is the rows `extent(size, axis, index)` of shard `index`
    operand      rows of its dims' factors; with a halo (lo, hi, stride) the rows [s*stride - lo, (e-1)*stride + 1 + hi) that there are
    result       rows of its dims' factors, and term `index` of every reduction
    passed       operands that are partial sums, all at once: shard i reads one term of each, a different one for each i, and all of them
                 are read; its result is term i, for op(sum x_i, sum y_i) = sum op(x_i, y_i) is what the rule calls `linear`
    runs         what the spec's `localize` says; a call of a kind runs the same nodes as the whole's body

The rules and `localize` are the shared base: tests prove them against TensorFlow's kernels.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from compiler.ir.dims import Dim, KnownDim, add, mul
from compiler.ir.graph import INPUT, FunctionRef, Graph, Value, attrs_key
from compiler.ir.module import Module
from compiler.ir.sharding import Mesh, Sharding, extent
from compiler.ir.types import TensorType
from compiler.ops.attributes import stored
from compiler.ops.kinds import compose_rule
from compiler.ops.queries import infer_graph
from compiler.ops.registry import spec
from compiler.ops.spec import PARTIAL, DimFactors, Factor, Kind, Localized, Operation, Shard, ShardingRule
from passes.split.denote import Bounds, Piece, Terms, Unproven, bounds, normal, whole
from passes.split.derivation import Divided

ANNOTATION = "_factors"
Coordinates = Mapping[str, int]


@dataclass(frozen=True)
class Claim:
    """A divided node with its rule: `axes[factor]` are the mesh axes it runs over, major first; sums pass through over those `passed`."""

    divided: Divided
    operation: Operation
    operands: tuple[Value, ...]
    rule: ShardingRule
    axes: Mapping[str, tuple[str, ...]]
    passed: tuple[str, ...]
    mesh: Mesh

    def shard(self, at: Coordinates) -> Shard:
        """What the device at these coordinates does of each factor."""
        index: dict[str, int] = {}
        count: dict[str, int] = {}
        start: dict[str, KnownDim] = {}
        size: dict[str, KnownDim] = {}
        for name, axes in sorted(self.axes.items()):
            whole_size = self.rule.factor(name).size
            if whole_size is None:
                raise Unproven(f"factor {name!r} is divided, expected its size to be known")
            start[name], size[name] = nested(whole_size, axes, at, self.mesh)
            index[name], count[name] = self._position(axes, at)
        return Shard(index, count, start, size)

    def _position(self, axes: tuple[str, ...], at: Coordinates) -> tuple[int, int]:
        """(index, count) over several axes, major first."""
        index, count = 0, 1
        for axis in map(self.mesh.axis, axes):
            index, count = index * axis.size + at[axis.name], count * axis.size
        return index, count

    def passes(self, slot: int) -> bool:
        """Is operand `slot` a partial sum that passes through?"""
        return bool(self.passed) and slot in self.rule.linear

    def term(self, at: Coordinates) -> Terms:
        """Which term of a sum that passes through the device at these coordinates has."""
        index, count = self._position(self.passed, at)
        return Terms(self.operation.name, PARTIAL, "sum", count, frozenset((index,)))

    def axes_of(self, factor: str) -> tuple[str, ...]:
        return self.passed if factor == PARTIAL else self.axes[factor]

    def reads(self, slot: int, shard: Shard) -> Piece:
        """What operand `slot` of a shard must denote."""
        dims, value, type_ = self.rule.operands[slot], self.operands[slot], self.operation.operands[slot]
        return whole(value, type_) if dims is None else Piece(value, self._rows(dims, type_, shard, operand=True))

    def yields(self, port: int, shard: Shard, at: Coordinates) -> Piece:
        """What result `port` of a shard denotes."""
        dims, type_ = self.rule.results[port], self.operation.results[port]
        value = Value(self.operation.name, port)
        if dims is None:
            return whole(value, type_)
        passed = [self.term(at)] if self.passed else []
        return Piece(value, self._rows(dims, type_, shard, operand=False), (*passed, *self._terms(shard)))

    def _terms(self, shard: Shard) -> list[Terms]:
        name = self.operation.name
        factors = [(f, self.rule.factor(f)) for f in sorted(self.axes)]
        return [
            Terms(name, f, found.combine, shard.count[f], frozenset((shard.index[f],)))
            for f, found in factors
            if found.kind is Kind.REDUCTION and shard.count[f] > 1
        ]

    def _rows(self, dims: tuple[DimFactors, ...], type_: TensorType, shard: Shard, *, operand: bool) -> tuple[Bounds, ...]:
        if type_.shape is None or len(type_.shape) != len(dims):
            raise Unproven(f"the rule has {len(dims)} dimensions for a value of type {type_}")
        return tuple(self._row(names, size, shard, operand) for names, size in zip(dims, type_.shape, strict=True))

    def _row(self, names: DimFactors, size: Dim, shard: Shard, operand: bool) -> Bounds:
        divided = [n for n in names if n in self.axes]
        if not divided:
            return bounds(0, size)
        factor = self.rule.factor(names[0])
        if divided != [names[0]] or size is None:
            raise Unproven(f"factor {divided[-1]!r} divides the dimension ({' '.join(names)}) of size {size}, expected its major factor to")
        start, rows = shard.start[names[0]], shard.size[names[0]]
        if factor.kind is Kind.HALO and operand:
            return _with_halo(factor, start, rows, size)
        minor: KnownDim = 1
        for name in names[1:]:
            inner = self.rule.factor(name).size
            if inner is None:
                raise Unproven(f"factor {name!r} is minor in a divided dimension, expected its size to be known")
            minor = mul(minor, inner)
        if factor.size is None or normal(mul(factor.size, minor)) != normal(size):
            raise Unproven(f"the dimension ({' '.join(names)}) has size {size}, expected that of its factors, {factor.size} x {minor}")
        return bounds(mul(start, minor), mul(rows, minor))


def _with_halo(factor: Factor, start: KnownDim, rows: KnownDim, size: KnownDim) -> Bounds:
    """Those of the rows that there are; none for no rows."""
    lo, hi, stride = factor.halo
    if not isinstance(start, int) or not isinstance(rows, int) or not isinstance(size, int):
        raise Unproven(f"the rows {start} and {rows} more of {factor.name!r} need a halo, expected them to be static")
    first = min(size, max(0, start * stride - lo))
    return first, max(first, min(size, (start + rows - 1) * stride + 1 + hi)) if rows else first


def nested(size: KnownDim, axes: Iterable[str], at: Coordinates, mesh: Mesh) -> tuple[KnownDim, KnownDim]:
    """(first row, rows) of a dimension divided over several axes, major first."""
    start: KnownDim = 0
    for axis in axes:
        first, size = extent(size, mesh.axis(axis), at[axis])
        start = add(start, first)
    return start, size


def lies(value: Value, type_: TensorType, layout: Sharding, at: Coordinates, mesh: Mesh) -> tuple[Bounds, ...] | None:
    """The rows that a layout gives the device at these coordinates; several axes on one dimension nest, major first."""
    if type_.shape is None:
        return None
    if len(layout.dims) != len(type_.shape):
        raise Unproven(f"layout {layout} of {value}, expected one for its type {type_}")
    rows: list[Bounds] = []
    for size, axes in zip(type_.shape, layout.dims, strict=True):
        if size is None and axes:
            raise Unproven(f"layout {layout} divides a dimension of {value} of unknown size")
        rows.append(bounds(0, None) if size is None else bounds(*nested(size, axes, at, mesh)))
    return tuple(rows)


@dataclass
class Rules:
    """Sharding rules of nodes and of calls of a kind; each body's is composed once for the types it is called with."""

    module: Module
    _composed: dict[tuple[str, tuple[TensorType, ...]], ShardingRule | None] = field(default_factory=dict)

    def of(self, operation: Operation) -> ShardingRule:
        known = spec(operation.op)
        found = known.rule(operation) if known is not None and known.rule is not None else self._of_call(operation)
        if found is None:
            raise Unproven("it has no sharding rule, expected it whole")
        return found

    def _of_call(self, operation: Operation) -> ShardingRule | None:
        ref = operation.attrs.get("f")
        if not isinstance(ref, FunctionRef) or "kind" not in self.module.function(ref).attrs:
            return None
        types = tuple(t.with_sharding(None) for t in operation.operands)
        if (ref.name, types) not in self._composed:
            self._composed[ref.name, types] = compose_rule(self.module, _for_types(self.module, ref, types))
        return self._composed[ref.name, types]


def _for_types(module: Module, ref: FunctionRef, types: tuple[TensorType, ...]) -> Graph:
    """The body with its caller's types."""
    body = module.function(ref).copy()
    for name, type_ in zip(body.inputs, types, strict=True):
        body.set_types(name, (type_,))
    for name, found in infer_graph(module, body).types.items():
        if body.node(name).op != INPUT:
            body.set_types(name, found)
    return body


def runs(claim: Claim, shard: Shard, operands: tuple[TensorType, ...]) -> Localized:
    """The op, attributes, contents and finish of a shard; for a call of a kind, the call itself: see `same_body`."""
    operation = claim.operation
    known = spec(operation.op)
    local = Localized(operation.op, operation.attrs)
    if known is not None and known.localize is not None:
        local = known.localize(operation, shard, operands)
    if local.steps:
        return local
    attrs = {name: value for name, value in local.attrs.items() if name != ANNOTATION}
    return Localized(local.op, stored(local.op, attrs, [t.dtype for t in operands]), local.contents, local.finish)


def same_body(left: Graph, right: Graph) -> bool:
    """Are two bodies the same nodes, whatever their types?"""

    def rows(graph: Graph) -> list[object]:
        nodes = [graph.node(name) for name in graph.order()]
        return [(n.name, n.op, attrs_key(n.attrs), graph.operands(n.name), graph.controls(n.name)) for n in nodes]

    return rows(left) == rows(right) and left.outputs == right.outputs and left.inputs == right.inputs and left.attrs == right.attrs
