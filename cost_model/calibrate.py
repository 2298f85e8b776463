"""This machine's figures, measured through TensorFlow's own executor: chains are run, what one more step of a chain takes is the figure.

    seconds of an operator = (seconds(chain of `LONG`) - seconds(chain of `SHORT`)) / (LONG - SHORT)

so that feeding, fetching and calling cancel out.  Of repeated calls the median of the fastest tenth counts.  The result is a cluster to
write to a file and name in later runs: no compilation measures anything.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from types import MappingProxyType
from typing import TypeAlias

import numpy as np

from compiler.execution import ModuleExecutor, RuntimeConfig
from compiler.ir.errors import CleaveError
from compiler.ir.graph import Attr, Graph, Value
from compiler.ir.module import Module
from compiler.ir.types import DType, TensorType
from cost_model.cluster import Cluster
from cost_model.devices import Device, Link

Shapes: TypeAlias = tuple[tuple[int, ...], tuple[int, ...]]
"""Of what goes along the chain, and of the other operand."""
Build: TypeAlias = "Callable[[str, Shapes, int, int, Mapping[str, Attr]], Module]"
SHORT, LONG = 2, 10
MATMUL_SIZES = (64, 256, 1024)
CONV_SIZES = ((14, 32), (56, 64))
STREAM_ELEMENTS = 8 << 20
LEAST_FLOPS = 1e8
"""A step of a chain does at least this much, in as many operators as it takes."""
FORK_SIZE = 256
LEAST_SECONDS = 1e-8
"""A difference below this is noise, and counts as this."""
MOST_BYTES_PER_SECOND = 1e12


@dataclass(frozen=True)
class Bench:
    """Where to run, on how many devices, how often, and whom to tell what is being measured."""

    executor: ModuleExecutor
    devices: int
    repeat: int = 30
    tell: Callable[[str], None] = lambda _: None


def calibrate(bench: Bench) -> Cluster:
    """A `cpu:N` cluster with measured figures; two devices at least are needed to measure a link."""
    bench.tell("dispatch")
    overhead = _slope(bench, "Neg", (1,), times=100)
    bench.tell("memory")
    streamed = _slope(bench, "AddV2", (STREAM_ELEMENTS,))
    bandwidth = 3 * 4 * STREAM_ELEMENTS / max(streamed - overhead, LEAST_SECONDS)
    bench.tell("matmul")
    matmul = [_matmul_rate(bench, size, overhead) for size in MATMUL_SIZES]
    bench.tell("conv")
    conv = [_conv_rate(bench, side, channels, overhead) for side, channels in CONV_SIZES]
    peak = max(rate for _, rate in [*matmul, *conv])
    efficiency = {
        name: tuple((flops, round(rate / peak, 3)) for flops, rate in points) for name, points in (("matmul", matmul), ("conv", conv))
    }
    figures = {"float32": _rounded(peak)}
    devices = tuple(
        Device(f"/device:CPU:{i}", "CPU", figures, _rounded(bandwidth), overhead_seconds=_rounded(overhead), efficiency=efficiency)
        for i in range(bench.devices)
    )
    return Cluster(devices, () if bench.devices < 2 else (_link(bench, streamed),), f"cpu{bench.devices}-calibrated")


def _link(bench: Bench, streamed: float) -> Link:
    """Two transfers give alpha and beta: a small value's, between branches on two devices that meet at every step (waking threads),
    and a big value's, along a chain that changes device at every step.
    """
    bench.tell("link")
    shape, small, big = (FORK_SIZE, FORK_SIZE), 4 * FORK_SIZE**2, 4 * STREAM_ELEMENTS
    alone = _slope(bench, "MatMul", shape) + _slope(bench, "AddV2", shape, times=10)
    hop = (_slope(bench, "MatMul", shape, devices=2, build=fork) - alone) / 2
    haul = _slope(bench, "AddV2", (STREAM_ELEMENTS,), devices=2) - streamed
    beta = min((big - small) / max(haul - hop, LEAST_SECONDS), MOST_BYTES_PER_SECOND)
    return Link("memory", _rounded(max(hop - small / beta, LEAST_SECONDS)), _rounded(beta), scope="task")


def _matmul_rate(bench: Bench, size: int, overhead: float) -> tuple[float, float]:
    """(flops, flops per second) of a square product."""
    flops = 2.0 * size**3
    taken = _slope(bench, "MatMul", (size, size), times=max(1, round(LEAST_FLOPS / flops)))
    return flops, flops / max(taken - overhead, LEAST_SECONDS)


def _conv_rate(bench: Bench, side: int, channels: int, overhead: float) -> tuple[float, float]:
    """(flops, flops per second) of a 3x3 convolution."""
    flops = 2.0 * side * side * 9 * channels * channels
    shapes, times = ((1, side, side, channels), (3, 3, channels, channels)), max(1, round(LEAST_FLOPS / flops))
    taken = _slope(bench, "Conv2D", shapes[0], second=shapes[1], attrs={"strides": (1, 1, 1, 1), "padding": "SAME"}, times=times)
    return flops, flops / max(taken - overhead, LEAST_SECONDS)


def _slope(
    bench: Bench,
    op: str,
    shape: tuple[int, ...],
    *,
    times: int = 1,
    devices: int = 1,
    second: tuple[int, ...] | None = None,
    attrs: Mapping[str, Attr] = MappingProxyType({}),
    build: Build | None = None,
) -> float:
    """Seconds of one step of a chain of `op`."""
    weight = second or shape
    modules = [(build or chain)(op, (shape, weight), count * times, devices, attrs) for count in (SHORT, LONG)]
    short, long = (_seconds(bench, module, shape, weight) for module in modules)
    return max((long - short) / ((LONG - SHORT) * times), LEAST_SECONDS)


def _seconds(bench: Bench, module: Module, shape: tuple[int, ...], weight: tuple[int, ...]) -> float:
    """One call, on values that neither grow nor vanish along the chain."""
    config = RuntimeConfig(devices=bench.devices, intra_threads=1, inter_threads=bench.devices)
    request = {"x": np.full(shape, 0.5, np.float32), "w": np.full(weight, 1 / max(1, math.prod(weight[:-1])), np.float32)}
    (result,) = bench.executor.run_module(module, "main", [request], config=config, repeat=bench.repeat)
    if result.error is not None:
        raise CleaveError(f"calibrate: {module.name} failed: {result.error}")
    return fastest(result.timings or (result.seconds,))


def fastest(timings: Sequence[float]) -> float:
    """The median of the fastest tenth: what the machine does when nobody disturbs it."""
    return median(sorted(timings)[: max(1, len(timings) // 10)])


def chain(op: str, shapes: Shapes, count: int, devices: int, attrs: Mapping[str, Attr]) -> Module:
    """`count` operators one after another, on the first device or going round `devices`; only the shape of the last is fetched."""
    graph, last, weight = _start(shapes)
    for i in range(count):
        operands = [last] if op == "Neg" else [last, weight]
        last = _step(graph, op, operands, shapes[0], f"n{i}", i % devices, attrs)
    return _module(graph, f"a chain of {count} {op} of {shapes[0]}", last, shapes[0])


def fork(op: str, shapes: Shapes, count: int, devices: int, attrs: Mapping[str, Attr]) -> Module:
    """`count` times the same operator on each device, their sum on the first."""
    graph, last, weight = _start(shapes)
    for i in range(count):
        arms = [_step(graph, op, [last, weight], shapes[0], f"n{i}/{k}", k, attrs) for k in range(devices)]
        last = _step(graph, "AddV2", arms[:2], shapes[0], f"n{i}", 0, {})
    return _module(graph, f"a chain of {count} forks of {op} of {shapes[0]}", last, shapes[0])


def _start(shapes: Shapes) -> tuple[Graph, Value, Value]:
    graph = Graph("main")
    x, w = (graph.add_input(name, TensorType(DType("float32"), shape)) for name, shape in zip("xw", shapes, strict=True))
    return graph, x, w


def _step(graph: Graph, op: str, operands: list[Value], shape: tuple[int, ...], name: str, device: int, attrs: Mapping[str, Attr]) -> Value:
    graph.add(op, operands, attrs, (TensorType(DType("float32"), shape),), name=name, device=f"/device:CPU:{device}")
    return Value(name)


def _module(graph: Graph, name: str, last: Value, shape: tuple[int, ...]) -> Module:
    graph.add("Shape", [last], {}, (TensorType(DType("int32"), (len(shape),)),), name="y", device="/device:CPU:0")
    graph.set_outputs([("y", Value("y"))])
    return Module(name, {"main": graph})


def _rounded(value: float) -> float:
    """Three digits: more would be noise in the file."""
    return float(f"{value:.3g}")
