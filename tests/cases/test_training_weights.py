"""Kind 12, wrong weighting in training, as far as a step is a function like any other: unequal parts, masks, sums and means, clipping."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.cases.case import Case, call, f32, spec
from tests.cases.suite import Suite, runs

pytestmark = [pytest.mark.tf, pytest.mark.timeout(900)]


class Weights(tf.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w, self.k = tf.Variable([2.0]), tf.Variable(np.sin(np.arange(1, 13, dtype=np.float32)).reshape(4, 3))
        self.m, self.v, self.step = tf.Variable(tf.zeros((4, 3))), tf.Variable(tf.zeros((4, 3))), tf.Variable(0, dtype=tf.int64)
        self.table = tf.Variable(np.arange(14, dtype=np.float32).reshape(7, 2))


def losses(x: tf.Tensor, mask: tf.Tensor) -> dict[str, Any]:
    """Per-example losses in unequal parts; tokens masked, a row without any."""
    per_row = tf.math.divide_no_nan(tf.reduce_sum(x * mask, 1), tf.reduce_sum(mask, 1))
    return {
        "mean": tf.reduce_mean(x[:, 0]),
        "tokens": tf.reduce_sum(x * mask) / tf.reduce_sum(mask),
        "rows": per_row,
        "mean_of_rows": tf.reduce_mean(per_row),
        "kept": tf.reduce_mean(tf.boolean_mask(x, mask > 0)),
    }


def sgd(held: Weights, x: tf.Tensor) -> dict[str, Any]:
    """d(mean(w x))/dw = mean(x)."""
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(held.w * x)
    held.w.assign_sub(0.1 * tape.gradient(loss, held.w))
    return {"loss": loss, "w": held.w.read_value()}


def adam(held: Weights, x: tf.Tensor, y: tf.Tensor) -> dict[str, Any]:
    """Momentum, variance and step counter; loss with a penalty that is counted once; gradients clipped by their common norm."""
    with tf.GradientTape() as tape:
        error = tf.reduce_mean(tf.square(x @ held.k - y))
        loss = error + 0.01 * tf.nn.l2_loss(held.k) + 0.5 * tf.reduce_sum(tf.abs(held.k))
    (gradient,), norm = tf.clip_by_global_norm([tape.gradient(loss, held.k)], 1.0)
    step = tf.cast(held.step.assign_add(1), tf.float32)
    m, v = held.m.assign(0.9 * held.m + 0.1 * gradient), held.v.assign(0.999 * held.v + 0.001 * tf.square(gradient))
    held.k.assign_sub(0.01 * (m / (1 - 0.9**step)) / (tf.sqrt(v / (1 - 0.999**step)) + 1e-7))
    return {"loss": loss, "error": error, "norm": norm, "k": held.k.read_value(), "m": held.m.read_value()}


def loss_forms(held: Weights, x: tf.Tensor, labels: tf.Tensor) -> dict[str, Any]:
    """One model, four losses, and their gradients."""
    with tf.GradientTape(persistent=True) as tape:
        each = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, x @ held.k)
        found = {
            "sum": tf.reduce_sum(each),
            "mean": tf.reduce_mean(each),
            "weighted": 0.3 * tf.reduce_mean(each) + 0.7 * tf.reduce_sum(each),
            "penalty": tf.reduce_sum(each) + tf.nn.l2_loss(held.k),
        }
    gradients = {f"d_{name}": tape.gradient(loss, held.k) for name, loss in found.items()}
    return {**found, **gradients, "accuracy": tf.reduce_mean(tf.cast(tf.equal(tf.argmax(x @ held.k, 1, tf.int32), labels), tf.float32))}


def sparse_rows(held: Weights, ids: tf.Tensor) -> dict[str, Any]:
    """Rows read twice get both gradients; rows never read get none."""
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.reduce_sum(tf.square(tf.gather(held.table, ids)), 1))
    gradient = tape.gradient(loss, held.table)
    held.table.scatter_sub(tf.IndexedSlices(0.1 * gradient.values, gradient.indices))
    return {"loss": loss, "table": held.table.read_value(), "values": gradient.values}


def split_gradients(x: tf.Tensor) -> dict[str, Any]:
    """Gradients through Split, Concat, broadcast, pooling, batch statistics, max."""
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        a, b = tf.split(x, [1, 3], 1)
        y, pool = tf.reduce_sum(tf.concat([b * a, a], 1)), tf.nn.avg_pool1d(x[:, :, None], 2, 1, "SAME")
        mean, variance = tf.nn.moments(x, [0])
        normal, top = tf.reduce_sum(tf.square((x - mean) * tf.math.rsqrt(variance + 1e-3)) * x), tf.reduce_sum(tf.reduce_max(x, 0) ** 2)
    return {"split": tape.gradient(y, x), "pool": tape.gradient(pool, x), "normal": tape.gradient(normal, x), "max": tape.gradient(top, x)}


CASES = {
    "losses": Case(
        losses,
        (f32(None, 3), f32(None, 3, name="mask")),
        (
            call(
                {"mean": 7.2, "tokens": 6, "rows": [1, 2, 3.5, 0, 20]},
                x=[[1, 9, 9], [2, 9, 9], [3, 4, 9], [10, 9, 9], [20, 9, 9]],
                mask=[[1, 0, 0], [1, 0, 0], [1, 1, 0], [0, 0, 0], [1, 0, 0]],
            ),
            call({"mean": 4, "rows": [0]}, x=[[4, 5, 6]], mask=[[0, 0, 0]]),
        ),
        close=1e-6,
    ),
    "sgd": Case(
        sgd, (f32(None),), (call({"loss": 14.4, "w": [1.28]}, x=[1, 2, 3, 10, 20]), call({"loss": 1.28, "w": [1.18]}, x=[1])), Weights, 1e-6
    ),
    "adam": Case(
        adam,
        (f32(None, 4), f32(None, 3, name="y")),
        tuple(call(x=np.cos(np.arange(n * 4)).reshape(n, 4), y=np.ones((n, 3))) for n in (5, 1, 3, 2)),
        Weights,
        1e-5,
    ),
    "loss_forms": Case(
        loss_forms,
        (f32(None, 4), spec("int32", None, name="labels")),
        (call(x=np.cos(np.arange(20)).reshape(5, 4), labels=[0, 1, 2, 1, 0]), call(x=np.ones((1, 4)), labels=[2])),
        Weights,
        1e-5,
    ),
    "sparse_rows": Case(
        sparse_rows, (spec("int32", None, name="ids"),), (call(ids=[0, 4, 4]), call(ids=[6]), call(ids=[4, 0])), Weights, 1e-5
    ),
    "split_gradients": Case(
        split_gradients,
        (f32(None, 4),),
        (call({"split": [[10, 1, 1, 1], [22, 5, 5, 5], [34, 9, 9, 9]]}, x=np.arange(1, 13).reshape(3, 4)), call(x=[[1, 2, 3, 4]])),
        close=1e-4,
    ),
}


@pytest.mark.parametrize(("cluster", "route"), runs("training_weights"))
@pytest.mark.parametrize("name", CASES)
def test_values(name: str, cluster: str, route: str, suite: Suite) -> None:
    suite.check("training_weights", name, cluster, route)
