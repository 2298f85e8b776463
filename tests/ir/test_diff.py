"""What differs, in words; nothing when nothing does."""

from __future__ import annotations

import time
from dataclasses import replace

from hypothesis import given, settings

from compiler.ir.diff import diff, diff_graphs, nodes_from
from compiler.ir.equal import equal
from compiler.ir.graph import Graph, Node, Value
from compiler.ir.module import Module
from compiler.ir.text import parse_module
from compiler.ir.types import TensorType
from tests.ir.strategies import modules

DENSE = """
module "m"
size b = 32
variable @w : f32[4] untrainable
entry @main(%x: f32[b,4]) -> (y = %bias) {
  %w = Const() {value=splat(f32[4,4], 1.0)} : f32[4,4] from(dense/kernel)
  %b = Const() {value=splat(f32[4], 1.0)} : f32[4] from(dense/bias)
  %matmul = MatMul(%x, %w) {transpose_a=true} : f32[b,4] from(dense/MatMul)
  %bias = BiasAdd(%matmul, %b) : f32[b,4] from(dense/BiasAdd) after(%w)
}
function @f() -> () {
}
"""


def dense() -> tuple[Module, Module, Graph]:
    before = parse_module(DENSE)
    after = before.copy()
    return before, after, after.entries["main"]


def test_equal_modules_differ_in_nothing():
    before, after, _ = dense()
    assert diff(before, after) == []


def test_a_fusion_says_where_the_removed_node_went():
    before, after, graph = dense()
    fused = Node("matmul", "_FusedMatMul", {"fused_ops": ("BiasAdd",)}, graph.node("matmul").types, "", ("dense/BiasAdd", "dense/MatMul"))
    graph.set_node(fused)
    graph.set_operand("matmul", 2, Value("b"))
    graph.replace_uses(Value("bias"), Value("matmul"))
    graph.remove("bias")
    assert diff(before, after) == [
        "entry @main: outputs: y = %bias -> y = %matmul",
        "entry @main: node removed: BiasAdd 'bias' from dense/BiasAdd, now in 'matmul'",
        "entry @main: node 'matmul': op: MatMul -> _FusedMatMul; fused_ops=[\"BiasAdd\"] set; transpose_a=true dropped; "
        "operands: (%x, %w) -> (%x, %w, %b); origin: dense/MatMul -> dense/BiasAdd, dense/MatMul",
    ]


def test_each_kind_of_change_of_a_node():
    before, after, graph = dense()
    graph.set_device("bias", "/device:CPU:1")
    graph.set_control("bias", [])
    graph.set_types("bias", (TensorType("float32", (2, 4)),))
    graph.set_attrs("matmul", {"transpose_a": 1})
    graph.add("NoOp", name="n", origin=["z"])
    assert diff(before, after) == [
        "entry @main: node added: NoOp 'n' from z",
        "entry @main: node 'matmul': transpose_a: true -> 1",
        "entry @main: node 'bias': after: w -> none; type: f32[b,4] -> f32[2,4]; device: none -> /device:CPU:1",
    ]


def test_changes_of_the_module():
    before, after, graph = dense()
    after.name, after.facts, after.sizes = "n", frozenset({"typed"}), {"b": 8, "c": 1}
    after.variables["w"] = replace(after.variables["w"], trainable=True)
    after.functions = {"g": Graph("g")}
    graph.attrs["kind"] = "k"
    graph.add_input("z", TensorType("float32", ()))
    assert diff(before, after) == [
        "name: 'm' -> 'n'",
        "facts: none -> typed",
        "size added: 'c'",
        "size 'b': 32 -> 8",
        "variable 'w': variable @w : f32[4] untrainable -> variable @w : f32[4]",
        'entry @main: attributes: {} -> {kind="k"}',
        "entry @main: inputs: x -> x, z",
        "entry @main: node added: Input 'z'",
        "function removed: 'f'",
        "function added: 'g'",
    ]


def test_the_order_alone():
    before, after, _ = dense()
    graph = after.entries["main"] = Graph("main")
    source = before.entries["main"]
    for name in ("x", "b", "w", "matmul", "bias"):
        if name == "x":
            graph.add_input("x", source.node("x").type)
        else:
            graph.add_node(source.node(name), source.operands(name), source.controls(name))
    graph.set_outputs(source.outputs)
    assert diff(before, after) == ["entry @main: the order of the nodes differs"]


def test_long_lists_are_cut():
    before, after = Graph("main"), Graph("main")
    for i in range(50):
        after.add("NoOp", name=f"n{i}")
    assert diff_graphs(before, after)[-1] == "... and 30 more like it"
    assert len(diff_graphs(before, after)) == 21


@settings(max_examples=30)
@given(modules(), modules())
def test_the_empty_difference_is_equality(left, right):
    assert (diff(left, right) == []) == equal(left, right)
    assert diff(left, left.copy()) == []


def test_nodes_by_their_origin():
    graph = dense()[2]
    assert nodes_from(graph, "dense") == ("w", "b", "matmul", "bias")
    assert nodes_from(graph, "dense/MatMul") == nodes_from(graph, "dense/MatMul/") == ("matmul",)
    assert nodes_from(graph, "den") == ()


def test_near_linear():
    """20,000 nodes of which every other one changes: a quadratic difference would take minutes."""
    graph = Graph("main")
    value = graph.add_input("x", TensorType("float32", (4,)))
    for i in range(20_000):
        value = Value(graph.add("Op", [value], types=[TensorType("float32", (4,))], name=f"n{i}", origin=[f"layer{i}"]).name)
    twin = graph.copy()
    for i in range(0, 20_000, 2):
        twin.set_device(f"n{i}", "/device:CPU:1")
    start = time.perf_counter()
    assert len(diff_graphs(graph, twin)) == 21
    assert time.perf_counter() - start < 20
