"""Kind 6, dtype blindness: cast chains, integers that wrap, int64 through double, the range of half precision."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

from tests.cases.case import INF, NAN, Case, call, f32, spec
from tests.cases.suite import Suite, runs

pytestmark = [pytest.mark.tf, pytest.mark.timeout(900)]

BIG = 2**53 + 1


def integers(x: tf.Tensor, y: tf.Tensor, u: tf.Tensor) -> dict[str, Any]:
    return {
        "by_1": x // 1,
        "mod": tf.math.floormod(x, 2),
        "plus_0": x + 0,
        "wraps": y + 1,
        "product": y * 65536,
        "floor": tf.math.floormod(y, 3),
        "truncate": tf.truncatemod(y, 3),
        "negated": tf.zeros_like(u) - u,
        "below": u - 1,
        "square": tf.square(y),
        "power": tf.pow(x, 2),
        "sum": tf.reduce_sum(y),
        "mean": tf.reduce_mean(y),
        "product_all": tf.reduce_prod(y),
        "shifted": tf.bitwise.left_shift(y, 1),
        "abs": tf.abs(y),
        "self": y - y,
        "halved": (y * 2) // 2,
        "twice": (y // 2) * 2,
        "sum_wide": tf.reduce_sum(x),
        "max": tf.reduce_max(x),
        "constant": tf.constant(2**31 - 1) + tf.constant(1) + y * 0,
        "constant_wide": tf.constant(BIG, tf.int64) // tf.constant(1, tf.int64) + x * 0,
    }


def casts(x: tf.Tensor, i: tf.Tensor) -> dict[str, Any]:
    """A pair of casts is not one cast."""
    cast = tf.cast
    return {
        "half": cast(cast(x, tf.float16), tf.float32),
        "bfloat": cast(cast(x, tf.bfloat16), tf.float32),
        "integer": cast(cast(x, tf.int32), tf.float32),
        "narrow": cast(cast(i, tf.int32), tf.int64),
        "byte": cast(cast(i, tf.uint8), tf.int64),
        "double": cast(cast(i, tf.float64), tf.int64),
        "single": cast(cast(i, tf.float32), tf.int64),
        "truth": cast(cast(x, tf.bool), tf.float32),
        "truth_int": cast(cast(i, tf.bool), tf.int64),
        "complex": cast(tf.complex(x, x), tf.complex128),
        "signed": cast(cast(i, tf.int8), tf.int32),
        "wide": cast(cast(x, tf.float64), tf.float32),
        "sum": cast(cast(x, tf.float64) + 1e-9, tf.float32),
        "truncated": cast(x / 2, tf.int32),
        "same": cast(cast(x, tf.float32), tf.float32),
    }


def half(x: tf.Tensor) -> dict[str, Any]:
    """65504 is the largest; sums and products of halves round and overflow as halves."""
    h, b = tf.cast(x, tf.float16), tf.cast(x, tf.bfloat16)
    return {
        "double": h + h,
        "square": h * h,
        "quarter": (h * 4) / 4,
        "sum": tf.reduce_sum(h),
        "mean": tf.reduce_mean(h),
        "epsilon": h + 1e-8,
        "bfloat": (b + b) / 2,
        "bfloat_one": b + 1,
        "softmax": tf.nn.softmax(h),
        "matmul": tf.matmul(h[None], h[:, None]),
        "max": tf.reduce_max(b),
    }


def division(y: tf.Tensor) -> dict[str, Any]:
    """1 // 0 fails where it is run, and only there."""
    return {"y": tf.cond(y[0] > 0, lambda: y, lambda: tf.constant([1]) // tf.constant([0]))}


def unsigned(u: tf.Tensor, w: tf.Tensor) -> dict[str, Any]:
    return {
        "less": (u - 1) < u,
        "minus": u - w,
        "negative_cast": tf.cast(u - w, tf.int32),
        "shift": tf.bitwise.right_shift(u, tf.ones_like(u)),
        "invert": tf.bitwise.invert(u),
        "sum": tf.add_n([u, w, u]),
        "max": tf.maximum(u, w),
        "concat": tf.concat([u, w], 0),
        "times_0": u * 0,
    }


def logic(p: tf.Tensor, s: tf.Tensor) -> dict[str, Any]:
    """bool and string: types for which arithmetic is not defined."""
    return {
        "and": p & True,
        "or": p | False,
        "xor": tf.math.logical_xor(p, p),
        "not": ~~p,
        "any": tf.reduce_any(p),
        "all": tf.reduce_all(p),
        "string": s + "",
        "join": tf.strings.join([s, s], "-"),
        "equal": tf.equal(s, s),
        "where": tf.where(p, s, s),
        "length": tf.strings.length(s),
    }


def complexes(x: tf.Tensor, y: tf.Tensor) -> dict[str, Any]:
    z = tf.complex(x, y)
    conjugate = tf.math.conj(z)
    parts = {
        "twice": tf.math.conj(conjugate),
        "norm": z * conjugate,
        "turned": tf.transpose(z, conjugate=True),
        "matmul": tf.matmul(z, z, adjoint_b=True),
    }
    return {
        **parts,
        "abs": tf.abs(z),
        "real": tf.math.real(conjugate),
        "imaginary": tf.math.imag(conjugate),
        "sum": tf.reduce_sum(z),
        "ratio": z / z,
    }


WIDE = np.array([BIG, -7, 9], np.int64)
CASES = {
    "integers": Case(
        integers,
        (spec("int64", None), spec("int32", None, name="y"), spec("uint8", None, name="u")),
        (
            call(
                {
                    "by_1": WIDE,
                    "mod": [1, 1, 1],
                    "plus_0": WIDE,
                    "wraps": np.array([-(2**31), 65537, -6], np.int32),
                    "product": [-65536, 0, -7 * 65536],
                    "floor": [1, 1, 2],
                    "truncate": [1, 1, -1],
                    "negated": np.array([0, 255, 1], np.uint8),
                    "below": np.array([255, 0, 254], np.uint8),
                    "constant": [-(2**31)] * 3,
                    "constant_wide": [BIG] * 3,
                    "halved": [-1, 65536, -7],
                    "twice": [2**31 - 2, 65536, -8],
                    "sum": np.array(-(2**31) + 65528, np.int32),
                    "self": [0, 0, 0],
                    "sum_wide": BIG + 2,
                    "max": BIG,
                },
                x=WIDE,
                y=[2**31 - 1, 65536, -7],
                u=[0, 1, 255],
            ),
            call(x=[BIG], y=[-(2**31)], u=[128]),
        ),
    ),
    "casts": Case(
        casts,
        (f32(None), spec("int64", None, name="i")),
        (
            call(
                {
                    "half": [INF, np.float32(np.float16(0.1)), -2.5],
                    "integer": [70000, 0, -2],
                    "narrow": [1, -1, 5],
                    "byte": [1, 255, 5],
                    "double": [2**53, 2**32 - 1, 5],
                    "single": [2**53, 2**32, 5],
                    "truth": [1, 1, 1],
                    "truth_int": [1, 1, 1],
                    "truncated": [35000, 0, -1],
                    "wide": np.array([70000, 0.1, -2.5], np.float32),
                },
                x=[70000, 0.1, -2.5],
                i=[BIG, 2**32 - 1, 5],
            ),
            call(x=[0.5, -0.0], i=[0, -1]),
        ),
    ),
    "half": Case(
        half,
        (f32(None),),
        (
            call(
                {
                    "double": np.array([INF, 2], np.float16),
                    "square": [INF, 1],
                    "quarter": [INF, 1],
                    "bfloat_one": np.array([59904, 2], ml_dtypes.bfloat16),
                },
                x=[60000, 1],
            ),
            call({"epsilon": np.array([1, NAN], np.float16)}, x=[1, NAN]),
        ),
    ),
    "division": Case(
        division, (spec("int32", None, name="y"),), (call({"y": [3]}, y=[3]), call(y=[-1], fails="zero"), call({"y": [1]}, y=[1]))
    ),
    "unsigned": Case(
        unsigned,
        (spec("uint16", None, name="u"), spec("uint16", None, name="w")),
        (
            call(
                {
                    "less": [False, True],
                    "minus": np.array([65535, 3], np.uint16),
                    "negative_cast": np.array([65535, 3], np.int32),
                    "times_0": [0, 0],
                },
                u=[0, 5],
                w=[1, 2],
            ),
        ),
    ),
    "logic": Case(
        logic,
        (spec("bool", None, name="p"), spec("string", None, name="s")),
        (
            call(
                {
                    "and": [True, False],
                    "or": [True, False],
                    "xor": [False, False],
                    "not": [True, False],
                    "any": True,
                    "all": False,
                    "length": [1, 0],
                },
                p=[True, False],
                s=[b"a", b""],
            ),
        ),
    ),
    "complexes": Case(
        complexes,
        (f32(2, 2), f32(2, 2, name="y")),
        (call({"real": [[1, 2], [3, 4]], "imaginary": [[-5, 6], [-7, 8]]}, x=[[1, 2], [3, 4]], y=[[5, -6], [7, -8]]),),
        close=1e-6,
    ),
}


@pytest.mark.parametrize(("cluster", "route"), runs("dtypes"))
@pytest.mark.parametrize("name", CASES)
def test_values(name: str, cluster: str, route: str, suite: Suite) -> None:
    suite.check("dtypes", name, cluster, route)
