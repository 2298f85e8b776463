"""Kind 15, scale: exponential rewriting, recursion by depth, constants exploded or stored twice, time of the first call."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import compiler
from tests.cases.case import Case, call, f32
from tests.cases.suite import Suite, run_client, runs

pytestmark = [pytest.mark.tf, pytest.mark.timeout(900)]


def doubled(x: tf.Tensor) -> dict[str, Any]:
    """Each step doubles the paths: what walks paths never comes back."""
    y = x + 0 * tf.random.uniform([1])
    for _ in range(40):
        y = y + y
    return {"y": y}


def diamonds(x: tf.Tensor) -> dict[str, Any]:
    for _ in range(30):
        x = tf.sigmoid(x) + tf.tanh(x) * 0.5
    return {"y": x}


def deep(x: tf.Tensor) -> dict[str, Any]:
    """Deeper than Python recurses."""
    for step in range(1200):
        x = x + float(step % 3 - 1)
    return {"y": x}


def wide(x: tf.Tensor) -> dict[str, Any]:
    """Everyone reads one constant; a sum of very many."""
    c = tf.constant([1.0, 2.0])
    return {"y": tf.add_n([x + c for _ in range(300)]), "z": tf.stack([x * c] * 100)[99]}


def nested_calls(held: Any, x: tf.Tensor) -> dict[str, Any]:
    """Five functions, each of which calls the next one twice: 32 calls of the last."""
    return {"y": held.outermost(x)}


class Nested(tf.Module):
    def __init__(self) -> None:
        super().__init__()
        inner = tf.function(lambda x: x + 1)
        for _ in range(5):
            inner = self._twice(inner)
        self.outermost = inner

    @staticmethod
    def _twice(inner: Any) -> Any:
        return tf.function(lambda x: inner(inner(x)))


def own_predicate(x: tf.Tensor) -> dict[str, Any]:
    """A branch whose predicate is its own data."""
    p = tf.reduce_all(x > 0)
    return {"y": tf.cond(p, lambda: tf.cast(p, tf.float32) + x, lambda: tf.cast(p, tf.float32) - x)}


def opposite(x: tf.Tensor) -> dict[str, Any]:
    """What two rewrites might turn back and forth for ever."""
    y = tf.transpose(tf.transpose(tf.reshape(tf.reshape(x, [1, -1]), [-1, 2])))
    return {
        "y": tf.negative(tf.negative(y)),
        "z": tf.identity(tf.identity(tf.transpose(tf.transpose(y)))),
        "cast": tf.cast(tf.cast(y, tf.float64), tf.float32),
    }


CASES = {
    "doubled": Case(doubled, (f32(1),), (call({"y": [2.0**40]}, x=[1]),) * 2),
    "diamonds": Case(diamonds, (f32(2),), (call(x=[0.5, -1]),), close=1e-6),
    "deep": Case(deep, (f32(1),), (call({"y": [1]}, x=[1]),)),
    "wide": Case(wide, (f32(2),), (call({"y": [600, 1200], "z": [1, 4]}, x=[1, 2]),)),
    "nested_calls": Case(nested_calls, (f32(1),), (call({"y": [32]}, x=[0]),), Nested),
    "own_predicate": Case(own_predicate, (f32(2),), (call({"y": [2, 3]}, x=[1, 2]), call({"y": [-1, 2]}, x=[1, -2]))),
    "opposite": Case(opposite, (f32(None, 2),), (call({"y": [[1, 2]], "cast": [[1, 2]]}, x=[[1, 2]]),)),
}


@pytest.mark.parametrize(("cluster", "route"), runs("scale"))
@pytest.mark.parametrize("name", CASES)
def test_values(name: str, cluster: str, route: str, suite: Suite) -> None:
    suite.check("scale", name, cluster, route)


@pytest.mark.parametrize("route", ["load", "session"])
def test_the_first_call_of_a_doubling_chain_is_quick(route: str, suite: Suite, tmp_path: Path) -> None:
    """Grappler would take about twice as long for each of the 40 steps: it is kept out, with no word of the caller's."""
    start = time.monotonic()
    run_client(suite.compiled("2 eager"), {"scale_doubled": [{"x": np.ones(1, np.float32)}]}, route, 2, tmp_path / "out")
    assert time.monotonic() - start < 240


def test_a_weight_is_stored_once(tmp_path: Path) -> None:
    """One constant behind two chains of identities, in nested functions, for four devices; two equal ones; and a splat."""
    values = np.random.default_rng(0).standard_normal((256, 300)).astype(np.float32)

    @tf.function
    def inner(x: tf.Tensor, w: tf.Tensor) -> tf.Tensor:
        return x @ tf.identity(tf.identity(w))

    @tf.function(input_signature=[f32(None, 256)])
    def model(x: tf.Tensor) -> dict[str, Any]:
        w = tf.constant(values)
        return {"y": inner(x, tf.identity(w)) + inner(x * 2, w), "z": inner(x, tf.constant(values)), "splat": x + tf.fill([256], 0.5)}

    tf.saved_model.save(tf.Module(), str(tmp_path / "in"), signatures=model.get_concrete_function())
    for objective in ("latency", "memory"):
        out = compiler.compile_model(tmp_path / "in", cluster="cpu:4", objective=objective, validate=False).save(tmp_path / objective)
        size = sum(file.stat().st_size for file in out.rglob("*") if file.is_file())
        assert size <= 1.05 * values.nbytes + 60_000, f"{objective}: {size} bytes for a weight of {values.nbytes}"
