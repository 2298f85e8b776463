"""A placed graph run on paper: each device starts its ready operator of the highest priority, transfers run beside them on their links.

A value goes to another device once, whoever reads it there; a transfer holds the sender's and the receiver's port for bytes / beta and
arrives alpha later.  Constants, inputs and handles take no time.  Laws: makespan >= critical path, makespan >= total work / devices.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from compiler.ir.graph import Graph
from compiler.ir.module import Module
from cost_model.analytic import type_bytes
from cost_model.cluster import Cluster
from cost_model.flow import Flow, flow_of, moves_data
from cost_model.memory import Peak, peak_bytes
from cost_model.model import Prices

Policy: TypeAlias = Literal["order", "fifo"]
"""Which ready operator a device takes: the first in the graph's order, or the one ready first, as TensorFlow's executor does."""


@dataclass(frozen=True)
class Event:
    """Something that took time: an operator on a device, or the transfer of a value (`device` is then `source -> target`)."""

    name: str
    kind: Literal["operator", "transfer"]
    device: str
    start_seconds: float
    duration_seconds: float


@dataclass(frozen=True)
class DeviceUse:
    """How long a device computes and waits, and its peak memory in the order it ran."""

    busy_seconds: float
    idle_seconds: float
    peak: Peak


@dataclass(frozen=True)
class Simulation:
    """The outcome.  `order` is the order in which operators started; the critical path is the longest chain of operators and transfers."""

    makespan_seconds: float
    devices: Mapping[str, DeviceUse]
    critical_seconds: float
    critical_path: tuple[str, ...]
    events: tuple[Event, ...]
    order: tuple[str, ...]

    @property
    def work_seconds(self) -> float:
        return sum(use.busy_seconds for use in self.devices.values())


def simulate(
    module: Module, graph: Graph, prices: Prices, *, devices: Mapping[str, str] | None = None, policy: Policy = "order"
) -> Simulation:
    """Run a graph whose nodes have devices (`devices` override them; a node without one runs on the cluster's first worker)."""
    cluster = prices.model.cluster
    flow = flow_of(graph)
    placed = placement(flow, cluster, devices)
    seconds = [prices.seconds(graph, name, device) for name, device in zip(flow.names, placed, strict=True)]
    free = [prices.work(graph, name).free for name in flow.names]
    run = _Run(flow, placed, seconds, free, cluster, module.sizes, policy)
    run.all()
    critical, path = _critical(run)
    order = tuple(flow.names[i] for i in run.started)
    peaks = peak_bytes(module, graph, prices, order=order, devices=dict(zip(flow.names, placed, strict=True)))
    makespan = max(run.finish, default=0.0)
    busy = dict.fromkeys(sorted(set(placed)), 0.0)
    for device, duration in zip(placed, seconds, strict=True):
        busy[device] += duration
    uses = {d: DeviceUse(s, makespan - s, peaks.get(d, Peak(0, "", 0))) for d, s in busy.items()}
    return Simulation(makespan, uses, critical, path, tuple(run.events), order)


def placement(flow: Flow, cluster: Cluster, devices: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """The device of each position."""
    first = cluster.workers[0].name
    return tuple((devices or {}).get(node.name) or node.device or first for node in flow.nodes)


@dataclass
class _Run:
    """The state of one simulation; times in seconds from the call."""

    flow: Flow
    placed: tuple[str, ...]
    seconds: list[float]
    free: list[bool]
    cluster: Cluster
    sizes: Mapping[str, int]
    policy: Policy
    finish: list[float] = field(default_factory=list)
    started: list[int] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    waiting: list[int] = field(default_factory=list)
    agenda: list[tuple[float, int, int, tuple[int, ...]]] = field(default_factory=list)
    ready: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    running: dict[str, int] = field(default_factory=dict)
    ports: dict[str, float] = field(default_factory=dict)
    touched: set[str] = field(default_factory=set)
    """Devices that may have something to start."""
    count: int = 0

    def all(self) -> None:
        self.finish = [0.0] * len(self.flow)
        self.waiting = [len(o) + len(c) for o, c in zip(self.flow.operands, self.flow.controls, strict=True)]
        self.ready = {device: [] for device in sorted(set(self.placed))}
        self._enable([i for i, count in enumerate(self.waiting) if not count], 0.0)
        self._dispatch(0.0)
        while self.agenda:
            now = self.agenda[0][0]
            while self.agenda and self.agenda[0][0] == now:
                _, _, finished, arrived = heapq.heappop(self.agenda)
                if finished >= 0:
                    self._finished(finished, now)
                self._arrive(arrived, now)
            self._dispatch(now)
        assert len(self.started) == len(self.flow), "a node never became ready"

    def _enable(self, positions: list[int], now: float) -> None:
        for position in positions:
            if self.free[position]:
                self._start(position, now)
                continue
            self.count += 1
            self.touched.add(self.placed[position])
            heapq.heappush(self.ready[self.placed[position]], (position if self.policy == "order" else self.count, position))

    def _dispatch(self, now: float) -> None:
        for device in sorted(self.touched):
            queue = self.ready[device]
            if queue and device not in self.running:
                _, position = heapq.heappop(queue)
                self.running[device] = position
                self._start(position, now)
        self.touched.clear()

    def _start(self, position: int, now: float) -> None:
        self.started.append(position)
        duration = self.seconds[position]
        if not self.free[position]:
            self.events.append(Event(self.flow.names[position], "operator", self.placed[position], now, duration))
        self._schedule(now + duration, position, ())

    def _schedule(self, when: float, finished: int, arrived: tuple[int, ...]) -> None:
        self.count += 1
        heapq.heappush(self.agenda, (when, self.count, finished, arrived))

    def _finished(self, position: int, now: float) -> None:
        self.finish[position] = now
        device = self.placed[position]
        if not self.free[position]:
            del self.running[device]
            self.touched.add(device)
        here: list[int] = []
        away: dict[tuple[str, int], list[int]] = {}
        for port, user in self.flow.users[position]:
            target = self.placed[user]
            if target == device or (port >= 0 and not moves_data(self.flow.type_of(position, port))):
                here.append(user)
            else:
                away.setdefault((target, port), []).append(user)
        self._arrive(tuple(here), now)
        for (target, port), users in sorted(away.items()):
            self._send(position, port, target, tuple(users), now)

    def _arrive(self, users: tuple[int, ...], now: float) -> None:
        enabled = []
        for user in users:
            self.waiting[user] -= 1
            if not self.waiting[user]:
                enabled.append(user)
        self._enable(enabled, now)

    def _send(self, position: int, port: int, target: str, users: tuple[int, ...], now: float) -> None:
        source = self.placed[position]
        link = self.cluster.link(source, target)
        out, into = f"{link.port_of(source)} out", f"{link.port_of(target)} in"
        if link.port == "bus":
            out = into = link.name
        count = self.sent_bytes(position, port)
        start = max(now, self.ports.get(out, 0.0), self.ports.get(into, 0.0))
        self.ports[out] = self.ports[into] = start + count / link.bytes_per_second
        duration = link.seconds(count)
        self.events.append(Event(f"{self.flow.names[position]}:{port}", "transfer", f"{source} -> {target}", start, duration))
        self._schedule(start + duration, -1, users)

    def sent_bytes(self, position: int, port: int) -> int:
        return 0 if port < 0 else type_bytes(self.flow.type_of(position, port), self.sizes)


def _critical(run: _Run) -> tuple[float, tuple[str, ...]]:
    """The longest chain of operators and transfers, were every device and link free when asked."""
    flow, longest = run.flow, [0.0] * len(run.flow)
    before = [-1] * len(flow)
    for position in range(len(flow)):
        start = 0.0
        for port, producer in [*((port, p) for p, port in flow.operands[position]), *((-1, p) for p in flow.controls[position])]:
            ready = longest[producer] + _transfer(run, producer, port, position)
            if ready > start:
                start, before[position] = ready, producer
        longest[position] = start + run.seconds[position]
    if not longest:
        return 0.0, ()
    at = max(range(len(flow)), key=lambda i: (longest[i], -i))
    critical, path = longest[at], []
    while at >= 0:
        path.append(flow.names[at])
        at = before[at]
    return critical, tuple(reversed(path))


def _transfer(run: _Run, producer: int, port: int, user: int) -> float:
    source, target = run.placed[producer], run.placed[user]
    if source == target or (port >= 0 and not moves_data(run.flow.type_of(producer, port))):
        return 0.0
    return run.cluster.link(source, target).seconds(run.sent_bytes(producer, port))
