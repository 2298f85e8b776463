"""A model too large for one worker, on two and on four whose memory is capped; and a worker as the command line starts it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import compiler
from compiler.backend.worker import Settings
from compiler.driver.remote_run import run_on_cluster
from compiler.ir.errors import CleaveError
from cost_model.cluster import Cluster
from tests.backend.clusters import cluster_text, free_ports, workers

pytestmark = [pytest.mark.tf, pytest.mark.system]

WIDTH, LAYERS = 2048, 6
"""100 MB of weights."""


@pytest.fixture(scope="module")
def layers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import keras

    keras.utils.set_random_seed(0)
    x = inputs = keras.Input((WIDTH,), name="x")
    for _ in range(LAYERS):
        x = keras.layers.Dense(WIDTH, activation="relu")(x)
    path = tmp_path_factory.mktemp("layers") / "model"
    keras.Model(inputs, {"y": keras.layers.Dense(10)(x)}).export(path, verbose=False)
    return path


def asked() -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(0).random((16, WIDTH)).astype(np.float32)}


def test_unsplit_it_does_not_fit(layers: Path) -> None:
    cluster = Cluster.parse(cluster_text(free_ports(1)))
    with (
        workers(cluster, Settings(80, 1)),
        pytest.raises(CleaveError, match=r"memory: task worker:0 has no room for '.*' \(16,777,216 bytes\)"),
    ):
        run_on_cluster(layers, asked(), cluster)


@pytest.mark.parametrize(("count", "limit"), [(2, 80), (4, 45)])
def test_split_it_does(layers: Path, count: int, limit: int) -> None:
    cluster = Cluster.parse(cluster_text(free_ports(count)))
    with workers(cluster, Settings(limit, 1)):
        found = run_on_cluster(layers, asked(), cluster, objective="memory")
    truth = compiler.compile_model(layers, validate=False)(asked()["x"])["y"].numpy()
    np.testing.assert_allclose(found.outputs["y"], truth, rtol=1e-4, atol=1e-6)
    for row in found.memory:
        assert row.measured_bytes is not None and abs(row.measured_bytes - row.predicted_bytes) < 0.1 * row.predicted_bytes, row


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGINT])
def test_the_command_is_the_server(tmp_path: Path, ending: signal.Signals) -> None:
    """One line when it listens, one when it ends, a warning; nothing is left behind."""
    ports = free_ports(2)
    (tmp_path / "c.toml").write_text(cluster_text(ports))
    command = [
        sys.executable,
        "-m",
        "compiler",
        "worker",
        "--cluster",
        str(tmp_path / "c.toml"),
        "--task",
        "worker:0",
        "--memory-limit-mb",
        "64",
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline() == f"worker:0 listens on 127.0.0.1:{ports[0]}: CPU:0; at most 64 MB\n"
        assert "listens on all interfaces" in process.stderr.readline()
        taken = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert taken.returncode == 2 and f"cleave: error: worker:0 cannot listen on 127.0.0.1:{ports[0]}: [Errno 98]" in taken.stderr
        process.send_signal(ending)
        begin = time.monotonic()
        assert process.wait(10) == 0 and time.monotonic() - begin < 5
        assert "bytes were the most in use at once" in process.stdout.read()
    finally:
        process.kill()
        process.communicate()
    with pytest.raises(ProcessLookupError):
        os.kill(process.pid, 0)
