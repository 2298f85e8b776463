"""Reorder: ranks are HEFT's, orders are no worse than before, and the least peak is found where brute force can look."""

from itertools import permutations

import pytest
from hypothesis import given, settings

from compiler.ir.errors import CleaveError, IrError
from compiler.ir.graph import Graph
from compiler.ir.module import Module
from compiler.ir.text import parse_module, print_module
from compiler.pipeline.base import Context
from cost_model.cluster import Cluster
from cost_model.devices import Device, Link
from cost_model.flow import flow_of
from passes.reorder.judge import Outcome, outcome, worse
from passes.reorder.memory import ReorderMemory, highest
from passes.reorder.ranks import ReorderRanks, upward_ranks
from tests.cost_model.programs import placed_modules, prices_of

A, B = "/device:CPU:0", "/device:CPU:1"
CLUSTER = Cluster(tuple(Device(n, "CPU", {"float32": 1e9}, 1e3, overhead_seconds=0.0) for n in (A, B)), (Link("wire", 0.5, 400.0),))


def context(cluster: Cluster) -> Context:
    return Context(services={Cluster: cluster})


def test_ranks_by_hand() -> None:
    module = parse_module(f"""module "m"
entry @main(%x: f32[100] on "{A}") -> (y = %y) {{
  %a = Relu(%x) : f32[100] on "{A}"
  %b = Relu(%a) : f32[100] on "{B}"
  %y = AddV2(%a, %b) : f32[100] on "{A}"
}}""")
    graph = module.entries["main"]
    ranks = upward_ranks(graph, flow_of(graph), prices_of(module, CLUSTER), {})
    # y 1.2 s; b 0.8 + a transfer of 1.5 + y; a 0.8 + a transfer + b; the input costs nothing
    assert ranks == pytest.approx([5.8, 5.8, 3.5, 1.2])


def test_without_a_cluster_it_says_so() -> None:
    with pytest.raises(CleaveError, match="needs a Cluster"):
        ReorderRanks().run(Module("m"), Context(pass_name="reorder-ranks"))


@settings(max_examples=60)
@given(placed_modules(most=12))
def test_an_order_that_is_taken_is_no_worse(module: Module) -> None:
    before, cluster = outcome(module, module.entries["main"], prices_of(module)), Cluster.parse("cpu:3")
    ReorderRanks().run(module, context(cluster))
    after = outcome(module, module.entries["main"], prices_of(module))
    assert worse(before, after, cluster) == ""
    text = print_module(module)
    ReorderRanks().run(module, context(cluster))
    assert print_module(module) == text


def least_peak(module: Module) -> int:
    """Over all topological orders."""
    graph = module.entries["main"]
    free = [n for n in graph.order() if graph.node(n).op in ("Input", "Const")]
    rest = [n for n in graph.order() if n not in free]
    orders = ((*free, *order) for order in permutations(rest) if _topological(graph, order))
    return min(highest(module, graph, prices_of(module), order) for order in orders)


def _topological(graph: Graph, order: tuple[str, ...]) -> bool:
    place = {name: i for i, name in enumerate(order)}
    return all(
        place.get(before, -1) < i for i, n in enumerate(order) for before in (*graph.controls(n), *(v.node for v in graph.operands(n)))
    )


@settings(max_examples=30)
@given(placed_modules(devices=1, most=5))
def test_memory_lies_between_the_least_and_the_present(module: Module) -> None:
    graph = module.entries["main"]
    present, least = highest(module, graph, prices_of(module), graph.order()), least_peak(module)
    ReorderMemory().run(module, context(Cluster.parse("cpu:3")))
    assert least <= highest(module, graph, prices_of(module), graph.order()) <= present


def test_memory_refuses_where_nothing_is_better() -> None:
    module = parse_module(f"""module "m"
entry @main(%x: f32[100] on "{A}") -> (y = %y) {{
  %y = Relu(%x) : f32[100] on "{A}"
}}""")
    notes = context(CLUSTER)
    ReorderMemory().run(module, notes)
    assert [(n.kind, n.what) for n in notes.notes] == [("refusal", "no order found needs less than 800 bytes")]


def test_worse_is_slower_or_no_longer_fitting() -> None:
    tight = Cluster((Device(A, "CPU", {"float32": 1.0}, 1.0, memory_bytes=100.0),))
    assert worse(Outcome(1.0, {A: 50}), Outcome(1.0, {A: 100}), tight) == ""
    assert worse(Outcome(1.0, {A: 50}), Outcome(1.1, {A: 50}), tight) == "it takes 1.1 s instead of 1 s"
    assert worse(Outcome(1.0, {A: 50}), Outcome(0.9, {A: 101}), tight) == f"it needs 1 bytes more than {A} has"


def test_an_order_must_name_each_node_once_and_producers_first() -> None:
    graph = parse_module('module "m"\nentry @main(%x: f32[1]) -> (y = %y) { %y = Relu(%x) : f32[1] }').entries["main"]
    with pytest.raises(IrError, match="expected each of its 2 nodes once"):
        graph.set_order(["x"])
    with pytest.raises(IrError, match="puts 'y' before 'x', which it needs"):
        graph.set_order(["y", "x"])
    version = graph.version
    graph.set_order(["x", "y"])
    assert graph.version == version


def test_depth_is_no_limit() -> None:
    lines = "\n".join(f'  %n{i + 1} = Relu(%n{i}) : f32[4] on "{A}"' for i in range(20_000))
    module = parse_module(f'module "m"\nentry @main(%n0: f32[4] on "{A}") -> (y = %n20000) {{\n{lines}\n}}')
    ReorderRanks().run(module, context(CLUSTER))
    ReorderMemory().run(module, context(CLUSTER))
    assert len(module.entries["main"]) == 20_001
