"""Every node gets a device: what has one keeps it, all else is scheduled by the graph's order under the devices' memory.

    %y = MatMul(%x, %w) : f32[8,8]      =>   %y = MatMul(%x, %w) : f32[8,8] on "/device:CPU:0"

Plans are tried in turn (earliest finish, filling one device after another, each kind of device alone) and simulated; of those that fit
the fastest is taken, of equals the one with the fewest devices.  Where none fits, the error is the smallest conflict found.
Small constants are copied to each device that reads them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from compiler.ir.errors import CleaveError
from compiler.ir.graph import Graph, Use, Value
from compiler.ir.module import Module
from compiler.ops.registry import has
from compiler.ops.spec import Trait
from compiler.pipeline.base import PLACED, TYPED, Context, Pass
from cost_model.cluster import Cluster
from cost_model.flow import Flow, flow_of
from cost_model.model import Prices
from passes.place.groups import Groups, groups_of
from passes.place.kernels import EVERYTHING, Kernels
from passes.place.schedule import SMALL_BYTES, Conflict, How, Scheduler
from passes.reorder.judge import ROUNDING, outcome, overflow
from passes.reorder.ranks import cost_model, kinds_of_workers


@dataclass(frozen=True)
class Place(Pass):
    """Devices for the nodes of every entry; a function's body runs where its caller does."""

    name = "place"
    requires = frozenset({TYPED})
    establishes = frozenset({PLACED})

    def run(self, module: Module, context: Context) -> None:
        prices = Prices(module, cost_model(context))
        for graph in module.entries.values():
            _place(module, graph, prices, context)


def _place(module: Module, graph: Graph, prices: Prices, context: Context) -> None:
    cluster = prices.model.cluster
    flow = flow_of(graph)
    found = context.services.get(Kernels)
    kernels = found if isinstance(found, Kernels) else EVERYTHING
    pins = _pins(graph, cluster, kernels, context)
    groups = groups_of(graph, flow, prices, cluster, pins, kernels)
    devices = _best(module, graph, prices, flow, groups)
    for name, pin in sorted(pins.items()):
        if devices[name] != pin:
            context.refuse(name, f"its pin {pin} is dropped: what it shares a resource with is on {devices[name]}")
    changed = [name for name in flow.names if graph.node(name).device != devices[name]]
    for name in changed:
        graph.set_device(name, devices[name])
    copies = _copy_small_constants(graph, cluster)
    if changed or copies:
        used = sorted(set(devices.values()))
        context.change(graph.name, f"placed {len(changed)} nodes on {', '.join(used)}, copied {copies} small constants")


def _pins(graph: Graph, cluster: Cluster, kernels: Kernels, context: Context) -> dict[str, str]:
    """The devices nodes have, as the cluster calls them; a pin the cluster does not have is reported and dropped.

    What a device has no kernel for runs on its host.
    """
    pins: dict[str, str] = {}
    for node in graph:
        if not node.device:
            continue
        try:
            pins[node.name] = cluster.resolve(node.device)
        except CleaveError as error:
            context.refuse(node.name, f"its pin is dropped: {error}")
            continue
        device = pins[node.name]
        if not kernels.runs(graph, node.name, cluster.device(device).kind):
            pins[node.name] = cluster.host(device)
            context.refuse(node.name, f"{device} has no kernel for {node.op} of these types, it runs on {pins[node.name]}")
    return pins


def _best(module: Module, graph: Graph, prices: Prices, flow: Flow, groups: Groups) -> dict[str, str]:
    """The fastest plan that fits."""
    found: list[tuple[float, int, dict[str, str]]] = []
    conflicts: list[Conflict] = []
    for plan in _plans(module, graph, prices, flow, groups):
        if isinstance(plan, Conflict):
            conflicts.append(plan)
            continue
        result = outcome(module, graph, prices, devices=plan)
        full = overflow(result, prices.model.cluster)
        if full is None:
            found.append((result.seconds, len(set(plan.values())), plan))
        else:
            conflicts.append(Conflict(result.at[full[0]], full[0], result.peaks[full[0]], full[1]))
    if not found:
        raise CleaveError(_explain(graph, min(conflicts, key=lambda c: (c.over, c.device, c.node)), prices.model.cluster))
    fastest = min(seconds for seconds, _, _ in found)
    good = [entry for entry in found if entry[0] <= fastest * (1 + ROUNDING)]
    return min(good, key=lambda entry: entry[1])[2]


def _plans(module: Module, graph: Graph, prices: Prices, flow: Flow, groups: Groups) -> Iterator[dict[str, str] | Conflict]:
    cluster = prices.model.cluster
    if all(group in groups.fixed for group in groups.of):
        yield {name: groups.fixed[group] for name, group in zip(flow.names, groups.of, strict=True)}
        return
    hows: tuple[How, ...] = ("fast",) if all(d.memory_bytes == math.inf for d in cluster.devices) else ("fast", "eager", "fill")
    for how in hows:
        yield Scheduler(graph, flow, groups, prices, cluster, module.sizes, how).devices()
    for device in kinds_of_workers(cluster) if len(cluster.workers) > 1 else ():
        host = cluster.host(device)
        there = (groups.fixed.get(g, host if hosted else device) for g, hosted in zip(groups.of, groups.host, strict=True))
        yield dict(zip(flow.names, there, strict=True))


def _explain(graph: Graph, conflict: Conflict, cluster: Cluster) -> str:
    return (
        f"place: {graph.name!r} does not fit: at {conflict.node!r} {conflict.device} needs {conflict.needed} bytes, {conflict.over} over "
        f"its {int(cluster.device(conflict.device).memory_bytes)}; add memory or devices, split it further, or make the batch smaller"
    )


def _copy_small_constants(graph: Graph, cluster: Cluster) -> int:
    """Readers of a small constant on another device get one of their own; returns how many were made."""
    made = 0
    for name in graph.order():
        node = graph.node(name)
        if not has(node, Trait.CONSTANT) or graph.controls(name):
            continue
        away: dict[str, list[Use]] = {}
        for use in graph.needs(Value(name)).data:
            device = graph.node(use.user).device
            if device != node.device:
                away.setdefault(device, []).append(use)
        if away and _bytes(graph, name) <= SMALL_BYTES:
            made += len(away)
            for device, uses in sorted(away.items()):
                _copy(graph, name, device, cluster.names.index(device), uses)
    return made


def _bytes(graph: Graph, name: str) -> float:
    sizes = [t.elements for t in graph.node(name).types]
    known = [s * t.dtype.bits / 8 for s, t in zip(sizes, graph.node(name).types, strict=True) if isinstance(s, int)]
    return sum(known) if len(known) == len(sizes) else SMALL_BYTES + 1


def _copy(graph: Graph, name: str, device: str, number: int, uses: list[Use]) -> None:
    node = graph.node(name)
    copy = graph.add(
        node.op, attrs=node.attrs, types=node.types, name=graph.fresh_name(f"{name}/{number}"), device=device, origin=node.origin
    )
    for use in uses:
        graph.set_operand(use.user, use.slot, Value(copy.name))
