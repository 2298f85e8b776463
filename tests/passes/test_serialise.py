"""Serialise: no edge unless it pays, edges within a device only, and the run is faster or fits."""

from hypothesis import given, settings

from compiler.ir.module import Module
from compiler.ir.text import parse_module, print_module
from compiler.ir.verify import verify
from compiler.pipeline.base import Context
from cost_model.cluster import Cluster
from passes.place.serialise import Serialise
from passes.reorder.judge import outcome
from tests.cost_model.programs import placed_modules, prices_of

A = "/device:CPU:0"


def serialise(module: Module, cluster: str = "cpu:3") -> Context:
    context = Context(services={Cluster: Cluster.parse(cluster)})
    Serialise().run(module, context)
    return context


def test_a_chain_needs_no_edges() -> None:
    module = parse_module(f"""module "m"
entry @main(%x: f32[100] on "{A}") -> (y = %y) {{
  %a = Relu(%x) : f32[100] on "{A}"
  %y = Relu(%a) : f32[100] on "{A}"
}}""")
    before = print_module(module)
    assert [n.what for n in serialise(module).notes] == ["the runtime's own order is within 2% of the plan"]
    assert print_module(module) == before


def test_v1_loops_are_refused() -> None:
    module = parse_module(f"""module "m"
entry @main(%x: f32[4] on "{A}") -> (y = %s) {{
  %p = Const() {{value=tensor(bool[], true)}} : bool[] on "{A}"
  %s = Switch(%x, %p) : (f32[4], f32[4]) on "{A}"
}}""")
    assert [n.what for n in serialise(module).notes] == ["a v1 loop is in it: edges into a frame would never fire"]


@settings(max_examples=100)
@given(placed_modules())
def test_edges_pay_and_stay_on_their_device(module: Module) -> None:
    graph = module.entries["main"]
    controls, order = {n: graph.controls(n) for n in graph.order()}, graph.order()
    before = outcome(module, graph, prices_of(module), policy="fifo")
    context = serialise(module)
    after = outcome(module, graph, prices_of(module), policy="fifo")
    added = [(c, n) for n in graph.order() for c in graph.controls(n) if c not in controls[n]]
    assert all(graph.node(c).device == graph.node(n).device for c, n in added)
    assert graph.order() == order
    verify(module)
    if added:
        assert after.seconds < before.seconds * 0.98
        assert [n.kind for n in context.notes] == ["change"]
    else:
        assert [n.kind for n in context.notes] == ["refusal"]
