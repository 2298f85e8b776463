"""`CostModel(cluster)`: seconds and bytes of whatever the passes ask about.  It states, it never chooses.

For one operator or one hypothetical shard ask `CostModel`; for a module's nodes, bodies of calls and loops included, ask `Prices`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from compiler.ir.dims import symbols
from compiler.ir.graph import INPUT, Graph
from compiler.ir.module import Module, function_refs
from compiler.ir.sharding import Mesh, Sharding, Windowed
from compiler.ir.types import TensorType
from compiler.ops import queries
from compiler.ops.registry import spec
from compiler.ops.spec import Operation, Trait
from cost_model import analytic, reshard
from cost_model.analytic import Work
from cost_model.cluster import Cluster, LinkGroup
from cost_model.collective import COLLECTIVES
from cost_model.measured import Measured

LOOP_ITERATIONS = 10
"""How often a loop's body is taken to run."""


@dataclass(frozen=True)
class CostModel:
    """Costs on one cluster; `measured` overrides the roofline where it knows an operator."""

    cluster: Cluster
    measured: Measured | None = None

    def op_seconds(
        self,
        operation: Operation,
        device: str,
        sizes: Mapping[str, int],
        *,
        fraction: float = 1.0,
        local: tuple[Sequence[TensorType], Sequence[TensorType]] | None = None,
    ) -> float:
        """Seconds of one operation on a device; of a shard where its fraction of the points and its (operand, result) types are given."""
        found = self.cluster.device(device)
        if self.measured is not None and local is None and fraction == 1.0:
            known = self.measured.find(found.kind, operation, sizes)
            if known is not None:
                return known
        return analytic.op_seconds(spec(operation.op), operation, found, sizes, fraction=fraction, local=local)

    def bytes(self, type_: TensorType, sizes: Mapping[str, int], mesh: Mesh | None = None) -> int:
        """Bytes of a value, or of its largest shard."""
        return analytic.type_bytes(type_, sizes, mesh)

    def transfer_seconds(self, count: float, source: str, target: str) -> float:
        """One transfer, 0 within a device."""
        return 0.0 if source == target else self.cluster.link(source, target).seconds(count)

    def collective_seconds(self, kind: str, count: float, devices: Iterable[str]) -> float:
        """`all_reduce`, `all_gather`, `reduce_scatter` or `all_to_all` of `count` bytes (see `collective.py` for which bytes)."""
        return COLLECTIVES[kind](count, self.cluster.group(devices))

    def reshard_seconds(self, type_: TensorType, source: Sharding, target: Sharding, mesh: Mesh, sizes: Mapping[str, int]) -> float:
        """Seconds to turn a value that lies as `source` into one that lies as `target`."""
        return reshard.reshard_seconds(self.cluster, type_, source, target, mesh, sizes)

    def halo_seconds(self, type_: TensorType, windowed: Windowed, dim: int, mesh: Mesh, sizes: Mapping[str, int]) -> float:
        """Seconds to give each device the rows of `dim` that its window reads, when it has its own."""
        return reshard.halo_seconds(self.cluster, type_, windowed, dim, mesh, sizes)

    def group(self, mesh: Mesh, axis: str) -> LinkGroup:
        """The devices of one line of a mesh axis, as a link group."""
        return self.cluster.group(reshard.line(mesh, axis))


@dataclass
class Prices:
    """What each node of a module costs, found once; it must not outlive a change of the module.

    A call costs what its body costs, a loop `LOOP_ITERATIONS` times its condition and body, a branch its dearest arm.
    """

    module: Module
    model: CostModel
    _works: dict[tuple[str, str], Work] = field(default_factory=dict)
    _seconds: dict[tuple[str, str, object], float] = field(default_factory=dict)
    _bodies: dict[tuple[str, object], float] = field(default_factory=dict)
    _figures: dict[str, object] = field(default_factory=dict)

    def work(self, graph: Graph, name: str) -> Work:
        """The node's own work, bodies it refers to left out."""
        key = (graph.name, name)
        if key not in self._works:
            node = graph.node(name)
            operation = queries.operation(self.module, graph, name)
            free = node.op == INPUT
            work = analytic.work_of(spec(node.op), operation, self.module.sizes)
            self._works[key] = Work(0.0, 0.0, work.dtype, work.op_class, free=True) if free else work
        return self._works[key]

    def is_view(self, graph: Graph, name: str) -> bool:
        """Does result 0 share its operand's buffer?"""
        known = spec(graph.node(name).op)
        return known is not None and analytic.is_view(known, queries.operation(self.module, graph, name))

    def seconds(self, graph: Graph, name: str, device: str) -> float:
        """Seconds of a node on a device, bodies included."""
        if device not in self._figures:
            self._figures[device] = self.model.cluster.device(device).figures()
        key = (graph.name, name, self._figures[device])
        if key not in self._seconds:
            self._seconds[key] = self._node_seconds(graph, name, device)
        return self._seconds[key]

    def _node_seconds(self, graph: Graph, name: str, device: str) -> float:
        node = graph.node(name)
        refs = [ref.name for ref in function_refs(node)]
        known = spec(node.op)
        if node.op == "Call" and "kind" in self.module.functions[refs[0]].attrs:
            return self._kind_seconds(graph, name, self.module.functions[refs[0]], device)
        if refs and known is not None and known.traits & {Trait.CALL, Trait.CONTROL_FLOW}:
            bodies = [self.body_seconds(ref, device) for ref in refs]
            return self.model.cluster.device(device).overhead_seconds + _run(known.traits, node.op, bodies)
        if self.model.measured is not None:
            return self.model.op_seconds(queries.operation(self.module, graph, name), device, self.module.sizes)
        return analytic.seconds_of(self.work(graph, name), self.model.cluster.device(device))

    def _kind_seconds(self, graph: Graph, name: str, body: Graph, device: str) -> float:
        """An outlined body, its own sizes those of the operands; it is opened again before it runs, so the call itself costs nothing."""
        sizes = dict(self.module.sizes)
        for slot, type_ in enumerate(graph.operand_types(name)):
            for own, given in zip(body.node(body.inputs[slot]).type.shape or (), type_.shape or (), strict=False):
                sizes.update({symbol: analytic.size_of_dim(given, self.module.sizes) for symbol in symbols(own)})
        inner = [queries.operation(self.module, body, n) for n in body.order() if body.node(n).op != INPUT]
        return sum(analytic.op_seconds(spec(o.op), o, self.model.cluster.device(device), sizes) for o in inner)

    def body_seconds(self, function: str, device: str) -> float:
        """Seconds of one run of a function on one device, its operators one after another."""
        key = self._figures.setdefault(device, self.model.cluster.device(device).figures())
        if (function, key) not in self._bodies:
            for callee in self.module.reachable_functions([self.module.functions[function]]):
                self._fill_body(callee, device, key)
            self._fill_body(function, device, key)
        return self._bodies[function, key]

    def _fill_body(self, function: str, device: str, key: object) -> None:
        if (function, key) not in self._bodies:
            self._bodies[function, key] = 0.0  # a recursive call costs nothing more
            body = self.module.functions[function]
            self._bodies[function, key] = sum(self.seconds(body, name, device) for name in body.order())


def _run(traits: frozenset[Trait], op: str, bodies: list[float]) -> float:
    if Trait.CALL in traits:
        return sum(bodies)
    return LOOP_ITERATIONS * sum(bodies) if op in ("While", "StatelessWhile") else max(bodies)
