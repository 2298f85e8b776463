"""Choose and partition: the known optima, weights divided once, uneven and symbolic shards, refusals, the same values as before."""

import numpy as np
import pytest

from compiler.ir.graph import Graph
from compiler.ir.module import Module
from compiler.ir.text import parse_module, print_module
from compiler.ir.verify import verify
from compiler.ir.weights import literal_bytes
from compiler.pipeline.base import ANNOTATED, TYPED, Context
from cost_model.cluster import Cluster
from passes.split.choose import Choose, Objective, SplitPlan
from passes.split.partition import Partition

MLP = """module "m" facts(typed)
size b = {batch}

entry @f(%x: f32[b,1024]) -> (y = %y) {{
  %w1 = Const() {{value=splat(f32[1024,4096], 0.001)}} : f32[1024,4096] from(l1)
  %w2 = Const() {{value=splat(f32[4096,1024], 0.002)}} : f32[4096,1024] from(l2)
  %h = MatMul(%x, %w1) : f32[b,4096] from(l1)
  %r = Relu(%h) : f32[b,4096] from(l1)
  %y = MatMul(%r, %w2) : f32[b,1024] from(l2)
}}
"""


def split(text: str, cluster: str = "cpu:2", objective: Objective = Objective.LATENCY) -> tuple[Module, SplitPlan, Context]:
    module = parse_module(text)
    plan = SplitPlan()
    context = Context(services={Cluster: Cluster.parse(cluster), SplitPlan: plan, Objective: objective})
    Choose().run(module, context)
    return module, plan, context


def partition(module: Module, context: Context) -> Graph:
    module.facts = frozenset({TYPED, ANNOTATED})
    Partition().run(module, context)
    module.facts = frozenset({TYPED, "partitioned"})
    verify(module)
    (graph,) = module.entries.values()
    return graph


def chosen(plan: SplitPlan) -> dict[str, str]:
    return {d.node: d.chosen for d in plan.decisions}


def test_a_tall_mlp_at_batch_1_is_split_by_column_then_row() -> None:
    _, plan, _ = split(MLP.format(batch=1))
    assert chosen(plan) == {"h": "n:d", "r": "d1:d", "y": "k:d"}


def test_four_square_layers_at_a_large_batch_are_split_by_batch() -> None:
    layers = "".join(
        f"""  %w{i} = Const() {{value=splat(f32[128,128], 0.01)}} : f32[128,128] from(l{i})
  %h{i} = MatMul(%{"x" if i == 0 else f"h{i - 1}"}, %w{i}) : f32[b,128] from(l{i})
"""
        for i in range(4)
    )
    text = f'module "m" facts(typed)\nsize b = 1024\n\nentry @f(%x: f32[b,128]) -> (y = %h3) {{\n{layers}}}\n'
    assert set(chosen(split(text, objective=Objective.THROUGHPUT)[1]).values()) == {"m:d"}


def test_the_solution_is_proven_optimal_on_a_chain() -> None:
    _, plan, _ = split(MLP.format(batch=1))
    assert plan.solutions["f"].gap < 1e-9


def test_divided_weights_are_stored_once() -> None:
    module, _, context = split(MLP.format(batch=1))
    graph = partition(module, context)
    weights = {n.name: literal_bytes(n.attrs["value"]) for n in graph if n.op == "Const" and n.origin != ("sizes",)}  # type: ignore[arg-type]
    assert weights == {"w1/0": 8 << 20, "w1/1": 8 << 20, "w2/0": 8 << 20, "w2/1": 8 << 20}


def test_a_partial_result_is_added_once() -> None:
    module, _, context = split(MLP.format(batch=1))
    graph = partition(module, context)
    assert [n.name for n in graph if n.op == "AddN"] == ["y/sum"]
    assert graph.needs(graph.operands("y/sum")[0]).only("y/sum")


def test_memory_divides_every_weight() -> None:
    text = MLP.format(batch=1).replace("1024,4096", "64,96").replace("4096,1024", "96,64").replace("4096", "96").replace("1024", "64")
    _, latency, _ = split(text)
    _, memory, _ = split(text, objective=Objective.MEMORY)
    assert chosen(latency) == {"h": "whole", "r": "whole", "y": "whole"}, "too small to be worth a transfer"
    assert {chosen(memory)["h"], chosen(memory)["y"]} <= {"n:d", "k:d"}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ((": f32[b,4096] from(l1)\n  %r", ': f32[b,4096] on "/device:CPU:0" from(l1)\n  %r'), "pinned to /device:CPU:0"),
        (("Relu(%h)", "NoSuchOp(%h)"), "NoSuchOp is opaque"),
    ],
)
def test_refusals_say_why(change: tuple[str, str], reason: str) -> None:
    _, plan, _ = split(MLP.format(batch=1).replace(*change))
    assert reason in {d.refusal for d in plan.decisions}


def test_one_device_annotates_nothing() -> None:
    module, plan, _ = split(MLP.format(batch=1), "cpu:1")
    assert module.mesh is None
    assert not plan.decisions
    assert "_factors" not in print_module(module)


def test_choosing_twice_gives_the_same_text() -> None:
    assert print_module(split(MLP.format(batch=1))[0]) == print_module(split(MLP.format(batch=1))[0])


def annotated(body: str, mesh: str) -> Module:
    return parse_module(f'module "m" facts(typed, annotated)\n{mesh}\n\n{body}')


TWO = 'mesh [d=2] on ("/device:CPU:0", "/device:CPU:1")'
THREE = 'mesh [d=3] on ("/device:CPU:0", "/device:CPU:1", "/device:CPU:2")'
GRID = 'mesh [x=2, y=2] on ("/device:CPU:0", "/device:CPU:1", "/device:CPU:2", "/device:CPU:3")'
CASES = {
    "uneven rows over three": (
        """entry @f(%x: f32[7,4]) -> (y = %y) {
  %y = Exp(%x) {_factors=["d0:d"]} : f32[7,4]@[d,_] from(a)
}""",
        THREE,
    ),
    "symbolic batch": (
        """entry @f(%x: f32[b,4]) -> (y = %y) {
  %y = Exp(%x) {_factors=["d0:d"]} : f32[b,4]@[d,_] from(a)
}""",
        THREE,
    ),
    "mean of uneven shards": (
        """entry @f(%x: f32[3,4]) -> (y = %y) {
  %axis = Const() {value=tensor(i32[], 0)} : i32[] from(a)
  %y = Mean(%x, %axis) {_factors=["d0:d"]} : f32[4]@[_]+sum(d) from(a)
}""",
        TWO,
    ),
    "mean of a symbolic batch": (
        """entry @f(%x: f32[b,4]) -> (y = %y) {
  %axis = Const() {value=tensor(i32[], 0)} : i32[] from(a)
  %y = Mean(%x, %axis) {_factors=["d0:d"]} : f32[4]@[_]+sum(d) from(a)
}""",
        TWO,
    ),
    "max": (
        """entry @f(%x: f32[5,4]) -> (y = %y) {
  %axis = Const() {value=tensor(i32[], 0)} : i32[] from(a)
  %m = Max(%x, %axis) {_factors=["d0:d"]} : f32[4]@[_]+max(d) from(a)
  %y = Exp(%m) {_factors=["d0:d"]} : f32[4]@[d] from(a)
}""",
        TWO,
    ),
    "all to all": (
        """entry @f(%x: f32[5,7]) -> (y = %z) {
  %y = Exp(%x) {_factors=["d0:d"]} : f32[5,7]@[d,_] from(a)
  %z = Neg(%y) {_factors=["d1:d"]} : f32[5,7]@[_,d] from(a)
}""",
        THREE,
    ),
    "row then column over a grid": (
        """entry @f(%x: f32[b,6]) -> (y = %y) {
  %w = Const() {value=tensor(f32[6,3], [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 1.5,
    2.5, 3.5, 0.5, -1.0, 2.0, 3.0, 1.0, -2.0])} : f32[6,3] from(a)
  %m = MatMul(%x, %w) {_factors=["m:x", "k:y"]} : f32[b,3]@[x,_]+sum(y) from(a)
  %y = Tanh(%m) {_factors=["d0:x", "d1:y"]} : f32[b,3]@[x,y] from(a)
}""",
        GRID,
    ),
    "both axes on one dimension": (
        """entry @f(%x: f32[9,4]) -> (y = %z) {
  %y = Exp(%x) {_factors=["d0:x"]} : f32[9,4]@[x,_] from(a)
  %z = Neg(%y) {_factors=["d0:y"]} : f32[9,4]@[y,_] from(a)
}""",
        GRID,
    ),
    "a replica": (
        """entry @f(%x: f32[4,4]) -> (y = %z, r = %y) {
  %y = Exp(%x) {_factors=[]} : f32[4,4]@[_,_] from(a)
  %z = Neg(%y) {_factors=["d0:d"]} : f32[4,4]@[d,_] from(a)
}""",
        TWO,
    ),
    "reshape of a divided batch": (
        """entry @f(%x: f32[b,2,3]) -> (y = %z) {
  %s = Const() {value=tensor(i32[2], [-1, 6])} : i32[2] from(a)
  %y = Exp(%x) {_factors=["d0:d"]} : f32[b,2,3]@[d,_,_] from(a)
  %r = Reshape(%y, %s) {_factors=["r0:d"]} : f32[b,6]@[d,_] from(a)
  %z = Neg(%r) {_factors=["d0:d"]} : f32[b,6]@[d,_] from(a)
}""",
        TWO,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_partitioned_graphs_verify_and_leave_no_annotation(case: str) -> None:
    graph = partition(annotated(*CASES[case]), Context())
    assert not any("_factors" in n.attrs or any(t.sharding for t in n.types) for n in graph)


@pytest.mark.tf
@pytest.mark.parametrize("case", CASES)
def test_partitioned_graphs_compute_the_same(case: str, run_module) -> None:  # type: ignore[no-untyped-def]
    body, mesh = CASES[case]
    whole, divided = annotated(body, mesh), annotated(body, mesh)
    partition(divided, Context())
    rng = np.random.default_rng(0)
    (graph,) = whole.entries.values()
    for batch in (1, 3, 8):
        shape = [d if isinstance(d, int) else batch for d in graph.node("x").type.shape or ()]
        request = {"x": rng.standard_normal(shape).astype(np.float32)}
        expected, found = run_module(whole, [request], 4)[0], run_module(divided, [request], 4)[0]
        assert expected.error is None and found.error is None, (expected.error, found.error)
        for name, array in expected.outputs.items():
            np.testing.assert_allclose(found.outputs[name], array, rtol=2e-6, atol=1e-6)
