"""A model compiled for two tasks: checked there, saved without them, bound again, gone on with when one is lost."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import compiler
from compiler.driver.bind import bind
from compiler.driver.remote import TaskLost
from compiler.driver.remote_run import run_on_cluster
from compiler.ir.errors import CleaveError
from cost_model.cluster import Cluster
from tests.backend.clusters import cluster_text, free_ports, workers

pytestmark = pytest.mark.tf

STOCK_CLIENT = """
import sys, numpy as np, tensorflow as tf
v1 = tf.compat.v1
with v1.Session(sys.argv[1], graph=tf.Graph()) as session:
    signature = v1.saved_model.loader.load(session, ["serve"], sys.argv[2]).signature_def["serving_default"]
    x = np.load(sys.argv[3])
    np.save(sys.argv[4], session.run(signature.outputs["y"].name, {signature.inputs["x"].name: x}))
"""


def dense(path: Path) -> None:
    """x W V + c, the sums of W's columns kept in a counter, saved as `path`."""
    import tensorflow as tf

    class Model(tf.Module):
        def __init__(self) -> None:
            draws = np.random.default_rng(0)
            self.w = tf.Variable(draws.standard_normal((64, 96)), dtype=tf.float32)
            self.v = tf.Variable(draws.standard_normal((96, 8)), dtype=tf.float32)
            self.calls = tf.Variable(0.0)

        @tf.function(input_signature=[tf.TensorSpec([None, 64], tf.float32, name="x")])
        def serve(self, x: object) -> object:
            self.calls.assign_add(1.0)
            return {"y": tf.nn.relu(x @ self.w) @ self.v + self.calls}

    model = Model()
    tf.saved_model.save(model, str(path), signatures={"serving_default": model.serve})


def test_compiled_for_a_cluster(tmp_path: Path) -> None:
    dense(tmp_path / "model")
    x = np.random.default_rng(1).standard_normal((3, 64)).astype(np.float32)
    (truth,) = [compiler.compile_model(tmp_path / "model", validate=False)(x)["y"].numpy()]
    cluster = Cluster.parse(cluster_text(free_ports(2)))
    with workers(cluster) as held:
        compiled = compiler.compile_model(tmp_path / "model", cluster, deadline_seconds=5)
        assert set(compiled.report.verdicts) == {"serving_default", "serving_default on local"} and compiled.report.valid
        assert {d.chosen for d in compiled.plan.splits if d.op == "MatMul"}, "nothing is divided, so nothing is shown"
        assert len({p.device for p in compiled.plan.placed}) == 2
        np.testing.assert_allclose(compiled(x)["y"].numpy(), truth, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(compiled(x)["y"].numpy(), truth + 1, rtol=1e-4, atol=1e-4)  # the counter stays on its task
        for row in compiled.memory():
            assert row.measured_bytes is not None and 0.5 < row.measured_bytes / row.predicted_bytes < 4, row

        # the saved model names no task, and is bound again
        compiled.save(tmp_path / "saved")
        assert b"/job:" not in (tmp_path / "saved" / "saved_model.pb").read_bytes()
        bound = bind(tmp_path / "saved", tmp_path / "bound", cluster)
        assert len(bound.nodes) == 2 and all(count > 3 for count in bound.nodes.values())
        with pytest.raises(CleaveError, match="the model is bound already"):
            bind(tmp_path / "bound", tmp_path / "again", cluster)
        np.save(tmp_path / "x.npy", x)
        target, out = f"grpc://{cluster.tasks[0].address}", tmp_path / "y.npy"
        subprocess.run([sys.executable, "-c", STOCK_CLIENT, target, str(tmp_path / "bound"), str(tmp_path / "x.npy"), str(out)], check=True)
        np.testing.assert_allclose(np.load(out), truth, rtol=1e-4, atol=1e-4)

        # one is killed: the error names it, and the rest goes on, planned anew
        held["worker:1"].send(signal.SIGKILL)
        with pytest.raises(TaskLost, match="task worker:1 at") as caught:
            compiled(x)
        assert caught.value.tasks == ("/job:worker/task:1",)
        with pytest.raises(TaskLost, match="task worker:1 at"):
            run_on_cluster(tmp_path / "model", {"x": x}, cluster)
        rest = compiled.without(*caught.value.tasks)
        assert {p.device for p in rest.plan.placed} == {"/job:worker/task:0/device:CPU:0"}
        np.testing.assert_allclose(rest(x)["y"].numpy(), truth, rtol=1e-4, atol=1e-4)
        assert len(bind(tmp_path / "saved", tmp_path / "one", cluster.without("worker:1")).nodes) == 1
