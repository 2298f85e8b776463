"""The simulator: by hand, and its laws on random graphs."""

import json
import time

import pytest
from hypothesis import given

from compiler.ir.graph import Graph, Value
from compiler.ir.module import Module
from compiler.ir.text import parse_module
from compiler.ops.queries import operation
from cost_model.cluster import Cluster
from cost_model.devices import Device, Link
from cost_model.measured import Measured, signature
from cost_model.model import CostModel, Prices
from cost_model.simulator import Simulation, simulate
from cost_model.trace import chrome_trace
from tests.cost_model.programs import f32, placed_modules, prices_of

A, B = "/device:CPU:0", "/device:CPU:1"
DEVICES = tuple(Device(n, "CPU", {"float32": 1e9}, 1e3, overhead_seconds=0.0) for n in (A, B))
CLUSTER = Cluster(DEVICES, (Link("wire", 0.5, 400.0),))


def run(text: str, policy: str = "order", cluster: Cluster = CLUSTER) -> Simulation:
    module = parse_module(text)
    assert policy in ("order", "fifo")
    return simulate(module, module.entries["main"], prices_of(module, cluster), policy="fifo" if policy == "fifo" else "order")


DIAMOND = f"""module "m"
entry @main(%x: f32[100] on "{A}") -> (y = %y) {{
  %a = Relu(%x) : f32[100] on "{A}"
  %b = Relu(%a) : f32[100] on "{A}"
  %c = Relu(%a) : f32[100] on "{B}"
  %y = AddV2(%b, %c) : f32[100] on "{A}"
}}
"""  # Relu: 800 bytes, 0.8 s; AddV2: 1.2 s; a transfer of 400 bytes: 0.5 + 1 s


def test_a_diamond_by_hand() -> None:
    found = run(DIAMOND)
    # a ends at 0.8, its copy arrives at 2.3, c ends at 3.1, its result arrives at 4.6, y ends at 5.8
    assert found.makespan_seconds == pytest.approx(5.8)
    assert found.critical_seconds == pytest.approx(5.8) and found.critical_path == ("a", "c", "y")
    assert found.devices[A].busy_seconds == pytest.approx(2.8) and found.devices[B].busy_seconds == pytest.approx(0.8)
    assert found.devices[A].idle_seconds == pytest.approx(3.0)
    transfers = [(e.name, e.device, round(e.start_seconds, 6)) for e in found.events if e.kind == "transfer"]
    assert transfers == [("a:0", f"{A} -> {B}", 0.8), ("c:0", f"{B} -> {A}", 3.1)]


def test_a_value_goes_to_a_device_once() -> None:
    text = f"""module "m"
entry @main(%x: f32[100] on "{A}") -> (y = %y) {{
  %c = Relu(%x) : f32[100] on "{B}"
  %d = Relu(%x) : f32[100] on "{B}"
  %y = AddV2(%c, %d) : f32[100] on "{B}"
}}
"""
    assert [e.name for e in run(text).events if e.kind == "transfer"] == ["x:0"]


@pytest.mark.parametrize("port", ["device", "task", "bus"])
def test_transfers_share_their_port(port: str) -> None:
    text = f"""module "m"
entry @main(%x: f32[100] on "{A}", %z: f32[100] on "{A}") -> (y = %y) {{
  %y = AddV2(%x, %z) : f32[100] on "{B}"
}}
"""
    found = run(text, cluster=Cluster(DEVICES, (Link("wire", 0.5, 400.0, port=port),)))
    assert found.makespan_seconds == pytest.approx(1.0 + 1.5 + 1.2)  # the second waits for the first one's bytes, not its latency


def test_both_directions_of_a_bus_are_one() -> None:
    text = f"""module "m"
entry @main(%x: f32[100] on "{A}", %z: f32[100] on "{B}") -> (u = %u, v = %v) {{
  %u = Relu(%x) : f32[100] on "{B}"
  %v = Relu(%z) : f32[100] on "{A}"
}}
"""
    assert run(text).makespan_seconds == pytest.approx(1.5 + 0.8)
    assert run(text, cluster=Cluster(DEVICES, (Link("w", 0.5, 400.0, port="bus"),))).makespan_seconds == pytest.approx(2.5 + 0.8)


def test_priority_is_the_order_and_fifo_is_not() -> None:
    text = f"""module "m"
entry @main(%x: f32[100] on "{A}") -> (y = %y, z = %z) {{
  %a = Relu(%x) : f32[100] on "{A}"
  %b = Relu(%a) : f32[100] on "{A}"
  %y = Relu(%b) : f32[100] on "{B}"
  %z = AddN(%x, %x, %x, %x) : f32[100] on "{A}"
}}
"""
    assert run(text).order[-2:] == ("z", "y") and run(text).order.index("b") < run(text).order.index("z")
    assert run(text, "fifo").order.index("z") < run(text, "fifo").order.index("b")
    assert run(text).makespan_seconds < run(text, "fifo").makespan_seconds


@given(placed_modules())
def test_laws(module: Module) -> None:
    graph, prices = module.entries["main"], prices_of(module)
    for policy in ("order", "fifo"):
        found = simulate(module, graph, prices, policy="fifo" if policy == "fifo" else "order")
        tiny = 1e-9 * found.makespan_seconds
        assert found.makespan_seconds >= found.critical_seconds - tiny
        assert found.makespan_seconds >= found.work_seconds / 3 - tiny
        assert found.makespan_seconds <= found.work_seconds + sum(e.duration_seconds for e in found.events if e.kind == "transfer") + tiny
        assert sorted(found.order) == sorted(graph.order())
        started = {name: i for i, name in enumerate(found.order)}
        assert all(started[p] < started[n] for n in graph.order() for p in (*graph.controls(n), *(v.node for v in graph.operands(n))))
        assert simulate(module, graph, prices, policy="fifo" if policy == "fifo" else "order") == found


@given(placed_modules(devices=1))
def test_one_device_works_without_a_pause(module: Module) -> None:
    found = simulate(module, module.entries["main"], prices_of(module, "cpu:1"))
    assert found.makespan_seconds == pytest.approx(found.work_seconds)


def test_the_trace_is_json_with_a_row_for_each_device() -> None:
    table = json.loads(chrome_trace(run(DIAMOND)))["traceEvents"]
    assert [e["args"]["name"] for e in table if e["ph"] == "M"] == [A, f"{A} -> {B}", B, f"{B} -> {A}"]
    assert sum(e["ph"] == "X" for e in table) == 6
    assert chrome_trace(run(DIAMOND)) == chrome_trace(run(DIAMOND))


def test_measured_seconds_replace_the_roofline() -> None:
    module = parse_module(DIAMOND)
    graph = module.entries["main"]
    key = signature(operation(module, graph, "a"), {})
    prices = Prices(module, CostModel(CLUSTER, Measured({"CPU": {key: 7.0}})))
    assert prices.seconds(graph, "a", A) == 7.0 and prices.seconds(graph, "y", A) == pytest.approx(1.2)


def test_fifty_thousand_nodes_take_seconds() -> None:
    graph = Graph("main")
    graph.add_input("x", f32(8, 8))
    before = [Value("x")] * 2
    for i in range(25_000):
        for k in range(2):
            graph.add("AddV2", before, types=(f32(8, 8),), name=f"n{i}/{k}", device=f"/device:CPU:{k}")
        before = [Value(f"n{i}/{k}") for k in range(2)]
    graph.set_outputs([("y", before[0])])
    module = Module("m", {"main": graph})
    started = time.perf_counter()
    found = simulate(module, graph, prices_of(module, "cpu:2"))
    assert len(found.order) == 50_001 and time.perf_counter() - started < 60
