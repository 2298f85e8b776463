"""Nodes stand so that few bytes are live at once: whoever frees most comes next.

    %a = Big(%x); %b = Big(%y); %c = Sum(%a); %d = Sum(%b)   =>   %a = Big(%x); %c = Sum(%a); %b = Big(%y); %d = Sum(%b)

Two orders are tried, the greedy one and depth first; the one of the least peak by exact liveness is taken if it beats the present one.
Each device's memory counts; the peak of the fullest decides.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass, field

from compiler.ir.graph import INPUT, Graph
from compiler.ir.module import Module
from compiler.pipeline.base import TYPED, Context, Pass
from cost_model.analytic import type_bytes
from cost_model.flow import Flow, flow_of
from cost_model.memory import peak_bytes
from cost_model.model import Prices
from passes.reorder.ranks import cost_model, inputs_first


@dataclass(frozen=True)
class ReorderMemory(Pass):
    """Take the order of the least peak; refuse where none is better."""

    name = "reorder-memory"
    requires = frozenset({TYPED})

    def run(self, module: Module, context: Context) -> None:
        prices = Prices(module, cost_model(context))
        for graph in module.entries.values():
            _reorder(module, graph, prices, context)


def _reorder(module: Module, graph: Graph, prices: Prices, context: Context) -> None:
    present = highest(module, graph, prices, graph.order())
    flow = flow_of(graph)
    candidates = (("greedily", greedy_order(graph, flow, prices, module.sizes)), ("depth first", depth_first_order(flow)))
    orders = ((how, inputs_first(graph, order)) for how, order in candidates)
    least, how, order = min((highest(module, graph, prices, order), how, order) for how, order in orders)
    if least >= present:
        context.refuse(graph.name, f"no order found needs less than {present} bytes")
    elif context.spend():
        graph.set_order(order)
        context.change(graph.name, f"ordered {how} for memory: peak {present} -> {least} bytes")


def highest(module: Module, graph: Graph, prices: Prices, order: tuple[str, ...]) -> int:
    """The peak of the fullest device in this order."""
    return max((peak.bytes for peak in peak_bytes(module, graph, prices, order=order).values()), default=0)


def depth_first_order(flow: Flow) -> tuple[str, ...]:
    """Inputs, then each node right after the last of what it needs, from the outputs back."""
    done = [node.op == INPUT for node in flow.nodes]
    order = [name for name, node in zip(flow.names, flow.nodes, strict=True) if node.op == INPUT]
    roots = [position for position, _ in flow.outputs]
    for root in [*roots, *range(len(flow))]:
        stack = [root]
        while stack:
            position = stack[-1]
            before = [*(p for p, _ in flow.operands[position]), *flow.controls[position]]
            waiting = [p for p in before if not done[p]]
            if not waiting or done[position]:
                stack.pop()
                if not done[position]:
                    done[position] = True
                    order.append(flow.names[position])
            else:
                stack.extend(reversed(waiting))
    return tuple(order)


def greedy_order(graph: Graph, flow: Flow, prices: Prices, sizes: Mapping[str, int]) -> tuple[str, ...]:
    """Of the ready nodes always the one that adds the fewest bytes, made minus freed; equals in their present order."""
    return _Greedy(graph, flow, prices, sizes).order()


@dataclass
class _Greedy:
    graph: Graph
    flow: Flow
    prices: Prices
    sizes: Mapping[str, int]
    root: list[int] = field(default_factory=list)
    """The position whose buffers a view shares."""
    made: list[int] = field(default_factory=list)
    left: list[int] = field(default_factory=list)
    waiting: list[int] = field(default_factory=list)
    ready: list[tuple[int, int, int]] = field(default_factory=list)

    def order(self) -> tuple[str, ...]:
        self._prepare()
        done: list[int] = []
        taken = [False] * len(self.flow)
        for position in range(len(self.flow)):
            if not self.waiting[position]:
                self._push(position)
        while self.ready:
            _, _, position = heapq.heappop(self.ready)
            if taken[position]:
                continue
            taken[position] = True
            done.append(position)
            self._take(position, taken)
        return tuple(self.flow.names[p] for p in done)

    def _prepare(self) -> None:
        self.root = list(range(len(self.flow)))
        self.left = [0] * len(self.flow)
        for position, node in enumerate(self.flow.nodes):
            view = self.flow.operands[position] and self.prices.is_view(self.graph, node.name)
            self.root[position] = self.root[self.flow.operands[position][0][0]] if view else position
            stays = self.prices.work(self.graph, node.name).free
            self.made.append(0 if view or stays else sum(type_bytes(t, self.sizes) for t in node.types))
            for used in self._used(position):
                self.left[used] += 1
        for position, _ in self.flow.outputs:
            self.left[self.root[position]] += 1
        self.waiting = [len(o) + len(c) for o, c in zip(self.flow.operands, self.flow.controls, strict=True)]

    def _used(self, position: int) -> list[int]:
        """The distinct buffers' owners a node reads."""
        return sorted({self.root[p] for p, _ in self.flow.operands[position]})

    def _delta(self, position: int) -> int:
        return self.made[position] - sum(self.made[p] for p in self._used(position) if self.left[p] == 1)

    def _push(self, position: int) -> None:
        first = -(1 << 62) if self.flow.nodes[position].op == INPUT else self._delta(position)
        heapq.heappush(self.ready, (first, position, position))

    def _take(self, position: int, taken: list[bool]) -> None:
        for owner in self._used(position):
            self.left[owner] -= 1
            if self.left[owner] == 1:
                self._refresh(owner, taken)
        for _, user in self.flow.users[position]:
            self.waiting[user] -= 1
            if not self.waiting[user]:
                self._push(user)

    def _refresh(self, owner: int, taken: list[bool]) -> None:
        """The last reader of a buffer frees it: it is worth more now.  Found once for each buffer, among its direct users."""
        for _, user in self.flow.users[owner]:
            if not taken[user] and not self.waiting[user]:
                self._push(user)
