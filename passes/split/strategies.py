"""The ways one node can be divided over a mesh, each with its price.

    whole       one copy on one device
    replica     computed on every device
    n:x         factor n over mesh axis x (several axes: several factors, or one over both: n:x*y)
    +:x         partial sums over mesh axis x pass through

Only pure, unpinned operators with a sharding rule outside v1 control flow are divided; the rest are whole, and say why.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product

from compiler.ir.graph import Graph, Node
from compiler.ir.module import Module
from compiler.ir.sharding import Mesh, MeshAxis, Sharding, Windowed
from compiler.ir.types import TensorType
from compiler.ops import queries
from compiler.ops.effects import Bodies, is_pure
from compiler.ops.registry import spec
from compiler.ops.spec import PARTIAL, Factor, Kind, Operation, ShardingRule, axes_of
from compiler.rewrite.emitter import Emitter
from cost_model.analytic import local_size, local_type, size_of_dim
from cost_model.model import CostModel
from passes.split.expand import divided_by, emit, steps_of, takes_steps
from passes.split.factors import local_type as symbolic_type
from passes.split.factors import shard_of, wanted
from passes.split.kinds import Kinds
from passes.split.prices import Lies, Reshards

_HELD_ELSEWHERE = ("resource", "variant", "string")
_DIVIDED = (Kind.PARALLEL, Kind.REDUCTION, Kind.HALO, Kind.OFFSET, Kind.STEPS)


@dataclass(frozen=True)
class Strategy:
    """One way: the factors' axes (None: whole), how operands and results lie, seconds of the slowest device."""

    label: str
    assignment: Mapping[str, str] | None
    operands: tuple[Lies, ...]
    results: tuple[Sharding | None, ...]
    seconds: float


@dataclass(frozen=True)
class Considered:
    """A node, its strategies (the first is whole), and why there are no others where there are none."""

    name: str
    operation: Operation
    strategies: tuple[Strategy, ...]
    refusal: str = ""


@dataclass
class Enumerator:
    """Strategies of the nodes of one graph."""

    module: Module
    graph: Graph
    mesh: Mesh
    costs: CostModel
    bodies: Bodies
    looped: frozenset[str]
    """Nodes inside v1 control flow."""
    static_only: bool = False
    """Divide only dimensions of static size: one known at run time alone, such as the batch, may be 1 then."""
    kinds: Kinds = field(init=False)
    reshards: Reshards = field(init=False)
    _summed: set[str] = field(default_factory=set)
    """Nodes, of those considered, that may yield partial sums."""

    def __post_init__(self) -> None:
        self.kinds = Kinds(self.module)
        self.reshards = Reshards(self.costs, self.mesh, self.module.sizes)

    def consider(self, node: Node, operation: Operation) -> Considered:
        whole = self._whole(operation)
        refusal = self._refusal(node)
        rule = None if refusal else self._rule(operation)
        if rule is None or refusal:
            return Considered(node.name, operation, (whole,), refusal or f"{node.op} has no sharding rule here")
        divided = tuple(self._divided(operation, rule))
        return Considered(
            node.name, operation, (whole, *divided), "" if len(divided) > 1 else "no dimension of it is long enough to divide"
        )

    def _refusal(self, node: Node) -> str:
        if node.device:
            return f"pinned to {node.device}"
        if node.name in self.looped:
            return "inside v1 control flow"
        if any(t.dtype in _HELD_ELSEWHERE for t in (*node.types, *self.graph.operand_types(node.name))):
            return "handles, variants and strings stay on the host"
        if spec(node.op) is None:
            return f"{node.op} is opaque"
        if not is_pure(self.module, node, self.bodies):
            return f"{node.op} has an effect or reads state"
        return "" if node.types and self.graph.operands(node.name) else "nothing to divide"

    def _whole(self, operation: Operation) -> Strategy:
        device, sizes = self.mesh.devices[0], self.module.sizes
        if self.kinds.has(operation):
            seconds = self.kinds.seconds(operation, operation.operands, self.costs, device, sizes)
        else:
            seconds = self.costs.op_seconds(operation, device, sizes)
        return Strategy("whole", None, (None,) * len(operation.operands), (None,) * len(operation.results), seconds)

    def _divided(self, operation: Operation, rule: ShardingRule) -> Iterator[Strategy]:
        """Every assignment of a factor, or none, to each mesh axis; nothing divided is a replica."""
        offered = [f for f in (*rule.splits(), *rule.stepped()) if f.kind in _DIVIDED and self._is_offered(f)]
        unknown = _of_unknown_size(operation, rule)
        factors = {f.name: f for f in offered if f.name not in unknown}
        passing = [PARTIAL] if self._sums_arrive(operation, rule) else []
        for chosen in product([None, *factors, *passing], repeat=len(self.mesh.axes)):
            axes: dict[str, list[MeshAxis]] = {}
            for name, axis in zip(chosen, self.mesh.axes, strict=True):
                if name is not None:
                    axes.setdefault(name, []).append(axis)
            parts = {name: math.prod(a.size for a in over) for name, over in axes.items() if name != PARTIAL}
            if all(self._long_enough(rule, factors[name], count) for name, count in parts.items()):
                yield self._strategy(operation, rule, {name: "*".join(a.name for a in over) for name, over in axes.items()})

    def _sums_arrive(self, operation: Operation, rule: ShardingRule) -> bool:
        """May every operand that sums pass through be one?  What this node may yield is remembered for those that read it."""
        sources = [self.graph.operands(operation.name)[slot] for slot in rule.linear]
        arrive = bool(sources) and all(value.node in self._summed for value in sources)
        if arrive or any(f.combine == "sum" and f.kind is Kind.REDUCTION for f in rule.splits()):
            self._summed.add(operation.name)
        return arrive

    def _is_offered(self, factor: Factor) -> bool:
        return isinstance(factor.size, int) or not (self.static_only or factor.kind is Kind.HALO)

    def _long_enough(self, rule: ShardingRule, factor: Factor, parts: int) -> bool:
        enough = size_of_dim(factor.size, self.module.sizes) >= parts and factor.divides_into(parts)
        return enough and rule.divides_evenly(factor.name, parts)

    def _strategy(self, operation: Operation, rule: ShardingRule, assignment: dict[str, str]) -> Strategy:
        operands, (_, results) = wanted(rule, assignment, operation.operands), rule.shardings(assignment)
        if self.kinds.has(operation):
            seconds = max(self._kind_seconds(operation, d, rule.shardings(assignment)[0]) for d in _kinds(self.mesh, self.costs))
        elif takes_steps(operation, assignment):
            seconds = self._steps_seconds(operation, assignment)
        else:
            seconds = self._shard_seconds(operation, rule, assignment) + self._around_seconds(operation, rule, assignment)
        label = ",".join(f"{f}:{a}" for f, a in sorted(assignment.items())) or "replica"
        full_operands = tuple(lies or _everywhere(t.rank) for lies, t in zip(operands, operation.operands, strict=True))
        full_results = tuple(lies or _everywhere(t.rank) for lies, t in zip(results, operation.results, strict=True))
        return Strategy(label, assignment, full_operands, full_results, seconds)

    def _shard_seconds(self, operation: Operation, rule: ShardingRule, assignment: Mapping[str, str]) -> float:
        """The slowest device's shard of one op."""
        sizes, mesh = self.module.sizes, self.mesh
        lies, (_, results) = wanted(rule, assignment, operation.operands), rule.shardings(assignment)
        local = (
            [self._local_type(t, form) for t, form in zip(operation.operands, lies, strict=True)],
            [local_type(t, s, mesh, sizes) for t, s in zip(operation.results, results, strict=True)],
        )
        divided = [axes for factor, axes in assignment.items() if factor != PARTIAL]
        fraction = 1.0 / math.prod(mesh.axis(axis).size for axes in divided for axis in axes_of(axes))
        return max(self.costs.op_seconds(operation, d, sizes, fraction=fraction, local=local) for d in _kinds(mesh, self.costs))

    def _around_seconds(self, operation: Operation, rule: ShardingRule, assignment: Mapping[str, str]) -> float:
        """What a shard does besides the op itself, where it is several ops: masks, and rows that are trimmed."""
        known = spec(operation.op)
        special = any(f != PARTIAL and rule.factor(f).kind in (Kind.HALO, Kind.OFFSET, Kind.REDUCTION) for f in assignment)
        if not special or known is None or known.localize is None:
            return 0.0
        shard = shard_of({f.name: f for f in rule.factors}, assignment, {a.name: min(1, a.size - 1) for a in self.mesh.axes}, self.mesh)
        steps = known.localize(operation, shard, operation.operands).steps
        if not steps:
            return 0.0
        _, results = rule.shardings(assignment)
        moved = max(
            self.costs.bytes(local_type(t, s, self.mesh, self.module.sizes), {}) for t, s in zip(operation.results, results, strict=True)
        )
        device = self.costs.cluster.device(self.mesh.devices[0])
        return 2 * moved / device.memory_bandwidth + (len(steps) - 1) * device.overhead_seconds

    def _steps_seconds(self, operation: Operation, assignment: Mapping[str, str]) -> float:
        """The shards of every step, and what is moved between them."""
        graph, steps = Graph(operation.name), steps_of(operation)
        inputs = [graph.add_input(f"operand_{slot}", t.with_sharding(None)) for slot, t in enumerate(operation.operands)]
        made = emit(Emitter(self.module, graph), steps, inputs, "step")
        total, lie = 0.0, dict[str, Sharding]()
        for step, value in zip(steps, made, strict=True):
            op = queries.operation(self.module, graph, value.node)
            rule, divided = divided_by(op, step, assignment)
            total += self._shard_seconds(op, rule, divided)
            for source, form in zip(graph.operands(value.node), wanted(rule, divided, op.operands), strict=True):
                if source.node in lie and form is not None:
                    total += self.reshards.seconds(graph.type_of(source), lie[source.node], form)
            lie[value.node] = rule.shardings(divided)[1][0] or _everywhere(graph.type_of(value).rank)
        return total

    def _local_type(self, type_: TensorType, lies: Lies) -> TensorType:
        """The largest part of an operand; under a window, the rows that the largest shard reads."""
        base = lies.base if isinstance(lies, Windowed) else lies
        found = local_type(type_, base, self.mesh, self.module.sizes)
        if not isinstance(lies, Windowed) or found.shape is None:
            return found
        shape = list(found.shape)
        for dim, window in lies.windows:
            rows = local_size(window.rows, lies.base.dims[dim], self.mesh, self.module.sizes)
            needed = (rows - 1) * window.stride + 1 + window.lo + window.hi
            shape[dim] = min(int(needed), size_of_dim((type_.shape or ())[dim], self.module.sizes))
        return TensorType(found.dtype, tuple(shape), None, found.handle)

    def _kind_seconds(self, operation: Operation, device: str, operands: tuple[Sharding | None, ...]) -> float:
        """A call of a kind, on the first, largest, shard of each operand; sizes stay symbols, so that unknown ones agree."""
        first = dict.fromkeys((axis.name for axis in self.mesh.axes), 0)
        local = [
            t if s is None or t.shape is None else symbolic_type(t, s, first, self.mesh)
            for t, s in zip(operation.operands, operands, strict=True)
        ]
        return self.kinds.seconds(operation, local, self.costs, device, self.module.sizes)

    def _rule(self, operation: Operation) -> ShardingRule | None:
        return self.kinds.rule(operation) if self.kinds.has(operation) else _rule(operation)


def _kinds(mesh: Mesh, costs: CostModel) -> list[str]:
    """One device of each kind: equal devices take equal time."""
    found: dict[object, str] = {}
    for device in mesh.devices:
        found.setdefault(costs.cluster.device(device).figures(), device)
    return list(found.values())


def _of_unknown_size(operation: Operation, rule: ShardingRule) -> frozenset[str]:
    """Factors that some value has in a dimension of unknown size, whatever the others say of theirs: nobody knows where to cut it."""
    both = ((operation.operands, rule.operands), (operation.results, rule.results))
    pairs = [pair for types, values in both for pair in zip(types, values, strict=True)]
    dims = [pair for type_, value in pairs if value is not None for pair in zip(type_.shape or (), value, strict=False)]
    return frozenset(name for size, names in dims if size is None for name in names)


def _everywhere(rank: int | None) -> Sharding:
    """An undividable value is read whole by every device."""
    return Sharding(((),) * (rank or 0))


def _rule(operation: Operation) -> ShardingRule | None:
    known = spec(operation.op)
    rule = known.rule(operation) if known is not None and known.rule is not None else None
    ranked = all(t.shape is not None for t in (*operation.operands, *operation.results))
    return rule if ranked else None
