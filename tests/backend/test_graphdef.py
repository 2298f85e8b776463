"""What is emitted says and does what the module says, and nothing more: arguments, names, state, control, sizes."""

from collections.abc import Mapping
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.framework import graph_pb2

from compiler.backend.executor import GraphExecutor
from compiler.backend.graphdef import Emission, emit_called, emit_flat, serialize
from compiler.backend.names import argument_names, legal_names
from compiler.backend.pool import Pool
from compiler.backend.profiles import PROFILES, profile_named
from compiler.backend.protos import tensor_proto
from compiler.backend.regions import unconditional
from compiler.execution import Array, GraphDefArtefact, RuntimeConfig
from compiler.ir.errors import CleaveError, IrError
from compiler.ir.graph import FunctionRef, Graph, Node, Value
from compiler.ir.module import Module, Variable
from compiler.ir.text import parse_module
from compiler.ir.types import DType, TensorType
from compiler.ir.weights import Splat, Stores, Tensor

pytestmark = pytest.mark.tf

PLAIN = replace(PROFILES["native"], envelope=False)
F32 = TensorType(DType("float32"), (2,))


def flat(text: str, entry: str = "main") -> Emission:
    return emit_flat(parse_module(text), entry, PLAIN)


def node_of(graph_def: graph_pb2.GraphDef, name: str):  # type: ignore[no-untyped-def]
    return next(node for node in graph_def.node if node.name == name)


def run(pool: Pool, text: str, *requests: Mapping[str, Array], entry: str = "main", variables: bool = False):  # type: ignore[no-untyped-def]
    results = GraphExecutor(pool).run_module(parse_module(text), entry, requests, want_variables=variables)
    assert [r.error for r in results] == [None] * len(requests)
    return results


def both_ways(pool: Pool, text: str, request: Mapping[str, Array]) -> dict[str, Array]:
    """The flat form's outputs, which the called form's must equal."""
    module = parse_module(text)
    called = emit_called(module, "main", PROFILES["tf"])
    artefact = GraphDefArtefact(serialize(called.graph_def), called.feeds, called.fetches, called.targets)
    (result,) = pool.run(artefact, [request], config=RuntimeConfig(grappler=True))
    assert result.error is None
    (plain,) = run(pool, text, request)
    assert result.outputs.keys() == plain.outputs.keys()
    for name, value in plain.outputs.items():
        np.testing.assert_array_equal(result.outputs[name], value, err_msg=name, strict=True)
    return dict(plain.outputs)


PORTS = """
module "ports"
entry @main(%x: f32[2,7]) -> (out0 = %d, out1 = %sq, i0 = %id, i1 = %id:1, cat = %c, top = %k:1) {
  %sizes = Const() {value=tensor(i64[3], [2, 2, 3])} : i64[3]
  %axis = Const() {value=tensor(i32[], [1])} : i32[]
  %s = SplitV(%x, %sizes, %axis) {num_split=3} : (f32[2,2], f32[2,2], f32[2,3])
  %d = Sub(%s:1, %s) : f32[2,2]
  %sq = Mul(%s, %s) : f32[2,2]
  %id = IdentityN(%s, %s) : (f32[2,2], f32[2,2])
  %n = NoOp() : () after(%s)
  %c = ConcatV2(%s:2, %s, %s:2, %axis) : f32[2,8] after(%n, %s)
  %two = Const() {value=tensor(i32[], [2])} : i32[]
  %k = TopKV2(%x, %two) : (f32[2,2], i32[2,2])
}
"""


def test_ports_parallel_edges_and_controls_are_kept(pool: Pool) -> None:
    x = np.array([[1, 9, 3, 4, 5, 6, 7], [9, 7, 7, 6, 5, 4, 3]], np.float32)
    found = both_ways(pool, PORTS, {"x": x})
    s0, s1, s2 = np.split(x, [2, 4], axis=1)
    for name, value in {"out0": s1 - s0, "out1": s0 * s0, "i0": s0, "i1": s0, "cat": np.concatenate([s2, s0, s2], 1)}.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)
    np.testing.assert_array_equal(found["top"], [[1, 6], [0, 1]])


def test_inputs_stand_in_order_with_controls_last() -> None:
    graph_def = flat(PORTS).graph_def
    assert list(node_of(graph_def, "c").input) == ["s:2", "s", "s:2", "axis", "^n", "^s"]
    assert list(node_of(graph_def, "sq").input) == ["s", "s"]


def test_types_and_numbers_are_derived_and_defaults_left_out() -> None:
    attrs = {name: sorted(node_of(flat(PORTS).graph_def, name).attr) for name in ("s", "c", "id", "sq", "k")}
    assert attrs == {"s": ["T", "num_split"], "c": ["N", "T"], "id": ["T"], "sq": ["T"], "k": ["T"]}
    assert node_of(flat(PORTS).graph_def, "c").attr["N"].i == 3


def test_types_only_results_tell_are_derived() -> None:
    text = """
    module "m"
    entry @main(%x: f32[b,3]) -> (y = %y, s = %s) {
      %y = Cast(%x) : i32[b,3]
      %s = Shape(%x) : i64[2]
    }
    """
    graph_def = flat(text).graph_def
    assert node_of(graph_def, "y").attr["DstT"].type == tf.int32.as_datatype_enum
    assert node_of(graph_def, "s").attr["out_type"].type == tf.int64.as_datatype_enum


STATE = """
module "state"
variable @"v w" : f32[] = tensor(f32[], [1.0])
entry @main() -> (a = %a, b = %b, c = %c) {
  %h = Variable() {ref="v w"} : resource<f32[]>[]
  %a = ReadVariableOp(%h) : f32[]
  %ten = Const() {value=tensor(f32[], [10.0])} : f32[]
  %add = Call(%h, %ten) {f=@bump} : () after(%a)
  %b = ReadVariableOp(%h) : f32[] after(%add)
  %three = Const() {value=tensor(f32[], [3.0])} : f32[]
  %m = Mul(%a, %three) : f32[]
  %set = AssignVariableOp(%h, %m) : () after(%b)
  %c = ReadVariableOp(%h) : f32[] after(%set)
}
function @bump(%v: resource<f32[]>[], %by: f32[]) -> () {
  %add = AssignAddVariableOp(%v, %by) : ()
}
"""


def test_reads_and_writes_keep_their_order_over_calls(pool: Pool) -> None:
    first, second = run(pool, STATE, {}, {}, variables=True)
    assert [float(first.outputs[k]) for k in "abc"] == [1, 11, 3]
    assert [float(second.outputs[k]) for k in "abc"] == [3, 13, 9]
    assert second.variables == {"v w": 9.0}


def test_a_call_is_as_stateful_as_its_body() -> None:
    text = """
    module "m"
    entry @main(%x: f32[2]) -> (y = %y, z = %z) {
      %y = Call(%x) {f=@pure} : f32[2]
      %z = Call(%x) {f=@outer} : f32[2]
    }
    function @pure(%x: f32[2]) -> (y = %y) { %y = Neg(%x) : f32[2] }
    function @outer(%x: f32[2]) -> (y = %y) { %y = Call(%x) {f=@random} : f32[2] }
    function @random(%x: f32[2]) -> (y = %r) {
      %n = Const() {value=tensor(i32[1], [2])} : i32[1]
      %r = RandomUniform(%n) {dtype=f32} : f32[2]
    }
    """
    graph_def = flat(text).graph_def
    assert (node_of(graph_def, "y").op, node_of(graph_def, "z").op) == ("PartitionedCall", "StatefulPartitionedCall")
    stateful = {f.signature.name: f.signature.is_stateful for f in graph_def.library.function}
    assert stateful == {"pure": False, "random": True, "outer": True}
    order = [f.signature.name for f in graph_def.library.function]
    assert order.index("random") < order.index("outer")


EFFECTS = """
module "effects"
variable @counter : i64[] = tensor(i64[], [0])
entry @main(%x: f32[]) -> (y = %one) {
  %one = Const() {value=tensor(f32[], [1.0])} : f32[]
  %zero = Const() {value=tensor(f32[], [0.0])} : f32[]
  %ok = Greater(%x, %zero) : bool[]
  %text = Const() {value=tensor(string[], ["not positive"])} : string[]
  %check = Assert(%ok, %text) : ()
  %h = Variable() {ref="counter"} : resource<i64[]>[]
  %step = Const() {value=tensor(i64[], [1])} : i64[]
  %add = AssignAddVariableOp(%h, %step) : () after(%check)
}
"""


def test_effects_without_a_path_to_an_output_happen(pool: Pool) -> None:
    good, again = run(pool, EFFECTS, {"x": np.float32(2)}, {"x": np.float32(2)}, variables=True)
    assert (good.variables, again.variables) == ({"counter": 1}, {"counter": 2})
    (bad,) = GraphExecutor(pool).run_module(parse_module(EFFECTS), "main", [{"x": np.float32(-1)}])
    assert bad.error is not None
    assert "not positive" in bad.error.message


CONTROL = """
module "control"
entry @main(%x: f32[b,3], %p: bool[], %i: i32[]) -> (c = %c, w = %w:1, k = %k) {
  %c = If(%p, %x) {then_branch=@dbl, else_branch=@neg} : f32[b,3]
  %zero = Const() {value=tensor(i32[], [0])} : i32[]
  %w = StatelessWhile(%zero, %x) {cond=@lt3, body=@step} : (i32[], f32[b,3])
  %k = StatelessCase(%i, %x) {branches=[@neg, @dbl]} : f32[b,3]
}
function @dbl(%x: f32[b,3]) -> (y = %o) { %o = AddV2(%x, %x) : f32[b,3] }
function @neg(%x: f32[b,3]) -> (y = %o) { %o = Neg(%x) : f32[b,3] }
function @lt3(%i: i32[], %x: f32[b,3]) -> (y = %o) {
  %t = Const() {value=tensor(i32[], [3])} : i32[]
  %o = Less(%i, %t) : bool[]
}
function @step(%i: i32[], %x: f32[b,3]) -> (i1 = %j, y = %o) {
  %t = Const() {value=tensor(i32[], [1])} : i32[]
  %j = AddV2(%i, %t) : i32[]
  %o = AddV2(%x, %x) : f32[b,3]
}
"""


@pytest.mark.parametrize("taken", [True, False])
def test_if_while_and_case_run_their_bodies(pool: Pool, taken: bool) -> None:
    x = np.array([[1, -2, 3]], np.float32)
    found = both_ways(pool, CONTROL, {"x": x, "p": np.array(taken), "i": np.int32(taken)})
    np.testing.assert_array_equal(found["c"], 2 * x if taken else -x)
    np.testing.assert_array_equal(found["w"], 8 * x)
    np.testing.assert_array_equal(found["k"], 2 * x if taken else -x)


LOOP = """
module "loop"
entry @main(%x: f32[]) -> (y = %out, z = %merged) {
  %three = Const() {value=tensor(i32[], [3])} : i32[]
  %zero = Const() {value=tensor(i32[], [0])} : i32[]
  %ei = Enter(%zero) {frame_name="f"} : i32[]
  %ex = Enter(%x) {frame_name="f"} : f32[]
  %el = Enter(%three) {frame_name="f", is_constant=true} : i32[]
  %mi = Merge(%ei, ~%ni) : (i32[], i32[])
  %mx = Merge(%ex, ~%nx) : (f32[], i32[])
  %lt = Less(%mi, %el) : bool[]
  %go = LoopCond(%lt) : bool[]
  %si = Switch(%mi, %go) : (i32[], i32[])
  %sx = Switch(%mx, %go) : (f32[], f32[])
  %one = Const() {value=tensor(i32[], [1])} : i32[] after(%ii)
  %ii = Identity(%si:1) : i32[]
  %ai = AddV2(%ii, %one) : i32[]
  %fone = Const() {value=tensor(f32[], [1.0])} : f32[] after(%ii)
  %dx = AddV2(%sx:1, %sx:1) : f32[]
  %ax = AddV2(%dx, %fone) : f32[]
  %ni = NextIteration(%ai) : i32[]
  %nx = NextIteration(%ax) : f32[]
  %out = Exit(%sx) : f32[]
  %pos = Greater(%out, %fzero) : bool[]
  %fzero = Const() {value=tensor(f32[], [0.0])} : f32[]
  %br = Switch(%out, %pos) : (f32[], f32[])
  %neg = Neg(%br) : f32[]
  %chk = CheckNumerics(%br:1) {message="m"} : f32[]
  %merged = Merge(%neg, %chk) : (f32[], i32[])
}
"""


def test_a_v1_loop_and_conditional_run_flat_and_in_a_function(pool: Pool) -> None:
    found = both_ways(pool, LOOP, {"x": np.float32(1)})
    assert (float(found["y"]), float(found["z"])) == (15.0, 15.0)
    assert list(node_of(flat(LOOP).graph_def, "mx").input) == ["ex", "nx"]


def test_what_runs_once_is_told_from_what_may_not() -> None:
    once = unconditional(parse_module(LOOP).entries["main"])
    assert {"three", "out", "pos", "merged", "br", "fzero"} <= once
    assert not once & {"mx", "sx", "ax", "nx", "one", "neg", "chk"}


def test_a_splat_stays_a_splat_and_odd_types_keep_their_bits(pool: Pool) -> None:
    text = """
    module "m"
    entry @main() -> (s = %s, h = %h, t = %t, b = %b, q = %q, e = %e, n = %n) {
      %s = Const() {value=splat(f32[1000], 2.5)} : f32[1000]
      %h = Const() {value=tensor(bf16[3], [1.0, -0.0, inf])} : bf16[3]
      %t = Const() {value=tensor(string[2], ["a", "\\u00e9"])} : string[2]
      %b = Const() {value=splat(bool[3], true)} : bool[3]
      %q = Const() {value=tensor(i4[3], [-8, 7, 1])} : i4[3]
      %e = Const() {value=tensor(f32[0,2], [])} : f32[0,2]
      %n = Const() {value=tensor(f32[2], [-0.0, nan])} : f32[2]
    }
    """
    assert len(node_of(flat(text).graph_def, "s").attr["value"].SerializeToString()) < 32
    (result,) = run(pool, text, {})
    np.testing.assert_array_equal(result.outputs["s"], np.full(1000, 2.5, np.float32), strict=True)
    assert result.outputs["h"].dtype == ml_dtypes.bfloat16
    assert result.outputs["h"].view(np.uint16).tolist() == [0x3F80, 0x8000, 0x7F80]
    assert result.outputs["t"].tolist() == [b"a", "é".encode()]
    assert result.outputs["b"].tolist() == [True] * 3
    assert result.outputs["q"].astype(int).tolist() == [-8, 7, 1]
    assert result.outputs["e"].shape == (0, 2)
    assert np.signbit(result.outputs["n"][0])
    assert np.isnan(result.outputs["n"][1])


@pytest.mark.parametrize("dtype", ["float16", "float64", "int8", "uint16", "uint32", "int64", "uint64", "complex64", "complex128", "bool"])
def test_literals_read_back_by_tensorflow_are_the_arrays(dtype: str) -> None:
    array = np.array([[0, 1, 1], [1, 0, 1]]).astype(dtype)
    stores = Stores()
    for literal, expected in (
        (Tensor(DType(dtype), array), array),
        (Tensor(DType(dtype), array[0, 1]), array[0, 1]),
        (Splat(Tensor(DType(dtype), array[0, 1]), (4, 2)), np.full((4, 2), 1).astype(dtype)),
    ):
        np.testing.assert_array_equal(tf.make_ndarray(tensor_proto(literal, stores)), expected, strict=True)


def test_large_values_of_variables_are_fed_and_not_in_the_graph(pool: Pool) -> None:
    module = Module("m")
    array = np.arange(1 << 16, dtype=np.float32)
    module.stores.constant(np.arange(100, dtype=np.float32))
    literal = module.stores.constant(array)
    type_ = TensorType(DType("float32"), (1 << 16,))
    module.variables["w"] = Variable("w", type_, literal)
    graph = Graph("main")
    graph.add_node(Node("h", "Variable", {"ref": "w"}, (TensorType(DType("resource"), (), handle=type_),)))
    graph.add_node(Node("r", "ReadVariableOp", {}, (type_,)), [Value("h")])
    graph.set_outputs([("y", Value("r"))])
    module.entries["main"] = graph
    assert len(serialize(emit_flat(module, "main", PLAIN).graph_def)) < 1000
    (result,) = GraphExecutor(pool).run_module(module, "main", [{}])
    assert result.error is None
    np.testing.assert_array_equal(result.outputs["y"], array)


def test_too_much_for_one_graph_is_refused_before_it_is_written() -> None:
    module = parse_module('module "m"\nentry @main() -> (y = %y) { %y = Const() {value=tensor(f32[4], [1.0, 2.0, 3.0, 4.0])} : f32[4] }')
    with pytest.raises(CleaveError, match=r"constants take .* largest are 'y' of 'main'"):
        emit_flat(module, "main", PLAIN, limit_bytes=15)


def odd_names() -> Module:
    module = Module("m")
    graph = Graph("main")
    x = graph.add_input("x:0 é", F32)
    for name in ("_a b", "_a_b", "a b", "a_b", "A_B", "call"):
        graph.add_node(Node(name, "Neg", {}, (F32,)), [x])
    graph.add_node(Node("Add", "Call", {"f": FunctionRef("Add")}, (F32,)), [Value("a b")])
    graph.set_outputs([("y 1", Value("Add")), ("y_1", Value("a_b")), ("call", Value("A_B"))])
    body = Graph("Add")
    z = body.add_input("Z", F32)
    body.add_node(Node("z", "Neg", {}, (F32,)), [z])
    body.set_outputs([("Z", Value("z"))])
    module.entries["main"], module.functions["Add"] = graph, body
    return module


def test_odd_names_become_legal_and_stay_apart(pool: Pool) -> None:
    module = odd_names()
    x = np.array([1, 2], np.float32)
    for emission in (emit_flat(module, "main", PLAIN), emit_called(module, "main", PROFILES["tf"])):
        artefact = GraphDefArtefact(serialize(emission.graph_def), emission.feeds, emission.fetches)
        (result,) = pool.run(artefact, [{"x:0 é": x}])
        assert result.error is None
        assert {k: v.tolist() for k, v in result.outputs.items()} == {"y 1": [1, 2], "y_1": [-1, -2], "call": [-1, -2]}


def test_legal_names_are_kept_and_the_others_give_way() -> None:
    assert legal_names(["a b", "a_b", "a.b/c-d", "_x", "é"]) == {"a b": "a_b_1", "a_b": "a_b", "a.b/c-d": "a.b/c-d", "_x": "n_x", "é": "n_"}
    assert argument_names(["X", "x", "1", "a/b"], taken=["x_1"]) == ("x", "x_2", "arg_1", "a_b")


def test_a_function_that_is_called_like_an_op_is_renamed() -> None:
    graph_def = emit_flat(odd_names(), "main", PLAIN).graph_def
    assert [f.signature.name for f in graph_def.library.function] == ["Add_1"]


def test_equal_modules_give_equal_bytes() -> None:
    for text in (PORTS, CONTROL, LOOP):
        first, second = (serialize(emit_called(parse_module(text), "main", PROFILES["tf"]).graph_def) for _ in range(2))
        assert first == second


def test_internal_attributes_that_would_go_stale_are_dropped() -> None:
    text = """
    module "m"
    entry @main(%x: f32[2]) -> (y = %y) {
      %y = Identity(%x) {_class=["loc:@gone"], _gradient_op_type="CustomGradient-1", _output_shapes=[shape[3]], _kept="yes"} : f32[2]
    }
    """
    assert sorted(node_of(flat(text).graph_def, "y").attr) == ["T", "_kept"]


def test_the_version_goes_back_to_where_every_op_was_still_allowed() -> None:
    old = flat('module "m"\nentry @main(%x: f32[2]) -> (y = %y) { %y = Add(%x, %x) : f32[2] }').graph_def.versions.producer
    text = """
    module "m"
    entry @main(%x: f32[2,2,2,2], %m: f32[2]) -> (y = %y) {
      %y = BatchNormWithGlobalNormalization(%x, %m, %m, %m, %m) {variance_epsilon=0.1, scale_after_normalization=true} : f32[2,2,2,2]
    }
    """
    assert flat(text).graph_def.versions.producer < 9 < old


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('entry @main(%x: f32[2]) -> (y = %y) { %y = NoSuchOp(%x) : f32[2] }', "no op of TensorFlow"),
        ('entry @main(%x: f32[2]) -> (y = %y) { %y = _MklLayerNorm(%x, %x, %x) : f32[2] }', "private op"),
        (
            'resource @t : resource[] kind "table"\nentry @main() -> (y = %y) { %y = Resource() {ref="t"} : resource[] }',
            "save a SavedModel",
        ),
        ('entry @main() -> (y = %y) { %y = Variable() {ref="gone"} : resource<f32[2]>[] }', "expected one of"),
    ],
)  # fmt: skip
def test_what_cannot_be_emitted_is_refused_in_words(text: str, message: str) -> None:
    with pytest.raises((CleaveError, IrError), match=message):
        emit_flat(parse_module(f'module "m"\n{text}'), "main", PROFILES["tf"])


def test_unknown_entries_and_profiles_are_named() -> None:
    with pytest.raises(CleaveError, match="expected one of tf"):
        profile_named("fast")
    with pytest.raises(IrError, match="no entry 'other'"):
        emit_flat(parse_module(PORTS), "other", PLAIN)


def test_devices_lose_job_and_task_or_go() -> None:
    text = 'module "m"\nentry @main(%x: f32[2]) -> (y = %y) { %y = Neg(%x) : f32[2] on "/job:worker/replica:0/task:1/device:CPU:1" }'
    module = parse_module(text)
    devices = [node_of(emit_flat(module, "main", PROFILES[p]).graph_def, "y").device for p in ("tf", "portable")]
    assert devices == ["/device:CPU:1", ""]
