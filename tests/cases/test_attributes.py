"""Kind 7, attribute-blind matching: perm, groups, alpha, axis, padding, epsilon, training, conjugate."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.cases.case import Case, call, f32, spec
from tests.cases.suite import Suite, runs

pytestmark = [pytest.mark.tf, pytest.mark.timeout(900)]


def weight(*shape: int, phase: float = 0.0) -> np.ndarray:
    return np.sin(np.arange(1, int(np.prod(shape)) + 1) * 1.7 + phase).astype(np.float32).reshape(shape)


ROW = np.array([1, 2, 3, 4], np.float32)
SQUARE, TALL, HEADS = weight(4, 4), weight(3, 4), weight(3, 3, 3, 3)
IMAGES = weight(2, 7, 6, 4)


def transposes(x: tf.Tensor, y: tf.Tensor) -> dict[str, Any]:
    """The permutation swaps exactly the last two axes, or the product is left alone."""
    turn, c = tf.transpose, tf.constant([1.0, 2.0, 3.0, 4.0])
    computed = tf.argsort(tf.cast(tf.shape(y), tf.float32) * 0 + tf.constant([1.0, 0.0]))
    return {
        "identity": turn(x, [0, 1]) @ y + c,
        "both": turn(x) @ turn(x, [0, 1]),
        "computed": turn(y, computed) @ y,
        "twice": turn(turn(x)) @ y,
        "and_attribute": tf.matmul(turn(x), turn(x), transpose_b=True),
        "negative": turn(y, [-1, -2]) @ y,
        "reshape": tf.reshape(x, [4, -1]) @ turn(tf.reshape(x, [4, -1])),
        "vector": turn(x[:1]) @ x[:1],
        "of_sum": turn(x + x) @ x,
    }


def batched(x: tf.Tensor, y: tf.Tensor) -> dict[str, Any]:
    """batch = heads = length = width, so every wrong permutation fits."""
    turn = tf.transpose
    return {
        "heads": tf.matmul(y, turn(x, [0, 2, 3, 1])),
        "last": tf.matmul(y, turn(x, [0, 1, 3, 2])),
        "outer": tf.matmul(turn(y, [1, 0, 2, 3]), x),
        "all": tf.matmul(turn(x), turn(y)),
        "einsum": tf.einsum("bhqd,bkhd->bqhk", x, y),
        "diagonal": tf.einsum("bhqd,bhqd->bq", x, y),
        "adjoint": tf.matmul(x, y, adjoint_a=True, transpose_b=True),
        "cycle": tf.matmul(turn(x, [3, 0, 1, 2]), turn(y, [1, 2, 3, 0])),
    }


def complex_products(x: tf.Tensor, y: tf.Tensor) -> dict[str, Any]:
    z = tf.complex(x, y)
    turned, conjugate = tf.transpose(z), tf.transpose(z, conjugate=True)
    return {
        "plain": turned @ z,
        "conjugate": conjugate @ z,
        "adjoint": tf.matmul(z, z, adjoint_a=True),
        "both": tf.matmul(conjugate, z, adjoint_b=True),
        "twice": tf.matmul(conjugate, z, adjoint_a=True),
    }


def convolutions(x: tf.Tensor) -> dict[str, Any]:
    """Each with an Add of a whole image, which is no bias, and with what a fused form might forget."""
    conv, w, w1 = tf.nn.conv2d, tf.constant(weight(3, 3, 4, 8)), tf.constant(weight(3, 3, 1, 8))
    b, image = tf.constant(weight(8)), tf.constant(weight(1, 7, 6, 8))
    plain = conv(x, w, 1, "SAME")
    return {
        "dilated": conv(x, w, 1, "SAME", dilations=[2, 3]) + image,
        "strided": tf.nn.relu(conv(x, w, [2, 1], "VALID") + b),
        "explicit": conv(x, w, 1, [[0, 0], [2, 0], [0, 1], [0, 0]]) + b,
        "grouped": conv(x, w1, 1, "SAME") + image,
        "image": plain + image,
        "column": plain + image[:, :, :1],
        "leaky": tf.nn.leaky_relu(tf.nn.bias_add(conv(tf.pad(x, [[0, 0], [1, 0], [0, 2], [0, 0]]), w, 1, "VALID"), b), 0.3),
        "relu6": tf.nn.relu6(plain * 9 + b),
        "elu": tf.nn.elu(plain + b),
        "dilated_depthwise": tf.nn.depthwise_conv2d(x, tf.constant(weight(3, 3, 4, 2)), [1, 1, 1, 1], "SAME", dilations=[2, 2]),
        "square_stride": tf.nn.depthwise_conv2d(x, tf.constant(weight(2, 3, 4, 1)), [1, 2, 2, 1], "VALID"),
        "leaky_default": tf.nn.leaky_relu(plain),
        "valid": conv(x, w, 3, "VALID"),
    }


def norms(x: tf.Tensor) -> dict[str, Any]:
    """Epsilons, scale without offset, axes other than the last."""
    s, o, m, v = (tf.constant(weight(4, phase=p)) for p in (1, 2, 3, 4))
    w = tf.constant(weight(1, 1, 4, 4))
    conv = tf.nn.conv2d(x, w, 1, "SAME")
    options = {"scale": s, "offset": o, "mean": m, "variance": tf.abs(v), "is_training": False}
    keras = [
        tf.nn.batch_normalization(conv, m, tf.abs(v), offset, scale, 1e-2) for offset, scale in ((o, s), (None, s), (o, None), (None, None))
    ]
    mean, variance = tf.nn.moments(x, [1, 2], keepdims=True)
    return {
        "epsilon": tf.raw_ops.FusedBatchNormV3(x=conv, epsilon=1e-2, **options).y,
        "small": tf.raw_ops.FusedBatchNormV3(x=conv, epsilon=1e-5, **options).y,
        "scale_offset": keras[0],
        "no_offset": keras[1],
        "no_scale": keras[2],
        "neither": keras[3],
        "over_pixels": (x - mean) * tf.math.rsqrt(variance + 1e-2),
        "over_batch": tf.nn.batch_normalization(x, *tf.nn.moments(x, [0]), o, s, 1e-3),
    }


def axes(x: tf.Tensor) -> dict[str, Any]:
    """Operators that are fused or divided by their axis."""
    last = tf.exp(x) / tf.reduce_sum(tf.exp(x), 1, keepdims=True)
    return {
        "softmax_1": tf.nn.softmax(x, 1),
        "softmax_0": tf.nn.softmax(x, 0),
        "softmax_last": tf.nn.softmax(x),
        "by_hand": last,
        "log_softmax": tf.nn.log_softmax(x, 1),
        "cumsum": tf.cumsum(x, 1, exclusive=True, reverse=True),
        "concat": tf.concat([x, x * 2], -2),
        "argmin": tf.argmin(x, -2),
        "gather": tf.gather(x, [2, 0, 1], axis=1),
        "reverse": tf.reverse(x, [1]),
        "split": tf.split(x, 3, 1)[1],
        "stack": tf.stack([x, -x], -2),
        "l2": tf.math.l2_normalize(x, [1, 2]),
        "sum": tf.reduce_sum(x, [0, -1]),
        "cumprod": tf.math.cumprod(x, 2),
        "sort": tf.sort(x, 1, "DESCENDING"),
        "batch_gather": tf.gather(x, tf.constant([[1, 0], [2, 2]]), axis=1, batch_dims=1),
    }


def gelus(x: tf.Tensor) -> dict[str, Any]:
    root = np.float32(np.sqrt(0.5))
    return {
        "tanh": tf.nn.gelu(x, True),
        "erf": tf.nn.gelu(x, False),
        "erfc": 0.5 * x * tf.math.erfc(-x * root),
        "other": 0.5 * x * tf.math.erfc(x * root),
        "scaled": 0.4 * x * tf.math.erfc(-x * root),
        "unlike": 0.5 * x * tf.math.erfc(-x * 0.7),
        "swish": tf.nn.silu(x),
        "swish_beta": x * tf.sigmoid(x * 1.5),
        "crossed": x * tf.sigmoid(-x),
    }


def pads(x: tf.Tensor) -> dict[str, Any]:
    sides, w = [[0, 0], [1, 1], [1, 1], [0, 0]], tf.constant(weight(3, 3, 2, 4))
    zeros = tf.pad(x, sides)
    return {
        "max": tf.nn.max_pool2d(zeros, 2, 4, "VALID"),
        "mean": tf.nn.avg_pool2d(zeros, 2, 1, "VALID"),
        "same": tf.nn.avg_pool2d(zeros, 2, 1, "SAME"),
        "three": tf.nn.conv2d(tf.pad(x, sides, constant_values=3.0), w, 1, "VALID"),
        "mirror": tf.nn.conv2d(tf.pad(x, sides, "REFLECT"), w, 1, "VALID"),
        "symmetric": tf.nn.conv2d(tf.pad(x, sides, "SYMMETRIC"), w, 1, "VALID"),
        "already": tf.nn.conv2d(zeros, w, 1, "SAME"),
        "stride": tf.nn.conv2d(zeros, w, 2, "VALID"),
        "batch": tf.nn.conv2d(tf.pad(x, [[1, 0], [1, 1], [0, 0], [0, 0]]), w, 1, "SAME"),
        "channel": tf.nn.conv2d(tf.pad(x[..., :1], [[0, 0], [0, 0], [0, 0], [1, 0]]), w, 1, "SAME"),
        "dilated": tf.nn.conv2d(tf.pad(x, [[0, 0], [2, 2], [2, 2], [0, 0]]), w, 1, "VALID", dilations=2),
        "twice": tf.nn.conv2d(tf.pad(zeros, sides), w, 1, "VALID"),
        "kept": zeros,
        "uneven": tf.nn.depthwise_conv2d(
            tf.pad(x, [[0, 0], [0, 1], [2, 0], [0, 0]]), tf.constant(weight(2, 2, 2, 2)), [1, 1, 1, 1], "VALID"
        ),
    }


def depthwise_norm(x: tf.Tensor) -> dict[str, Any]:
    """A multiplier of two, and scales 1..6: how the filter is laid out shows."""
    six = tf.constant(np.arange(1, 7, dtype=np.float32))
    options = {"scale": six, "offset": six - 3, "mean": six / 7, "variance": six, "is_training": False}
    depth = tf.nn.depthwise_conv2d(x, tf.constant(weight(2, 2, 3, 2)), [1, 1, 1, 1], "SAME")
    eight = tf.constant(weight(8) + 2)
    back = tf.nn.conv2d_transpose(x, tf.constant(weight(3, 3, 8, 3)), tf.stack([tf.shape(x)[0], 8, 8, 8]), 2, "SAME")
    dense = tf.reshape(x, [-1, 48]) @ tf.constant(weight(48, 8))
    return {
        "depthwise": tf.raw_ops.FusedBatchNormV3(x=depth, **options).y,
        "by_hand": (depth - six / 7) * tf.math.rsqrt(six + 1e-3) * six + (six - 3),
        "scale_only": depth * six,
        "back": tf.raw_ops.FusedBatchNormV3(x=back, scale=eight, offset=eight, mean=eight, variance=eight, is_training=False).y,
        "back_scale": back * eight + eight,
        "deep": tf.nn.conv3d(x[:, None], tf.constant(weight(1, 2, 2, 3, 8)), [1] * 5, "SAME") * eight + eight,
        "dense": tf.nn.batch_normalization(dense, eight, eight, eight, None, 1e-3),
        "dense_scale": dense * eight - eight,
    }


def training_norm(x: tf.Tensor, p: tf.Tensor) -> dict[str, Any]:
    """Batch statistics are no constants; the mode from a condition is not known; the older op gives other reserves."""
    y = tf.nn.conv2d(x, tf.constant(weight(1, 1, 4, 4)), 1, "SAME")
    s, o, m, v = (tf.constant(weight(4, phase=k)) for k in (1, 2, 3, 4))
    given = {"x": y, "scale": s, "offset": o}
    fused, old = tf.raw_ops.FusedBatchNormV3, tf.raw_ops.FusedBatchNorm
    batch, average = (
        fused(**given, mean=[], variance=[], is_training=True),
        fused(**given, mean=m, variance=tf.abs(v), is_training=True, exponential_avg_factor=0.5),
    )
    chosen = tf.cond(
        p,
        lambda: fused(**given, mean=[], variance=[], is_training=True).y,
        lambda: fused(**given, mean=m, variance=tf.abs(v), is_training=False).y,
    )
    first, infer = old(**given, mean=[], variance=[], is_training=True), old(**given, mean=m, variance=tf.abs(v), is_training=False)
    return {
        "zero": tf.reduce_mean(fused(**{**given, "offset": tf.zeros(4)}, mean=[], variance=[], is_training=True).y, [0, 1, 2]),
        "moved": m * 0.9 + batch.batch_mean * 0.1,
        "variance": batch.batch_variance,
        "y": average.y,
        "average": average.batch_mean,
        "average_variance": average.batch_variance,
        "chosen": chosen,
        "old": first.y,
        "old_mean": first.batch_mean + first.reserve_space_1,
        "old_variance": first.reserve_space_2,
        "infer": infer.y,
        "infer_mean": infer.batch_mean,
    }


CORNERS = np.array([[-1, -0.5, -1], [-0.5, -0.25, -0.5], [-1, -0.5, -1]])  # of a 4x4 image of -1 in zeros, windows of two


def image_operators(x: tf.Tensor) -> dict[str, Any]:
    """Operators with many attributes, of which few divide; none is taken for another."""
    w = tf.constant(weight(3, 3, 3, 4))
    return {
        "bilinear": tf.image.resize(x, [7, 5]),
        "nearest": tf.image.resize(x, [3, 9], method="nearest"),
        "crop": tf.image.crop_and_resize(x, [[0.0, 0.0, 1.0, 1.0], [0.1, 0.2, 0.5, 0.9]], [0, 0], [3, 3]),
        "patches": tf.image.extract_patches(x, [1, 2, 2, 1], [1, 2, 2, 1], [1, 1, 1, 1], "SAME"),
        "to_space": tf.nn.depth_to_space(tf.tile(x, [1, 1, 1, 4]), 2),
        "to_depth": tf.nn.space_to_depth(x[:, :4, :4], 2),
        "to_batch": tf.nn.space_to_batch(x[:, :4, :4], [2, 2], [[0, 0], [0, 0]]),
        "response": tf.nn.local_response_normalization(x, 1),
        "dilation": tf.nn.dilation2d(x, tf.constant(weight(2, 2, 3)), [1, 1, 1, 1], "SAME", "NHWC", [1, 1, 1, 1]),
        "one": tf.nn.conv1d(x[:, 0], tf.constant(weight(3, 3, 4)), 2, "SAME"),
        "separable": tf.nn.separable_conv2d(x, tf.constant(weight(3, 3, 3, 2)), tf.constant(weight(1, 1, 6, 5)), [1, 1, 1, 1], "SAME"),
        "transposed": tf.nn.conv2d_transpose(x, tf.constant(weight(3, 3, 4, 3)), tf.stack([tf.shape(x)[0], 10, 10, 4]), 2),
        "argmax": tf.nn.max_pool_with_argmax(x, 2, 2, "VALID").argmax,
        "quantized": tf.quantization.fake_quant_with_min_max_args(x, -1, 1),
        "flipped": tf.image.flip_left_right(x),
        "colour": tf.image.rgb_to_hsv(tf.abs(x)),
        "same": tf.nn.conv2d(x, w, 2, "SAME"),
        "valid": tf.nn.conv2d(x, w, 2, "VALID"),
    }


def slices(x: tf.Tensor) -> dict[str, Any]:
    """Every mask of a slice, and other ways to take parts."""
    rows = tf.shape(x)[0]
    return {
        "negative": x[::-1],
        "step": x[:, ::2],
        "ellipsis": x[..., 1],
        "new": x[:, None, 1:],
        "backwards": x[:, -1:0:-2],
        "shrink": x[1, 2],
        "masks": x[1:, :-1][None],
        "none": x[3:2],
        "dynamic": x[: rows - 1, 1:],
        "beyond": x[-100:100],
        "slice": tf.slice(x, [0, 1], [-1, 2]),
        "nd": tf.gather_nd(x, [[0, 1], [2, 3]]),
        "take": tf.gather(x, [2, 0], axis=-1),
        "reverse": tf.reverse_sequence(x, tf.range(rows) + 1, 1),
        "roll": tf.roll(x, 1, 1),
        "update": tf.tensor_scatter_nd_update(x, [[0, 0]], [9.0]),
        "diagonal": tf.linalg.diag(x),
        "band": tf.linalg.band_part(x, 1, 0),
        "one_hot": tf.one_hot(tf.range(3), 4, axis=0),
        "tile": tf.tile(x, [1, 2]),
        "mesh": tf.meshgrid(x[0], x[1])[1],
        "unstacked": tf.unstack(x, num=4, axis=-1)[2],
    }


CASES = {
    "transposes": Case(
        transposes,
        (f32(None, 4), f32(4, 4, name="y")),
        (
            call({"identity": SQUARE @ SQUARE + ROW, "computed": SQUARE.T @ SQUARE, "twice": SQUARE @ SQUARE}, x=SQUARE, y=SQUARE),
            call({"identity": TALL @ SQUARE + ROW, "of_sum": 2 * TALL.T @ TALL}, x=TALL, y=SQUARE),
        ),
        close=1e-5,
    ),
    "batched": Case(
        batched,
        (f32(3, 3, 3, 3), f32(None, 3, 3, 3, name="y")),
        (call({"heads": HEADS[::-1] @ HEADS.transpose(0, 2, 3, 1)}, x=HEADS, y=HEADS[::-1]),),
        close=1e-5,
    ),
    "complex_products": Case(
        complex_products, (f32(2, 2), f32(2, 2, name="y")), (call(x=[[1, 2], [3, 4]], y=[[5, -6], [7, 8]]),), close=1e-6
    ),
    "convolutions": Case(convolutions, (f32(None, 7, 6, 4),), (call(x=IMAGES), call(x=IMAGES[:1])), close=2e-5),
    "norms": Case(norms, (f32(None, None, None, 4),), (call(x=IMAGES), call(x=IMAGES[:1, :3])), close=2e-4),
    "axes": Case(axes, (f32(2, 3, None),), (call(x=weight(2, 3, 5)), call(x=weight(2, 3, 1))), close=1e-6),
    "gelus": Case(gelus, (f32(None),), (call(x=[-3, -0.5, 0.1, 2]),), close=1e-6),
    "pads": Case(
        pads,
        (f32(None, 4, 4, 2),),
        (call({"max": np.zeros((2, 2, 2, 2), np.float32)}, x=-np.ones((2, 4, 4, 2))), call(x=weight(3, 4, 4, 2))),
        close=1e-5,
    ),
    "depthwise_norm": Case(
        depthwise_norm, (f32(None, 4, 4, 3),), (call(x=weight(2, 4, 4, 3)), call(x=weight(1, 4, 4, 3, phase=1))), close=5e-5
    ),
    "training_norm": Case(
        training_norm,
        (f32(None, 7, 6, 4), spec("bool", name="p")),
        (call({"zero": np.zeros(4, np.float32)}, x=IMAGES, p=True), call(x=IMAGES, p=False)),
        close=2e-4,
    ),
    "image_operators": Case(image_operators, (f32(None, 5, 5, 3),), (call(x=weight(3, 5, 5, 3)), call(x=weight(1, 5, 5, 3))), close=1e-5),
    "slices": Case(
        slices,
        (f32(None, 4),),
        (
            call(
                {
                    "negative": TALL[::-1],
                    "backwards": TALL[:, -1:0:-2],
                    "shrink": TALL[1, 2],
                    "none": np.zeros((0, 4), np.float32),
                    "roll": np.roll(TALL, 1, 1),
                },
                x=TALL,
            ),
            call(x=weight(4, 4)),
        ),
    ),
}


@pytest.mark.parametrize(("cluster", "route"), runs("attributes"))
@pytest.mark.parametrize("name", CASES)
def test_values(name: str, cluster: str, route: str, suite: Suite) -> None:
    suite.check("attributes", name, cluster, route)
