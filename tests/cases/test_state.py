"""Kind 3, state treated as pure: reads moved over writes, effects without a reader dropped, written variables frozen."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.cases.case import Case, call, f32, spec
from tests.cases.suite import Suite, runs

pytestmark = [pytest.mark.tf, pytest.mark.timeout(900)]


class Counter(tf.Module):
    def __init__(self) -> None:
        super().__init__()
        self.v, self.w = tf.Variable(1.0), tf.Variable([1.0, 2.0, 3.0])
        self.calls, self.kernel = tf.Variable(0, dtype=tf.int64), tf.Variable(tf.ones((4, 4)))

    @tf.function
    def add(self, x: tf.Tensor) -> tf.Tensor:
        self.v.assign_add(x)
        return self.v.read_value()


def reads(held: Counter, x: tf.Tensor) -> dict[str, Any]:
    a = held.v.read_value()
    held.v.assign_add(10 * x)
    b = held.v.read_value()
    held.v.assign(3 * a)
    return {"a": a, "b": b, "c": held.v.read_value()}


def hidden(held: Counter, x: tf.Tensor) -> dict[str, Any]:
    """The writes hide in a call, in a branch, in a loop and in a loop's call."""
    first = held.v.read_value()
    held.add(x)
    second = held.v.read_value()
    tf.cond(x > 0, lambda: held.add(x), lambda: x)
    third = held.v.read_value()
    tf.while_loop(lambda i: i < 3, lambda i: [i + 1 + 0 * tf.cast(held.add(x), tf.int32)], [0])
    return {"a": first, "b": second, "c": third, "d": held.v.read_value()}


def unread(held: Counter, x: tf.Tensor) -> dict[str, Any]:
    """No data path from the assertion and the counter to the result."""
    tf.debugging.assert_positive(x)
    held.calls.assign_add(1)
    return {"y": tf.constant(1.0)}


def counts(held: Counter, x: tf.Tensor) -> dict[str, Any]:
    """What failed did not count: an assertion comes before the write."""
    with tf.control_dependencies([tf.debugging.Assert(x > 0, ["not positive", x])]):
        held.calls.assign_add(1)
    return {"n": held.calls.read_value()}


def sometimes(held: Counter, x: tf.Tensor, p: tf.Tensor) -> dict[str, Any]:
    if p:
        held.v.assign(x)
    return {"y": 2 * held.v}


def parts(held: Counter, x: tf.Tensor) -> dict[str, Any]:
    """Writes to a part, through every door: slices, scatters, a loop that writes each element from the one before."""
    before = held.w.read_value()
    held.w[1].assign(x)
    middle = tf.gather(held.w, 1) + held.w[0]
    held.w.scatter_nd_add([[2]], [x])
    tf.while_loop(lambda i: i < 3, lambda i: [i + 1 + 0 * tf.cast(held.w[i].assign(held.w[i - 1] + 1)[0], tf.int32)], [1])
    return {"before": before, "middle": middle, "after": held.w.read_value(), "size": tf.size(held.w)}


def trains(held: Counter, x: tf.Tensor) -> dict[str, Any]:
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(x @ held.kernel)
    held.kernel.assign_sub(0.5 * tape.gradient(loss, held.kernel))
    return {"loss": loss}


def swaps(held: Counter, x: tf.Tensor) -> dict[str, Any]:
    """Equal reads of two variables between writes of both."""
    v, first = held.v.read_value(), held.w[0]
    held.v.assign(first * x)
    held.w[0].assign(v)
    return {"v": held.v.read_value(), "w": held.w[0]}


class Queue(tf.Module):
    """State that is no variable: a mutable table."""

    def __init__(self) -> None:
        super().__init__()
        self.table = tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, -1)


def mutable_table(held: Queue, key: tf.Tensor) -> dict[str, Any]:
    before, size = held.table.lookup(key), held.table.size()
    held.table.insert(key, tf.fill(tf.shape(key), size + 10))
    return {"before": before, "after": held.table.lookup(key), "size": size}


def moving_average(held: Counter, x: tf.Tensor) -> dict[str, Any]:
    """Training-mode batch-norm with its update."""
    norm = tf.raw_ops.FusedBatchNormV3(x=x, scale=tf.ones(3), offset=tf.zeros(3), mean=[], variance=[], is_training=True)
    held.w.assign(held.w * 0.5 + norm.batch_mean * 0.5)
    return {"mean": held.w.read_value(), "centre": tf.reduce_mean(norm.y, [0, 1, 2])}


def accumulates(held: Counter, x: tf.Tensor) -> dict[str, Any]:
    """A dead read, an update whose value is read before the next, and one whose value nobody reads."""
    held.v.read_value()
    new = held.v.assign_add(x).read_value()
    held.v.assign(held.v * 2)
    return {"new": new, "later": held.v.read_value()}


CASES = {
    "reads": Case(reads, (f32(),), (call({"a": 1, "b": 11, "c": 3}, x=1), call({"a": 3, "b": 13, "c": 9}, x=1)), Counter),
    "hidden": Case(
        hidden,
        (f32(),),
        (
            call({"a": 1, "b": 2, "c": 3, "d": 6}, x=1),
            call({"a": 6, "b": 5, "c": 5, "d": 2}, x=-1),
            call({"a": 2, "b": 4, "c": 6, "d": 12}, x=2),
        ),
        Counter,
    ),
    "unread": Case(unread, (f32(None),), (call({"y": 1}, x=[1, 2]), call(x=[-1, 2], fails="did not hold"), call({"y": 1}, x=[3])), Counter),
    "counts": Case(
        counts,
        (f32(),),
        (call({"n": np.int64(1)}, x=1), call({"n": 2}, x=1), call(x=-1, fails="not positive"), call({"n": 3}, x=2)),
        Counter,
    ),
    "sometimes": Case(
        sometimes,
        (f32(), spec("bool", name="p")),
        (call({"y": 2}, x=5, p=False), call({"y": 10}, x=5, p=True), call({"y": 10}, x=5, p=False)),
        Counter,
    ),
    "parts": Case(
        parts,
        (f32(),),
        (
            call({"before": [1, 2, 3], "middle": 8, "after": [1, 2, 3], "size": 3}, x=7),
            call({"before": [1, 2, 3], "middle": 1, "after": [1, 2, 3]}, x=0),
        ),
        Counter,
    ),
    "trains": Case(
        trains,
        (f32(None, 4),),
        (call({"loss": 32}, x=np.ones((2, 4))), call({"loss": 0}, x=np.ones((2, 4))), call({"loss": 0}, x=np.zeros((1, 4)))),
        Counter,
    ),
    "swaps": Case(swaps, (f32(),), (call({"v": 2, "w": 1}, x=2), call({"v": 3, "w": 2}, x=3)), Counter),
    "mutable_table": Case(
        mutable_table,
        (spec("string", None, name="key"),),
        (
            call({"before": [-1, -1], "after": [10, 10], "size": np.int64(0)}, key=[b"a", b"b"]),
            call({"before": [10, -1], "after": [12, 12], "size": 2}, key=[b"b", b"c"]),
        ),
        Queue,
    ),
    "moving_average": Case(
        moving_average,
        (f32(None, 1, 1, 3),),
        (
            call({"mean": [1, 1.5, 3], "centre": [0, 0, 0]}, x=np.array([[0, 0, 2], [2, 2, 4]]).reshape(2, 1, 1, 3)),
            call(x=np.ones((3, 1, 1, 3))),
        ),
        Counter,
        1e-5,
    ),
    "accumulates": Case(accumulates, (f32(),), (call({"new": 3, "later": 6}, x=2), call({"new": 7, "later": 14}, x=1)), Counter),
}


@pytest.mark.parametrize(("cluster", "route"), runs("state"))
@pytest.mark.parametrize("name", CASES)
def test_values(name: str, cluster: str, route: str, suite: Suite) -> None:
    suite.check("state", name, cluster, route)
