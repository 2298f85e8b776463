"""Kind 2, "only consumer" is wrong: outputs, control users, captures of bodies, shared weights are consumers too."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.cases.case import Case, call, f32
from tests.cases.suite import Suite, runs

pytestmark = [pytest.mark.tf, pytest.mark.timeout(900)]

IMAGES = np.sin(np.arange(2 * 6 * 6 * 3, dtype=np.float32)).reshape(2, 6, 6, 3)
ROWS = np.linspace(-2, 3, 10, dtype=np.float32).reshape(2, 5)


def weight(*shape: int, phase: float = 0.0) -> np.ndarray:
    return np.sin(np.arange(1, int(np.prod(shape)) + 1) * 1.7 + phase).astype(np.float32).reshape(shape)


def norm(x: tf.Tensor, s: Any, o: Any, m: Any, v: Any) -> tf.Tensor:
    return tf.raw_ops.FusedBatchNormV3(x=x, scale=s, offset=o, mean=m, variance=tf.abs(v) + 0.1, is_training=False).y


def shared_weight(x: tf.Tensor, y: tf.Tensor) -> dict[str, Any]:
    w, (s, o, m, v) = tf.constant(weight(3, 3, 3, 8)), (tf.constant(weight(8, phase=p)) for p in (1, 2, 3, 4))
    strided, image = tf.nn.conv2d(x, tf.identity(w), 2, "VALID"), tf.nn.conv2d(x, w, 1, "SAME")
    return {
        "a": norm(image, s, o, m, v),
        "b": tf.nn.conv2d(y, w, 1, "SAME"),
        "weight": w,
        "one": norm(strided, s, o, m, v),
        "other": norm(strided, o, s, m, v),
        "scale": s * 1.0,
    }


def shared_variable(held: Any, x: tf.Tensor) -> dict[str, Any]:
    """The same through reads of one variable, in a branch and as it is."""
    a = norm(tf.nn.conv2d(x, held.w, 1, "SAME"), held.s, held.o, held.s, held.o)
    b = tf.cond(x[0, 0, 0, 0] > -9, lambda: tf.nn.conv2d(x, held.w, 1, "SAME"), lambda: x[..., :1] + tf.zeros([8]))
    return {"a": a, "b": b, "weight": held.w.read_value(), "sum": tf.reduce_sum(held.w), "offset": held.o - held.s}


class Weights(tf.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w, self.s, self.o = tf.Variable(weight(3, 3, 3, 8)), tf.Variable(weight(8) + 2), tf.Variable(weight(8, phase=2) + 2)


def fetched_between(x: tf.Tensor) -> dict[str, Any]:
    """Every inner value of what might be fused is also an output."""
    scaled = x * 3.0
    gate = tf.sigmoid(scaled)
    mean = tf.reduce_mean(x, -1, keepdims=True)
    centred = x - mean
    variance = tf.reduce_mean(tf.square(centred), -1, keepdims=True)
    erf = tf.math.erf(x / np.sqrt(2).astype(np.float32))
    return {
        "gate": gate,
        "swish": scaled * gate,
        "scaled": scaled,
        "mean": mean,
        "normal": centred * tf.math.rsqrt(variance + 1e-3) * 2.0 + 1.0,
        "variance": variance,
        "gelu": 0.5 * x * (1 + erf),
        "erf": erf,
        "exp": tf.exp(x),
        "softmax": tf.exp(x) / tf.reduce_sum(tf.exp(x), -1, keepdims=True),
    }


def bias_is_needed(x: tf.Tensor) -> dict[str, Any]:
    b, w = tf.constant(weight(8)), tf.constant(weight(3, 3, 3, 8))
    seen, sized, awaited, bodied = (tf.nn.bias_add(tf.nn.conv2d(x * k, w, 1, "SAME"), b) for k in (1.0, 2.0, 3.0, 4.0))
    with tf.control_dependencies([awaited]):
        waits = tf.identity(x)
    looped = tf.while_loop(lambda i, y: i < 2, lambda i, y: (i + 1, y + tf.reduce_sum(bodied)), [tf.constant(0), tf.constant(0.0)])[1]
    return {
        "bias": seen,
        "relu": tf.nn.relu(seen),
        "shape": tf.shape(sized),
        "relu 2".replace(" ", "_"): tf.nn.relu(sized),
        "waits": waits,
        "relu_3": tf.nn.relu(awaited),
        "relu_4": tf.nn.relu(bodied),
        "looped": looped,
        "branch": tf.cond(x[0, 0, 0, 0] > 5, lambda: tf.nn.relu(bodied), lambda: bodied),
    }


def moved_and_kept(x: tf.Tensor) -> dict[str, Any]:
    """A transpose, a pad, a reshape that could go into their reader, and must stay for another."""
    w = tf.constant(weight(5, 5) + 1)
    turned, padded = tf.transpose(x), tf.pad(tf.reshape(x, [-1, 5, 1, 1]), [[0, 0], [1, 1], [0, 0], [0, 0]])
    return {
        "product": tf.matmul(turned, x),
        "turned": turned,
        "square": tf.matmul(w, turned),
        "padded": padded,
        "conv": tf.nn.conv2d(padded, tf.constant(weight(3, 1, 1, 2)), 1, "VALID"),
        "pool": tf.nn.max_pool2d(padded - 9, [3, 1], 1, "VALID"),
        "weight": w,
        "folded": (x @ w) * 2.0,
        "plain": x @ w,
    }


CASES = {
    "shared_weight": Case(
        shared_weight,
        (f32(None, 6, 6, 3), f32(None, 6, 6, 3, name="y")),
        (call({"weight": weight(3, 3, 3, 8), "scale": weight(8, phase=1)}, x=IMAGES, y=-IMAGES[::-1]), call(x=IMAGES[:1], y=IMAGES[1:])),
        close=2e-5,
    ),
    "shared_variable": Case(
        shared_variable, (f32(None, 6, 6, 3),), (call({"weight": weight(3, 3, 3, 8)}, x=IMAGES), call(x=IMAGES[:1])), Weights, 2e-5
    ),
    "fetched_between": Case(fetched_between, (f32(None, 5),), (call({"scaled": ROWS * 3}, x=ROWS), call(x=ROWS[:1])), close=1e-6),
    "bias_is_needed": Case(
        bias_is_needed, (f32(None, 6, 6, 3),), (call({"waits": IMAGES, "shape": np.array([2, 6, 6, 8], np.int32)}, x=IMAGES),), close=1e-4
    ),
    "moved_and_kept": Case(
        moved_and_kept, (f32(None, 5),), (call({"turned": ROWS.T, "weight": weight(5, 5) + 1}, x=ROWS), call(x=ROWS[:1])), close=1e-5
    ),
}


@pytest.mark.parametrize(("cluster", "route"), runs("only_consumer"))
@pytest.mark.parametrize("name", CASES)
def test_values(name: str, cluster: str, route: str, suite: Suite) -> None:
    suite.check("only_consumer", name, cluster, route)
