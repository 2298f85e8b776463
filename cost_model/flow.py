"""A graph as arrays, in its order: what the simulator, liveness and the schedulers walk, each in one linear sweep."""

from __future__ import annotations

from dataclasses import dataclass

from compiler.ir.graph import Graph, Node
from compiler.ir.types import TensorType


@dataclass(frozen=True)
class Flow:
    """Position i is the i-th node of `order`; edges that close v1 loops are left out.

    `operands[i]` are (producer position, port) by slot, `controls[i]` producer positions, `users[i]` (port, consumer position) with port -1
    for a control edge, `outputs` the (position, port) of the graph's results.
    """

    names: tuple[str, ...]
    nodes: tuple[Node, ...]
    operands: tuple[tuple[tuple[int, int], ...], ...]
    controls: tuple[tuple[int, ...], ...]
    users: tuple[tuple[tuple[int, int], ...], ...]
    outputs: tuple[tuple[int, int], ...]
    index: dict[str, int]

    def __len__(self) -> int:
        return len(self.names)

    def type_of(self, position: int, port: int) -> TensorType:
        return self.nodes[position].types[port]


def flow_of(graph: Graph, order: tuple[str, ...] | None = None) -> Flow:
    """The flow of a graph in `order` (its own by default), which must be a topological order of it."""
    names = graph.order() if order is None else order
    index = {name: i for i, name in enumerate(names)}
    operands = tuple(tuple((index[e.value.node], e.value.port) for e in graph.edges(name) if not e.back) for name in names)
    controls = tuple(tuple(index[c] for c in graph.controls(name)) for name in names)
    users: list[list[tuple[int, int]]] = [[] for _ in names]
    for position, (data, before) in enumerate(zip(operands, controls, strict=True)):
        for producer, port in data:
            users[producer].append((port, position))
        for producer in before:
            users[producer].append((-1, position))
    outputs = tuple((index[o.value.node], o.value.port) for o in graph.outputs)
    return Flow(names, tuple(graph.node(n) for n in names), operands, controls, tuple(map(tuple, users)), outputs, index)


def moves_data(type_: TensorType) -> bool:
    """Is there a buffer to send?  A handle of a resource is the same on every device."""
    return type_.dtype != "resource"
