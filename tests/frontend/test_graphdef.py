"""Handmade GraphDefs become the module they say: ports, controls, loops, functions, attributes; and what says none is refused in words."""

import time
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import text_format
from tensorflow.core.framework import graph_pb2

from compiler.frontend.source import SourceModel, load
from compiler.ir.errors import CleaveError
from compiler.ir.graph import FunctionRef, Graph, Use, Value
from compiler.ir.text import equal, parse_module, print_module
from compiler.ir.verify import verify

pytestmark = pytest.mark.tf

FLOAT = 'attr { key: "T" value { type: DT_FLOAT } }'
X = 'node { name: "x" op: "Placeholder" attr { key: "dtype" value { type: DT_FLOAT } } } versions { producer: 1882 }'


def read(tmp_path: Path, graph_def: graph_pb2.GraphDef | str, outputs: tuple[str, ...] | None = None) -> SourceModel:
    """Through the file, verified, and equal to what its text says."""
    if isinstance(graph_def, str):
        graph_def = text_format.Parse(graph_def, graph_pb2.GraphDef())
    (tmp_path / "graph.pb").write_bytes(graph_def.SerializeToString())
    source = load(tmp_path / "graph.pb", outputs=outputs)
    verify(source.module)
    assert equal(parse_module(print_module(source.module)), source.module)
    return source


def entry(source: SourceModel) -> Graph:
    return source.module.entries["serving_default"]


def traced(build: object, *specs: tf.TensorSpec) -> graph_pb2.GraphDef:
    """The graph of TensorFlow 1 that `build` makes of placeholders x0, x1, ..."""
    with tf.Graph().as_default() as graph:
        build(*(tf.compat.v1.placeholder(s.dtype, s.shape, name=f"x{i}") for i, s in enumerate(specs)))  # type: ignore[operator]
    return graph.as_graph_def()


def operand_names(graph: Graph, name: str) -> list[str]:
    return [str(value) for value in graph.operands(name)]


def test_parallel_edges_ports_and_controls_are_kept(tmp_path: Path) -> None:
    def build(x: tf.Tensor) -> None:
        s0, s1, s2 = tf.split(x, [2, 2, 3], axis=1, name="s")
        tf.subtract(s1, s0, name="difference")
        tf.multiply(s0, s0, name="square")
        tf.identity_n([s0, s0], name="both")
        tf.concat([s2, s0, s2], 1, name="again")
        _, second = tf.nn.top_k(s2, 1, name="top")
        tf.negative(s1, name="ordered")
        tf.identity(second, name="index")

    graph_def = traced(build, tf.TensorSpec([2, 7]))
    next(node for node in graph_def.node if node.name == "ordered").input.append("^s")
    names = ("difference", "square", "both:1", "again", "ordered", "index")
    graph = entry(read(tmp_path, graph_def, names))
    assert operand_names(graph, "difference") == ["%s:1", "%s"]
    assert operand_names(graph, "square") == ["%s", "%s"]
    assert operand_names(graph, "both") == ["%s", "%s"]
    assert operand_names(graph, "again") == ["%s:2", "%s", "%s:2", "%again/axis"]
    assert (operand_names(graph, "ordered"), graph.controls("ordered")) == (["%s:1"], ("s",))
    assert operand_names(graph, "index") == ["%top:1"]
    assert [(o.name, o.value) for o in graph.outputs] == [
        (name.replace(":", "_"), Value(name.partition(":")[0], int(name.endswith(":1")))) for name in names
    ]


def test_attributes_are_stored_only_where_nothing_else_says_them(tmp_path: Path) -> None:
    def build(x: tf.Tensor) -> None:
        filters = tf.constant(0.5, shape=[3, 3, 2, 4], name="w")
        tf.raw_ops.Conv2D(input=x, filter=filters, strides=[1, 2, 2, 1], padding="SAME", name="conv")
        tf.cast(tf.stack([x, x], name="pack"), tf.bfloat16, name="cast")

    source = read(tmp_path, traced(build, tf.TensorSpec([None, 8, 8, 2])), ("conv", "cast"))
    graph = entry(source)
    assert dict(graph.node("conv").attrs) == {"strides": (1, 2, 2, 1), "padding": "SAME"}
    assert dict(graph.node("pack").attrs) == {}
    assert dict(graph.node("cast").attrs) == {"DstT": "bfloat16"}
    assert list(graph.node("w").attrs) == ["value"]
    assert str(graph.node("w").type) == "f32[3,3,2,4]"
    assert str(graph.node("x0").type) == "f32[b,8,8,2]"
    assert graph.node("conv").origin == ("conv",)


def test_stale_hints_go_and_devices_have_one_form(tmp_path: Path) -> None:
    node = (
        f'node {{ name: "y" op: "Neg" input: "x" device: "/job:localhost/replica:0/task:0/cpu:1" {FLOAT}'
        ' attr { key: "_class" value { list { s: "loc:@gone" } } }'
        ' attr { key: "_output_shapes" value { list { shape { dim { size: 9 } } } } }'
        ' attr { key: "_mark" value { i: 3 } } }'
    )
    found = entry(read(tmp_path, X + node)).node("y")
    assert (dict(found.attrs), found.device, found.type.shape) == ({"_mark": 3}, "/device:CPU:1", None)


def while_loop(x: tf.Tensor) -> None:
    tf.compat.v1.disable_control_flow_v2()
    try:

        def outer(i: tf.Tensor, a: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            inner = tf.compat.v1.while_loop(lambda j, b: j < 2, lambda j, b: (j + 1, b + x), [0, a])
            return i + 1, 2 * inner[1] + 1

        tf.identity(tf.compat.v1.while_loop(lambda i, a: i < 3, outer, [0, x])[1], name="out")
    finally:
        tf.compat.v1.enable_control_flow_v2()


def test_loops_of_version_1_keep_every_node_and_mark_their_back_edges(tmp_path: Path) -> None:
    graph_def = traced(while_loop, tf.TensorSpec([]))
    graph = entry(read(tmp_path, graph_def, ("out",)))
    merges = [node.name for node in graph if node.op == "Merge"]
    assert len(merges) == sum(node.op == "Merge" for node in graph_def.node) >= 4
    for name in merges:
        assert [graph.is_back(Use(name, slot)) for slot in (0, 1)] == [False, True]
        assert graph.node(graph.operands(name)[1].node).op == "NextIteration"
    assert {node.op for node in graph_def.node if node.name not in graph} == {"Exit"}  # of the counters, which nobody reads


def test_the_order_of_the_file_says_nothing(tmp_path: Path) -> None:
    graph_def = traced(while_loop, tf.TensorSpec([]))
    forward = entry(read(tmp_path, graph_def, ("out",)))
    nodes = list(graph_def.node)
    del graph_def.node[:]
    graph_def.node.extend(reversed(nodes))
    backward = entry(read(tmp_path, graph_def, ("out",)))
    for node in forward:
        assert backward.node(node.name) == node
        assert backward.edges(node.name) == forward.edges(node.name)
        assert backward.controls(node.name) == forward.controls(node.name)


FUNCTIONS = f"""
library {{
  function {{
    signature {{ name: "__inference_pair_77" input_arg {{ name: "a" type: DT_FLOAT }}
                output_arg {{ name: "sum" type: DT_FLOAT }} output_arg {{ name: "low" type: DT_FLOAT }} }}
    node_def {{ name: "s" op: "Split" input: "axis:output:0" input: "a" {FLOAT} attr {{ key: "num_split" value {{ i: 2 }} }} }}
    node_def {{ name: "axis" op: "Const" attr {{ key: "dtype" value {{ type: DT_INT32 }} }}
               attr {{ key: "value" value {{ tensor {{ dtype: DT_INT32 tensor_shape {{ }} int_val: 0 }} }} }} }}
    node_def {{ name: "plus" op: "AddV2" input: "s:output:1" input: "s:output:0" input: "^axis" {FLOAT} }}
    ret {{ key: "sum" value: "plus:z:0" }} ret {{ key: "low" value: "s:output:0" }}
  }}
  function {{
    signature {{ name: "f" input_arg {{ name: "a" type: DT_FLOAT }} output_arg {{ name: "b" type: DT_FLOAT }} }}
    node_def {{ name: "c" op: "__inference_pair_77" input: "a" }}
    ret {{ key: "b" value: "c:low:0" }}
  }}
  function {{ signature {{ name: "unused" }} node_def {{ name: "q" op: "NoSuchOp" }} }}
}}
"""
CALLS = f"""
node {{ name: "p" op: "PartitionedCall" input: "x" attr {{ key: "f" value {{ func {{ name: "__inference_pair_77" }} }} }}
  attr {{ key: "Tin" value {{ list {{ type: DT_FLOAT }} }} }} attr {{ key: "Tout" value {{ list {{ type: DT_FLOAT type: DT_FLOAT }} }} }} }}
node {{ name: "direct" op: "__inference_pair_77" input: "p" }}
node {{ name: "g" op: "f" input: "direct:1" }}
node {{ name: "y" op: "AddV2" input: "p:1" input: "g" {FLOAT} }}
"""


def test_calls_of_every_kind_share_one_body_and_only_what_is_reached_is_imported(tmp_path: Path) -> None:
    source = read(tmp_path, X + FUNCTIONS + CALLS)
    graph, body = entry(source), source.module.functions["pair"]
    assert sorted(source.module.functions) == ["f", "pair"]
    assert {n.name: n.attrs["f"] for n in graph if n.op == "Call"} == {
        "p": FunctionRef("pair"), "direct": FunctionRef("pair"), "g": FunctionRef("f"),
    }  # fmt: skip
    assert len(graph.node("direct").types) == 2
    assert operand_names(body, "plus") == ["%s:1", "%s"]
    assert body.controls("plus") == ("axis",)
    assert [(o.name, o.value) for o in body.outputs] == [("sum", Value("plus")), ("low", Value("s"))]
    assert operand_names(graph, "y") == ["%p:1", "%g"]


def test_bodies_of_control_flow_are_imported_and_named_without_counters(tmp_path: Path) -> None:
    @tf.function(input_signature=[tf.TensorSpec([None])])
    def f(x: tf.Tensor) -> tf.Tensor:
        y = tf.cond(tf.reduce_sum(x) > 0, lambda: x * 2, lambda: x - 1)
        return tf.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, a * 2), [0, y])[1]

    source = load(f)
    names = sorted(source.module.functions)
    assert names == ["cond_false", "cond_true", "f", "signature_wrapper", "while_body", "while_cond"]
    nodes = {node.op: node for node in source.module.functions["f"]}
    assert dict(nodes["StatelessIf"].attrs) | {"_lower_using_switch_merge": True} == {
        "then_branch": FunctionRef("cond_true"), "else_branch": FunctionRef("cond_false"), "_lower_using_switch_merge": True,
    }  # fmt: skip
    assert {k: v for k, v in nodes["StatelessWhile"].attrs.items() if not k.startswith("_")} == {
        "cond": FunctionRef("while_cond"), "body": FunctionRef("while_body"),
    }  # fmt: skip
    assert print_module(load(f).module) == print_module(source.module)


def nested(depth: int) -> graph_pb2.GraphDef:
    """f0(x) = -x; f1(x) = f0(x); ..."""
    functions = [
        f'function {{ signature {{ name: "f{i}" input_arg {{ name: "x" type: DT_FLOAT }} output_arg {{ name: "y" type: DT_FLOAT }} }}'
        + (f'node_def {{ name: "c" op: "f{i - 1}" input: "x" }}' if i else f'node_def {{ name: "c" op: "Neg" input: "x" {FLOAT} }}')
        + ' ret { key: "y" value: "c:y:0" } }'
        for i in range(depth)
    ]
    text = X + "library {" + "".join(functions) + "}" + f'node {{ name: "y" op: "f{depth - 1}" input: "x" }}'
    return text_format.Parse(text, graph_pb2.GraphDef())


def test_functions_nest_deeper_than_python_does(tmp_path: Path) -> None:
    assert len(read(tmp_path, nested(3000)).module.functions) == 3000


def chain(length: int) -> graph_pb2.GraphDef:
    """x + c + c + ...: deep, and every node reads the one constant."""
    made = text_format.Parse(
        X + 'node { name: "c" op: "Const" attr { key: "dtype" value { type: DT_FLOAT } }'
        ' attr { key: "value" value { tensor { dtype: DT_FLOAT tensor_shape { } float_val: 1 } } } }',
        graph_pb2.GraphDef(),
    )
    for i in range(length):
        node = made.node.add(name=f"n{i}", op="AddV2", input=[f"n{i - 1}" if i else "x", "c"])
        node.attr["T"].type = 1
    return made


def test_a_deep_graph_with_one_wide_constant_takes_time_in_proportion(tmp_path: Path) -> None:
    def seconds(length: int) -> float:
        (tmp_path / f"{length}.pb").write_bytes(chain(length).SerializeToString())
        start = time.perf_counter()
        assert len(entry(load(tmp_path / f"{length}.pb"))) == length + 2
        return time.perf_counter() - start

    seconds(100)
    short, long = seconds(4000), seconds(40000)
    assert long < 30 * short, (short, long)  # ten times the nodes; a quadratic importer takes a hundred times


def attribute(name: str, value: str) -> str:
    return f'attr {{ key: "{name}" value {{ {value} }} }}'


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ('node { name: "y" op: "MyOp" input: "x" }', "node 'y': op 'MyOp' is not registered"),
        (f'node {{ name: "y" op: "TopKUnique" input: "x" {attribute("k", "i: 1")} }}', "op 'TopKUnique' has no kernel"),
        (f'node {{ name: "y" op: "Neg" input: "z" {FLOAT} }}', "no output found"),
        (f'node {{ name: "y" op: "AddV2" input: "x" input: "z" {FLOAT} }}', "no node 'z'"),
        (f'node {{ name: "y" op: "AddV2" input: "x" input: "x:1" {FLOAT} }}', "%x:1 does not exist"),
        (f'node {{ name: "y" op: "Neg" input: "x" {FLOAT} {attribute("speed", "i: 3")} }}', "no attribute 'speed' of Neg"),
        (f'node {{ name: "y" op: "Neg" input: "x" {FLOAT} device: "/kitchen" }}', "'/kitchen' is no device"),
        (f'node {{ name: "a" op: "AddV2" input: "x" input: "y" {FLOAT} }} node {{ name: "y" op: "Neg" input: "a" {FLOAT} }}',
         "no output found"),
        (f'node {{ name: "y" op: "ReadFile" input: "n" }} node {{ name: "n" op: "AsString" input: "x" {FLOAT} }}',
         "ReadFile 'y' touches files"),
        (f'node {{ name: "y" op: "Neg" input: "x" {FLOAT} }} node {{ name: "y" op: "Neg" input: "x" {FLOAT} }}', "two nodes"),
        ('node { name: "y" op: "PartitionedCall" input: "x" }', "names no function"),
        (f'node {{ name: "y" op: "Cast" input: "x" {attribute("SrcT", "type: DT_FLOAT")} }}', "'DstT' is missing"),
        (f'node {{ name: "y" op: "Neg" input: "x" {attribute("T", "placeholder: @T@")} }}'.replace("@", '"'), "placeholder of a generic"),
    ],
)  # fmt: skip
def test_what_no_tensorflow_runs_is_refused_in_one_line(tmp_path: Path, nodes: str, message: str) -> None:
    with pytest.raises(CleaveError, match=message) as caught:
        read(tmp_path, X + nodes)
    assert "\n" not in str(caught.value)


def test_a_cycle_that_is_no_loop_is_refused(tmp_path: Path) -> None:
    nodes = f'node {{ name: "a" op: "AddV2" input: "x" input: "y" {FLOAT} }} node {{ name: "y" op: "Neg" input: "a" {FLOAT} }}'
    with pytest.raises(CleaveError, match="node 'a' is on a cycle"):
        read(tmp_path, X + nodes, ("y",))


def test_names_that_differ_by_case_or_look_like_ours_are_kept(tmp_path: Path) -> None:
    names = ["split_0", "x/_1", "X", "x/_1_1", "_", "a.b\\\\c"]
    nodes = "".join(f'node {{ name: "{n}" op: "Neg" input: "{p}" {FLOAT} }}' for n, p in zip(names, ["x", *names], strict=False))
    graph = entry(read(tmp_path, X + nodes))
    expected = {"x", *(n.replace("\\\\", "\\") for n in names)}
    assert {node.name for node in graph} == expected


def inputs_of(source: SourceModel) -> dict[str, str]:
    return {name: str(type_) for name, type_ in next(iter(source.signatures.values())).inputs.items()}


def test_no_two_unknown_sizes_are_taken_for_equal(tmp_path: Path) -> None:
    def build(*xs: tf.Tensor) -> None:
        tf.identity(tf.add_n([tf.reduce_sum(x) for x in xs]), name="out")

    specs: Iterable[tf.TensorSpec] = [tf.TensorSpec([None, None, 3]), tf.TensorSpec([4, None]), tf.TensorSpec([None]), tf.TensorSpec([])]
    source = read(tmp_path, traced(build, *specs), ("out",))
    assert inputs_of(source) == {"x0": "f32[b,n,3]", "x1": "f32[4,n1]", "x2": "f32[b1]", "x3": "f32[]"}


def test_constants_too_large_to_print_are_read_from_a_file(tmp_path: Path) -> None:
    values = np.arange(5000, dtype=np.float32)
    source = read(tmp_path, traced(lambda x: tf.add(x, tf.constant(values, name="c"), name="y"), tf.TensorSpec([5000])))
    literal = entry(source).node("c").attrs["value"]
    assert np.array_equal(source.module.stores.load(literal), values)  # type: ignore[arg-type]
