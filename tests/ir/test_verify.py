"""Each rule of the verifier, broken by hand in exactly its way: the rule, the place and what was expected are told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from compiler.ir.errors import IrError
from compiler.ir.graph import FunctionRef, Graph, Node, Output, Value
from compiler.ir.module import Module
from compiler.ir.sharding import Mesh, MeshAxis, Sharding
from compiler.ir.text import parse_module
from compiler.ir.types import DType, TensorType
from compiler.ir.verify import STRUCTURE, Fault, Invariant, ModuleInvariant, faults, verify
from compiler.ir.weights import Splat, Tensor, WeightRef

SOUND = """
module "m"
variable @w : f32[4] = splat(f32[4], 0.0)
resource @table : resource[] kind "table"
entry @main(%x: f32[b,4]) -> (y = %y) {
  %c = Const() {value=splat(f32[4], 1.0)} : f32[4] from(c)
  %handle = Variable() {ref="w"} : resource<f32[4]>[]
  %lookup = Resource() {ref="table"} : resource[]
  %s = Split(%x, %c) : (f32[b,2], f32[b,2]) from(s)
  %y = Call(%s:1, %s) {f=@body} : f32[b,2] from(y)
}
function @body(%a: f32[b,2], %b: f32[b,2]) -> (sum = %sum) {
  %sum = Add(%a, %b) : f32[b,2]
}
function @other(%a: f32[]) -> (b = %b) {
  %b = Call(%a) {f=@body} : f32[]
}
"""


def sound(*facts: str) -> Module:
    module = parse_module(SOUND)
    module.facts = frozenset(facts)
    module.mesh = Mesh((MeshAxis("x", 2),), ("/device:CPU:0", "/device:CPU:1"))
    return module


def raw(graph: Graph, name: str, **changes: object) -> None:
    """Change a node behind the mutators' back."""
    graph._nodes._node[name]["node"] = replace(graph.node(name), **changes)


def _edge(graph: Graph, source: str, user: str, key: object, **data: object) -> None:
    graph._nodes.add_edge(source, user, key=key, **data)


def _shard(graph: Graph, name: str, sharding: Sharding) -> None:
    raw(graph, name, types=tuple(t.with_sharding(sharding) for t in graph.node(name).types))


def _place(module: Module, *but: str) -> None:
    for graph in module.graphs.values():
        for node in graph:
            graph.set_device(node.name, "" if node.name in but else "/device:CPU:0")


def _weight(module: Module, tmp_path: Path, reference: WeightRef) -> None:
    (tmp_path / "w.bin").write_bytes(bytes(64))
    module.stores.add("w0", tmp_path / "w.bin")
    graph = module.entries["main"]
    graph.set_attrs("c", {"value": reference})
    graph.set_types("c", (TensorType(reference.dtype, reference.shape),))


FIVE = Splat(Tensor(DType("float32"), np.float32(0)), (5,))
NOWHERE = WeightRef("w9", 0, DType("float32"), (4,))
CALL_OTHER = Node("sum", "Call", {"f": FunctionRef("other")}, (TensorType("float32", ()),))


def set_variable(module: Module, **changes: object) -> None:
    module.variables["w"] = replace(module.variables["w"], **changes)


def rename_node(m: Module, g: Graph) -> None:
    g._nodes._node["c"]["node"] = replace(g.node("c"), name="d")


BROKEN: list[tuple[str, tuple[str, ...], Callable[[Module, Graph], object], str]] = [
    ("graph names", (), lambda m, g: m.entries.update(other_name=m.entries.pop("main")), "@other_name holds the graph 'main'"),
    ("graph names", (), lambda m, g: m.functions.update(main=Graph("main")), "@main is both an entry and a function"),
    ("state names", (), lambda m, g: set_variable(m, name="v"), "variable 'w' holds 'v'"),
    ("state names", (), lambda m, g: m.resources.update(table=replace(m.resources["table"], name="t")), "resource 'table' holds 't'"),
    ("initial values", (), lambda m, g: set_variable(m, initial=FIVE), "variable 'w' is f32[4], its initial value f32[5]"),
    ("initial values", (), lambda m, g: set_variable(m, initial=NOWHERE), "variable 'w': it refers to the store 'w9', expected one of []"),
    ("calls", (), lambda m, g: m.functions["body"].set_node(CALL_OTHER), "@body -> @other -> @body"),
    ("node names", (), rename_node, "'c' holds 'd', expected a node of that name"),
    ("attributes", (), lambda m, g: raw(g, "c", attrs={**g.node("c").attrs, "k": np.int64(1)}), "a int64, expected an IR attribute"),
    ("attributes", (), lambda m, g: g.attrs.update(k=(1, None)), "graph attribute 'k' is (1, None)"),
    ("slots", (), lambda m, g: _edge(g, "c", "y", 3, port=0, back=False), "operand slots are [0, 1, 3], expected [0, 1, 2]"),
    ("ports", (), lambda m, g: raw(g, "s", types=g.node("s").types[:1]), "operand 0 is output 1 of 's', expected below 1"),
    ("controls", (), lambda m, g: g.set_control("c", ["c"]), "it has a control edge to itself"),
    ("order", (), lambda m, g: g.set_operand("s", 1, Value("y")), "it stands in a cycle, 'y' -> 's' -> 'y', expected none"),
    ("inputs", (), lambda m, g: setattr(g, "_inputs", ("x", "x")), "input 'x' stands in the list of inputs 2 times"),
    ("inputs", (), lambda m, g: setattr(g, "_inputs", ("x", "c")), "input 'c' stands in the list of inputs 1 times"),
    ("inputs", (), lambda m, g: setattr(g, "_inputs", ()), "an Input node is not in the graph's list of inputs"),
    ("inputs", (), lambda m, g: g.set_operand("x", 0, Value("c")), "an Input has 1 operands, 1 outputs, expected 0 and 1"),
    ("outputs", (), lambda m, g: setattr(g, "_outputs", (*g.outputs, *g.outputs)), "output name 'y' is used 2 times"),
    ("outputs", (), lambda m, g: setattr(g, "_outputs", (Output("y", Value("gone")),)), "output 'y' is %gone, which does not exist"),
    ("outputs", (), lambda m, g: raw(g, "y", types=()), "output 'y' is %y, which does not exist, expected one of 0 outputs"),
    ("functions", (), lambda m, g: m.functions.pop("body"), "it refers to @body, expected a function of the module"),
    ("state", (), lambda m, g: m.variables.clear(), "it refers to 'w', expected one of the module's variables"),
    ("state", (), lambda m, g: m.resources.clear(), "it refers to 'table', expected one of the module's resources"),
    ("state", (), lambda m, g: set_variable(m, type=TensorType("float64", (4,)), initial=None),
     "its type is resource<f32[4]>[], expected resource<f64[4]>[] as 'w' is"),
    ("constants", (), lambda m, g: g.set_types("c", (TensorType("float32", (5,)),)), "its type is f32[5], expected f32[4] as its value is"),
    ("constants", (), lambda m, g: g.set_attrs("c", {"value": 1.0}), "a Const's value is 1.0, expected a literal"),
    ("origins", (), lambda m, g: g.set_origin("s", ()), "it has no origin"),
    ("partial values", (), lambda m, g: _shard(g, "y", Sharding(((), ()), (("x", "sum"),))), "output 0 is partial, [_,_]+sum(x)"),
    ("shardings", ("annotated",), lambda m, g: _shard(g, "y", Sharding((("z",), ()))), "over ['z'], expected axes of the mesh, ['x']"),
    ("shardings", ("annotated",), lambda m, g: _shard(g, "y", Sharding((("x",),))), "of rank 2, sharded [x], expected 2 dimensions"),
    ("variable shardings", ("annotated",), lambda m, g: set_variable(m, sharding=Sharding((("z",),))),
     "variable 'w' is f32[4], sharded [z], over ['z']"),
    ("variable shardings", ("annotated",), lambda m, g: set_variable(m, sharding=Sharding(((),), (("x", "sum"),))),
     "variable 'w' is partial, [_]+sum(x), expected whole values"),
    ("no shardings", ("partitioned",), lambda m, g: [_place(m), _shard(g, "y", Sharding((("x",), ())))], "output 0 is sharded [x,_]"),
    ("devices", ("placed",), lambda m, g: _place(m, "s"), "it has no device, expected one"),
]  # fmt: skip


@pytest.mark.parametrize("facts", [(), ("annotated",)])
def test_a_sound_module_has_no_fault(facts):
    verify(sound(*facts))


def test_a_placed_and_partitioned_module_has_no_fault():
    module = sound("partitioned", "placed")
    _place(module, "x", "sum")
    verify(module)


@pytest.mark.parametrize(("name", "facts", "breaks", "told"), BROKEN, ids=[f"{b[0]}-{i}" for i, b in enumerate(BROKEN)])
def test_each_rule_when_broken(name, facts, breaks, told):
    module = sound(*facts)
    breaks(module, module.entries["main"])
    invariant = next(i for i in STRUCTURE if i.name == name)
    found = faults(module, [invariant])
    assert any(told in fault.message for fault in found), [str(f) for f in found]
    assert {fault.rule for fault in found} == {name}
    with pytest.raises(IrError, match=f"breaks the rule {name!r}"):
        verify(module, [invariant])
    with pytest.raises(IrError, match="breaks the rule"):
        verify(module)


@pytest.mark.parametrize(
    ("reference", "told"),
    [
        (WeightRef("w1", 0, DType("float32"), (4,)), "it refers to the store 'w1', expected one of ['w0']"),
        (WeightRef("w0", 52, DType("float32"), (4,)), "it refers to bytes 52 to 68 of store 'w0', expected at most 64"),
        (WeightRef("w0", -4, DType("float32"), (4,)), "it refers to bytes -4 to 12"),
        (WeightRef("w0", 0, DType("float32"), (4,), ((2, 3),)), "the region ((2, 3),) of a weight of shape (4,)"),
        (WeightRef("w0", 0, DType("float32"), (4,), ((0, 1), (0, 1))), "the region ((0, 1), (0, 1)) of a weight of shape (4,)"),
    ],
)
def test_weights_lie_in_their_store(tmp_path, reference, told):
    module = sound()
    _weight(module, tmp_path, WeightRef("w0", 48, DType("float32"), (4,)))
    verify(module)
    _weight(module, tmp_path, reference)
    assert told in faults(module)[0].message
    assert faults(module)[0].rule == "weights"


def test_a_splat_repeats_a_scalar():
    module = sound()
    module.entries["main"].set_attrs("c", {"value": Splat(Tensor(DType("float32"), np.zeros(2, np.float32)), (4,))})
    assert "an element of shape (2,), expected a scalar" in faults(module)[0].message


def test_every_rule_of_the_list_is_broken_here():
    assert {i.name for i in STRUCTURE} == {b[0] for b in BROKEN} | {"weights"}


def test_a_rule_of_a_fact_is_for_modules_that_have_it():
    module = sound()
    _shard(module.entries["main"], "y", Sharding((("z",), ())))
    assert faults(module) == []
    module.facts = frozenset({"annotated"})
    assert [f.rule for f in faults(module)] == ["shardings"]


def test_the_message_shows_the_nodes_around_the_fault():
    module = sound()
    module.entries["main"].set_types("s", module.entries["main"].node("s").types[:1])
    module.entries["main"].set_origin("s", ())
    with pytest.raises(IrError) as caught:
        verify(module)
    assert str(caught.value).splitlines() == [
        "graph 'main' node 'y' breaks the rule 'ports': operand 0 is output 1 of 's', expected below 1",
        "    %s = Split(%x, %c) : f32[b,2]",
        "  > %y = Call(%s:1, %s) {f=@body} : f32[b,2] from(y)",
        "(and 1 more fault, the next: graph 'main' node 's' breaks the rule 'origins': "
        "it has no origin, expected the layers or nodes it comes from)",
    ]


def test_a_node_without_a_text_is_shown_all_the_same():
    module = sound()
    module.entries["main"].set_attrs("s", {"k": None})
    with pytest.raises(IrError, match=r"%s = Split\(\.\.\.\)"):
        verify(module)


def test_others_add_rules_of_their_own():
    def few(module: Module, graph: Graph) -> list[str | Fault]:
        return [Fault("an op that may not be here", node.name) for node in graph if node.op == "Add"] + ["and the graph itself"]

    rules = (Invariant("few", None, few), ModuleInvariant("whole", None, lambda m: ["too small"]), Invariant("other", "fact", few))
    found = faults(sound(), rules)
    assert [(f.graph, f.node, f.rule) for f in found] == [
        ("main", "", "few"), ("body", "sum", "few"), ("body", "", "few"), ("other", "", "few"), ("", "", "whole"),
    ]  # fmt: skip
    assert str(found[-1]) == "module breaks the rule 'whole': too small"


def test_long_call_chains_are_no_recursion():
    module = Module("m")
    for i in range(5000):
        body = module.functions[f"f{i}"] = Graph(f"f{i}")
        if i:
            body.add("Call", attrs={"f": FunctionRef(f"f{i - 1}")}, name="call")
    verify(module)
    module.functions["f0"].add("Call", attrs={"f": FunctionRef("f4999")}, name="call")
    assert [f.rule for f in faults(module)] == ["calls"]
