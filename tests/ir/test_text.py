"""The text form by example: what is written where, what a slip is told, and what strict equality tells apart."""

from __future__ import annotations

import numpy as np
import pytest

from compiler.ir.errors import IrError
from compiler.ir.graph import Graph, Value
from compiler.ir.module import Module
from compiler.ir.text import attr_text, equal, parse_document, parse_module, parse_type, print_document, print_module, print_node
from compiler.ir.types import DType, TensorType
from compiler.ir.weights import Stores, Tensor

SEED = """\
pipeline "canonicalize,split{axis=x}"
module "seed" facts(annotated, typed)
mesh [x=2, y=1(3)] on ("/device:CPU:0", "/device:CPU:1")
size b = 32
store w0 = "variables.data-00000-of-00001"
variable @dense/kernel : f32[5408,128] = weight(w0, 1234, f32[5408,128]) untrainable written_elsewhere sharding [x,_] on "/device:CPU:0"
variable @step : i64[] = tensor(i64[], 0) read_elsewhere
resource @table : resource[] kind "table"

entry @serving_default(%x: f32[b,28,28,1], %"a b": resource<f32[4]>[] {arg="k"} on "/device:CPU:1" from(arg)) -> (probs = %s:1) {
  %filter = Const() {value=weight(w0, 0, f32[3,3,1,32], [0+3, 0+3, 0+1, 4+8])} : f32[3,3,1,8] from(conv2d)
  %init = NoOp() : ()
  %conv = Conv2D(%x, %filter) {padding="VALID", strides=[1, 1, 1, 1]} : f32[b,26,26,8]@[x,_,_,_]+sum(y)/1 on "/device:CPU:0" after(%init)
  %axis = Const() {value=tensor(i32[], 3)} : i32[]
  %s = Split(%axis, %conv) {num_split=2} : (f32[b,26,26,4], f32[max(3,b),ceil(b/2),26,?])
  %strings = Const() {value=tensor(string[2], ["text", b"\\xff"])} : string[2]
  %ones = Const() {value=splat(bf16[1000], 1.0)} : bf16[1000]
  %call = Call(%x) {f=@body, k=[@body, shape[1,?], shape[*], f32_ref, inf, -0.0, true, b"\\x00\\"", [], [[1]]]} : f32[*]
}

function @body(%x: f32[b,4]) -> (y = %x) {kind="gelu"} {
}
"""

LOOP = """\
module "loop"

entry @main(%x: f32[]) -> (y = %exit) {
  %enter = Enter(%x) {frame_name="loop"} : f32[]
  %merge = Merge(%enter, ~%next) : (f32[], i32[])
  %next = NextIteration(%merge) : f32[]
  %exit = Exit(%merge) : f32[]
}
"""


@pytest.mark.parametrize("text", [SEED, LOOP])
def test_canonical_text_is_printed_as_it_was_read(text):
    assert print_document(*parse_document(text)) == text


def test_back_edge_closes_a_loop_and_has_an_order():
    graph = parse_module(LOOP).entries["main"]
    assert graph.order() == ("x", "enter", "merge", "next", "exit")
    assert [edge.back for edge in graph.edges("merge")] == [False, True]


def test_uses_may_stand_before_definitions():
    lines = ["%y = Add(%a, %b) : f32[] after(%c)", "%a = A() : f32[]", "%b = B() : f32[]", "%c = C() : ()"]
    text = "\n".join(['module "m" entry @main() -> (y = %y) {', *lines, "}"])
    module = parse_module(text)
    assert module.entries["main"].order() == ("a", "b", "c", "y")
    assert equal(parse_module(print_module(module)), module)


def test_comments_and_free_layout():
    spread = SEED.replace("(%axis, %conv)", "(%axis, # which\n   %conv)").replace("{padding", "{ # attributes\n padding")
    assert equal(parse_module(spread), parse_module(SEED))


def test_a_shared_input_is_listed_once_and_inputs_with_controls_survive():
    graph = Graph("main")
    x = graph.add_input("x", TensorType("float32", ()))
    graph.add("NoOp", name="n")
    graph.set_control("x", ["n"])
    graph.set_outputs([("y", x)])
    module = Module("m", {"main": graph})
    assert print_module(module).count("%x:") == 1
    assert equal(parse_module(print_module(module)), module)


@pytest.mark.parametrize(
    ("slip", "told"),
    [
        (("module", "modul"), "line 2, column 1: found 'modul \"seed\" facts(annotated, typed)', expected 'module'"),
        (("size b", "sizes b"), "line 4, column 1: found 'sizes b = 32', expected one of mesh, size, store, variable"),
        (("%conv)", "%cov)"), "graph 'serving_default' has no node 'cov'"),
        (("%s:1", "%s:2"), "%s:2 does not exist, Split 's' has 2 outputs"),
        (("f32[*]", "f33[*]"), "'f33' is not an element type"),
        (("%ones =", "%axis ="), "already has a node 'axis'"),
        (
            ("num_split=2", "num_split="),
            "line 15, column 39: found '} : (f32[b,26,26,4], f32[max(3,b),ceil(b', expected an attribute's value",
        ),
        (("num_split=2", "num_split=2, num_split=3"), "an attribute stands here twice"),
        (("tensor(i32[], 3)", "tensor(i32[], 3.5)"), "[3.5] are not all elements of i32"),
        (("tensor(i32[], 3)", "tensor(i32[2], [3])"), "1 elements for the shape [2], expected 2"),
        (("tensor(i32[], 3)", "tensor(i32[b], [3])"), "i32[b] is no constant's type"),
        (("b,28,28,1", "b,28+,28,1"), "dimension '28+' is not an expression"),
        (("shape[1,?]", "shape[b,?]"), "has a symbolic dimension"),
        (("x=2", "x=3"), "line 3, column 6: mesh [x=3, y=1(3)]: 2 devices do not fill the axes"),
        (("@[x,_,_,_]", "@[x,x,_,_]"), "uses a mesh axis twice"),
        (("function @body", "entry @serving_default"), "@serving_default is already defined"),
        (("\n}\n\nfunction", "\nfunction"), "found 'function @body"),
    ],
)
def test_a_slip_is_told_in_one_line(slip, told):
    with pytest.raises(IrError) as caught:
        parse_module(SEED.replace(*slip, 1), source="seed.ir")
    assert told in str(caught.value)
    assert str(caught.value).startswith("seed.ir: line ")
    assert "\n" not in str(caught.value)


def test_text_that_ends_early():
    with pytest.raises(IrError, match="the text ends, expected"):
        parse_module(SEED[: SEED.index("%ones")] + "%ones =")


@pytest.mark.parametrize(
    ("left", "right"), [(1, True), (1, 1.0), (0.0, -0.0), ("float32", DType("float32")), ("a", b"a"), ((1,), (True,)), ((), ("",))]
)
def test_attributes_python_calls_equal_are_not(left, right):
    graphs = []
    for attr in (left, right):
        graph = Graph("main")
        graph.add("Op", attrs={"k": attr}, name="n")
        graphs.append(Module("m", {"main": graph}))
    assert not equal(*graphs)
    assert attr_text(left) != attr_text(right)
    version = graphs[0].version
    graphs[0].entries["main"].set_attrs("n", {"k": right})
    assert graphs[0].version > version
    assert equal(*graphs)


def test_nan_attributes_are_equal():
    graph = Graph("main")
    graph.add("Op", attrs={"k": float("nan")}, name="n")
    version = graph.version
    graph.set_attrs("n", {"k": -float("nan")})
    assert graph.version == version


@pytest.mark.parametrize("attr", [None, [1], np.int64(1), {"a": 1}])
def test_what_is_no_attribute_is_refused(attr):
    with pytest.raises(IrError, match="expected int, float, bool"):
        attr_text(attr)


def test_floats_are_short_and_nan_payloads_kept():
    payload = np.array([0.1, np.nan, -0.0, 1e-45], np.float32)
    payload.view(np.uint32)[1] = 0x7FC00001
    graph = Graph("main")
    graph.add("Const", attrs={"value": Tensor(DType("float32"), payload)}, types=(TensorType("float32", (4,)),), name="c")
    assert "[0.1, 0x7fc00001, -0.0, 1e-45]" in print_node(graph, "c")
    again = parse_module(print_module(Module("m", {"main": graph}))).entries["main"].node("c").attrs["value"]
    assert again.array.tobytes() == payload.tobytes()


def test_a_graph_with_a_forbidden_cycle_still_prints():
    graph = parse_module(LOOP).entries["main"]
    graph.set_operand("merge", 1, Value("next"))
    text = print_module(Module("loop", {"main": graph}))
    assert "Merge(%enter, %next)" in text
    assert print_module(parse_module(text)) == text


def test_scratch_constants_need_the_stores_they_are_in():
    module = Module("m", stores=Stores())
    graph = module.entries["main"] = Graph("main")
    literal = module.stores.constant(np.arange(100, dtype=np.float32))
    graph.add("Const", attrs={"value": literal}, types=(TensorType("float32", (100,)),), name="c")
    assert "store" not in print_module(module)
    again = parse_module(print_module(module), stores=module.stores)
    assert equal(again, module)
    assert again.stores.load(again.entries["main"].node("c").attrs["value"])[99] == 99


@pytest.mark.parametrize("text", ["f32[b,?,3]@[x,_,_]+max(y)/2", "resource<resource<f32[2]@[x]>[]>[*]", "variant[]", "qi8_ref[b*b1]"])
def test_types_by_example(text):
    assert str(parse_type(text)) == text


def test_a_type_is_all_of_its_text():
    with pytest.raises(IrError, match="expected the end of the type"):
        parse_type("f32[2] f32[3]")
