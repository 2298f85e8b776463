"""Divided operators at every batch size: 0, 1, fewer rows than devices, sizes no device count divides; reductions over what was divided."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import compiler
from compiler.backend.pool import Pool
from compiler.execution import RuntimeConfig, SavedModelArtefact

pytestmark = [pytest.mark.tf, pytest.mark.timeout(600)]


class Model(tf.Module):
    def __init__(self) -> None:
        super().__init__()
        rng = np.random.default_rng(0)

        def weight(*shape: int) -> tf.Variable:
            return tf.Variable(rng.standard_normal(shape).astype(np.float32) * 0.1)

        self.wide, self.narrow, self.last = weight(256, 1024), weight(1024, 256), weight(256, 7)
        self.filter, self.depth, self.scale = weight(3, 3, 16, 32), weight(3, 3, 32, 1), weight(2, 32)

    @tf.function(input_signature=[tf.TensorSpec([None, 256], tf.float32, "x")])
    def dense(self, x: tf.Tensor) -> dict[str, Any]:
        hidden = tf.nn.gelu(x @ self.wide)
        y = hidden @ self.narrow
        return {
            "softmax": tf.nn.softmax((y + x) @ self.last), "mean_square": tf.reduce_mean(tf.square(y)), "max": tf.reduce_max(y, 0),
            "norm": tf.norm(y), "argmax": tf.argmax(y, 1), "variance": tf.math.reduce_variance(hidden, 1), "log": tf.nn.log_softmax(y),
            "unit": tf.math.l2_normalize(y, 1), "logsumexp": tf.reduce_logsumexp(y, -1), "over_rows": tf.nn.moments(y, [0])[1],
            "relu_of_sum": tf.nn.relu(hidden @ self.narrow), "row": y[0], "shape": tf.shape(y),
        }  # fmt: skip

    @tf.function(input_signature=[tf.TensorSpec([None, None, None, 16], tf.float32, "x")])
    def images(self, x: tf.Tensor) -> dict[str, Any]:
        a = tf.nn.conv2d(x, self.filter, 2, "SAME")
        b = tf.nn.depthwise_conv2d(a, self.depth, [1, 1, 1, 1], "SAME")
        norm = tf.raw_ops.FusedBatchNormV3(x=a, scale=self.scale[0], offset=self.scale[1], mean=[], variance=[], is_training=True)
        return {
            "mean": tf.reduce_mean(b, [1, 2]), "normal": norm.y, "batch_mean": norm.batch_mean, "batch_variance": norm.batch_variance,
            "max": tf.nn.max_pool2d(a, 3, 2, "SAME"), "average": tf.nn.avg_pool2d(a, 3, 2, "SAME"),
        }  # fmt: skip


SIZES = {"dense": [(0, 256), (1, 256), (2, 256), (7, 256), (16, 256)], "images": [(1, 9, 7, 16), (5, 1, 1, 16), (3, 13, 2, 16)]}


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    with Pool(max_children=3) as made:
        yield made


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path, model = tmp_path_factory.mktemp("splits") / "model", Model()
    tf.saved_model.save(model, str(path), signatures={name: getattr(model, name) for name in SIZES})
    return path


@pytest.mark.parametrize(("objective", "devices"), [("latency", 2), ("throughput", 3), ("memory", 2)])
def test_every_size_gives_what_the_whole_gives(objective: str, devices: int, original: Path, pool: Pool) -> None:
    compiled = compiler.compile_model(original, cluster=f"cpu:{devices}", objective=objective, validate=False)
    assert compiled.plan.splits
    rng = np.random.default_rng(1)
    for name, shapes in SIZES.items():
        requests = [{"x": rng.standard_normal(shape).astype(np.float32)} for shape in shapes]
        whole = pool.run(SavedModelArtefact(original, name), requests, config=RuntimeConfig())
        parts = pool.run(SavedModelArtefact(compiled.artefact, name), requests, config=RuntimeConfig(devices=devices, grappler=True))
        for shape, expected, found in zip(shapes, whole, parts, strict=True):
            assert (found.error is None) == (expected.error is None), (name, shape, expected.error, found.error)
            for key, array in expected.outputs.items():
                assert found.outputs[key].dtype == array.dtype
                np.testing.assert_allclose(found.outputs[key], array, rtol=2e-5, atol=2e-5, err_msg=f"{name} {shape} {key}")
