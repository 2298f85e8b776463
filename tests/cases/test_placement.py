"""Kind 14, placement and the run-time contract: devices, colocation, foreign and private ops, versions, assets."""

from __future__ import annotations

import collections
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.framework import graph_pb2, node_def_pb2
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow.python.framework import op_def_registry

import compiler
from compiler.ir.errors import CleaveError
from tests.cases.case import Case, call, f32, typed
from tests.cases.suite import CLUSTERS, Suite, run_client, runs

pytestmark = [pytest.mark.tf, pytest.mark.timeout(900)]


class Held(tf.Module):
    def __init__(self) -> None:
        super().__init__()
        with tf.device("/CPU:0"):
            self.v = tf.Variable(np.arange(6, dtype=np.float32).reshape(2, 3))
        self.w = tf.Variable(np.ones((3, 4), np.float32))


def pinned(held: Held, x: tf.Tensor) -> dict[str, Any]:
    """Devices the user asked for, where they exist and where the result may be loaded without them."""
    with tf.device("/CPU:0"):
        a = x @ held.v
    with tf.device("/job:localhost/task:0/device:CPU:0"):
        b = tf.nn.relu(a) @ held.w
    return {"a": a, "b": b, "free": tf.nn.softmax(b)}


def colocated(held: Held, x: tf.Tensor) -> dict[str, Any]:
    """Members of a colocation group that are folded, fused, renamed and divided."""
    constant = tf.constant([[1.0, 2.0, 3.0]])
    with tf.compat.v1.colocate_with(constant.op):
        folded = constant * 2.0
    y = x @ held.v
    with tf.compat.v1.colocate_with(y.op):
        z = tf.identity(y) + folded
    held.w.assign(held.w * 2.0)
    return {"z": z, "w": held.w.read_value(), "product": z @ held.w}


def hosts(held: Held, x: tf.Tensor) -> dict[str, Any]:
    """Strings, shapes and integers that stay on the host beside what is divided."""
    y = x @ held.v
    return {
        "text": tf.strings.format("{}", tf.shape(y)),
        "joined": tf.strings.join([tf.strings.as_string(tf.round(y)), "!"]),
        "y": y,
        "order": tf.argsort(y, 1),
        "rows": tf.reshape(y, [-1])[: tf.shape(x)[0]],
    }


ROWS = np.arange(10, dtype=np.float32).reshape(5, 2)
PRODUCT = ROWS @ np.arange(6, dtype=np.float32).reshape(2, 3)
CASES = {
    "pinned": Case(pinned, (f32(None, 2),), (call({"a": PRODUCT}, x=ROWS), call(x=ROWS[1:2])), Held, 1e-6),
    "colocated": Case(
        colocated,
        (f32(None, 2),),
        (
            call({"z": PRODUCT + np.float32([2, 4, 6]), "w": np.full((3, 4), 2, np.float32)}, x=ROWS),
            call({"w": np.full((3, 4), 4, np.float32)}, x=ROWS[:1]),
        ),
        Held,
        1e-6,
    ),
    "hosts": Case(
        hosts,
        (f32(None, 2),),
        (call({"text": b"[5 3]", "y": PRODUCT, "rows": PRODUCT.reshape(-1)[:5]}, x=ROWS), call({"text": b"[1 3]"}, x=ROWS[:1])),
        Held,
        1e-6,
    ),
}


@pytest.mark.parametrize(("cluster", "route"), runs("placement"))
@pytest.mark.parametrize("name", CASES)
def test_values(name: str, cluster: str, route: str, suite: Suite) -> None:
    suite.check("placement", name, cluster, route)


def graph_of(path: Path) -> graph_pb2.GraphDef:
    (meta,) = saved_model_pb2.SavedModel.FromString((path / "saved_model.pb").read_bytes()).meta_graphs
    return meta.graph_def


def scopes_of(graph: graph_pb2.GraphDef) -> dict[str, list[node_def_pb2.NodeDef]]:
    return {"": list(graph.node), **{f.signature.name: list(f.node_def) for f in graph.library.function}}


@pytest.mark.parametrize("cluster", ["cpu:1", "2 eager"])
def test_the_emitted_graph_keeps_the_contract(cluster: str, suite: Suite) -> None:
    """Public ops of plain TensorFlow, unique names, functions that exist, no colocation left, devices without job and task."""
    graph = graph_of(suite.compiled(cluster))
    scopes = scopes_of(graph)
    for where, nodes in scopes.items():
        assert [name for name, count in collections.Counter(node.name for node in nodes).items() if count > 1] == [], where
        for node in nodes:
            assert node.op in scopes or (op_def_registry.get(node.op) is not None and not node.op.startswith("_")), node.op
            assert "job:" not in node.device and "task:" not in node.device, node
            assert "_class" not in node.attr or not where, f"{where}: {node.name} is colocated"
            called = [v.func.name for v in node.attr.values() if v.HasField("func")] + [
                f.name for v in node.attr.values() for f in v.list.func
            ]
            assert set(called) <= scopes.keys(), node
    assert graph.versions.producer > 1000 and graph.versions.min_consumer <= graph_of(suite.model()).versions.min_consumer
    ours = [nodes for where, nodes in scopes.items() if where and not where.startswith("__inference__traced_")]  # save and restore
    devices = {node.device for nodes in ours for node in nodes if node.device}
    assert len(devices) == CLUSTERS[cluster][1]


def test_it_runs_where_there_is_one_device(suite: Suite, tmp_path: Path) -> None:
    """Divided for two, loaded where there is one: soft placement runs all of it there."""
    case, key = suite.cases["combine_chains"], "combine_chains"
    run_client(suite.compiled("2 eager"), {key: [typed(case, call) for call in case.calls]}, "load", 1, tmp_path / "out")
    results = pickle.loads((tmp_path / "out").read_bytes())[key]
    for found, wanted in zip(results, suite.results("combine", "", "original")[key], strict=True):
        np.testing.assert_allclose(found["y"], wanted["y"], rtol=1e-5, atol=1e-5)


def test_a_device_the_cluster_has_not_is_refused() -> None:
    def far(x: tf.Tensor) -> dict[str, Any]:
        with tf.device("/device:GPU:3"):
            return {"y": x + 1}

    with pytest.raises(CleaveError, match="GPU:3"):
        compiler.compile_model(tf.function(far, input_signature=[f32(2)]), cluster="cpu:2", validate=False)


def test_a_private_op_is_refused_by_name(tmp_path: Path) -> None:
    graph = graph_pb2.GraphDef()
    graph.node.add(name="x", op="Placeholder").attr["dtype"].type = 1
    fused = graph.node.add(name="y", op="_FusedMatMul", input=["x", "x", "x"])
    fused.attr["T"].type = 1
    fused.attr["num_args"].i = 1
    fused.attr["fused_ops"].list.s.append(b"BiasAdd")
    (tmp_path / "frozen.pb").write_bytes(graph.SerializeToString())
    with pytest.raises(CleaveError, match="_FusedMatMul"):
        compiler.compile_model(tmp_path / "frozen.pb", cluster="cpu:2", validate=False)
