"""Small traced functions where compilers like this one go wrong: what must come out is what TensorFlow computes with Grappler off.

Each has its input types and, where drawn values would not show the fault, the inputs that do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf

Arrays = dict[str, np.ndarray]
NAN, INF = np.nan, np.inf
SPECIAL = np.array([1, INF, -INF, NAN, -2], np.float32)


@dataclass(frozen=True)
class Program:
    """`close`: a fold into a weight or another kernel is allowed to round differently."""

    function: Callable[..., dict[str, Any]]
    inputs: tuple[tf.TensorSpec, ...]
    feeds: tuple[Arrays, ...] = ()
    close: bool = False
    sizes: tuple[int, ...] = field(default=(1, 3))

    def requests(self) -> list[Arrays]:
        """The program's own inputs, or drawn ones at each batch size."""
        rng = np.random.default_rng(0)
        drawn = ({s.name: rng.standard_normal(_shape(s, size)).astype(np.float32) for s in self.inputs} for size in self.sizes)
        return list(self.feeds) or list(drawn)


def _shape(spec: tf.TensorSpec, size: int) -> list[int]:
    return [(4 if place else size) if dim is None else dim for place, dim in enumerate(spec.shape)]


def floats(*shape: int | None, name: str = "x") -> tf.TensorSpec:
    return tf.TensorSpec(shape, tf.float32, name=name)


def weight(*shape: int) -> tf.Tensor:
    count = int(np.prod(shape))
    return tf.constant(np.sin(np.arange(1, count + 1, dtype=np.float32) * 1.7).reshape(shape))


def norm(x: tf.Tensor, s: tf.Tensor, o: tf.Tensor, m: tf.Tensor, v: tf.Tensor, **options: Any) -> Any:
    return tf.raw_ops.FusedBatchNormV3(x=x, scale=s, offset=o, mean=m, variance=tf.abs(v) + 0.1, is_training=False, **options)


def ports(x: tf.Tensor) -> dict[str, Any]:
    first, second, third = tf.raw_ops.SplitV(value=x, size_splits=[2, 2, 3], axis=1, num_split=3)
    twice = tf.raw_ops.IdentityN(input=[first, first])
    top = tf.raw_ops.TopKV2(input=x, k=3)
    with tf.control_dependencies([second, x]):
        waits = first + first
    return {
        "difference": second - first,
        "square": first * first,
        "left": twice[0],
        "right": twice[1],
        "joined": tf.concat([third, first, third], 1),
        "indices": top.indices,
        "waits": waits,
    }


def identities(x: tf.Tensor) -> dict[str, Any]:
    return {
        "times 0": x * 0.0,
        "self": x - x,
        "ratio": x / x,
        "plus 0": 1 / (x + 0.0),
        "minus 0": 1 / (x - 0.0),
        "0 minus": 1 / (0.0 - x),
        "twice inverse": tf.math.reciprocal(tf.math.reciprocal(x)),
        "inverse": 1 / x,
        "rank": x * tf.zeros([2, 1]),
        "is equal": tf.equal(x, x),
        "is not": tf.not_equal(x, x),
        "at least": tf.maximum(x, -INF),
        "at most": tf.minimum(x, INF),
        "either": tf.where(x > 0, x, x),
        "times 1": 1 / (x * 1.0),
        "minus minus": 1 / tf.negative(-x),
        "powers": tf.stack([x**0.0, x**1.0, x**2.0]),
        "root": 1 / tf.sqrt(x),
        "log": tf.math.log(tf.exp(x)),
        "root of square": tf.sqrt(x * x),
        "half": tf.cast(tf.cast(x, tf.float16), tf.float32),
        "sum": 1 / tf.reduce_sum(x[:, None], 1),
        "added": tf.add_n([x, tf.zeros_like(x)]),
    }


def associations(x: tf.Tensor) -> dict[str, Any]:
    return {
        "epsilon": tf.math.log((1 - x) + 1e-9),
        "big": (x + 1e8) - 1e8,
        "overflow": (x * 1e30) * 1e30 * 1e-30,
        "small": (x + 1e-9) - 1.0,
        "thirds": (x / 3.0) / 3.0,
    }


def arguments(x: tf.Tensor) -> dict[str, Any]:
    return {
        "relu": tf.argmin(tf.nn.relu(x), 1),
        "tanh": tf.argmax(tf.tanh(x), 1),
        "exp": tf.argmax(tf.exp(x), 1),
        "narrow": tf.argmax(tf.nn.relu(x), 1, output_type=tf.int32),
        "top": tf.math.top_k(tf.tanh(x), 2).indices,
        "softmax": tf.argmax(tf.nn.softmax(x), 1),
    }


def transposes(x: tf.Tensor, y: tf.Tensor) -> dict[str, Any]:
    computed = tf.argsort(tf.cast(tf.shape(y) * 0, tf.float32) + tf.constant([1.0, 0.0]))
    return {
        "identity": tf.transpose(x, [0, 1]) @ y + tf.constant([1.0, 2.0, 3.0, 4.0]),
        "both": tf.transpose(x) @ tf.transpose(y),
        "twice": tf.transpose(tf.transpose(x)) @ y,
        "computed": tf.transpose(x, computed) @ tf.transpose(y, computed),
        "and attribute": tf.matmul(tf.transpose(x), tf.transpose(x), transpose_b=True),
    }


def batched(x: tf.Tensor, y: tf.Tensor) -> dict[str, Any]:
    z = tf.complex(x, y)
    found = {
        "heads": tf.matmul(y, tf.transpose(x, [0, 2, 3, 1])),
        "last": tf.matmul(y, tf.transpose(x, [0, 1, 3, 2])),
        "other": tf.matmul(tf.transpose(y, [0, 2, 1, 3]), tf.transpose(x, [0, 2, 3, 1])),
        "plain": tf.matmul(tf.transpose(z, [0, 1, 3, 2]), z),
        "adjoint": tf.matmul(z, z, adjoint_a=True),
        "conjugate": tf.matmul(tf.transpose(z, [0, 1, 3, 2], conjugate=True), z),
    }
    return {name: tf.stack([tf.math.real(v), tf.math.imag(v)]) if v.dtype.is_complex else v for name, v in found.items()}


def shared_weight(x: tf.Tensor, y: tf.Tensor) -> dict[str, Any]:
    w, s, o, m, v = weight(3, 3, 3, 8), weight(8), weight(9)[1:], weight(10)[2:], weight(11)[3:]
    strided = tf.nn.conv2d(x, tf.identity(w), 2, "VALID")
    dilated = tf.nn.bias_add(tf.nn.conv2d(y, w, 1, "SAME", dilations=2), s)
    return {
        "folded": norm(tf.nn.conv2d(x, w, 1, "SAME"), s, o, m, v, epsilon=1e-2).y,
        "same weight": tf.nn.conv2d(y, w, 1, "SAME"),
        "one": norm(strided, s, o, m, v).y,
        "other": norm(strided, o, s, m, v).y,
        "weight": w,
        "bias": dilated,
        "relu": tf.nn.relu(dilated),
        "shape": tf.shape(dilated),
        "explicit": tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(x, w, 1, [[0, 0], [1, 2], [0, 1], [0, 0]]), s)),
        "leaky": tf.nn.leaky_relu(dilated, 0.3),
    }


def filters(x: tf.Tensor) -> dict[str, Any]:
    six, w, d = tf.constant(np.arange(1, 7, dtype=np.float32)), weight(3, 3, 3, 8), weight(2, 2, 3, 2)
    s, o, square = weight(8), weight(9)[1:], [1, 1, 1, 1]
    back = tf.nn.conv2d_transpose(x, weight(3, 3, 8, 3), tf.stack([tf.shape(x)[0], 10, 10, 8]), 2, "SAME")
    grouped = tf.nn.conv2d(tf.concat([x, x[..., :1]], 3), weight(3, 3, 1, 8), 1, "SAME")
    plain = tf.nn.conv2d(x, w, 1, "SAME")
    return {
        "depthwise": norm(tf.nn.depthwise_conv2d(x, d, square, "SAME"), six, six - 3, six / 7, six).y,
        "depthwise scale": tf.nn.depthwise_conv2d(x, d, square, "VALID") * six + six,
        "back": norm(back, s, o, o, s).y,
        "back scale": back * s + o,
        "deep": tf.nn.conv3d(x[:, None], w[None], [1] * 5, "SAME") * s + o,
        "groups": grouped * s + o,
        "scalar": plain + s[0],
        "rows": plain * s[:5, None, None],
        "column": plain + w[:1, :1, 0, :1],
    }


def products(x: tf.Tensor) -> dict[str, Any]:
    y, s, o, one = x @ weight(5, 8), weight(8), weight(9)[1:], tf.constant([[2.5]])
    scaled = y * o
    return {
        "vector": ((y + s) * o) + o,
        "scalar": ((y + s) * 3.0) + 3.0,
        "one": ((y + s) * one) + one,
        "narrow": ((x[:, :1] + 0.5) * tf.constant([1.7])) @ weight(1, 2),
        "grows": (x[:, :1] * s) @ weight(8, 3),
        "rank": y * s[None, None],
        "rank left": s[None, None] + y,
        "used twice": scaled + scaled,
        "scaled": scaled,
        "table": y + tf.reshape(weight(24), [3, 1, 8]),
        "row": y + s[None],
    }


def pads(x: tf.Tensor) -> dict[str, Any]:
    sides, w = [[0, 0], [1, 1], [1, 1], [0, 0]], weight(3, 3, 2, 4)
    zeros = tf.pad(x, sides)
    return {
        "max": tf.nn.max_pool2d(zeros, 2, 1, "VALID"),
        "mean": tf.nn.avg_pool2d(zeros, 2, 1, "VALID"),
        "same": tf.nn.avg_pool2d(zeros, 2, 1, "SAME"),
        "three": tf.nn.conv2d(tf.pad(x, sides, constant_values=3.0), w, 1, "VALID"),
        "mirror": tf.nn.conv2d(tf.pad(x, sides, "REFLECT"), w, 1, "VALID"),
        "twice": tf.nn.conv2d(zeros, w, 1, "SAME"),
        "kept": zeros,
        "batch": tf.nn.conv2d(tf.pad(x, [[1, 0], [1, 1], [0, 0], [0, 0]]), w, 1, "SAME"),
        "stride": tf.nn.conv2d(zeros, w, 2, "VALID"),
    }


def training_norm(x: tf.Tensor) -> dict[str, Any]:
    given = {"x": tf.nn.conv2d(x, weight(1, 1, 8, 8), 1, "SAME"), "scale": weight(8), "offset": weight(9)[1:], "mean": weight(10)[2:]}
    given["variance"] = tf.abs(weight(8)) + 0.1
    trained = tf.raw_ops.FusedBatchNormV3(**given, is_training=True, exponential_avg_factor=0.5)
    old, new = tf.raw_ops.FusedBatchNorm(**given, is_training=False), tf.raw_ops.FusedBatchNormV3(**given, is_training=False)
    return {
        "y": trained.y,
        "mean": trained.batch_mean,
        "variance": trained.batch_variance,
        "old": old.y,
        "old mean": old.batch_mean,
        "reserved": old.reserve_space_1 + old.reserve_space_2,
        "new": new.y,
        "new mean": new.batch_mean,
    }


def integers(x: tf.Tensor, y: tf.Tensor, u: tf.Tensor) -> dict[str, Any]:
    return {
        "by 1": x // 1,
        "wraps": y + 1,
        "product": y * 65536,
        "floor": tf.math.floormod(y, 3),
        "truncate": tf.truncatemod(y, 3),
        "unsigned": tf.zeros_like(u) - u,
        "narrow": tf.cast(tf.cast(x, tf.int32), tf.int64),
        "double": tf.cast(tf.cast(x, tf.float64), tf.int64),
        "constant": tf.constant(2**31 - 1) + 1 + y * 0,
        "wide": tf.constant(2**53 + 1, tf.int64) // 1 + x,
        "self": y - y,
        "negated": tf.negative(-y),
        "down": tf.math.floordiv(tf.constant(-7), 2) + y,
        "truth": tf.cast(tf.cast(y, tf.bool), tf.int32),
        "signed": tf.cast(tf.cast(u, tf.int8), tf.int32),
    }


def division(y: tf.Tensor) -> dict[str, Any]:
    return {"only where taken": tf.cond(y[0] > 0, lambda: y, lambda: tf.constant([1]) // tf.constant([0]))}


def shapes(x: tf.Tensor, z: tf.Tensor) -> dict[str, Any]:
    squeezed = tf.squeeze(x, 1)
    return {
        "before": tf.shape(x),
        "after": tf.shape(squeezed),
        "rows": tf.reshape(z, [-1, 3]),
        "turned": tf.reshape(z, [3, tf.shape(z)[0]]),
        "wide": tf.shape(z, out_type=tf.int64),
        "size": tf.size(z),
        "rank": tf.rank(x),
        "flat": tf.reshape(squeezed, [tf.shape(x)[0], -1]),
        "joined": tf.reshape(z, tf.concat([tf.shape(z)[:1], [1, 3]], 0)),
        "filled": tf.fill([tf.shape(z)[0], 2], 2.0) + tf.zeros(tf.shape(z))[:, :1],
        "range": tf.range(tf.shape(z)[0]),
        "spread": tf.broadcast_to(tf.ones([1, 3]), tf.shape(z)),
        "tiled": tf.tile(z, [2, 1]),
        "mean": tf.reduce_mean(x, [-1, -2]),
        "slice": tf.strided_slice(z, [0, -2], [2**31 - 1, -1]),
        "one": tf.unstack(tf.shape(x), num=4)[3],
    }


def unknown_rank(x: tf.Tensor) -> dict[str, Any]:
    return {
        "shape": tf.shape(x),
        "rank": tf.rank(x),
        "size": tf.size(x),
        "flat": tf.reshape(x, [-1]),
        "same": tf.reshape(x, tf.shape(x)),
        "grown": x + tf.zeros([1]),
    }


def loops(x: tf.Tensor) -> dict[str, Any]:
    def inner(i: tf.Tensor, y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return i + 1, tf.while_loop(lambda j, z: j < i + 1, lambda j, z: (j + 1, z * x + 1), [tf.constant(0), y])[1]

    array = tf.TensorArray(tf.float32, 3)
    for step in range(3):
        array = array.write(step, x * float(step))
    return {
        "once": tf.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, 2 * y + 1), [tf.constant(0), x])[1],
        "nested": tf.while_loop(lambda i, y: i < 2, inner, [tf.constant(0), x])[1],
        "array": array.stack(),
        "branch": tf.cond(tf.reduce_sum(x) > 0, lambda: x - x, lambda: x / x),
        "case": tf.switch_case(tf.cast(x[0, 0], tf.int32), [lambda: x, lambda: -x]),
    }


@tf.function
def _affine(x: tf.Tensor) -> tf.Tensor:
    return x * 2 + 1


def names(x: tf.Tensor) -> dict[str, Any]:
    @tf.function
    def _affine_1(x: tf.Tensor) -> tf.Tensor:
        return _affine(x) - 1

    with tf.name_scope("split_0"):
        lower = tf.identity(_affine_1(x), "x")
    with tf.name_scope("SPLIT_0"):
        upper = tf.identity(_affine_1(lower), "x")
    return {f"output_{k}": v for k, v in enumerate([lower, upper, _affine_1(upper), _affine(_affine_1(x)), *(x + k for k in range(8))])}


def doubling(x: tf.Tensor) -> dict[str, Any]:
    """Twice as many paths at each step: anything that walks paths never comes back."""
    for _ in range(60):
        x = tf.sigmoid(x) + tf.sigmoid(x) * 0.5
    return {"y": x}


def _f(*values: Any) -> Arrays:
    return {"x": np.array(values, np.float32)}


_SQUARE = np.arange(16, dtype=np.float32).reshape(4, 4)
PROGRAMS: dict[str, Program] = {
    "ports": Program(ports, (floats(None, 7),)),
    "identities": Program(identities, (floats(None),), ({"x": SPECIAL}, _f(-0.0, 0.0), _f(7, 1e-40, 3e38), *(_f(*range(3, 31)),))),
    "associations": Program(associations, (floats(None),), (_f(1.0), _f(0.1, 3e8))),
    "arguments": Program(arguments, (floats(None, 3),), (_f([3, -2, -7], [10, 20, 5], [100, 200, 50], [NAN, 1, 2], [-1, -2, -3]),)),
    "transposes": Program(
        transposes, (floats(4, None), floats(None, 4, name="y")), ({"x": _SQUARE * 0.37, "y": _SQUARE**1.3},), close=True
    ),
    "batched": Program(batched, (floats(3, 3, 3, 3), floats(3, 3, 3, 3, name="y")), close=True),
    "shared_weight": Program(shared_weight, (floats(None, 6, 6, 3), floats(None, 6, 6, 3, name="y")), close=True),
    "filters": Program(filters, (floats(None, 5, 5, 3),), close=True),
    "products": Program(products, (floats(None, 5),), close=True),
    "pads": Program(pads, (floats(None, 4, 4, 2),), ({"x": -np.ones((2, 4, 4, 2), np.float32)},), close=True),
    "training_norm": Program(training_norm, (floats(None, 4, 4, 8),), close=True),
    "integers": Program(
        integers,
        (tf.TensorSpec([None], tf.int64, "x"), tf.TensorSpec([None], tf.int32, "y"), tf.TensorSpec([None], tf.uint8, "u")),
        ({"x": np.array([2**53 + 1, -7, 9]), "y": np.array([2**31 - 1, 65536, -7], np.int32), "u": np.array([0, 1, 255], np.uint8)},),
    ),
    "division": Program(division, (tf.TensorSpec([None], tf.int32, "y"),), tuple({"y": np.array([k], np.int32)} for k in (1, -1))),
    "shapes": Program(
        shapes,
        (floats(None, 1, None, None), floats(None, 3, name="z")),
        (
            {"x": np.ones((2, 1, 20, 19), np.float32), "z": np.ones((5, 3), np.float32)},
            {"x": np.ones((1, 1, 31, 7), np.float32), "z": np.zeros((0, 3), np.float32)},
        ),
    ),
    "unknown_rank": Program(
        unknown_rank, (tf.TensorSpec(None, tf.float32, "x"),), (_f([1, 2, 3]), {"x": np.float32(4)}, {"x": np.ones((2, 0, 3), np.float32)})
    ),
    "loops": Program(loops, (floats(None, 3),), (_f([0.3, -0.2, 1]), _f([-3, 0, 1]))),
    "names": Program(names, (floats(None, 2),)),
    "doubling": Program(doubling, (floats(1, 2),)),
}
