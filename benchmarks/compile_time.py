"""Claim: compiling is close to linear in nodes.  CPU seconds against node count, and the slope of a line through them on a log-log scale.

    python -m benchmarks.compile_time                                   every graph at every size
    python -m benchmarks.compile_time --graphs chain --sizes 1000 5000  some
    python -m benchmarks.compile_time --passes                          the exponent of each pass, too
    python -m benchmarks.compile_time --profile chain 5000              where the time goes, by cProfile

Measured is the default pipeline for cpu:2 on a module that is already there: no TensorFlow, no executor (so nothing is folded), no
verification.  Every graph is compiled in a process of its own, one after another; one that takes more than LIMIT CPU seconds is cut short.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import math
import pstats
import resource
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from compiler.ir.graph import Graph, Value
from compiler.ir.module import Module
from compiler.ir.types import DType, TensorType
from compiler.ir.weights import Stores
from compiler.pipeline.base import Context, Pass
from compiler.pipeline.manager import Silent, run_pipeline
from compiler.pipeline.text import parse_pipeline
from cost_model.cluster import Cluster
from passes import PASSES
from passes.pipelines import PIPELINES
from passes.split.choose import Objective, SplitPlan

SIZES = (1_000, 5_000, 20_000, 50_000)
LIMIT = 400
WIDTH = 64
ROWS = TensorType(DType("float32"), (8, WIDTH))


class Drawing:
    """A module of one entry under construction."""

    def __init__(self, name: str) -> None:
        self.graph, self.stores = Graph("main"), Stores()
        self.module = Module(name, {"main": self.graph}, stores=self.stores)
        self.x = self.graph.add_input("x", ROWS)
        self.rng = np.random.default_rng(0)

    def op(self, op: str, *operands: Value) -> Value:
        return Value(
            self.graph.add(op, list(operands), {}, [ROWS], name=f"{op.lower()}_{len(self.graph)}", origin=[f"layer{len(self.graph)}"]).name
        )

    def weight(self, *shape: int) -> Value:
        literal = self.stores.constant(self.rng.standard_normal(shape).astype(np.float32))
        name = f"weight_{len(self.graph)}"
        return Value(self.graph.add("Const", [], {"value": literal}, [TensorType(DType("float32"), shape)], name=name, origin=[name]).name)

    def join(self, values: Sequence[Value]) -> Value:
        """The sum, 32 at a time."""
        level = list(values)
        while len(level) > 1:
            level = [self.op("AddN", *level[i : i + 32]) if len(level[i : i + 32]) > 1 else level[i] for i in range(0, len(level), 32)]
        return level[0]

    def done(self, *outputs: Value) -> Module:
        self.graph.set_outputs([(f"y{i}", value) for i, value in enumerate(outputs)])
        return self.module


def chain(size: int) -> Module:
    """One after another: as deep as it has nodes."""
    drawing = Drawing("chain")
    value, bias = drawing.x, drawing.weight(WIDTH)
    while len(drawing.graph) < size:
        value = drawing.op("Tanh", drawing.op("AddV2", value, bias))
    return drawing.done(value)


def fan_out(size: int) -> Module:
    """One constant that everything reads."""
    drawing = Drawing("fan_out")
    shared = drawing.weight(8, WIDTH)
    values = []
    while len(drawing.graph) < size * 31 // 32:
        values.append(drawing.op("Mul", drawing.op("AddV2", drawing.x, drawing.weight()), shared))
    return drawing.done(drawing.join(values))


def doubling(size: int) -> Module:
    """x = x + x: paths double with each node."""
    drawing = Drawing("doubling")
    value = drawing.x
    while len(drawing.graph) < size:
        value = drawing.op("AddV2", value, value)
    return drawing.done(value)


def wide(size: int) -> Module:
    """Branches that know nothing of each other, joined at the end."""
    drawing = Drawing("wide")
    ends = []
    while len(drawing.graph) < size * 31 // 32:
        ends.append(drawing.op("Relu", drawing.op("AddV2", drawing.op("Tanh", drawing.x), drawing.weight(WIDTH))))
    return drawing.done(drawing.join(ends))


def layers(size: int) -> Module:
    """A network: product, bias, activation, residual."""
    drawing = Drawing("layers")
    value = drawing.x
    while len(drawing.graph) < size:
        product = drawing.op("MatMul", value, drawing.weight(WIDTH, WIDTH))
        value = drawing.op("AddV2", value, drawing.op("Relu", drawing.op("BiasAdd", product, drawing.weight(WIDTH))))
    return drawing.done(value)


GRAPHS: Mapping[str, Callable[[int], Module]] = {"chain": chain, "fan_out": fan_out, "doubling": doubling, "wide": wide, "layers": layers}


@dataclass
class Seconds(Silent):
    """CPU seconds of each pass: the machine may have other work."""

    of: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    started: float = 0.0

    def before_pass(self, position: int, step: Pass, module: Module) -> None:
        self.started = time.process_time()

    def after_pass(self, position: int, step: Pass, module: Module) -> None:
        self.of[step.name] += time.process_time() - self.started


def compile_one(graph: str, size: int, profile: bool = False) -> dict[str, float]:
    """Seconds of each pass, of all (`total`), and what there is after it."""
    module = GRAPHS[graph](size)
    before = sum(len(g) for g in module.graphs.values())
    seconds, steps = Seconds(), parse_pipeline(PIPELINES["default"], PASSES)
    context = Context(services={Cluster: Cluster.parse("cpu:2"), Objective: Objective.LATENCY, SplitPlan: SplitPlan()})
    profiler = cProfile.Profile()
    if profile:
        profiler.runcall(run_pipeline, module, steps, context, [seconds])
        pstats.Stats(profiler).sort_stats("tottime").print_stats(25)
    else:
        run_pipeline(module, steps, context, [seconds])
    assert "tensorflow" not in sys.modules, "what is measured must not import TensorFlow"
    return {
        **seconds.of,
        "total": sum(seconds.of.values()),
        "nodes before": before,
        "nodes after": sum(len(g) for g in module.graphs.values()),
        "peak MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def exponent(points: Sequence[tuple[float, float]]) -> float:
    """The slope of the least-squares line through (log nodes, log seconds); below a millisecond the clock is noise."""
    known = [(math.log(n), math.log(s)) for n, s in points if s > 1e-3]
    if len(known) < 2:
        return float("nan")
    slope, _ = np.polyfit([x for x, _ in known], [y for _, y in known], 1)
    return float(slope)


def measure(graph: str, size: int) -> dict[str, float] | None:
    """In a process of its own; None where it took too long."""
    command = [sys.executable, "-m", "benchmarks.compile_time", "--one", graph, str(size)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == -signal.SIGXCPU:
        return None
    if done.returncode:
        sys.exit(f"\n{graph} of {size} nodes failed:\n{done.stderr}")
    found: dict[str, float] = json.loads(done.stdout)
    return found


def table(graphs: Sequence[str], sizes: Sequence[int], passes: bool) -> None:
    print(f"{'graph':10}" + "".join(f"{size:>12,}" for size in sizes) + f"{'exponent':>10}{'peak MB':>9}{'nodes after':>13}")
    for graph in graphs:
        found = []
        print(f"{graph:10}", end="", flush=True)
        for size in sizes:
            result = measure(graph, size)
            print(f"{result['total']:11.2f}s" if result else f"{f'> {LIMIT:g} s':>12}", end="", flush=True)
            found += [result] if result else []
        slope = exponent([(r["nodes before"], r["total"]) for r in found])
        last = found[-1] if found else {}
        print(f"{slope:10.2f}{last.get('peak MB', 0):9.0f}{last.get('nodes after', 0):13,.0f}")
        if passes and found:
            _show_passes(found)


def _show_passes(found: Sequence[Mapping[str, float]]) -> None:
    names = [name for name in found[-1] if name in PASSES]
    for name in sorted(names, key=lambda n: -found[-1][n]):
        points = [(r["nodes before"], r.get(name, 0.0)) for r in found]
        print(f"  {name:18}" + "".join(f"{s:11.2f}s" for _, s in points) + f"  exponent {exponent(points):.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", nargs="+", choices=list(GRAPHS), default=list(GRAPHS))
    parser.add_argument("--sizes", nargs="+", type=int, default=list(SIZES))
    parser.add_argument("--passes", action="store_true")
    parser.add_argument("--profile", nargs=2, metavar=("GRAPH", "SIZE"))
    parser.add_argument("--one", nargs=2, metavar=("GRAPH", "SIZE"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        resource.setrlimit(resource.RLIMIT_CPU, (LIMIT, LIMIT + 5))
        print(json.dumps(compile_one(given.one[0], int(given.one[1]))))
    elif given.profile:
        compile_one(given.profile[0], int(given.profile[1]), profile=True)
    else:
        table(given.graphs, given.sizes, given.passes)


if __name__ == "__main__":
    main()
