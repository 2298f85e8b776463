"""Kind 4, order and names of the interface: sorted keys, positional swaps, lost signatures, leaked resources, composite values."""

from __future__ import annotations

import collections
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import meta_graph_pb2, saved_model_pb2

import compiler
from compiler.ir.errors import CleaveError
from tests.cases.case import Case, call, f32, spec
from tests.cases.suite import Suite, runs

pytestmark = [pytest.mark.tf, pytest.mark.timeout(900)]

Triple = collections.namedtuple("Triple", ["zebra", "apple", "mango"])


def twelve(x: tf.Tensor) -> dict[str, Any]:
    """Sorted: output_1, output_10, output_11, output_12, output_2, ..."""
    return {f"output_{k}": x * 0 + float(k) for k in range(1, 13)}


def swapped(b: tf.Tensor, a: tf.Tensor, x10: tf.Tensor, x9: tf.Tensor) -> dict[str, Any]:
    """Inputs whose order by name is not theirs by position, all of one type."""
    return {"difference": b - a, "Ratio": x10 / x9, "ratio": x9 / x10, "a": b, "b": a}


def passed_through(x: tf.Tensor, y: tf.Tensor) -> dict[str, Any]:
    """Outputs that are inputs, constants, or one another; an input nobody reads."""
    z = x + 1
    return {"x": x, "same": x, "constant": tf.constant([3, 4]), "one": z, "two": z, "none": tf.zeros([0, 2])}


def no_inputs() -> dict[str, Any]:
    return {"pi": tf.constant(3.25), "list": tf.range(3)}


def mixed(x: tf.Tensor, s: tf.Tensor, p: tf.Tensor, i: tf.Tensor) -> dict[str, Any]:
    return {
        "joined": tf.strings.join([s, tf.strings.as_string(i)]),
        "chosen": tf.where(p, x, -x),
        "count": tf.size(s),
        "half": tf.cast(x, tf.float16),
    }


def composites(x: tf.Tensor, s: tf.Tensor) -> dict[str, Any]:
    """Ragged and sparse values inside, dense ones at the door; strings in and out."""
    rows = tf.RaggedTensor.from_row_lengths(tf.reshape(x, [-1]), [1, 0, 3])
    sparse, words = tf.sparse.from_dense(x), tf.strings.split(s)
    return {
        "sum": tf.reduce_sum(rows, 1),
        "dense": rows.to_tensor(),
        "lengths": rows.row_lengths(),
        "joined": tf.concat([rows, rows], 1).to_tensor(),
        "product": tf.sparse.sparse_dense_matmul(sparse, tf.transpose(x)),
        "indices": sparse.indices,
        "values": sparse.values,
        "words": words.to_tensor(b"-"),
        "counts": words.row_lengths(),
        "hash": tf.strings.to_hash_bucket_fast(s, 10),
        "lower": tf.strings.lower(s),
        "all": tf.strings.reduce_join(s),
    }


CASES = {
    "twelve": Case(twelve, (f32(),), (call({f"output_{k}": k for k in range(1, 13)}, x=5),)),
    "swapped": Case(
        swapped,
        tuple(f32(None, name=name) for name in ("b", "a", "x10", "x9")),
        (call({"difference": [7], "Ratio": [4], "ratio": [0.25], "a": [10], "b": [3]}, b=[10], a=[3], x10=[8], x9=[2]),),
    ),
    "passed_through": Case(
        passed_through,
        (f32(None), f32(2, name="y")),
        (
            call(
                {
                    "x": [1, 2],
                    "same": [1, 2],
                    "constant": np.array([3, 4], np.int32),
                    "one": [2, 3],
                    "two": [2, 3],
                    "none": np.zeros((0, 2), np.float32),
                },
                x=[1, 2],
                y=[9, 9],
            ),
        ),
    ),
    "no_inputs": Case(no_inputs, (), (call({"pi": 3.25, "list": np.arange(3, dtype=np.int32)}),)),
    "mixed": Case(
        mixed,
        (f32(None), spec("string", None, name="s"), spec("bool", None, name="p"), spec("int64", None, name="i")),
        (call({"joined": [b"a1", b"-7"], "chosen": [1, -2], "count": 2}, x=[1, 2], s=[b"a", b"-"], p=[True, False], i=[1, 7]),),
    ),
    "composites": Case(
        composites,
        (f32(1, 4), spec("string", None, name="s")),
        (
            call(
                {
                    "sum": [1, 0, 5],
                    "lengths": np.array([1, 0, 3]),
                    "values": [1, 2, 3],
                    "words": [[b"a", b"B"], [b"c", b"-"]],
                    "lower": [b"a b", b"c"],
                    "all": b"a Bc",
                },
                x=[[1, 0, 2, 3]],
                s=[b"a B", b"c"],
            ),
        ),
        close=1e-6,
    ),
}


@pytest.mark.parametrize(("cluster", "route"), runs("interface"))
@pytest.mark.parametrize("name", CASES)
def test_values(name: str, cluster: str, route: str, suite: Suite) -> None:
    suite.check("interface", name, cluster, route)


def meta_graph(path: Path) -> meta_graph_pb2.MetaGraphDef:
    (found,) = saved_model_pb2.SavedModel.FromString((path / "saved_model.pb").read_bytes()).meta_graphs
    return found


@pytest.mark.parametrize("cluster", ["cpu:1", "2 eager"])
def test_what_is_declared_stays(cluster: str, suite: Suite) -> None:
    """Tags, signatures, method names; keys, types and shapes of every input and output. A shape may become more exact, never less."""
    before, after = meta_graph(suite.model()), meta_graph(suite.compiled(cluster))
    assert list(after.meta_info_def.tags) == list(before.meta_info_def.tags)
    assert after.signature_def.keys() == before.signature_def.keys()
    for key, old in before.signature_def.items():
        new = after.signature_def[key]
        assert new.method_name == old.method_name, key
        assert new.inputs.keys() == old.inputs.keys() and new.outputs.keys() == old.outputs.keys(), key
        for name in old.inputs:
            assert (new.inputs[name].dtype, new.inputs[name].tensor_shape) == (old.inputs[name].dtype, old.inputs[name].tensor_shape), (
                key,
                name,
            )
        for name in old.outputs:
            wanted, found = (tf.TensorShape(d.outputs[name].tensor_shape) for d in (old, new))
            assert new.outputs[name].dtype == old.outputs[name].dtype and wanted.is_compatible_with(found), (key, name, wanted, found)
            assert not wanted.is_fully_defined() or found == wanted, (key, name, wanted, found)


class Structures(tf.Module):
    """Methods that return every structure, over one variable that `train` writes; a table with its file."""

    def __init__(self, words: Path) -> None:
        super().__init__()
        self.v = tf.Variable([1.0, 2.0], name="v")
        source = tf.lookup.TextFileInitializer(str(words), tf.string, tf.lookup.TextFileIndex.WHOLE_LINE, tf.int64, -1)
        self.table = tf.lookup.StaticVocabularyTable(source, 2)

    @tf.function(input_signature=[f32(None, 2)])
    def serve(self, x: tf.Tensor) -> dict[str, Any]:
        return {"y": x * self.v, "v": self.v.read_value()}

    @tf.function(input_signature=[f32(None, 2)])
    def train(self, x: tf.Tensor) -> dict[str, Any]:
        self.v.assign_add(tf.reduce_sum(x, 0))
        return {"loss": tf.reduce_sum(self.v)}

    @tf.function(input_signature=[])
    def get_weights(self) -> dict[str, Any]:
        return {"v": self.v.read_value()}

    @tf.function(input_signature=[])
    def reset(self) -> dict[str, Any]:
        """Nothing to return, something to do."""
        self.v.assign([1.0, 2.0])
        return {}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "words")])
    def look(self, words: tf.Tensor) -> dict[str, Any]:
        return {"ids": self.table.lookup(words), "size": self.table.size()}


USE = """
import sys, tensorflow as tf
model = tf.saved_model.load(sys.argv[1])
s, x = model.signatures, tf.constant([[1.0, 10.0], [2.0, 20.0]])
assert s["serve"](x=x)["y"].numpy().tolist() == [[1, 20], [2, 40]]
assert s["train"](x=x)["loss"].numpy() == 36
assert s["get_weights"]()["v"].numpy().tolist() == [4, 32] == s["serve"](x=x)["v"].numpy().tolist()
assert model.v.numpy().tolist() == [4, 32]
s["reset"]()
assert s["serve"](x=x)["y"].numpy().tolist() == [[1, 20], [2, 40]]
ids = s["look"](words=tf.constant(["b", "zz"]))
assert ids["ids"][0] == 1 and ids["ids"][1] in (3, 4) and ids["size"] == 5, ids
assert sorted(s) == ["get_weights", "look", "reset", "serve", "train"]
"""


def use(path: Path) -> None:
    done = subprocess.run([sys.executable, "-I", "-c", USE, str(path)], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-1500:]


def test_signatures_state_and_tables_after_two_round_trips(tmp_path: Path) -> None:
    """Compile all, compile one of the result, with the original and its file gone each time."""
    words = tmp_path / "words.txt"
    words.write_text("a\nb\nc\n")
    model = Structures(words)
    names = ("serve", "train", "get_weights", "reset", "look")
    tf.saved_model.save(model, str(tmp_path / "0"), signatures={name: getattr(model, name) for name in names})
    for generation, signature in ((0, None), (1, "serve")):
        found = compiler.compile_model(tmp_path / str(generation), cluster="cpu:2", signature=signature, validate=False)
        found.save(tmp_path / str(generation + 1))
        shutil.rmtree(tmp_path / str(generation))
        words.unlink(missing_ok=True)
        use(tmp_path / str(generation + 1))


def test_nested_results_come_back_as_they_were() -> None:
    @tf.function(input_signature=[f32(None, name="b"), f32(None, name="a")])
    def nested(b: tf.Tensor, a: tf.Tensor) -> Any:
        return {"z": [b - a, (a, b)], "a": Triple(b * 1, b * 2, {"k": b * 3}), "ten": [b + float(k) for k in range(11)]}

    found = compiler.compile_model(nested, cluster="cpu:2", validate=False)([10.0], [3.0])
    flat = tf.nest.map_structure(lambda t: float(t[0]), found)
    assert flat == {"z": [7, (3, 10)], "a": Triple(10, 20, {"k": 30}), "ten": [10 + k for k in range(11)]}
    assert type(found["a"]).__name__ == "Triple"


def tagged(path: Path) -> None:
    """A v1 model with two graphs over the same variable, one for serving, one that trains."""
    v1 = tf.compat.v1
    builder = v1.saved_model.Builder(str(path))
    for position, tag in enumerate(("serve", "train")):
        with tf.Graph().as_default(), v1.Session() as session:
            x = v1.placeholder(tf.float32, [None, 2], "x")
            v = v1.get_variable("v", initializer=[1.0, 2.0], use_resource=True)
            y = x * v if tag == "serve" else v.assign_add(tf.reduce_sum(x, 0))
            session.run(v1.global_variables_initializer())
            define = v1.saved_model.signature_def_utils.predict_signature_def({"x": x}, {"y": y})
            if position:
                builder.add_meta_graph([tag], {"serving_default": define})
            else:
                builder.add_meta_graph_and_variables(session, [tag], {"serving_default": define})
    builder.save()


def test_a_graph_of_other_tags_is_not_lost_silently(tmp_path: Path) -> None:
    """Whoever wants one graph of several says which; it is then the whole model, so its variable can be a constant."""
    tagged(tmp_path / "in")
    with pytest.raises(CleaveError, match=r"\[serve\], \[train\]"):
        compiler.compile_model(tmp_path / "in", cluster="cpu:2", validate=False)
    out = compiler.compile_model(tmp_path / "in", cluster="cpu:2", tags=("serve",), validate=False).save(tmp_path / "out")
    assert list(meta_graph(out).meta_info_def.tags) == ["serve"]
    found = tf.saved_model.load(str(out)).signatures["serving_default"](x=tf.constant([[3.0, 4.0]]))
    assert found["y"].numpy().tolist() == [[3, 8]]
