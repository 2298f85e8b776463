"""import . emit = id, up to shapes and origins: what is written is what would be read."""

from collections.abc import Hashable

import pytest

from compiler.backend.graphdef import emit_flat, serialize
from compiler.backend.profiles import PROFILES
from compiler.frontend.graphdef import Importer, import_entry, library_of
from compiler.ir.graph import Graph
from compiler.ir.module import Module
from compiler.ir.node import attrs_key
from compiler.ir.text import parse_module
from compiler.ir.types import TensorType
from tests.backend.test_graphdef import CONTROL, EFFECTS, LOOP, PLAIN, PORTS, STATE

pytestmark = pytest.mark.tf

MORE = """
module "more"
entry @main(%x: f32[b,4,4,2], %s: string[b], %i: i32[b]) -> (conv = %conv, cast = %cast, sum = %sum, text = %j, sel = %sel, un = %un:2) {
  %filter = Const() {value=splat(bf16[3,3,2,4], 0.5)} : bf16[3,3,2,4]
  %half = Cast(%x) {DstT=bf16} : bf16[b,4,4,2] on "/device:CPU:1"
  %conv = Conv2D(%half, %filter) {strides=[1, 2, 2, 1], padding="EXPLICIT", explicit_paddings=[0, 0, 1, 0, 1, 0, 0, 0]} : bf16[b,2,2,4]
  %cast = Cast(%i) {DstT=i64, Truncate=true} : i64[b]
  %axes = Const() {value=tensor(i64[2], [1, -1])} : i64[2]
  %sum = Sum(%x, %axes) {keep_dims=true} : f32[b,1,4,1]
  %a = Const() {value=tensor(string[], ["-"])} : string[]
  %j = StringJoin(%s, %a, %s) {separator="\\"q\\" "} : string[b]
  %shape = Shape(%x) {out_type=i64} : i64[4]
  %zero = Fill(%shape, %one) : f32[b,4,4,2]
  %one = Const() {value=tensor(f32[], [-0.0])} : f32[]
  %sel = SelectV2(%cond, %x, %zero) : f32[b,4,4,2]
  %cond = Less(%x, %zero) : bool[b,4,4,2]
  %un = Unpack(%x) {num=4, axis=1} : (f32[b,4,2], f32[b,4,2], f32[b,4,2], f32[b,4,2])
}
"""


def content(graph: Graph) -> Hashable:
    """Everything but shapes, origins and the order of independent nodes."""
    nodes = {
        node.name: (
            node.op,
            attrs_key(node.attrs),
            tuple(t.dtype for t in node.types),
            node.device,
            graph.edges(node.name),
            graph.controls(node.name),
        )
        for node in graph
    }
    return tuple(sorted(nodes.items())), graph.inputs, graph.outputs


def imported(module: Module, data: bytes) -> Module:
    from tensorflow.core.framework import graph_pb2

    graph_def = graph_pb2.GraphDef.FromString(data)
    library = library_of(graph_def)
    found = Module(module.name)
    importer = Importer(found, library)
    graph = module.entries["main"]
    handles: dict[str, tuple[str, str, TensorType]] = {n.name: (n.op, str(n.attrs["ref"]), n.type) for n in graph if n.op == "Variable"}
    inputs = {name: (f"{name}:0", graph.node(name).type) for name in graph.inputs}
    outputs = {output.name: f"{output.value.node}:{output.value.port}" for output in graph.outputs}
    found.entries["main"] = import_entry(importer, "main", graph_def, inputs, outputs, handles)
    importer.finish()
    return found


@pytest.mark.parametrize("text", [PORTS, CONTROL, LOOP, MORE], ids=["ports", "control", "loop", "more"])
def test_what_is_emitted_is_read_back_as_it_was(text: str) -> None:
    module = parse_module(text)
    back = imported(module, serialize(emit_flat(module, "main", PLAIN).graph_def))
    assert content(back.entries["main"]) == content(module.entries["main"])
    assert back.functions.keys() == module.functions.keys()
    for name, body in module.functions.items():
        assert content(back.functions[name]) == content(body), name


@pytest.mark.parametrize("text", [PORTS, CONTROL, STATE, EFFECTS, LOOP, MORE])
def test_emitting_what_was_read_back_gives_the_same_bytes(text: str) -> None:
    """Dead ends that only effects keep are gone from a flat graph that is read by its outputs, so twice is compared with once more."""
    module = parse_module(text)
    once = imported(module, serialize(emit_flat(module, "main", PLAIN).graph_def))
    once.variables = module.variables
    twice = imported(once, serialize(emit_flat(once, "main", PLAIN).graph_def))
    twice.variables = module.variables
    assert serialize(emit_flat(once, "main", PROFILES["tf"]).graph_def) == serialize(emit_flat(twice, "main", PROFILES["tf"]).graph_def)
