"""A method is the compiled function where its graph computes the signature's results, however it is nested and named."""

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf
from tensorflow.core.framework import function_pb2, types_pb2

from compiler.backend.save_proof import Proof, TooLarge, proven

pytestmark = pytest.mark.tf

ROWS = tf.TensorSpec([None, 2], name="rows")
WEIGHT = tf.Variable([[1.0, 2.0], [3.0, 4.0]])
TWIN = tf.Variable([[1.0, 2.0], [3.0, 4.0]])


@tf.function(autograph=False)
def layer(x: Any) -> Any:
    return tf.nn.relu(x @ WEIGHT), x


def signature(rows: Any) -> dict[str, Any]:
    hidden, _ = layer(rows)
    return {"b": layer(hidden)[0], "a": hidden, "c": tf.cond(tf.reduce_sum(rows) > 0, lambda: hidden, lambda: -hidden)}


def last(rows: Any) -> Any:
    return tf.nn.relu(tf.nn.relu(rows @ WEIGHT, name="other") @ WEIGHT)


def with_condition(x: Any) -> Any:
    hidden = tf.nn.relu(x @ WEIGHT)
    return [tf.cond(tf.reduce_sum(x) > 0, lambda: hidden, lambda: -hidden), last(x)]


def on_another_variable(rows: Any) -> Any:
    return tf.nn.relu(tf.nn.relu(rows @ WEIGHT) @ TWIN)


def transposed(rows: Any) -> Any:
    return tf.nn.relu(tf.matmul(tf.nn.relu(rows @ WEIGHT), WEIGHT, transpose_b=True))


def otherwise(x: Any) -> Any:
    hidden = tf.nn.relu(x @ WEIGHT)
    return tf.cond(tf.reduce_sum(x) > 0, lambda: -hidden, lambda: hidden)


def writes(rows: Any) -> Any:
    TWIN.assign_add(TWIN)
    return last(rows)


def asserts(rows: Any) -> Any:
    tf.debugging.assert_positive(rows)
    return last(rows)


def traced(function: Callable[..., Any], *specs: Any) -> Any:
    return tf.function(function, autograph=False).get_concrete_function(*(specs or (ROWS,)))


@pytest.mark.parametrize(("method", "outputs"), [(last, ("b",)), (with_condition, ("c", "b")), (layer.python_function, None)])
def test_results_are_found_by_what_they_compute(method: Callable[..., Any], outputs: tuple[str, ...] | None) -> None:
    found = proven(traced(method, tf.TensorSpec([None, 2])), traced(signature))
    assert found == (None if outputs is None else (("rows",), outputs))


@pytest.mark.parametrize("method", [on_another_variable, transposed, otherwise, writes, asserts])
def test_what_differs_is_not_proven(method: Callable[..., Any]) -> None:
    assert proven(traced(method), traced(signature)) is None


def test_arguments_are_told_apart_by_what_is_done_with_them() -> None:
    x, y = tf.TensorSpec([None]), tf.TensorSpec([None])
    named = traced(lambda first, second: {"d": first - second}, tf.TensorSpec([None], name="p"), tf.TensorSpec([None], name="q"))
    assert proven(traced(lambda u, v: v - u, x, y), named) == (("q", "p"), ("d",))
    assert proven(traced(lambda u, v: u + v, x, y), named) is None


def twice(name: str, inner: str) -> function_pb2.FunctionDef:
    """name(x) = inner(inner(x))"""
    proto = function_pb2.FunctionDef(ret={"y": "second:output:0"})
    proto.signature.name = name
    proto.signature.input_arg.add(name="x", type=types_pb2.DT_FLOAT)
    proto.signature.output_arg.add(name="y", type=types_pb2.DT_FLOAT)
    for call, operand in (("first", "x"), ("second", "first:output:0")):
        node = proto.node_def.add(name=call, op="PartitionedCall", input=[operand])
        node.attr["f"].func.name = inner
    return proto


def test_calls_of_calls_are_given_up_not_looked_at_forever() -> None:
    library = {f"f{depth}": twice(f"f{depth}", f"f{depth - 1}" if depth else "outside") for depth in range(30)}
    assert Proof(library).results(library["f3"], ["a"]) == Proof(library).results(library["f3"], ["a"])
    with pytest.raises(TooLarge):
        Proof(library, left=1000).results(library["f29"], ["a"])


def test_a_long_chain_is_no_recursion() -> None:
    proto = function_pb2.FunctionDef(ret={"y": "n2999:y:0"})
    proto.signature.input_arg.add(name="n", type=types_pb2.DT_FLOAT)
    proto.signature.output_arg.add(name="y", type=types_pb2.DT_FLOAT)
    for i in reversed(range(3000)):
        proto.node_def.add(name=f"n{i}", op="Neg", input=[f"n{i - 1}:y:0" if i else "n"])
    (first,), (other,) = Proof({}).results(proto, ["a"]), Proof({}).results(proto, ["b"])
    assert first != other
