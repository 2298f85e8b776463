"""A device is a name and its figures; a link is what a transfer between two devices costs: `alpha + bytes / beta`.

`/job:worker/task:1/device:GPU:3` is (job, task, kind, index); a name without job and task is a device of the one local process.
"""

from __future__ import annotations

import bisect
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache
from typing import NamedTuple

from compiler.ir.errors import CleaveError
from compiler.ir.types import DType

OP_CLASSES = ("matmul", "conv", "window", "elementwise", "reduction", "other")
"""What efficiency is given by: contractions, convolutions, depthwise and pooling, per-element work, reductions, the rest."""
SCOPES = ("task", "job", "cluster")
PORTS = ("device", "task", "bus")
DEFAULT_EFFICIENCY = {"matmul": 0.65, "conv": 0.55, "window": 0.15, "elementwise": 0.08, "reduction": 0.08, "other": 0.05}
_NAME = re.compile(
    r"^(?:/job:(?P<job>[A-Za-z]\w*))?(?:/replica:\d+)?(?:/task:(?P<task>\d+))?(?:(?:/device:|/)(?P<kind>[A-Za-z]\w*):(?P<index>\d+|\*))?$"
)


class DeviceName(NamedTuple):
    """The parts of a device string; None where the string leaves one open."""

    job: str | None
    task: int | None
    kind: str | None
    number: int | None

    def __str__(self) -> str:
        job = "" if self.job is None else f"/job:{self.job}"
        task = "" if self.task is None else f"/task:{self.task}"
        device = "" if self.kind is None else f"/device:{self.kind}:{'*' if self.number is None else self.number}"
        return job + task + device

    def fits(self, whole: DeviceName) -> bool:
        """Is every part that is given the same in `whole`?"""
        return all(mine is None or mine == theirs for mine, theirs in zip(self, whole, strict=True))


@cache
def device_name(text: str) -> DeviceName:
    """`/CPU:0`, `/job:worker/replica:0/task:1/device:GPU:3`, or a part of one; the job `localhost` is the local process."""
    found = _NAME.match(text)
    if found is None or not text:
        raise CleaveError(f"{text!r} is not a device name, expected one such as '/device:CPU:0' or '/job:worker/task:1/device:GPU:3'")
    job, task, kind, index = found["job"], found["task"], found["kind"], found["index"]
    if job == "localhost":
        job, task = None, None
    count = None if index in (None, "*") else int(index)
    return DeviceName(job, None if task is None else int(task), None if kind is None else kind.upper(), count)


@dataclass(frozen=True)
class Device:
    """One device's figures.

    `peak_flops`        floating-point operations per second by element type; a type without a figure takes float32's (float64: half of it).
    `memory_bandwidth`  bytes per second, read plus written.
    `memory_bytes`      capacity, `inf` where there is no cap.
    `overhead_seconds`  what starting an operator costs.
    `efficiency`        the share of the peak a class of operators reaches, as points (flops of the operator, share), joined in log flops.
    """

    name: str
    kind: str
    peak_flops: Mapping[str, float] = field(hash=False)
    memory_bandwidth: float
    memory_bytes: float = math.inf
    overhead_seconds: float = 1e-6
    efficiency: Mapping[str, tuple[tuple[float, float], ...]] = field(default_factory=dict, hash=False)

    def peak(self, dtype: DType) -> float:
        """FLOP/s for one element type."""
        name = dtype.removesuffix("_ref")
        if name in self.peak_flops:
            return self.peak_flops[name]
        half = 0.5 if name in ("float64", "complex128") else 1.0
        return self.peak_flops["float32"] * half

    def share_of_peak(self, op_class: str, flops: float) -> float:
        """The efficiency of an operator of this class and size, in (0, 1]."""
        points = self.efficiency.get(op_class)
        if points is None:
            return DEFAULT_EFFICIENCY[op_class]
        if flops <= points[0][0] or len(points) == 1:
            return points[0][1]
        position = bisect.bisect_left([p[0] for p in points], flops)
        if position == len(points):
            return points[-1][1]
        (low, a), (high, b) = points[position - 1], points[position]
        return a + (b - a) * math.log(flops / low) / math.log(high / low)

    def figures(self) -> tuple[object, ...]:
        """Everything but the name: devices with equal figures are interchangeable."""
        return (self.kind, tuple(sorted(self.peak_flops.items())), self.memory_bandwidth, self.memory_bytes, self.overhead_seconds,
                tuple(sorted(self.efficiency.items())))  # fmt: skip


@dataclass(frozen=True)
class Task:
    """One process of a cluster, `/job:worker/task:1`, and where it listens, `host:port`."""

    name: str
    address: str

    @property
    def job(self) -> str:
        return device_name(self.name).job or ""

    @property
    def number(self) -> int:
        return device_name(self.name).task or 0


def task_of(device: str) -> str:
    """`/job:worker/task:1/device:CPU:0` => `/job:worker/task:1`; "" for a device of the one local process."""
    parts = device_name(device)
    return str(DeviceName(parts.job, parts.task, None, None))


@dataclass(frozen=True)
class Link:
    """`seconds(n) = alpha_seconds + n / bytes_per_second`, between devices whose names match the patterns of `between`, either way round.

    `scope`  "task": both devices in one task; "job": both in one job; "cluster": any two.
    `port`   who shares the bandwidth: "device", each device sends and receives at full speed; "task", the devices of a task share one
             port (a network card); "bus", all transfers share one medium.
    """

    name: str
    alpha_seconds: float
    bytes_per_second: float
    scope: str = "cluster"
    between: tuple[str, str] = ("*", "*")
    port: str = "device"

    def seconds(self, count: float) -> float:
        return self.alpha_seconds + count / self.bytes_per_second

    def joins(self, left: str, right: str) -> bool:
        """Does this link carry transfers between these two devices?"""
        a, b = device_name(left), device_name(right)
        if self.scope != "cluster" and (a.job != b.job or (self.scope == "task" and a.task != b.task)):
            return False
        one, two = self.between
        if one == two == "*":
            return True
        return (fnmatchcase(left, one) and fnmatchcase(right, two)) or (fnmatchcase(right, one) and fnmatchcase(left, two))

    def port_of(self, device: str) -> str:
        """The name of the port a transfer from or to `device` occupies."""
        if self.port == "bus":
            return self.name
        name = device_name(device)
        return f"{self.name} {device}" if self.port == "device" else f"{self.name} {DeviceName(name.job, name.task, None, None)}"
