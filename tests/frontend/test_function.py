"""tf.functions: their state comes along, their results keep their structure, and what cannot be read is said."""

from collections import namedtuple
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from compiler.frontend.source import SourceModel, load
from compiler.ir.errors import CleaveError
from compiler.ir.text import print_module
from compiler.ir.verify import verify

pytestmark = pytest.mark.tf

VECTOR = tf.TensorSpec([None], tf.float32)
Pair = namedtuple("Pair", "low high")


def read(function: Any, *specs: Any) -> SourceModel:
    source = load(tf.function(function, input_signature=specs) if specs else function)
    verify(source.module)
    return source


@pytest.mark.parametrize(
    ("function", "keys", "results"),
    [
        (lambda x: x + 1, ["output_0"], "output_0"),
        (lambda x: (x, x + 1), ["output_0", "output_1"], ("output_0", "output_1")),
        (lambda x: [x], ["output_0"], ["output_0"]),
        (lambda x: {"b": x, "a": x + 1}, ["a", "b"], {"b": "b", "a": "a"}),
        (lambda x: {"b": (x, [x + 1])}, ["b_0", "b_1_0"], {"b": ("b_0", ["b_1_0"])}),
        (lambda x: (x, {"k": x + 1, "n": None}), ["output_0", "output_1_k"], ("output_0", {"k": "output_1_k", "n": None})),
        (lambda x: Pair(x, x + 1), ["high", "low"], Pair("low", "high")),
        (lambda x: Pair(x, [x + 1]), ["high_0", "low"], Pair("low", ["high_0"])),
        (lambda x: None, [], None),
    ],
)
def test_results_keep_their_structure(function: Any, keys: list[str], results: Any) -> None:
    source = read(function, VECTOR)
    assert list(source.signatures["serving_default"].outputs) == keys
    assert source.results == results
    assert type(source.results) is type(results)


def test_ragged_and_sparse_results_are_put_together_from_their_parts() -> None:
    source = read(lambda x: {"r": tf.RaggedTensor.from_row_lengths(x, [1, 2]), "t": (tf.sparse.from_dense(x), None)}, VECTOR)
    assert list(source.signatures["serving_default"].outputs) == ["r_0", "r_1", "t_0_0", "t_0_1", "t_0_2"]
    ragged, (sparse, nothing) = source.results["r"], source.results["t"]
    assert (ragged.keys, sparse.keys, nothing) == (("r_0", "r_1"), ("t_0_0", "t_0_1", "t_0_2"), None)
    made = ragged({"r_0": tf.constant([1.0, 2.0, 3.0]), "r_1": tf.constant([0, 1, 3], tf.int64)})
    assert made.to_list() == [[1.0], [2.0, 3.0]]


def test_variables_and_tables_that_are_captured_come_along() -> None:
    scale = tf.Variable([2.0, 3.0])
    words = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(["a", "b"], [1, 2]), -1)
    source = read(lambda s: (words.lookup(s), scale + 1.0), tf.TensorSpec([None], tf.string))
    (variable,) = source.module.variables.values()
    assert variable.initial is not None
    assert np.asarray(source.module.stores.load(variable.initial)).tolist() == [2.0, 3.0]
    assert [r.kind for r in source.module.resources.values()] == ["table"]


def test_the_same_function_reads_alike_each_time() -> None:
    held = [tf.Variable(float(i)) for i in range(9)]
    function = tf.function(lambda x: x + sum(held), input_signature=[VECTOR])
    first, again = load(function), load(function)
    texts = [print_module(s.module).replace(str(s.path), "") for s in (first, again)]
    assert texts[0] == texts[1]
    assert first.locations == again.locations


def test_traces_and_concrete_functions_need_no_signature() -> None:
    function = tf.function(lambda x, n=2: x * n)
    with pytest.raises(CleaveError, match="no input_signature and no trace, expected one of these"):
        load(function)
    function(tf.ones([3]))
    assert str(read(function).signatures["serving_default"].inputs["x"]) == "f32[3]"
    function(tf.ones([4]))
    with pytest.raises(CleaveError, match="no input_signature and 2 traces"):
        load(function)
    concrete = function.get_concrete_function(VECTOR, 3.0)
    assert read(concrete).arguments == ("x",)


def test_arguments_are_in_the_functions_order() -> None:
    source = read(lambda z, a: z - a, VECTOR, VECTOR)
    assert (list(source.signatures["serving_default"].inputs), source.arguments) == (["a", "z"], ("z", "a"))


def test_effects_without_results_are_there() -> None:
    count = tf.Variable(0)

    def step(x: tf.Tensor) -> None:
        count.assign_add(tf.size(x))

    module = read(step, VECTOR).module
    assert any(node.op == "AssignAddVariableOp" for graph in module.graphs.values() for node in graph)
    assert [node.op for node in module.entries["serving_default"]].count("Call") == 1


def test_python_and_files_are_refused_by_the_functions_name() -> None:
    def reading(path: tf.Tensor) -> tf.Tensor:
        return tf.io.read_file(path)

    def calling(x: tf.Tensor) -> tf.Tensor:
        return tf.py_function(lambda value: value, [x], tf.float32)

    with pytest.raises(CleaveError, match=r"^function 'reading': ReadFile 'ReadFile' touches files"):
        read(reading, tf.TensorSpec([], tf.string))
    with pytest.raises(CleaveError, match=r"^function 'calling': EagerPyFunc"):
        read(calling, VECTOR)
    assert load(tf.function(reading, input_signature=[tf.TensorSpec([], tf.string)]), allow_files=True).module.entries


def test_a_ragged_argument_is_taken_in_parts() -> None:
    source = read(lambda r: r * 2.0, tf.RaggedTensorSpec([None, None]))
    assert list(source.signatures["serving_default"].inputs) == ["r", "r_1"]
    assert source.results.keys == ("output_0_0", "output_0_1")


def test_a_function_that_cannot_be_traced_says_why() -> None:
    def wrong(x: tf.Tensor) -> tf.Tensor:
        raise ValueError("not today")

    with pytest.raises(CleaveError, match=r"function 'wrong' cannot be saved: .*not today"):
        read(wrong, VECTOR)
