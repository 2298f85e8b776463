"""Place: pins, resources, hosts, memory caps and the smallest conflict; and that no plan is slower than one device alone."""

import pytest
from hypothesis import given, settings

from compiler.ir.errors import CleaveError
from compiler.ir.module import Module
from compiler.ir.text import parse_module, print_module
from compiler.pipeline.base import Context
from cost_model.cluster import Cluster
from cost_model.devices import Device, Link
from cost_model.memory import peak_bytes
from passes.place.place import Place
from passes.reorder.judge import outcome
from tests.cost_model.programs import placed_modules, prices_of

A, B = "/device:CPU:0", "/device:CPU:1"


def capped(*capacities: float) -> Cluster:
    devices = (Device(f"/device:CPU:{i}", "CPU", {"float32": 90e9}, 12e9, memory_bytes=c) for i, c in enumerate(capacities))
    return Cluster(tuple(devices), (Link("memory", 25e-6, 50e9),))


def place(text: str, cluster: Cluster) -> tuple[Module, Context]:
    module, context = parse_module(text), Context(services={Cluster: cluster})
    Place().run(module, context)
    return module, context


def devices(module: Module) -> dict[str, str]:
    return {node.name: node.device for node in module.entries["main"]}


TWO_WEIGHTS = """module "m" facts(typed)
entry @main(%x: f32[10]) -> (y = %y, z = %z) {
  %w = Const() {value=splat(f32[1000], 0.5)} : f32[1000]
  %v = Const() {value=splat(f32[1000], 0.5)} : f32[1000]
  %y = Neg(%w) : f32[1000]
  %z = Neg(%v) : f32[1000]
}"""


def test_what_does_not_fit_on_one_device_is_spread() -> None:
    module, _ = place(TWO_WEIGHTS, capped(10_000, 10_000))
    placed = devices(module)
    assert placed["w"] == placed["y"] != placed["v"] == placed["z"]
    peaks = peak_bytes(module, module.entries["main"], prices_of(module, "cpu:2"))
    assert all(peak.bytes <= 10_000 for peak in peaks.values())


def test_the_smallest_conflict_is_named() -> None:
    with pytest.raises(CleaveError) as caught:
        place(TWO_WEIGHTS, capped(9_000, 7_500))
    assert str(caught.value) == (
        "place: 'main' does not fit: at 'z' /device:CPU:1 needs 8000 bytes, 500 over its 7500; "
        "add memory or devices, split it further, or make the batch smaller"
    )


def test_pinned_nodes_that_do_not_fit_are_an_error_too() -> None:
    text = TWO_WEIGHTS.replace(": f32[1000]\n", f': f32[1000] on "{A}"\n').replace("%x: f32[10]", f'%x: f32[10] on "{A}"')
    with pytest.raises(CleaveError, match="does not fit"):
        place(text, capped(10_000, 1e9))


def test_a_pin_the_cluster_lacks_is_reported_and_dropped() -> None:
    module, context = place(
        'module "m"\nentry @main(%x: f32[4]) -> (y = %y) {\n  %y = Neg(%x) : f32[4] on "/device:TPU:7"\n}', Cluster.parse("cpu:2")
    )
    assert devices(module)["y"] == A
    assert [(n.where, n.what[:20]) for n in context.notes if n.kind == "refusal"] == [("y", "its pin is dropped: ")]


VARIABLE = """module "m"
variable @v : f32[4] = splat(f32[4], 0.5)
entry @main(%x: f32[4]) -> (y = %r) {
  %v = Variable() {ref="v"} : resource<f32[4]>[] on "/device:CPU:1"
  %r = ReadVariableOp(%v) : f32[4] on "/device:CPU:0"
}"""


def test_a_read_goes_where_the_variable_is() -> None:
    module, context = place(VARIABLE, Cluster.parse("cpu:2"))
    assert devices(module)["r"] == B
    assert [n.what for n in context.notes if n.kind == "refusal"] == [f"its pin {A} is dropped: what it shares a resource with is on {B}"]


def test_two_handles_of_one_operator_must_agree() -> None:
    text = """module "m"
variable @v : f32[4] = splat(f32[4], 0.5)
variable @w : f32[4] = splat(f32[4], 0.5)
entry @main(%x: f32[4]) -> (y = %x) {
  %v = Variable() {ref="v"} : resource<f32[4]>[] on "/device:CPU:1"
  %w = Variable() {ref="w"} : resource<f32[4]>[] on "/device:CPU:0"
  %u = ResourceApplyMomentum(%v, %w, %x, %x, %x) : ()
}"""
    with pytest.raises(CleaveError, match="'v' is pinned to /device:CPU:1 and 'w' to /device:CPU:0, but one operator uses both"):
        place(text, Cluster.parse("cpu:2"))


def test_a_v1_loop_stays_whole() -> None:
    text = """module "m"
entry @main(%x: f32[512,512]) -> (y = %s) {
  %p = Const() {value=tensor(bool[], true)} : bool[]
  %s = Switch(%x, %p) : (f32[512,512], f32[512,512])
  %a = MatMul(%s, %s) : f32[512,512]
  %b = MatMul(%s:1, %s:1) : f32[512,512]
}"""
    assert len(set(devices(place(text, Cluster.parse("cpu:2"))[0]).values())) == 1


@settings(max_examples=60)
@given(placed_modules(devices=1))
def test_no_plan_is_slower_than_one_device_alone(module: Module) -> None:
    graph, cluster = module.entries["main"], Cluster.parse("cpu:3")
    for node in graph:
        graph.set_device(node.name, "")
    alone = outcome(module, graph, prices_of(module), devices=dict.fromkeys(graph.order(), A))
    Place().run(module, Context(services={Cluster: cluster}))
    assert all(node.device in cluster for node in graph)
    assert outcome(module, graph, prices_of(module)).seconds <= alone.seconds * (1 + 1e-9)
    text = print_module(module)
    Place().run(module, Context(services={Cluster: cluster}))
    assert print_module(module) == text


@settings(max_examples=60)
@given(placed_modules(devices=1))
def test_caps_hold_or_it_is_an_error(module: Module) -> None:
    graph = module.entries["main"]
    for node in graph:
        graph.set_device(node.name, "")
    whole = peak_bytes(module, graph, prices_of(module), devices=dict.fromkeys(graph.order(), A))[A].bytes
    cluster = capped(*[whole * 0.7] * 3)
    try:
        Place().run(module, Context(services={Cluster: cluster}))
    except CleaveError as error:
        assert "does not fit" in str(error)
        return
    after = outcome(module, graph, prices_of(module, cluster))
    assert all(peak <= whole * 0.7 for peak in after.peaks.values())


@pytest.mark.parametrize(("attrs", "where"), [(" {_XlaMustCompile=true}", "/device:CPU:0"), ("", None)])
def test_what_xla_compiles_stands_where_its_variable_is_loaded(attrs: str, where: str | None) -> None:
    text = f"""module "m" facts(typed)

variable @w : f32[512,512] = splat(f32[512,512], 0.5)

entry @main(%x: f32[512,512]) -> (y = %y, z = %z) {{
  %h = Variable() {{ref="w"}} : resource<f32[512,512]>[] from(h)
  %z = MatMul(%x, %x) : f32[512,512] from(z)
  %y = Call(%x, %h) {{f=@g}} : f32[512,512] from(y)
}}
function @g(%a: f32[512,512], %r: resource<f32[512,512]>[]) -> (c = %c){attrs} {{
  %v = ReadVariableOp(%r) {{dtype=f32}} : f32[512,512] from(v)
  %c = MatMul(%a, %v) : f32[512,512] from(c)
}}
"""
    found = devices(place(text, Cluster.parse("cpu:2"))[0])
    assert found["h"] == "/device:CPU:0"
    assert where is None or found["y"] == where
