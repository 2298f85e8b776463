"""Kind 5, real-number algebra on floats: re-association, identities at NaN, infinity and -0, reciprocals, monotonic operators.

Grappler of TensorFlow 2.21 gets some of these wrong on the original; what is emitted is right with Grappler on.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.cases.case import INF, NAN, Case, assert_same, call, f32, spec, typed
from tests.cases.suite import Suite, run_client, runs

pytestmark = [pytest.mark.tf, pytest.mark.timeout(900)]

F = np.float32
SPECIAL = [1, INF, -INF, NAN, -2]
ZEROS = [-0.0, 0.0]


def associations(x: tf.Tensor) -> dict[str, Any]:
    return {
        "epsilon": tf.math.log((1 - x) + 1e-9),
        "big": (x + 1e8) - 1e8,
        "overflow": (x * 1e30) * 1e30 * 1e-30,
        "scaled": (x * 1e30) * 1e-30,
        "small": (x + 1e-9) - 1.0,
        "halves": (x / 1e30) * 1e30,
        "sum": tf.add_n([x * 1e8, x, x * -1e8]),
        "chain": ((x + 1.0) + 1e8) + -1e8,
        "rows": tf.reduce_sum(tf.stack([x * 1e8, x, x * -1e8]), 0),
        "subtract": 1e8 - (1e8 - x),
        "divided": (x / 3.0) / 1e-40,
    }


def identities(x: tf.Tensor) -> dict[str, Any]:
    return {
        "times_0": x * 0.0,
        "zero_times": tf.zeros_like(x) * x,
        "self": x - x,
        "ratio": x / x,
        "plus_0": 1 / (x + 0.0),
        "minus_0": 1 / (x - 0.0),
        "zero_minus": 1 / (0.0 - x),
        "negative": 1 / tf.negative(x),
        "plus_minus_0": 1 / (x + -0.0),
        "times_1": 1 / (x * 1.0),
        "over_1": 1 / (x / 1.0),
        "equal": tf.equal(x, x),
        "not_equal": tf.not_equal(x, x),
        "at_least": tf.maximum(x, -INF),
        "at_most": tf.minimum(x, INF),
        "either": tf.where(x > 0, x, x),
        "less": x < x,
        "no_less": x >= x,
        "zero_over": 0.0 / x,
        "to_0": x**0.0,
        "to_1": x**1.0,
        "to_half": x**0.5,
        "no_nan": tf.math.multiply_no_nan(x, tf.zeros_like(x)),
        "abs": tf.abs(x),
        "two_negatives": 1 / tf.negative(tf.negative(x)),
        "squared_root": tf.sqrt(tf.square(x)),
        "sign": tf.sign(x) * tf.abs(x),
        "none": tf.reduce_sum(x[:, None], 1),
        "added": tf.add_n([x, tf.zeros_like(x)]),
    }


def broadcast_zero(x: tf.Tensor) -> dict[str, Any]:
    """An identity must not lose what the broadcast adds."""
    return {
        "times": x * tf.zeros([2, 3]),
        "plus": x + tf.zeros([2, 1]),
        "ones": x * tf.ones([2, 1]),
        "minus": x - tf.zeros([1, 1, 3]),
        "over": x / tf.ones([2, 3]),
        "max": tf.maximum(x, tf.fill([2, 1], -INF)),
        "where": tf.where(tf.constant([[True], [False]]), x, x),
    }


def reciprocals(x: tf.Tensor) -> dict[str, Any]:
    inverse = tf.math.reciprocal
    return {
        "twice": inverse(inverse(x)),
        "thrice": inverse(inverse(inverse(x))),
        "over": 1 / x,
        "over_over": 1 / (1 / x),
        "root": x / tf.sqrt(x),
        "rsqrt": x * tf.math.rsqrt(x),
        "product": x * inverse(x),
        "divided": x / 3.0,
        "log_exp": tf.math.log(tf.exp(x)),
        "log1p": tf.math.log(1.0 + x),
        "expm1": tf.exp(x) - 1.0,
        "square": x**2.0,
        "cube": x**3.0,
        "double": x / 0.5,
        "tenth": x / 10.0,
        "constant": 0.1 / (x / 0.3),
    }


def monotonic(x: tf.Tensor) -> dict[str, Any]:
    """The extreme of a saturating function is not the extreme of its argument."""
    best = tf.math.top_k(tf.tanh(x), 2)
    return {
        "relu": tf.argmin(tf.nn.relu(x), 1),
        "tanh": tf.argmax(tf.tanh(x), 1),
        "exp": tf.argmax(tf.exp(x), 1),
        "sigmoid": tf.argmax(tf.sigmoid(x), 1),
        "elu": tf.argmin(tf.nn.elu(x), 1),
        "narrow": tf.argmax(tf.exp(x), 1, output_type=tf.int32),
        "top": best.indices,
        "softmax": tf.argmax(tf.nn.softmax(x), 1),
        "relu6": tf.argmax(tf.nn.relu6(x), 1),
        "floor": tf.argmax(tf.floor(x), 1),
        "negative": tf.argmax(-x, 1),
        "root": tf.argmin(tf.sqrt(x), 1),
        "max_relu": tf.reduce_max(tf.nn.relu(x), 1),
        "relu_max": tf.nn.relu(tf.reduce_max(x, 1)),
        "min_exp": tf.reduce_min(tf.exp(x), 1),
    }


def pools(x: tf.Tensor) -> dict[str, Any]:
    """Max-pool and relu do not change places at NaN."""
    pooled = tf.nn.max_pool2d(x, 2, 2, "VALID")
    return {
        "relu_pool": tf.nn.max_pool2d(tf.nn.relu(x), 2, 2, "VALID"),
        "pool_relu": tf.nn.relu(pooled),
        "tanh": tf.nn.max_pool2d(tf.tanh(x), 2, 2, "VALID"),
    }


def grapplers_faults(x: tf.Tensor, u: tf.Tensor) -> dict[str, Any]:
    """Those met on TensorFlow 2.21 besides."""
    y = tf.stack([x, x * 2], -2)
    return {
        "shape": y[-1:, tf.newaxis],
        "wraps": tf.zeros_like(u) - u,
        "zeros": tf.zeros([3], tf.uint8) - u,
        "last": tf.stack([x, x + 1], 0)[-1:, tf.newaxis],
    }


def everything(x: tf.Tensor) -> dict[str, Any]:
    """All of the above that Grappler gets wrong, and a chain on which it takes long, for one call by TensorFlow's own tool."""
    doubled = x
    for _ in range(16):  # each one more doubles what Grappler takes: at 30 it is 18 GB
        doubled = doubled + doubled
    first, zero = associations(x), identities(x)
    chosen = {key: first[key] for key in ("big", "scaled", "small", "chain")} | {key: zero[key] for key in ("plus_0", "zero_minus")}
    rows = tf.stack([x * 3, x * -2, x * -7, x * 4], 1)
    saturated = tf.stack([x * 20, x * 30, x * 5], 1)
    found = {
        "argmin": tf.argmin(tf.nn.relu(rows), 1),
        "argmax": tf.argmax(tf.tanh(saturated), 1),
        "exp": tf.argmax(tf.exp(saturated * 10), 1),
    }
    pair = tf.stack([x[:2], x[1:3]], -2)
    return {**chosen, **found, "twice": reciprocals(x)["twice"], "pair": pair[-1:, tf.newaxis], "doubled": doubled}


IMAGE = np.array([[NAN, -1, 2, 3], [-4, -5, NAN, -6], [-1, -2, INF, NAN], [-3, -4, 1, 0]], F).reshape(1, 4, 4, 1)
UNITS = np.arange(3, 31, dtype=F)
EVERYTHING = {
    "big": np.array([0, 8, 0, 1e20], np.float32),
    "plus_0": np.array([1, F(1) / F(7), INF, F(1) / F(1e20)], np.float32),
    "zero_minus": np.array([-1, -F(1) / F(7), INF, -F(1) / F(1e20)], np.float32),
    "scaled": np.array([1, F(7) * F(1e30) * F(1e-30), -0.0, INF], np.float32),
    "argmin": np.array([1, 1, 0, 1]),
    "argmax": np.array([0, 0, 0, 0]),
    "exp": np.array([0, 0, 0, 0]),
    "pair": np.array([[[7, -0.0]]], np.float32),
}
CASES = {
    "associations": Case(
        associations,
        (f32(None),),
        (
            call({"big": [0], "small": [0], "sum": [0], "chain": [0], "rows": [0], "subtract": [0], "overflow": [INF]}, x=[1]),
            call({"scaled": [INF, 0], "halves": [F(1e20) / F(1e30) * F(1e30), 0]}, x=[1e20, 0]),
        ),
    ),
    "epsilon": Case(lambda x: {"y": tf.math.log((1 - x) + 1e-9)}, (f32(None),), (call({"y": [np.log(F(1e-9))]}, x=[1]),), close=1e-6),
    "identities": Case(
        identities,
        (f32(None),),
        (
            call(
                {
                    "times_0": [0, NAN, NAN, NAN, -0.0],
                    "zero_times": [0, NAN, NAN, NAN, -0.0],
                    "self": [0, NAN, NAN, NAN, 0],
                    "ratio": [1, NAN, NAN, NAN, 1],
                    "equal": [True, True, True, False, True],
                    "not_equal": [False, False, False, True, False],
                    "less": [False] * 5,
                    "no_less": [True, True, True, False, True],
                    "at_least": SPECIAL,
                    "at_most": SPECIAL,
                    "either": SPECIAL,
                    "to_0": [1] * 5,
                    "no_nan": [0, 0, 0, 0, 0],
                    "none": SPECIAL,
                    "to_half": [1, INF, INF, NAN, NAN],
                },
                x=SPECIAL,
            ),
            call(
                {
                    "plus_0": [INF, INF],
                    "minus_0": [-INF, INF],
                    "zero_minus": [INF, INF],
                    "negative": [INF, -INF],
                    "plus_minus_0": [-INF, INF],
                    "times_1": [-INF, INF],
                    "over_1": [-INF, INF],
                    "two_negatives": [-INF, INF],
                    "ratio": [NAN, NAN],
                    "abs": [0, 0],
                    "either": ZEROS,
                },
                x=ZEROS,
            ),
            call({"ratio": [1, NAN, NAN, NAN]}, x=[1, 0, INF, NAN]),
        ),
    ),
    "broadcast_zero": Case(
        broadcast_zero,
        (f32(3),),
        (
            call(
                {
                    "times": np.array([[0, -0.0, NAN]] * 2, F),
                    "plus": [[1, -2, INF]] * 2,
                    "ones": [[1, -2, INF]] * 2,
                    "minus": [[[1, -2, INF]]],
                    "over": [[1, -2, INF]] * 2,
                    "max": [[1, -2, INF]] * 2,
                    "where": [[1, -2, INF]] * 2,
                },
                x=[1, -2, INF],
            ),
        ),
    ),
    "reciprocals": Case(
        reciprocals,
        (f32(None),),
        (
            call({"twice": np.array([6.9999995, 0, INF], F)}, x=[7, 1e-40, 3e38]),
            call({"over": F(1) / UNITS, "divided": UNITS / F(3)}, x=UNITS),
            call(x=[INF, -INF, NAN, 0.0, -0.0, -1]),
        ),
    ),
    "monotonic": Case(
        monotonic,
        (f32(None, None),),
        (
            call({"relu": [1], "relu_max": [4], "max_relu": [4]}, x=[[3, -2, -7, 4]]),
            call({"tanh": [0], "top": [[0, 1]], "sigmoid": [0]}, x=[[20, 30, 5]]),
            call({"exp": [0], "narrow": np.array([0], np.int32), "relu6": [0]}, x=[[100, 200, 50]]),
            call(x=[[NAN, 1, 2], [2, NAN, 5], [-1, -2, -3]]),
            call({"tanh": [0]}, x=[[10, 20, 5]]),
        ),
    ),
    "pools": Case(pools, (f32(None, 4, 4, 1),), (call(x=IMAGE), call(x=-IMAGE))),
    "everything": Case(everything, (f32(None),), (call(EVERYTHING, x=[1, 7, -0.0, 1e20]),)),
    "grapplers_faults": Case(
        grapplers_faults,
        (f32(2), spec("uint8", 3, name="u")),
        (
            call(
                {
                    "shape": np.array([[[2, 4]]], F),
                    "wraps": np.array([0, 255, 1], np.uint8),
                    "zeros": np.array([0, 255, 1], np.uint8),
                    "last": np.array([[[2, 3]]], F),
                },
                x=[1, 2],
                u=[0, 1, 255],
            ),
        ),
    ),
}


@pytest.mark.parametrize(("cluster", "route"), runs("float_algebra"))
@pytest.mark.parametrize("name", CASES)
def test_values(name: str, cluster: str, route: str, suite: Suite) -> None:
    suite.check("float_algebra", name, cluster, route)


def test_the_tool_of_tensorflow_gets_the_same(suite: Suite, tmp_path: Path) -> None:
    """`saved_model_cli run`, with Grappler on as TensorFlow starts."""
    np.save(tmp_path / "x.npy", np.array([1, 7, -0.0, 1e20], np.float32))
    tool = [str(Path(sys.executable).parent / "saved_model_cli"), "run", "--dir", str(suite.compiled("2 eager")), "--tag_set", "serve"]
    tool += ["--signature_def", "float_algebra_everything", "--inputs", f"x={tmp_path / 'x.npy'}", "--outdir", str(tmp_path / "out")]
    done = subprocess.run(tool, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    (original,) = suite.results("float_algebra", "", "original")["float_algebra_everything"]
    for name, array in original.items():
        assert_same(name, np.load(tmp_path / "out" / f"{name}.npy"), array)


def test_the_original_needs_the_care(suite: Suite, tmp_path: Path) -> None:
    """Grappler does get the original wrong: the tests above test something."""
    case, key = CASES["everything"], "float_algebra_everything"
    run_client(suite.model(), {key: [typed(case, case.calls[0])]}, "load", 1, tmp_path / "out")
    (found,) = pickle.loads((tmp_path / "out").read_bytes())[key]
    wrong = {name for name, answer in EVERYTHING.items() if not np.array_equal(found[name], answer, equal_nan=True)}
    assert {"argmin", "argmax", "exp", "zero_minus", "big", "pair"} & wrong, wrong
