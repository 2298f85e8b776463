"""Nodes stand in the order of their upward rank: whoever has the longest way still to go comes first.

    %a = Relu(%x)   # 1 s to the end          %b = MatMul(%x, %w)
    %b = MatMul(%x, %w)   # 9 s to the end  =>  %a = Relu(%x)

    rank(i) = seconds(i) + max over users j of (transfer(i, j) + rank(j))

Source: Topcuoglu, Hariri, Wu, HEFT (IEEE TPDS 2002).  A node without a device costs the mean over the cluster's kinds of workers, a
transfer that may or may not happen what it costs between two workers, times the chance that they differ.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from compiler.ir.graph import INPUT, Graph
from compiler.ir.module import Module
from compiler.pipeline.base import TYPED, Context, Pass
from cost_model.analytic import type_bytes
from cost_model.cluster import Cluster
from cost_model.devices import Link
from cost_model.flow import Flow, flow_of, moves_data
from cost_model.measured import Measured
from cost_model.model import CostModel, Prices
from passes.reorder.judge import Outcome, outcome, worse


@dataclass(frozen=True)
class ReorderRanks(Pass):
    """Sort by rank; an order that the simulator finds slower, or too big for a device, is not taken."""

    name = "reorder-ranks"
    requires = frozenset({TYPED})

    def run(self, module: Module, context: Context) -> None:
        prices = Prices(module, cost_model(context))
        for graph in module.entries.values():
            reorder(module, graph, prices, ranked_order(graph, prices, module.sizes), context, "by rank")


def cost_model(context: Context) -> CostModel:
    """The cost model of the run: the cluster, and the measurements where some were given."""
    measured = context.services.get(Measured)
    return CostModel(context.service(Cluster), measured if isinstance(measured, Measured) else None)


def reorder(module: Module, graph: Graph, prices: Prices, order: tuple[str, ...], context: Context, how: str) -> None:
    """Take `order` if it is another one, is no worse, and fuel is left."""
    if order == graph.order() or not context.spend():
        return
    before, old = outcome(module, graph, prices), graph.order()
    graph.set_order(order)
    after = outcome(module, graph, prices)
    if reason := worse(before, after, prices.model.cluster):
        graph.set_order(old)
        context.refuse(graph.name, f"ordered {how}, {reason}")
    else:
        context.change(graph.name, f"ordered {how}: {_gain(before, after)}")


def _gain(before: Outcome, after: Outcome) -> str:
    return f"{before.seconds:.3g} s -> {after.seconds:.3g} s, peak {before.peak_bytes} -> {after.peak_bytes} bytes"


def ranked_order(graph: Graph, prices: Prices, sizes: Mapping[str, int]) -> tuple[str, ...]:
    """Inputs, then all else by falling rank; equals keep their order, so that producers stay first."""
    flow = flow_of(graph)
    ranks = upward_ranks(graph, flow, prices, sizes)
    return inputs_first(graph, tuple(flow.names[i] for i in sorted(range(len(flow)), key=lambda i: (-ranks[i], i))))


def inputs_first(graph: Graph, order: tuple[str, ...]) -> tuple[str, ...]:
    """`order` with the graph's inputs, as they are declared, before all else: the order in which the text has them."""
    inputs = frozenset(graph.inputs)
    return (*graph.inputs, *(name for name in order if name not in inputs))


def upward_ranks(graph: Graph, flow: Flow, prices: Prices, sizes: Mapping[str, int]) -> list[float]:
    """Seconds from the start of each node to the end of the graph, along the longest chain."""
    workers = kinds_of_workers(prices.model.cluster)
    ranks = [0.0] * len(flow)
    for position in reversed(range(len(flow))):
        node = flow.nodes[position]
        devices = (node.device,) if node.device else workers
        own = sum(prices.seconds(graph, node.name, d) for d in devices) / len(devices)
        after = (_transfer(flow, position, port, user, prices.model, sizes) + ranks[user] for port, user in flow.users[position])
        ranks[position] = own + max(after, default=0.0)
    return ranks


def kinds_of_workers(cluster: Cluster) -> tuple[str, ...]:
    """One worker for each set of figures."""
    return tuple({device.figures(): device.name for device in reversed(cluster.workers)}.values())[::-1]


def _transfer(flow: Flow, position: int, port: int, user: int, model: CostModel, sizes: Mapping[str, int]) -> float:
    producer, consumer = flow.nodes[position], flow.nodes[user]
    if producer.op == INPUT or (port >= 0 and not moves_data(flow.type_of(position, port))):
        return 0.0
    count = 0 if port < 0 else type_bytes(flow.type_of(position, port), sizes)
    if producer.device and consumer.device:
        return model.transfer_seconds(count, producer.device, consumer.device)
    workers = model.cluster.workers
    if len(workers) < 2:
        return 0.0
    link: Link = model.cluster.link(workers[0].name, workers[-1].name)
    return link.seconds(count) * (1 - 1 / len(workers))
