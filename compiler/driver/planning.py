"""Sizes to plan with, and the plan read off a finished module: simulated time, loads, where everything is."""

from __future__ import annotations

from collections.abc import Mapping

from compiler.driver.plan import DeviceLoad, Placed, Plan
from compiler.ir.dims import Expr, evaluate, symbols
from compiler.ir.errors import CleaveError
from compiler.ir.graph import INPUT
from compiler.ir.module import Module
from compiler.ir.types import Shape
from compiler.ir.weights import Splat, Tensor, WeightRef, literal_bytes
from cost_model.cluster import Cluster
from cost_model.model import CostModel, Prices
from cost_model.simulator import Simulation, simulate
from passes.split.choose import Objective, SplitPlan

BATCH = {Objective.LATENCY: 8, Objective.MEMORY: 8, Objective.THROUGHPUT: 32}
"""What an unknown leading dimension is planned as: a small batch; for throughput a full one."""
LENGTH = 128
"""What any other unknown dimension is planned as."""

GivenShapes = Mapping[str, tuple[int | None, ...]]


def representative_sizes(module: Module, objective: Objective, given: GivenShapes) -> dict[str, int]:
    """A size for each symbol of the entries' inputs: as `given` by input name, else by its place."""
    sizes: dict[str, int] = {}
    names = {name for graph in module.entries.values() for name in graph.inputs}
    for name in given:
        if name not in names:
            raise CleaveError(f"--input {name!r} is no input of the model, expected one of {sorted(names)}")
    for graph in module.entries.values():
        for name in graph.inputs:
            shape = graph.node(name).type.shape
            _from_given(name, shape, given.get(name), sizes)
            for index, dim in enumerate(shape or ()):
                for symbol in sorted(symbols(dim)):
                    sizes.setdefault(symbol, BATCH[objective] if index == 0 else LENGTH)
    return sizes


def _from_given(name: str, shape: Shape, given: tuple[int | None, ...] | None, sizes: dict[str, int]) -> None:
    if given is None or shape is None:
        return
    if len(given) != len(shape):
        raise CleaveError(f"--input {name!r} has {len(given)} dimensions, the model's input has {len(shape)}")
    for dim, size in zip(shape, given, strict=True):
        if size is None:
            continue
        if isinstance(dim, Expr) and str(dim).isidentifier():
            sizes[str(dim)] = size
        elif isinstance(dim, int) and dim != size:
            raise CleaveError(f"--input {name!r}: size {size} is given where the model fixes {dim}")


def make_plan(
    module: Module,
    unsplit: Module,
    cluster: Cluster,
    objective: Objective,
    splits: SplitPlan,
    *,
    pins: Mapping[str, str] | None = None,
    wishes: Mapping[str, str] | None = None,
) -> Plan:
    """The plan of the placed `module`; `unsplit` is the same before splitting, priced on one device."""
    model = CostModel(cluster)
    found = {entry: simulate(module, graph, Prices(module, model)) for entry, graph in module.entries.items()}
    first = cluster.workers[0].name
    before = {
        entry: simulate(unsplit, graph, Prices(unsplit, model), devices={n.name: first for n in graph})
        for entry, graph in unsplit.entries.items()
    }
    return Plan(
        cluster.name,
        objective.value,
        dict(sorted(module.sizes.items())),
        max((s.makespan_seconds for s in found.values()), default=0.0),
        max((s.makespan_seconds for s in before.values()), default=0.0),
        {entry: solution.gap for entry, solution in splits.solutions.items()},
        _loads(module, cluster, found),
        tuple(splits.decisions),
        tuple(
            Placed(entry, node.name, node.op, node.device, node.origin)
            for entry, graph in module.entries.items()
            for node in map(graph.node, graph.order())
            if node.op != INPUT
        ),
        len(cluster.workers),
        dict(pins or {}),
        dict(wishes or {}),
        tuple(derivation.to_json() for derivation in splits.derivations if derivation.divided),
        splits.studies,
    )


def _loads(module: Module, cluster: Cluster, found: Mapping[str, Simulation]) -> tuple[DeviceLoad, ...]:
    """The worst entry's figures, device by device; weights that several entries read are stored once, but counted for each."""
    loads = []
    for device in cluster.names:
        uses = [s.devices[device] for s in found.values() if device in s.devices]
        weights = max((_weight_bytes(module, entry, device) for entry in module.entries), default=0)
        busy = max((u.busy_seconds for u in uses), default=0.0)
        loads.append(DeviceLoad(device, busy, weights, max((u.peak.bytes for u in uses), default=0)))
    return tuple(loads)


def _weight_bytes(module: Module, entry: str, device: str) -> int:
    """Constants and variables of an entry that lie on a device."""
    total = 0
    for node in module.entries[entry]:
        literal = node.attrs.get("value")
        if node.device != device:
            continue
        if node.op == "Const" and isinstance(literal, Tensor | Splat | WeightRef):
            total += literal_bytes(literal)
        elif node.types and node.types[0].handle is not None and node.op == "Variable":
            elements = node.types[0].handle.elements
            total += evaluate(elements or 0, module.sizes) * node.types[0].handle.dtype.bits // 8
    return total
