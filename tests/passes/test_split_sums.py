"""Partial sums pass through what is linear: two products that are added are summed over the devices once."""

import pytest

from tests.passes.splitting import assert_same, divided, mesh
from tests.passes.test_split import chosen, partition, split

TWO_PRODUCTS = """module "m" facts(typed)

entry @f(%x: f32[{rows},{size}], %h: f32[{rows},{size}]) -> (y = %y) {{
  %w = Const() {{value=splat(f32[{size},{size}], 0.001)}} : f32[{size},{size}] from(l)
  %u = Const() {{value=splat(f32[{size},{size}], 0.002)}} : f32[{size},{size}] from(l)
  %a = MatMul(%x, %w) : f32[{rows},{size}] from(l)
  %b = MatMul(%h, %u) : f32[{rows},{size}] from(l)
  %n = Neg(%b) : f32[{rows},{size}] from(l)
  %s = AddV2(%a, %n) : f32[{rows},{size}] from(l)
  %shape = Const() {{value=tensor(i32[3], [{rows}, 1, {size}])}} : i32[3] from(l)
  %r = Reshape(%s, %shape) : f32[{rows},1,{size}] from(l)
  %y = Relu(%r) : f32[{rows},1,{size}] from(l)
}}
"""
PASSED = {"a": {"k": "d"}, "b": {"k": "d"}, "n": {"+": "d"}, "s": {"+": "d"}, "r": {"+": "d"}, "y": {"d2": "d"}}


@pytest.mark.tf
@pytest.mark.parametrize("devices", [2, 3])
def test_the_sum_of_two_products_is_combined_once(devices: int, run_module) -> None:  # type: ignore[no-untyped-def]
    text = TWO_PRODUCTS.format(rows=5, size=7)
    module = divided(text, mesh(devices), PASSED)
    (graph,) = module.entries.values()
    assert {node.name.partition("/")[0] for node in graph if node.op == "AddN"} == {"r"}
    assert_same(run_module, text, module)


@pytest.mark.tf
def test_sums_over_both_axes_of_a_mesh_pass_too(run_module) -> None:  # type: ignore[no-untyped-def]
    text = TWO_PRODUCTS.format(rows=5, size=7)
    both = {name: {factor: axes.replace("d", "x*y") for factor, axes in how.items()} for name, how in PASSED.items()}
    assert_same(run_module, text, divided(text, mesh(2, 2), both))
    grid = {"a": {"k": "x", "n": "y"}, "b": {"k": "x", "n": "y"}, "n": {"+": "x", "d1": "y"}, "s": {"+": "x", "d1": "y"}}
    assert_same(run_module, text, divided(text, mesh(2, 2), grid))


def test_what_is_not_a_partial_sum_never_becomes_one() -> None:
    text = TWO_PRODUCTS.format(rows=4, size=512).replace("MatMul(%h, %u)", "Mul(%h, %x)")
    _, plan, _ = split(text)
    assert not any("+" in way for way in chosen(plan).values())
    assert not any("+" in a.label for d in plan.decisions for a in d.alternatives if d.node == "s")


TWO_NETWORKS = """module "m" facts(typed)

entry @f(%x: f32[16,1024]) -> (y = %y) {
  %w1 = Const() {value=splat(f32[1024,4096], 0.001)} : f32[1024,4096] from(l)
  %w2 = Const() {value=splat(f32[4096,1024], 0.002)} : f32[4096,1024] from(l)
  %u1 = Const() {value=splat(f32[1024,4096], 0.003)} : f32[1024,4096] from(l)
  %u2 = Const() {value=splat(f32[4096,1024], 0.004)} : f32[4096,1024] from(l)
  %a1 = MatMul(%x, %w1) : f32[16,4096] from(l)
  %a2 = Relu(%a1) : f32[16,4096] from(l)
  %a3 = MatMul(%a2, %w2) : f32[16,1024] from(l)
  %b1 = MatMul(%x, %u1) : f32[16,4096] from(l)
  %b2 = Relu(%b1) : f32[16,4096] from(l)
  %b3 = MatMul(%b2, %u2) : f32[16,1024] from(l)
  %s = AddV2(%a3, %b3) : f32[16,1024] from(l)
  %y = Tanh(%s) : f32[16,1024] from(l)
}
"""


def test_two_networks_side_by_side_are_combined_once() -> None:
    module, plan, context = split(TWO_NETWORKS)
    ways = chosen(plan)
    assert (ways["a1"], ways["a3"], ways["b1"], ways["b3"], ways["s"]) == ("n:d", "k:d", "n:d", "k:d", "+:d")
    graph = partition(module, context)
    assert {node.name.partition("/")[0] for node in graph if node.op == "AddN"} == {"s"}
