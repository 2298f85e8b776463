"""Frozen graphs: what feeds them, what comes out of them, and what they cannot carry."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from tensorflow.core.framework import graph_pb2

from compiler.execution import GraphDefArtefact
from compiler.frontend.source import SourceModel, load
from compiler.ir.errors import CleaveError
from compiler.ir.verify import verify

pytestmark = pytest.mark.tf

v1 = tf.compat.v1


def frozen(tmp_path: Path, build: Callable[[], Any], change: Callable[[graph_pb2.GraphDef], Any] = lambda _: None) -> Path:
    with tf.Graph().as_default() as graph:
        build()
    graph_def = graph.as_graph_def()
    change(graph_def)
    (tmp_path / "graph.pb").write_bytes(graph_def.SerializeToString())
    return tmp_path / "graph.pb"


def read(path: Path, outputs: tuple[str, ...] | None = None) -> SourceModel:
    source = load(path, outputs=outputs)
    verify(source.module)
    return source


def two_heads() -> None:
    x = v1.placeholder(tf.float32, [None, 3], name="x")
    unused = v1.placeholder(tf.float32, [], name="unused")
    training = v1.placeholder_with_default(tf.constant(False), [], name="training")
    hidden = tf.nn.relu(x, name="hidden")
    tf.cond(training, lambda: hidden * 2.0, lambda: hidden, name="cond")
    tf.negative(hidden, name="low")
    tf.constant(1.0, name="beside")
    tf.add(unused, 1.0, name="other")


def test_placeholders_feed_and_what_nobody_reads_comes_out(tmp_path: Path) -> None:
    source = read(frozen(tmp_path, two_heads))
    info = source.signatures["serving_default"]
    assert {name: str(type_) for name, type_ in info.inputs.items()} == {"training": "bool[]", "unused": "f32[]", "x": "f32[b,3]"}
    assert {"low", "other"} < set(info.outputs)
    assert "beside" not in source.module.entries["serving_default"]
    artefact = source.artefact
    assert isinstance(artefact, GraphDefArtefact)
    assert artefact.feeds == {"training": "training:0", "unused": "unused:0", "x": "x:0"}
    assert artefact.fetches["low"] == "low:0"


def test_only_what_lies_between_the_asked_ends_is_the_model(tmp_path: Path) -> None:
    source = read(frozen(tmp_path, two_heads), ("hidden:0",))
    graph = source.module.entries["serving_default"]
    assert ({node.name for node in graph}, graph.inputs) == ({"x", "hidden"}, ("x",))
    assert [o.name for o in graph.outputs] == ["hidden"]


def test_control_ancestors_of_the_outputs_run(tmp_path: Path) -> None:
    def build() -> None:
        x = v1.placeholder(tf.float32, [None], name="x")
        with tf.control_dependencies([v1.assert_positive(x, name="check")]):
            tf.identity(x, name="y")

    module = read(frozen(tmp_path, build), ("y",)).module
    assert any(node.op == "Assert" for graph in module.graphs.values() for node in graph)
    assert module.entries["serving_default"].controls("y") != ()


@pytest.mark.parametrize(("producer", "type_"), [(23, "f32[*]"), (24, "f32[]")])
def test_old_files_wrote_unknown_shapes_as_scalars(tmp_path: Path, producer: int, type_: str) -> None:
    def old(graph_def: graph_pb2.GraphDef) -> None:
        graph_def.versions.producer = producer

    path = frozen(tmp_path, lambda: tf.negative(v1.placeholder(tf.float32, [], name="x"), name="y"), old)
    assert str(read(path).signatures["serving_default"].inputs["x"]) == type_


def test_what_an_iterator_feeds_is_beside_the_network(tmp_path: Path) -> None:
    def build() -> None:
        image, label = v1.data.make_one_shot_iterator(tf.data.Dataset.from_tensors((1.0, 2.0))).get_next()
        x = v1.placeholder_with_default(image, [], name="x")
        tf.square(tf.sigmoid(x, name="prob") - label, name="loss")

    source = read(frozen(tmp_path, build))
    assert list(source.signatures["serving_default"].outputs) == ["prob"]
    assert {node.name for node in source.module.entries["serving_default"]} == {"x", "prob"}


def test_state_does_not_travel_in_a_frozen_graph(tmp_path: Path) -> None:
    def handle() -> None:
        tables = v1.placeholder(tf.resource, [], name="unknown")
        keys = v1.placeholder(tf.string, [None], name="keys")
        tf.raw_ops.LookupTableFindV2(table_handle=tables, keys=keys, default_value=tf.constant(-1, tf.int64), name="ids")

    with pytest.raises(CleaveError, match="placeholder 'unknown' stands for a table or variable that a frozen graph cannot carry"):
        load(frozen(tmp_path, handle))

    def variable() -> None:
        x = v1.placeholder(tf.float32, [], name="x")
        tf.add(v1.get_variable("w", [], use_resource=True), x, name="y")

    with pytest.raises(CleaveError, match="VarHandleOp 'w' has state that a frozen graph cannot carry"):
        load(frozen(tmp_path, variable), outputs=("y",))


def test_faults_are_named(tmp_path: Path) -> None:
    path = frozen(tmp_path, two_heads)
    with pytest.raises(CleaveError, match="no node 'prob'"):
        load(path, outputs=("prob:0",))
    with pytest.raises(CleaveError, match="'low:4' does not exist, Neg 'low' has 1 outputs"):
        load(path, outputs=("low:4",))
    with pytest.raises(CleaveError, match="no placeholder reaches the outputs"):
        load(path, outputs=("beside",))
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(CleaveError, match="cannot be read as a GraphDef"):
        load(path)
    path.write_bytes(b"")
    with pytest.raises(CleaveError, match="has no nodes"):
        load(path)
