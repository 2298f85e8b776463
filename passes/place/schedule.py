"""List scheduling: in the graph's order, each node goes to the device where it finishes first, and where there is memory for it.

    finish(i, d) = max(when d is free, max over operands j of (finish(j) + transfer(j, d))) + seconds(i, d)

Source: the earliest-finish step of HEFT (Topcuoglu 2002); under memory caps, m-ETF and m-TOPO of Baechi (Jeon et al., SoCC 2020).
`eager` takes the earliest finish where there is memory by its own, careful count; `fill` stays on a device until its memory is used up, the
way out where eager gets stuck; `fast` does not count.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from compiler.ir.graph import Graph
from compiler.ops.registry import has
from compiler.ops.spec import Trait
from cost_model.analytic import type_bytes
from cost_model.cluster import Cluster
from cost_model.flow import Flow, moves_data
from cost_model.model import Prices
from passes.place.groups import Groups

How: TypeAlias = Literal["eager", "fill", "fast"]
MOST_CANDIDATES = 16
"""With more workers than this a node is tried where its operands are, and on the worker that is free first."""
SMALL_BYTES = 1024
"""A constant up to this size is copied to whoever reads it, never sent."""


@dataclass(frozen=True)
class Conflict:
    """A step at which a device has too little memory: the node, its device (the nearest to fitting), bytes then needed in all, and over."""

    node: str
    device: str
    needed: int
    over: int


@dataclass
class Scheduler:
    """The state of one attempt; seconds from the start of the call, bytes by device."""

    graph: Graph
    flow: Flow
    groups: Groups
    prices: Prices
    cluster: Cluster
    sizes: Mapping[str, int]
    how: How
    at: dict[int, str] = field(default_factory=dict)
    """The device of each group that has one."""
    finish: list[float] = field(default_factory=list)
    free_at: dict[str, float] = field(default_factory=dict)
    used: dict[str, int] = field(default_factory=dict)
    here: set[tuple[int, int, str]] = field(default_factory=set)
    """Values that have a buffer on a device besides the producer's."""
    readers: list[int] = field(default_factory=list)
    bounded: bool = False

    def devices(self) -> dict[str, str] | Conflict:
        """A device for each node, or the node that fits nowhere."""
        self.at = dict(self.groups.fixed)
        self.finish = [0.0] * len(self.flow)
        self.free_at = {d.name: 0.0 for d in self.cluster.devices}
        self.used = {d.name: 0 for d in self.cluster.devices}
        self.readers = [len(users) for users in self.flow.users]
        self.bounded = self.how != "fast" and any(d.memory_bytes < math.inf for d in self.cluster.devices)
        for position, _ in self.flow.outputs:
            self.readers[position] += 1
        for position in range(len(self.flow)):
            if not self.groups.follows[position]:
                conflict = self._place(position)
                if conflict is not None:
                    return conflict
        first = self.cluster.workers[0].name
        return {name: self.at.get(self.groups.of[i], first) for i, name in enumerate(self.flow.names)}

    def _place(self, position: int) -> Conflict | None:
        followers = self._followers(position)
        tried: list[tuple[float, int, str]] = []
        short: list[tuple[int, int, str]] = []
        for rank, device in enumerate(self._candidates(position)):
            over = self._needed(position, followers, device) + self.used[device] - self.cluster.device(device).memory_bytes
            if self.bounded and over > 0:
                short.append((int(over), rank, device))
            else:
                finish = self._finish(position, device)
                tried.append((finish if self.how != "fill" else 0.0, rank, device))
        if not tried:
            over_bytes, _, device = min(short)
            needed = self._needed(position, followers, device) + self.used[device]
            return Conflict(self.flow.names[position], device, needed, over_bytes)
        self._commit(position, followers, min(tried)[2])
        return None

    def _candidates(self, position: int) -> Sequence[str]:
        group = self.groups.of[position]
        if group in self.at:
            return (self.at[group],)
        workers = self.cluster.workers
        if self.groups.host[position]:
            return tuple(dict.fromkeys(self.cluster.host(d.name) for d in workers))
        if len(workers) <= MOST_CANDIDATES:
            return tuple(d.name for d in workers)
        near = (self.at.get(self.groups.of[p]) for p, _ in self.flow.operands[position])
        idle = min(workers, key=lambda d: (self.free_at[d.name], self.used[d.name])).name
        roomy = min(workers, key=lambda d: self.used[d.name] - d.memory_bytes if self.bounded else 0).name
        names = frozenset(d.name for d in workers)
        return tuple(dict.fromkeys([*(d for d in near if d in names), idle, roomy]))

    def _finish(self, position: int, device: str) -> float:
        start = self.free_at[device]
        before = [*((p, port) for p, port in self.flow.operands[position]), *((p, -1) for p in self.flow.controls[position])]
        for producer, port in before:
            start = max(start, self.finish[producer] + self._transfer(producer, port, device))
        return start + self.prices.seconds(self.graph, self.flow.names[position], device)

    def _transfer(self, producer: int, port: int, device: str) -> float:
        source = self.at.get(self.groups.of[producer], device)
        if source == device or self.is_small(producer):
            return 0.0
        if port < 0:
            return self.prices.model.transfer_seconds(0, source, device)
        type_ = self.flow.type_of(producer, port)
        return self.prices.model.transfer_seconds(type_bytes(type_, self.sizes), source, device) if moves_data(type_) else 0.0

    def is_small(self, position: int) -> bool:
        """Is the node a constant that may be copied?"""
        node = self.flow.nodes[position]
        return has(node, Trait.CONSTANT) and sum(type_bytes(t, self.sizes) for t in node.types) <= SMALL_BYTES

    def _followers(self, position: int) -> list[int]:
        """The constants, handles and reads that go where this node goes, because nobody took them before."""
        found: list[int] = []
        seen = {position}
        stack = [position]
        while stack:
            for producer, _ in self.flow.operands[stack.pop()]:
                if producer not in seen and self.groups.follows[producer] and self.groups.of[producer] not in self.at:
                    seen.add(producer)
                    found.append(producer)
                    stack.append(producer)
        return found

    def _needed(self, position: int, followers: list[int], device: str) -> int:
        """Bytes this node adds on a device: its results, copies of what is elsewhere, and what follows it there."""
        if not self.bounded:
            return 0
        needed = self._made(position) + sum(self._made(p) for p in followers)
        for producer, port in dict.fromkeys(self.flow.operands[position]):
            source = self.at.get(self.groups.of[producer], device)
            type_ = self.flow.type_of(producer, port)
            if source != device and moves_data(type_) and (producer, port, device) not in self.here:
                needed += type_bytes(type_, self.sizes)
        return needed

    def _made(self, position: int) -> int:
        node = self.flow.nodes[position]
        if self.flow.operands[position] and self.prices.is_view(self.graph, node.name):
            return 0
        return sum(type_bytes(t.handle if "ref" in node.attrs and t.handle is not None else t, self.sizes) for t in node.types)

    def _commit(self, position: int, followers: list[int], device: str) -> None:
        self.used[device] += self._needed(position, followers, device)
        for producer, port in self.flow.operands[position]:
            if self.at.get(self.groups.of[producer], device) != device:
                self.here.add((producer, port, device))
        finish = self._finish(position, device)
        self.finish[position] = finish
        if not self.prices.work(self.graph, self.flow.names[position]).free:
            self.free_at[device] = finish
        for member in [position, *followers]:
            self.at.setdefault(self.groups.of[member], device)
        if self.bounded:
            self._release(position)

    def _release(self, position: int) -> None:
        """Operands whose last reader this was give their bytes back, on every device that had them; a view keeps its operand alive."""
        for producer in sorted({p for p, _ in self.flow.operands[position]}):
            self.readers[producer] -= sum(p == producer for p, _ in self.flow.operands[position])
        view = self.prices.is_view(self.graph, self.flow.names[position])
        for producer, port in dict.fromkeys(self.flow.operands[position]):
            if self.readers[producer] or view or self.groups.follows[producer] or not self._dies(producer):
                continue
            size = type_bytes(self.flow.type_of(producer, port), self.sizes)
            for device in [
                self.at[self.groups.of[producer]],
                *(d for p, q, d in self._copies(producer, port) if (p, q) == (producer, port)),
            ]:
                self.used[device] -= size

    def _dies(self, producer: int) -> bool:
        """Inputs, and results of views (their buffer is another's), are not given back."""
        return bool(self.flow.operands[producer]) and not self.prices.is_view(self.graph, self.flow.names[producer])

    def _copies(self, producer: int, port: int) -> list[tuple[int, int, str]]:
        users = {self.at.get(self.groups.of[u]) for q, u in self.flow.users[producer] if q == port}
        return [(producer, port, d) for d in sorted(u for u in users if u is not None) if (producer, port, d) in self.here]
