"""The simulator is the judge: an order that makes the graph slower, or no longer fit, is not taken."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from compiler.ir.graph import Graph
from compiler.ir.module import Module
from cost_model.cluster import Cluster
from cost_model.model import Prices
from cost_model.simulator import Policy, simulate

ROUNDING = 1e-9
"""Relative differences below this come from the order in which seconds are added."""


@dataclass(frozen=True)
class Outcome:
    """What the simulator says of a graph: seconds, the peak bytes of each device, and the node at which they are live."""

    seconds: float
    peaks: Mapping[str, int]
    at: Mapping[str, str] = field(default_factory=dict)

    @property
    def peak_bytes(self) -> int:
        """The peak of the fullest device."""
        return max(self.peaks.values(), default=0)


def outcome(module: Module, graph: Graph, prices: Prices, *, devices: Mapping[str, str] | None = None, policy: Policy = "order") -> Outcome:
    """Simulate."""
    found = simulate(module, graph, prices, devices=devices, policy=policy)
    peaks = {device: use.peak for device, use in found.devices.items()}
    return Outcome(found.makespan_seconds, {d: p.bytes for d, p in peaks.items()}, {d: p.step for d, p in peaks.items()})


def overflow(found: Outcome, cluster: Cluster) -> tuple[str, int] | None:
    """The device that is fullest beyond its memory and by how many bytes, None where all fit."""
    over = [(peak - cluster.device(d).memory_bytes, d) for d, peak in sorted(found.peaks.items()) if peak > cluster.device(d).memory_bytes]
    if not over:
        return None
    bytes_over, device = max(over)
    return device, int(bytes_over)


def worse(before: Outcome, after: Outcome, cluster: Cluster) -> str:
    """Why the new outcome is not acceptable, "" where it is."""
    if after.seconds > before.seconds * (1 + ROUNDING):
        return f"it takes {after.seconds:.3g} s instead of {before.seconds:.3g} s"
    full = overflow(after, cluster)
    if full is not None and overflow(before, cluster) is None:
        return f"it needs {full[1]} bytes more than {full[0]} has"
    return ""
