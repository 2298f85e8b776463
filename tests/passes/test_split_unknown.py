"""What must not be divided: a dimension whose size somebody does not know; one that may leave a shard empty where the kernel minds."""

from __future__ import annotations

import pytest

from compiler.ir.text import parse_module
from compiler.ops.effects import Bodies
from compiler.ops.queries import infer_graph, operation
from cost_model.cluster import Cluster
from cost_model.model import CostModel
from passes.split.mesh import mesh_over
from passes.split.strategies import Enumerator

REFLECT = '%p = Const() {value=tensor(i32[2,2], [0, 0, 1, 1])} : i32[2,2]\n  %y = MirrorPad(%x, %p) {mode="REFLECT"}'
POOL = '%y = MaxPoolWithArgmax(%x) {ksize=[1,2,2,1], strides=[1,2,2,1], padding="SAME"}'


def ways(inputs: str, body: str, result: str) -> set[str]:
    module = parse_module(f'module "m" facts(typed)\nsize b = 8\nentry @f({inputs}) -> (y = %y) {{\n  {body} : {result}\n}}\n')
    (graph,) = module.entries.values()
    cluster = Cluster.parse("cpu:2")
    enumerator = Enumerator(module, graph, mesh_over([d.name for d in cluster.workers]), CostModel(cluster), Bodies(module), frozenset())
    considered = enumerator.consider(graph.node("y"), operation(module, graph, "y", infer_graph(module, graph).contents))
    return {s.label for s in considered.strategies[1:]}


@pytest.mark.parametrize(
    ("inputs", "body", "result", "expected"),
    [
        ("%x: f32[?,?], %w: f32[6,4]", "%y = MatMul(%x, %w)", "f32[?,4]", {"n:d", "replica"}),
        ("%x: f32[b,6], %w: f32[?,4]", "%y = MatMul(%x, %w)", "f32[b,4]", {"m:d", "n:d", "replica"}),
        ("%x: f32[b,6], %w: f32[6,4]", "%y = MatMul(%x, %w)", "f32[b,4]", {"k:d", "m:d", "n:d", "replica"}),
        ("%x: f32[?,6], %w: f32[b,6]", "%y = AddV2(%x, %w)", "f32[?,6]", {"d1:d", "replica"}),
        ("%x: f32[b,6]", REFLECT, "f32[b,8]", {"replica"}),
        ("%x: f32[8,6]", REFLECT, "f32[8,8]", {"d0:d", "replica"}),
        ("%x: f32[b,4,4,2]", POOL, "(f32[b,2,2,2], i64[b,2,2,2])", {"replica"}),
        ("%x: f32[8,4,4,2]", POOL, "(f32[8,2,2,2], i64[8,2,2,2])", {"n:d", "replica"}),
    ],
)
def test_what_may_be_divided(inputs: str, body: str, result: str, expected: set[str]) -> None:
    assert ways(inputs, body, result) == expected
