"""Control edges fix a device's order, where the runtime's own order (whoever is ready first) would be slower or would not fit.

    %b = MatMul(%x, %v)                      # ready first, not urgent
    %a = MatMul(%x, %w)             =>       %a = MatMul(%x, %w)
                                             %b = MatMul(%x, %v) after(%a)

The graph's order is the plan.  Where the runtime starts b before a although the plan has a before b, and both stand on one device, b waits
for a.  Edges stay within a device: across devices they are transfers.  None is added unless the simulator finds the gain worth it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from compiler.ir.graph import Graph
from compiler.ir.module import Module
from compiler.ops.registry import has
from compiler.ops.spec import Trait
from compiler.pipeline.base import PLACED, SERIALISED, TYPED, Context, Pass
from cost_model.flow import Flow, flow_of
from cost_model.model import Prices
from cost_model.simulator import simulate
from passes.reorder.judge import Outcome, outcome, overflow
from passes.reorder.ranks import cost_model

ROUNDS = 4
"""How often what the runtime does is looked at anew."""


@dataclass(frozen=True)
class Serialise(Pass):
    """Add edges if they make the run faster by at least `gain` (a share of its seconds), or make it fit."""

    name = "serialise"
    requires = frozenset({TYPED, PLACED})
    establishes = frozenset({SERIALISED})
    gain: float = 0.02

    def run(self, module: Module, context: Context) -> None:
        prices = Prices(module, cost_model(context))
        for graph in module.entries.values():
            self._serialise(module, graph, prices, context)

    def _serialise(self, module: Module, graph: Graph, prices: Prices, context: Context) -> None:
        if any(has(node, Trait.LOOP) for node in graph):
            context.refuse(graph.name, "a v1 loop is in it: edges into a frame would never fire")
            return
        cluster = prices.model.cluster
        before, plan = outcome(module, graph, prices, policy="fifo"), outcome(module, graph, prices)
        if not self._pays(before, plan, prices):
            context.refuse(graph.name, f"the runtime's own order is within {self.gain:.0%} of the plan")
            return
        if not context.spend():
            return
        old = {name: graph.controls(name) for name in graph.order()}
        added = _repair(module, graph, prices)
        after = outcome(module, graph, prices, policy="fifo")
        if not self._pays(before, after, prices):
            for name, controls in old.items():
                graph.set_control(name, controls)
            context.refuse(graph.name, f"{added} edges would bring too little")
            return
        fits = " and it fits" if overflow(before, cluster) and not overflow(after, cluster) else ""
        context.change(graph.name, f"{added} control edges: {before.seconds:.3g} s -> {after.seconds:.3g} s{fits}")

    def _pays(self, before: Outcome, after: Outcome, prices: Prices) -> bool:
        """Faster by `gain`, or fitting where it did not; never at the price of the other."""
        cluster = prices.model.cluster
        full, fits = overflow(before, cluster) is not None, overflow(after, cluster) is None
        if full and fits:
            return True
        return (fits or full) and after.seconds < before.seconds * (1 - self.gain)


def _repair(module: Module, graph: Graph, prices: Prices) -> int:
    """Simulate the runtime, make each operator that overtakes its predecessor in the plan wait for it, and look again."""
    plan, added = graph.order(), 0
    for _ in range(ROUNDS):
        started = {name: i for i, name in enumerate(simulate(module, graph, prices, policy="fifo").order)}
        flow = flow_of(graph)
        edges = [(a, b) for a, b in _neighbours(graph, flow, prices) if started[b] < started[a]]
        if not edges:
            break
        for first, second in edges:
            graph.set_control(second, {*graph.controls(second), first})
        added += len(edges)
    graph.set_order(plan)
    return added


def _neighbours(graph: Graph, flow: Flow, prices: Prices) -> Iterator[tuple[str, str]]:
    """Operators next to each other in the plan of one device, what takes no time left out."""
    last: dict[str, str] = {}
    for name, node in zip(flow.names, flow.nodes, strict=True):
        if prices.work(graph, name).free:
            continue
        if node.device in last:
            yield last[node.device], name
        last[node.device] = name
