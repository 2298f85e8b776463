"""Kind 8, broadcast and rank mistakes in fusion: an Add is not a bias, a Mul may grow its operand, a rank must survive."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.cases.case import Case, call, f32
from tests.cases.suite import Suite, runs

pytestmark = [pytest.mark.tf, pytest.mark.timeout(900)]


def weight(*shape: int, phase: float = 0.0) -> np.ndarray:
    return np.sin(np.arange(1, int(np.prod(shape)) + 1) * 1.7 + phase).astype(np.float32).reshape(shape)


def products(x: tf.Tensor) -> dict[str, Any]:
    y, b, c = x @ tf.constant(weight(5, 8)), tf.constant(weight(8)), tf.constant(weight(8, phase=1) + 2)
    one, scaled = tf.constant([[2.5]]), y * tf.constant(weight(8, phase=3))
    return {
        "vector": ((y + b) * c) + c,
        "scalar": ((y + b) * 3.0) + 3.0,
        "one": ((y + b) * one) + one,
        "three": (y * one[None]) + b,
        "narrow": ((x[:, :2] + 0.5) * tf.constant([1.7])) @ tf.constant(weight(2, 1)),
        "grows": (x[:, :1] * b) @ tf.constant(weight(8, 3)),
        "used_twice": scaled + scaled,
        "scaled": scaled,
        "leading": y + tf.reshape(b, [1, 8]),
        "leading_three": y + tf.reshape(b, [1, 1, 8]),
        "reshaped": tf.reshape(b, [1, 8]) + y[:1],
        "column": y * tf.constant([[2.0]]) + y[:, :1],
        "minus": b - y,
        "over": c / (y + 9),
        "power": tf.pow(tf.abs(y), c),
    }


def images(x: tf.Tensor) -> dict[str, Any]:
    """[H,W,1], [W,1], [H,1,1] and [1,H,W,C] beside [C]."""
    y = tf.nn.conv2d(x, tf.constant(weight(1, 1, 3, 4)), 1, "SAME")
    return {
        "pixels": y * tf.constant(weight(5, 4, 1)),
        "pixels_before": tf.nn.conv2d(x * tf.constant(weight(5, 4, 1)), tf.constant(weight(1, 1, 3, 4)), 1, "SAME"),
        "rows": y * tf.constant(weight(5, 1, 1)),
        "columns": y + tf.constant(weight(4, 1)),
        "channels": y + tf.constant(weight(4)),
        "image": y + tf.constant(weight(1, 5, 4, 4)),
        "batch": y + tf.constant(weight(2, 1, 1, 1)),
        "scalar": y * 2.0 + 1.0,
        "deeper": y + tf.constant(weight(2, 1, 1, 1, 4)),
        "one": y * tf.constant(weight(1)),
        "transposed": tf.transpose(tf.transpose(y, [0, 3, 1, 2]) + tf.constant(weight(4, 1, 1)), [0, 2, 3, 1]),
    }


def ranks(x: tf.Tensor, y: tf.Tensor) -> dict[str, Any]:
    """Two unknown sizes, of which one may be 1."""
    return {
        "sum": x + y,
        "product": x * y,
        "less": x < y,
        "where": tf.where(x > 0, x, y),
        "scalar": x + tf.reduce_sum(y),
        "row": x + y[0],
        "matmul": tf.matmul(x, y, transpose_b=True) + y[:, 0],
        "bias": tf.nn.bias_add(x, tf.reduce_sum(y, 0)),
        "max": tf.maximum(x, y[:, :1]),
        "select": tf.where(x[:, :1] > 0, x, tf.zeros_like(x)),
        "shape": tf.broadcast_dynamic_shape(tf.shape(x), tf.shape(y)),
        "squared": tf.math.squared_difference(x, y),
        "atan": tf.atan2(x, y),
        "clip": tf.clip_by_value(x, y[0, 0], 2.0),
    }


def batch_products(x: tf.Tensor, y: tf.Tensor) -> dict[str, Any]:
    """BatchMatMul broadcasts its batch."""
    w = tf.constant(weight(3, 4))
    return {
        "shared": tf.matmul(x, w),
        "grows": tf.matmul(x[0], y),
        "one": tf.matmul(x[:1], y),
        "bias": tf.matmul(x, w) + tf.constant(weight(2, 1, 4)),
        "scaled": tf.matmul(x, y) * 0.5 + 1.0,
        "einsum": tf.einsum("bij,jk->bik", x, w),
        "outer": x[:, :, :, None] * y[:, None],
        "mean": tf.matmul(x, y) - tf.reduce_mean(tf.matmul(x, y), -1, keepdims=True),
    }


ROWS = weight(3, 5)
CASES = {
    "products": Case(products, (f32(None, 5),), (call(x=ROWS), call(x=ROWS[:1])), close=2e-5),
    "images": Case(images, (f32(None, 5, 4, 3),), (call(x=weight(2, 5, 4, 3)), call(x=weight(1, 5, 4, 3))), close=2e-5),
    "ranks": Case(
        ranks,
        (f32(None, None), f32(None, None, name="y")),
        (
            call({"sum": weight(3, 4) + 2}, x=weight(3, 4), y=np.full((1, 4), 2)),
            call({"product": weight(1, 4) * weight(3, 4)}, x=weight(1, 4), y=weight(3, 4)),
            call({"sum": np.zeros((0, 4), np.float32)}, x=np.zeros((0, 4)), y=weight(1, 4)),
            call(x=weight(1, 1), y=weight(1, 1, phase=2)),
        ),
        close=1e-6,
    ),
    "batch_products": Case(
        batch_products,
        (f32(None, 2, 3), f32(None, 3, 4, name="y")),
        (call(x=weight(2, 2, 3), y=weight(2, 3, 4)), call(x=weight(1, 2, 3), y=weight(1, 3, 4))),
        close=1e-5,
    ),
}


@pytest.mark.parametrize(("cluster", "route"), runs("broadcast"))
@pytest.mark.parametrize("name", CASES)
def test_values(name: str, cluster: str, route: str, suite: Suite) -> None:
    suite.check("broadcast", name, cluster, route)
