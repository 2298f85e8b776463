"""Kind 10, shapes believed too much: placeholders, `_output_shapes`, unknown rank, negative axes, empty tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.cases.case import INF, NAN, Case, call, f32
from tests.cases.suite import Suite, runs

pytestmark = [pytest.mark.tf, pytest.mark.timeout(900)]


def weight(*shape: int) -> np.ndarray:
    return np.sin(np.arange(1, int(np.prod(shape)) + 1) * 1.7).astype(np.float32).reshape(shape)


def squeezed(x: tf.Tensor) -> dict[str, Any]:
    """[b,1,n,m] with a dilated convolution between the questions for its shape."""
    image = tf.transpose(x, [0, 2, 3, 1])
    y = tf.nn.conv2d(image, tf.constant(weight(3, 3, 1, 1)), 1, "SAME", dilations=[2, 2])
    flat = tf.squeeze(y, [-1])
    return {
        "before": tf.shape(x),
        "after": tf.shape(flat),
        "valid": tf.shape(tf.nn.conv2d(image, tf.constant(weight(3, 2, 1, 1)), 2, "VALID")),
        "long": tf.shape(flat, out_type=tf.int64),
        "rank": tf.rank(flat),
        "size": tf.size(flat),
        "flat": tf.reshape(flat, [tf.shape(x)[0], -1]),
        "none_squeezed": tf.shape(tf.squeeze(x)),
        "mean": tf.reduce_mean(x, [-1, -2]),
        "back": tf.reshape(flat, tf.shape(x)),
    }


def reshapes(z: tf.Tensor) -> dict[str, Any]:
    """-1 beside a size that may be 0."""
    rows = tf.shape(z)[0]
    return {
        "rows": tf.reshape(z, [-1, 3]),
        "turned": tf.reshape(z, [3, rows]),
        "joined": tf.reshape(z, tf.concat([tf.shape(z)[:1], [1, 3]], 0)),
        "filled": tf.fill([rows, 2], 2.0),
        "range": tf.range(rows),
        "spread": tf.broadcast_to(tf.ones([1, 3]), tf.shape(z)),
        "tiled": tf.tile(z, [2, 1]),
        "ends": tf.strided_slice(z, [0, -2], [2**31 - 1, -1]),
        "zeros": tf.zeros_like(z),
        "ones": tf.ones([rows * 2]),
        "half": z[: rows // 2],
        "rest": z[rows // 2 :],
        "split": tf.split(z, [rows // 2, rows - rows // 2])[1],
        "empty": z[rows:],
        "expanded": tf.expand_dims(z, -2),
        "last": z[-1:],
        "padded": tf.pad(z, [[0, 5 - tf.minimum(rows, 5)], [0, 0]]),
    }


def unknown_rank(x: tf.Tensor) -> dict[str, Any]:
    return {
        "shape": tf.shape(x),
        "rank": tf.rank(x),
        "size": tf.size(x),
        "flat": tf.reshape(x, [-1]),
        "same": tf.reshape(x, tf.shape(x)),
        "grown": x + tf.zeros([1]),
        "sum": tf.reduce_sum(x),
        "turned": tf.transpose(x),
        "product": tf.reduce_prod(tf.shape(x)),
        "last": tf.reduce_max(x, -1),
        "stacked": tf.stack([x, x]),
        "squeezed": tf.squeeze(x),
        "long": tf.size(x, out_type=tf.int64),
    }


def declared(x: tf.Tensor) -> dict[str, Any]:
    """Shapes that ops declare, or that were set too late to be believed."""
    loose = tf.raw_ops.PlaceholderWithDefault(input=x, shape=[None, None])
    empty = tf.reduce_max(x[:0], 0)
    return {
        "sum": loose + 1,
        "shape": tf.shape(loose),
        "max_of_none": empty,
        "mean_of_none": tf.reduce_mean(x[:0], 0),
        "sum_of_none": tf.reduce_sum(x[:0], 0),
        "prod_of_none": tf.reduce_prod(x[:0]),
        "all_of_none": tf.reduce_all(x[:0] > 0),
        "none": x[:0] @ tf.transpose(x),
    }


def data_dependent(x: tf.Tensor) -> dict[str, Any]:
    """Sizes that only the values tell."""
    kept = tf.boolean_mask(x, x > 0)
    unique, index = tf.unique(tf.cast(x, tf.int32))
    return {
        "kept": kept,
        "count": tf.size(kept),
        "where": tf.where(x > 0),
        "unique": unique,
        "index": index,
        "doubled": tf.repeat(x, 2),
        "range": tf.range(tf.cast(x[0], tf.int32)),
        "filled": tf.fill(tf.cast(x[:1], tf.int32), 1.0),
        "padded": tf.concat([kept, tf.zeros([5 - tf.size(kept)])], 0),
    }


def loops(x: tf.Tensor) -> dict[str, Any]:
    """A loop variable that changes its shape."""
    grown = tf.while_loop(
        lambda i, y: i < 3, lambda i, y: (i + 1, tf.concat([y, x], 0)), [tf.constant(0), x], [tf.TensorShape([]), tf.TensorShape([None, 2])]
    )[1]
    array = tf.TensorArray(tf.float32, 0, dynamic_size=True, infer_shape=False)
    for step in range(3):
        array = array.write(step, x * float(step))
    either = tf.cond(tf.shape(x)[0] > 1, lambda: x[:1], lambda: tf.concat([x, x], 0))
    return {"grown": grown, "rows": tf.shape(grown)[0], "array": array.stack(), "either": either, "either_rows": tf.shape(either)}


I32 = np.int32
CASES = {
    "squeezed": Case(
        squeezed,
        (f32(None, 1, None, None),),
        (
            call(
                {
                    "before": np.array([2, 1, 200, 19], I32),
                    "after": np.array([2, 200, 19], I32),
                    "long": np.array([2, 200, 19]),
                    "valid": [2, 99, 9, 1],
                    "rank": 3,
                    "size": 7600,
                    "none_squeezed": [2, 200, 19],
                },
                x=np.ones((2, 1, 200, 19)),
            ),
            call(
                {"before": np.array([1, 1, 31, 7], I32), "after": [1, 31, 7], "none_squeezed": [31, 7], "size": 217}, x=weight(1, 1, 31, 7)
            ),
        ),
        close=1e-5,
    ),
    "reshapes": Case(
        reshapes,
        (f32(None, 3, name="z"),),
        (
            call(
                {"rows": weight(5, 3), "range": np.arange(5, dtype=I32), "half": weight(5, 3)[:2], "empty": np.zeros((0, 3), np.float32)},
                z=weight(5, 3),
            ),
            call(
                {
                    "rows": np.zeros((0, 3), np.float32),
                    "turned": np.zeros((3, 0), np.float32),
                    "ends": np.zeros((0, 1), np.float32),
                    "padded": np.zeros((5, 3), np.float32),
                },
                z=np.zeros((0, 3)),
            ),
            call(z=weight(1, 3)),
        ),
    ),
    "unknown_rank": Case(
        unknown_rank,
        (tf.TensorSpec(None, tf.float32, "x"),),
        (
            call({"shape": np.array([1, 3], I32), "rank": 2, "size": 3, "product": 3}, x=[[1, 2, 3]]),
            call({"shape": np.array([2, 0, 3], I32), "size": 0, "sum": 0}, x=np.ones((2, 0, 3))),
            call({"rank": 4}, x=np.ones((1, 2, 1, 2))),
        ),
    ),
    "declared": Case(
        declared,
        (f32(None, 3),),
        (
            call(
                {
                    "shape": np.array([5, 3], I32),
                    "max_of_none": [-INF] * 3,
                    "mean_of_none": [NAN] * 3,
                    "sum_of_none": [0] * 3,
                    "prod_of_none": 1,
                    "all_of_none": True,
                    "none": np.zeros((0, 5), np.float32),
                },
                x=weight(5, 3),
            ),
            call(x=np.zeros((0, 3))),
        ),
    ),
    "data_dependent": Case(
        data_dependent,
        (f32(None),),
        (
            call(
                {
                    "kept": [3, 1],
                    "count": 2,
                    "where": [[0], [2]],
                    "range": np.array([0, 1, 2], I32),
                    "filled": [1, 1, 1],
                    "padded": [3, 1, 0, 0, 0],
                    "unique": np.array([3, -1, 1], I32),
                },
                x=[3, -1, 1],
            ),
            call({"kept": np.zeros(0, np.float32)}, x=[0]),
        ),
    ),
    "loops": Case(
        loops,
        (f32(None, 2),),
        (
            call({"rows": 8, "either_rows": np.array([1, 2], I32)}, x=weight(2, 2)),
            call({"rows": 4, "either_rows": np.array([2, 2], I32)}, x=weight(1, 2)),
        ),
    ),
}


@pytest.mark.parametrize(("cluster", "route"), runs("shapes"))
@pytest.mark.parametrize("name", CASES)
def test_values(name: str, cluster: str, route: str, suite: Suite) -> None:
    suite.check("shapes", name, cluster, route)
