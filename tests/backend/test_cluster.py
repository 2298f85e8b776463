"""TensorFlow's own servers: a graph over two tasks, what is lost and who says so, what goes on, whose memory is whose."""

from __future__ import annotations

import signal
import time
from dataclasses import replace

import numpy as np
import pytest

from compiler.backend.cluster import ClusterExecutor
from compiler.backend.pool import Pool
from compiler.ir.module import Module
from compiler.ir.text import parse_module
from compiler.ir.types import TensorType
from cost_model.cluster import Cluster
from tests.backend.clusters import cluster_text, free_ports, workers

pytestmark = pytest.mark.tf

T0, T1 = "/job:worker/task:0/device:CPU:0", "/job:worker/task:1/device:CPU:0"
DEADLINE = 2.0
SOURCE = f"""module "pair"
variable @counter : f32[] = splat(f32[], 0.0)
function @double(%v: f32[b,3]) -> (y = %twice) {{
  %twice = AddV2(%v, %v) : f32[b,3] on "/device:CPU:7"
}}
entry @serving_default(%x: f32[b,3]) -> (y = %sum, count = %now) {{
  %w = Const() {{value=splat(f32[3], 3.0)}} : f32[3] on "{T0}"
  %left = Mul(%x, %w) : f32[b,3] on "{T0}"
  %right = Call(%x) {{f=@double}} : f32[b,3] on "{T1}"
  %sum = AddV2(%left, %right) : f32[b,3] on "{T0}"
  %handle = Variable() {{ref="counter"}} : resource<f32[]>[] on "{T1}"
  %one = Const() {{value=splat(f32[], 1.0)}} : f32[] on "{T1}"
  %add = AssignAddVariableOp(%handle, %one) : () on "{T1}"
  %now = ReadVariableOp(%handle) : f32[] on "{T1}" after(%add)
}}
"""


def pair() -> Module:
    module = parse_module(SOURCE)
    graph = module.entries["serving_default"]
    graph.set_device("x", T0)
    return module


def big(rows: int, device: str) -> Module:
    """A weight of `rows` times 4 KB on one device, of which a row is asked for."""
    module = parse_module(
        f"""module "big"
entry @serving_default(%i: i32[]) -> (y = %y) {{
  %w = Const() {{value=splat(f32[1,1], 0.0)}} : f32[1,1] on "{device}"
  %axis = Const() {{value=splat(i32[], 0)}} : i32[] on "{device}"
  %y = GatherV2(%w, %i, %axis) : f32[1] on "{device}"
}}
"""
    )
    graph = module.entries["serving_default"]
    graph.set_device("i", device)
    values = np.arange(rows, dtype=np.float32)[:, None] + np.zeros(1024, np.float32)
    literal = module.stores.constant(values)
    graph.set_node(replace(graph.node("w"), attrs={"value": literal}, types=(TensorType(literal.dtype, literal.shape),)))
    return module


def test_lives_and_deaths() -> None:
    """One cluster through all of it, because starting servers is what takes the time."""
    ports = free_ports(2)
    cluster = Cluster.parse(cluster_text(ports))
    module, x = pair(), np.arange(6, dtype=np.float32).reshape(2, 3)
    with workers(cluster) as held, Pool() as pool, ClusterExecutor(cluster, pool, DEADLINE) as executor:
        # state lives on its task, starts from its initial value with each run, and is this client's own
        first = executor.run_module(module, "serving_default", [{"x": x}, {"x": x}], want_variables=True)
        assert [r.error for r in first] == [None, None]
        assert all(np.array_equal(r.outputs["y"], 5 * x) for r in first)
        assert [float(r.outputs["count"]) for r in first] == [1, 2] and float((first[1].variables or {})["counter"]) == 2
        assert float(executor.run_module(module, "serving_default", [{"x": x}])[0].outputs["count"]) == 1

        held_open, seven = big(100, T1), [{"i": np.int32(7)}]
        assert executor.run_module(held_open, "serving_default", seven)[0].error is None

        # a stopped worker is named within the deadline, and forgiven when it goes on
        held["worker:1"].send(signal.SIGSTOP)
        begin = time.monotonic()
        stopped = executor.run_module(module, "serving_default", [{"x": x}, {"x": x}])
        took = [time.monotonic() - begin]
        begin = time.monotonic()
        (in_call,) = executor.run_module(held_open, "serving_default", seven)  # its session is open: the call itself is cut short
        took.append(time.monotonic() - begin)
        held["worker:1"].send(signal.SIGCONT)
        assert {r.error.kind for r in [*stopped, in_call] if r.error} == {"lost"} and max(took) < DEADLINE + 1
        assert stopped[0].error and stopped[0].error.tasks == ("/job:worker/task:1",)
        assert "task worker:1 at 127.0.0.1" in str(stopped[0].error) and "is silent" in str(stopped[0].error)
        assert executor.run_module(module, "serving_default", [{"x": x}])[0].error is None
        assert executor.run_module(held_open, "serving_default", seven)[0].error is None

        # a killed one at once, and what does not need it goes on
        held["worker:1"].send(signal.SIGKILL)
        begin = time.monotonic()
        killed = executor.run_module(module, "serving_default", [{"x": x}])
        assert killed[0].error and killed[0].error.kind == "lost" and "task worker:1 at" in killed[0].error.message
        assert "is gone" in killed[0].error.message and time.monotonic() - begin < DEADLINE
        with ClusterExecutor(cluster.without("worker:1"), pool, DEADLINE) as rest:
            (alone,) = rest.run_module(big(100, T0), "serving_default", [{"i": np.int32(7)}])
            assert alone.error is None and alone.outputs["y"][0] == 7
