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


class Things(tf.Module):
    """State of every shape: strings, flags, a variable that grows, a ring; methods that write and return nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.v, self.w, self.ring = tf.Variable(1.0), tf.Variable(tf.eye(4)), tf.Variable([0, 0, 0])
        self.text, self.flag, self.table = tf.Variable("a"), tf.Variable(False), tf.Variable([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
        self.rows, self.norm, self.calls = tf.Variable(tf.zeros([0, 2]), shape=[None, 2]), tf.Variable(tf.zeros([2, 3])), tf.Variable(0)

    @tf.function
    def bump(self, x: tf.Tensor) -> None:
        self.v.assign_add(x)

    @tf.function
    def get(self) -> tf.Tensor:
        return self.v.read_value()


def calls_for_nothing(held: Things, x: tf.Tensor) -> dict[str, Any]:
    """Calls without results, between calls that read: at the top, in a branch, in a loop."""
    first = held.get()
    held.bump(x)
    second = held.get()
    if x > 0:
        held.bump(x)
    third = held.get()
    for i in tf.range(3):
        held.bump(tf.cast(i, tf.float32))
    return {"a": first, "b": second, "c": third, "d": held.get()}


def texts_and_flags(held: Things, x: tf.Tensor) -> dict[str, Any]:
    old = held.text.read_value()
    held.text.assign(tf.strings.join([held.text, "b"]))
    held.flag.assign(tf.logical_not(held.flag))
    return {"old": old, "new": held.text.read_value(), "flag": held.flag.read_value(), "x": tf.where(held.flag, x, -x)}


def grows(held: Things, x: tf.Tensor) -> dict[str, Any]:
    """A variable without a fixed size: what its reads have is what was written, not what it began with."""
    held.rows.assign(tf.concat([held.rows, x], 0))
    return {"rows": tf.shape(held.rows)[0], "sum": tf.reduce_sum(held.rows, 0), "all": held.rows.read_value()}


def ring(held: Things, x: tf.Tensor, i: tf.Tensor) -> dict[str, Any]:
    """A loop that carries a value and writes what it reads in the next turn."""

    def turn(k: tf.Tensor, total: tf.Tensor) -> Any:
        held.ring.scatter_nd_update([[k % 3]], [tf.cast(total, tf.int32)])
        return k + 1, total + tf.cast(tf.gather(held.ring, (k + 1) % 3), tf.float32)

    total = tf.while_loop(lambda k, _: k < i, turn, [0, x])[1]
    return {"total": total, "ring": held.ring.read_value()}


def scatters(held: Things, x: tf.Tensor, i: tf.Tensor) -> dict[str, Any]:
    held.table.scatter_update(tf.IndexedSlices(x[None], i[None]))
    first = held.table.sparse_read(tf.constant([0, 2]))
    held.table.scatter_max(tf.IndexedSlices(x[None] * 2, i[None]))
    held.table.scatter_mul(tf.IndexedSlices(tf.constant([[2.0, 2.0]]), i[None]))
    return {"first": first, "element": held.table.gather_nd([[1, 1]]), "table": held.table.read_value()}


def written_in_a_branch(held: Things, x: tf.Tensor) -> dict[str, Any]:
    """One read before and after a write that happens sometimes."""
    before = held.w.read_value()
    y = x @ before
    if tf.reduce_sum(x) > 0:
        held.w.assign(before * 0.5)
    return {"y": y, "after": x @ held.w, "before": x @ before}


def asserts_in_a_branch(held: Things, x: tf.Tensor) -> dict[str, Any]:
    def checked() -> tf.Tensor:
        with tf.control_dependencies([tf.debugging.Assert(tf.reduce_all(x < 10), ["too big"])]):
            return tf.identity(x)

    return {"y": tf.cond(x[0] > 0, checked, lambda: -x), "shape": tf.ensure_shape(x, [None])}


def checks_numbers(x: tf.Tensor) -> dict[str, Any]:
    return {"y": tf.debugging.check_numerics(x, "bad numbers") * 2}


def counts_in_branches(held: Things, x: tf.Tensor) -> dict[str, Any]:
    """Effects alone, of which the sum is read in the next call."""
    before = held.calls.read_value()
    held.calls.assign_add(1)
    if x > 0:
        held.calls.assign_add(10)
    else:
        held.calls.assign_add(100)
    held.calls.assign_sub(1)
    return {"before": before}


def norm_step(held: Things, x: tf.Tensor, training: tf.Tensor) -> dict[str, Any]:
    """A batch-norm whose mode is an input: batch statistics, or the moving ones that it has written."""
    mean, variance = tf.nn.moments(x, [0])
    used_mean = tf.cond(training, lambda: mean, lambda: held.norm[0])
    used_variance = tf.cond(training, lambda: variance, lambda: held.norm[1] + 1)
    moved = tf.stack([mean * 0.1 + held.norm[0] * 0.9, variance * 0.1 + held.norm[1] * 0.9])
    held.norm.assign(tf.where(training, moved, held.norm))
    return {"y": (x - used_mean) * tf.math.rsqrt(used_variance + 1e-3), "norm": held.norm.read_value()}


def stack(x: tf.Tensor) -> dict[str, Any]:
    """A resource that lives for one call."""
    made = tf.raw_ops.StackV2(max_size=5, elem_type=tf.float32)
    with tf.control_dependencies([tf.raw_ops.StackPushV2(handle=made, elem=x)]):
        second = tf.raw_ops.StackPushV2(handle=made, elem=x * 2)
    with tf.control_dependencies([second]):
        return {"y": tf.raw_ops.StackPopV2(handle=made, elem_type=tf.float32)}


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
    "calls_for_nothing": Case(
        calls_for_nothing, (f32(),), (call({"a": 1, "b": 3, "c": 5, "d": 8}, x=2), call({"a": 8, "b": 7, "c": 7, "d": 10}, x=-1)), Things
    ),
    "texts_and_flags": Case(
        texts_and_flags,
        (f32(),),
        (call({"old": b"a", "new": b"ab", "flag": True, "x": 3}, x=3), call({"old": b"ab", "new": b"abb", "flag": False, "x": -3}, x=3)),
        Things,
    ),
    "grows": Case(
        grows,
        (f32(None, 2),),
        (call({"rows": 2, "sum": [4, 6]}, x=[[1, 2], [3, 4]]), call({"rows": 3, "all": [[1, 2], [3, 4], [1, 1]]}, x=[[1, 1]])),
        Things,
    ),
    "ring": Case(ring, (f32(), spec("int32", name="i")), (call(x=1, i=5), call(x=2, i=4)), Things),
    "scatters": Case(
        scatters,
        (f32(2), spec("int32", name="i")),
        (
            call({"first": [[1, 2], [5, 6]], "element": [8], "table": [[1, 2], [4, 8], [5, 6]]}, x=[1, 2], i=1),
            call({"table": [[-2, 8], [4, 8], [5, 6]]}, x=[-1, 2], i=0),
        ),
        Things,
    ),
    "written_in_a_branch": Case(
        written_in_a_branch,
        (f32(None, 4),),
        (
            call({"y": [[1] * 4], "after": [[0.5] * 4], "before": [[1] * 4]}, x=np.ones((1, 4))),
            call({"y": [[-0.5] * 4], "after": [[-0.5] * 4]}, x=-np.ones((1, 4))),
            call({"after": [[0.25] * 4] * 2}, x=np.ones((2, 4))),
        ),
        Things,
    ),
    "asserts_in_a_branch": Case(
        asserts_in_a_branch, (f32(None),), (call({"y": [1]}, x=[1]), call(x=[20], fails="too big"), call({"y": [20]}, x=[-20])), Things
    ),
    "checks_numbers": Case(checks_numbers, (f32(None),), (call({"y": [2]}, x=[1]), call(x=[np.nan], fails="bad numbers"))),
    "counts_in_branches": Case(
        counts_in_branches, (f32(),), (call({"before": 0}, x=1), call({"before": 10}, x=-1), call({"before": 110}, x=1)), Things
    ),
    "norm_step": Case(
        norm_step,
        (f32(None, 3), spec("bool", name="training")),
        (call(x=[[0, 1, 2], [4, 5, 9]], training=True), call(x=[[1, 1, 1]], training=False), call(x=[[3, 1, 2]], training=True)),
        Things,
        1e-5,
    ),
    "stack": Case(stack, (f32(),), (call({"y": 6}, x=3),)),
}


@pytest.mark.parametrize(("cluster", "route"), runs("state"))
@pytest.mark.parametrize("name", CASES)
def test_values(name: str, cluster: str, route: str, suite: Suite) -> None:
    suite.check("state", name, cluster, route)
