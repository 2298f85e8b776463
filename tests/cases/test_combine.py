"""Kind 11, the wrong operator to join shards with: means, maxima, norms, variances, arg-max, a non-linear operator on partial sums.

On the eager cluster (links cost nothing, devices are slow) everything that may be divided is, in two or three parts, unevenly.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.cases.case import INF, Case, call, f32, spec
from tests.cases.suite import Suite, runs

pytestmark = [pytest.mark.tf, pytest.mark.timeout(900)]


def weight(*shape: int, phase: float = 0.0) -> np.ndarray:
    return np.sin(np.arange(1, int(np.prod(shape)) + 1) * 1.7 + phase).astype(np.float32).reshape(shape)


def means(x: tf.Tensor, y: tf.Tensor) -> dict[str, Any]:
    mean = tf.reduce_mean
    return {
        "mean": mean(x),
        "rows": mean(x, 0),
        "columns": mean(x, 1),
        "mse": mean(tf.square(x - y)),
        "accuracy": mean(tf.cast(tf.equal(tf.argmax(x, 1), tf.argmax(y, 1)), tf.float32)),
        "variance": tf.math.reduce_variance(x, 0),
        "std": tf.math.reduce_std(x),
        "moments": tf.nn.moments(x, [0])[1],
        "median": tf.sort(tf.reshape(x, [-1]))[tf.size(x) // 2],
        "weighted": tf.reduce_sum(x * y) / tf.reduce_sum(y),
        "l1": mean(tf.abs(x - y), 0),
        "of_means": mean(mean(x, 1)),
        "integer": mean(tf.cast(x, tf.int32), 0),
    }


def pooled(x: tf.Tensor) -> dict[str, Any]:
    """Global average pooling, and edges of SAME that count fewer."""
    return {
        "global": tf.nn.avg_pool2d(x, [5, 4], 1, "VALID"),
        "mean": tf.reduce_mean(x, [1, 2]),
        "same": tf.nn.avg_pool2d(x, 3, 1, "SAME"),
        "max": tf.nn.max_pool2d(x, 3, 2, "SAME"),
        "global_max": tf.reduce_max(x, [1, 2]),
    }


def softmaxes(x: tf.Tensor, labels: tf.Tensor) -> dict[str, Any]:
    loss = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, x)
    hot = tf.nn.softmax_cross_entropy_with_logits(tf.one_hot(labels, 4), x)
    return {
        "softmax": tf.nn.softmax(x, 1),
        "negative": tf.nn.softmax(x, -1),
        "over_rows": tf.nn.softmax(x, 0),
        "log": tf.nn.log_softmax(x, -1),
        "sum": tf.reduce_logsumexp(x, 1),
        "sum_rows": tf.reduce_logsumexp(x, 0),
        "loss": loss,
        "hot": hot,
        "mean_loss": tf.reduce_mean(loss),
        "by_hand": tf.exp(x - tf.reduce_max(x, 1, True)) / tf.reduce_sum(tf.exp(x - tf.reduce_max(x, 1, True)), 1, True),
    }


def extremes(x: tf.Tensor) -> dict[str, Any]:
    """First of ties, NaN, offsets of the later shards."""
    top = tf.math.top_k(x, 3)
    return {
        "argmax": tf.argmax(x, 1),
        "argmin": tf.argmin(x, -1),
        "over_rows": tf.argmax(x, 0),
        "narrow": tf.argmax(x, 1, output_type=tf.int32),
        "max": tf.reduce_max(x, 1),
        "min": tf.reduce_min(x),
        "top": top.values,
        "indices": top.indices,
        "sort": tf.sort(x, 1),
        "argsort": tf.argsort(x, 1, stable=True),
        "any": tf.reduce_any(x > 8, 1),
        "all": tf.reduce_all(x > 0, 0),
        "in_top": tf.math.in_top_k(tf.argmax(x, 1), x, 2),
        "cumsum": tf.cumsum(tf.round(x), 1),
        "range": tf.reduce_max(x) - tf.reduce_min(x),
    }


def norms(x: tf.Tensor, y: tf.Tensor) -> dict[str, Any]:
    """A root, a relu, a quotient of partial sums waits for the sum."""
    unit = tf.math.l2_normalize
    return {
        "norm": tf.norm(x),
        "l1": tf.norm(x, 1),
        "inf": tf.norm(x, INF),
        "rows": tf.norm(x, axis=0),
        "unit": unit(x, 0),
        "unit_columns": unit(x, 1),
        "unit_all": unit(x),
        "cosine": tf.reduce_sum(unit(x, 0) * unit(y, 0), 0),
        "relu": tf.nn.relu(tf.matmul(x, y, transpose_a=True)),
        "bias": tf.matmul(x, y, transpose_a=True) + 1.0,
        "exp": tf.exp(tf.reduce_sum(x) * 0.01),
        "root": tf.sqrt(tf.reduce_sum(tf.square(x))),
        "clip": tf.clip_by_norm(x, 2.0),
        "global": tf.linalg.global_norm([x, y]),
        "square_of_sum": tf.square(tf.reduce_sum(x, 0)),
        "product": tf.reduce_prod(x),
        "sums": tf.reduce_sum(x, 0) * tf.reduce_sum(y, 0),
        "max_of_sum": tf.maximum(tf.reduce_sum(x, 0), 1.0),
    }


def chains(x: tf.Tensor) -> dict[str, Any]:
    """Two products in a row, the inner one by parts; a residual and a bias are added once."""
    hidden = tf.nn.relu(x @ tf.constant(weight(6, 9)) + tf.constant(weight(9)))
    y = hidden @ tf.constant(weight(9, 6, phase=1)) + tf.constant(weight(6, phase=2))
    return {
        "y": y,
        "residual": x + y,
        "twice": (x + y) @ tf.constant(weight(6, 5, phase=3)),
        "norm": tf.nn.l2_normalize(y + x, -1),
        "mean": tf.reduce_mean(y, -1),
        "soft": tf.nn.softmax(y),
        "sigmoid": tf.sigmoid(y) * y,
        "biggest": tf.argmax(y, 1),
        "layer": (y - tf.reduce_mean(y, -1, True)) * tf.math.rsqrt(tf.math.reduce_variance(y, -1, True) + 1e-3),
        "cast": tf.cast(tf.round(y * 4), tf.int32),
        "scaled": 2.0 * y - 1.0,
        "negated": -y,
        "halved": y / 2.0,
    }


def batch_statistics(x: tf.Tensor) -> dict[str, Any]:
    norm = tf.raw_ops.FusedBatchNormV3(x=x[:, None, None], scale=tf.ones(1), offset=tf.zeros(1), mean=[], variance=[], is_training=True)
    mean, variance = tf.nn.moments(x, [0])
    return {
        "mean": norm.batch_mean,
        "unbiased": norm.batch_variance,
        "y": norm.y,
        "by_hand": mean,
        "variance": variance,
        "normal": (x - mean) * tf.math.rsqrt(variance + 1e-3),
    }


def indivisible(x: tf.Tensor) -> dict[str, Any]:
    """Batches of 7, 1 and 0 over two and three devices: nobody's part is dropped, none is NaN for being empty."""
    y = tf.nn.relu(x @ tf.constant(weight(4, 6)))
    return {
        "y": y,
        "sum": tf.reduce_sum(y, 0),
        "total": tf.reduce_sum(y),
        "max": tf.reduce_max(x, 0),
        "count": tf.shape(y)[0],
        "concat": tf.concat([x, -x], 0),
        "first": y[:1],
        "transposed": tf.transpose(y),
        "mean": tf.reduce_mean(y, 1),
        "rows": tf.reshape(y, [-1, 3]),
    }


def gathers(ids: tf.Tensor) -> dict[str, Any]:
    """A table by rows: each id once, unsorted segments, repeated ids."""
    table = tf.constant(weight(7, 4))
    rows = tf.gather(table, ids)
    return {
        "rows": rows,
        "sum": tf.reduce_sum(rows, 1),
        "segments": tf.math.unsorted_segment_sum(tf.reshape(rows, [-1, 4]), tf.reshape(ids, [-1]), 7),
        "hot": tf.one_hot(ids, 7),
        "product": tf.one_hot(ids, 7) @ table,
        "nd": tf.gather_nd(table, ids[..., None]),
        "counts": tf.math.bincount(tf.reshape(ids, [-1]), minlength=7, maxlength=7),
        "scattered": tf.scatter_nd(tf.reshape(ids, [-1, 1]), tf.reshape(rows, [-1, 4]), [7, 4]),
        "maximum": tf.math.unsorted_segment_max(tf.reshape(rows, [-1, 4]), tf.reshape(ids, [-1]), 7),
    }


LOGITS = np.array([[200, 201, 200, 201]], np.float32)


def attention(q: tf.Tensor, k: tf.Tensor, mask: tf.Tensor) -> dict[str, Any]:
    """Heads, queries, keys and batch, of which each may be divided; a mask; a layer norm of a product by parts."""
    scores = tf.where(mask[:, None, None], tf.einsum("bqhd,bkhd->bhqk", q, k) * 0.5, tf.float32.min)
    weights = tf.nn.softmax(scores)
    rows = tf.reshape(tf.einsum("bhqk,bkhd->bqhd", weights, k), [tf.shape(q)[0], tf.shape(q)[1], 8])
    y = rows @ tf.constant(weight(8, 8))
    mean, variance = tf.nn.moments(y, [-1], keepdims=True)
    return {
        "weights": weights,
        "y": y,
        "norm": tf.nn.batch_normalization(y, mean, variance, None, None, 1e-6) + tf.reshape(q, tf.shape(y)),
        "causal": tf.nn.softmax(tf.linalg.band_part(scores, -1, 0)),
    }


def reducers(x: tf.Tensor) -> dict[str, Any]:
    """Less usual reductions, each with its own way to be joined, or none."""
    return {
        "euclidean": tf.math.reduce_euclidean_norm(x, 1),
        "product": tf.reduce_prod(x, 0),
        "nonzero": tf.math.count_nonzero(x > 0, 0),
        "cumulative": tf.math.cumulative_logsumexp(x, 1),
        "segments": tf.math.segment_mean(x, tf.range(tf.shape(x)[0]) // 2),
        "histogram": tf.histogram_fixed_width(x, [-1.0, 1.0], 5),
        "l2": tf.nn.l2_loss(x),
        "zeros": tf.math.zero_fraction(tf.nn.relu(x)),
        "sorted": tf.sort(x, 0)[:1],
        "unique": tf.unique(tf.reshape(tf.cast(x * 2, tf.int32), [-1]))[1],
        "trace": tf.linalg.trace(tf.matmul(x, x, transpose_a=True)),
        "fft": tf.abs(tf.signal.rfft(x)),
        "inverse": tf.linalg.inv(tf.matmul(x, x, transpose_a=True) + tf.eye(4) * 5),
    }


CASES = {
    "means": Case(
        means,
        (f32(None, 4), f32(None, 4, name="y")),
        (
            call({"mean": 5.5, "rows": [4, 5, 6, 7]}, x=np.arange(12).reshape(3, 4), y=np.arange(12).reshape(3, 4) % 5),
            call({"mean": 1.5, "variance": [0, 0, 0, 0]}, x=[[0, 1, 2, 3]], y=[[1, 1, 1, 2]]),
            call(x=weight(7, 4), y=weight(7, 4, phase=1) + 2),
        ),
        close=1e-6,
    ),
    "pooled": Case(pooled, (f32(None, 5, 4, 3),), (call(x=weight(3, 5, 4, 3)), call(x=weight(1, 5, 4, 3))), close=1e-6),
    "softmaxes": Case(
        softmaxes,
        (f32(None, 4), spec("int32", None, name="labels")),
        (
            call({"softmax": [[0.13447072, 0.36552927, 0.13447072, 0.36552927]], "sum": [202.00641]}, x=LOGITS, labels=[1]),
            call(x=np.tile(LOGITS, (3, 1)) * [[1], [-1], [4]], labels=[0, 3, 2]),
            call(x=[[-INF, 0, 1, 2], [5, 5, 5, 5]], labels=[1, 1]),
        ),
        close=1e-6,
    ),
    "extremes": Case(
        extremes,
        (f32(None, 5),),
        (
            call({"argmax": [1], "narrow": np.array([1], np.int32), "max": [9], "indices": [[1, 4, 3]]}, x=[[1, 9, 2, 3, 9]]),
            call({"argmin": [0, 0, 4]}, x=[[1, 1, 1, 1, 1], [-3, 9, -3, 9, 2], [5, 4, 3, 2, 1]]),
            call(x=weight(7, 5) * 9),
        ),
    ),
    "norms": Case(
        norms,
        (f32(None, 2), f32(None, 2, name="y")),
        (
            call({"norm": 11.18034, "l1": 21, "inf": 8, "root": 11.18034}, x=[[3, 4], [0, 0], [6, 8]], y=[[1, -1], [2, 2], [-3, 1]]),
            call({"norm": 5}, x=[[3, 4]], y=[[0, -1]]),
        ),
        close=1e-5,
    ),
    "chains": Case(chains, (f32(None, 6),), (call(x=weight(5, 6)), call(x=weight(1, 6, phase=1))), close=1e-5),
    "batch_statistics": Case(
        batch_statistics,
        (f32(None, 1),),
        (
            call({"mean": [2.4], "by_hand": [2.4], "variance": [10.24], "unbiased": [12.8]}, x=[[0], [0], [0], [4], [8]]),
            call(x=weight(4, 1)),
        ),
        close=1e-5,
    ),
    "indivisible": Case(
        indivisible,
        (f32(None, 4),),
        (
            call({"count": 7}, x=weight(7, 4)),
            call({"count": 1}, x=weight(1, 4)),
            call({"total": 0, "max": [-INF] * 4, "mean": np.zeros(0, np.float32)}, x=np.zeros((0, 4))),
            call(x=weight(2, 4)),
        ),
        close=1e-5,
    ),
    "gathers": Case(
        gathers,
        (spec("int32", None, None, name="ids"),),
        (call(ids=[[6, 0, 6], [3, 3, 3]]), call(ids=[[2]]), call(ids=np.zeros((1, 0)))),
        close=1e-5,
    ),
    "attention": Case(
        attention,
        (f32(None, None, 2, 4, name="q"), f32(None, None, 2, 4, name="k"), spec("bool", None, None, name="mask")),
        (
            call(q=weight(3, 5, 2, 4), k=weight(3, 5, 2, 4, phase=1), mask=np.arange(15).reshape(3, 5) % 4 > 0),
            call(q=weight(1, 2, 2, 4), k=weight(1, 3, 2, 4), mask=np.ones((1, 3))),
        ),
        close=1e-5,
    ),
    "reducers": Case(reducers, (f32(None, 4),), (call(x=weight(5, 4)), call(x=weight(1, 4))), close=1e-5),
}


@pytest.mark.parametrize(("cluster", "route"), runs("combine"))
@pytest.mark.parametrize("name", CASES)
def test_values(name: str, cluster: str, route: str, suite: Suite) -> None:
    suite.check("combine", name, cluster, route)


def test_the_eager_cluster_divides_these(suite: Suite) -> None:
    """Else nothing above would be tested."""
    suite.compiled("2 eager")
    report = (suite.root / "2 eager.txt").read_text()
    for op in ("MatMul", "Sum", "Mean", "Softmax", "Max", "AvgPool", "Conv2D"):
        assert f"= {op}(" in report
