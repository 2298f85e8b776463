"""Kind 13, randomness and state over devices and time: equal nodes are not equal draws, masks of shards differ, replicas' do not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.cases.case import Case, call, f32
from tests.cases.suite import Suite, runs

pytestmark = [pytest.mark.tf, pytest.mark.timeout(900)]

Results = Sequence[Mapping[str, np.ndarray]]


def draws(x: tf.Tensor) -> dict[str, Any]:
    uniform = tf.random.uniform
    seeded = [uniform([3], seed=7) for _ in range(2)]
    return {
        "a": uniform([3]),
        "b": uniform([3]),
        "c": seeded[0],
        "d": seeded[1],
        "e": tf.random.stateless_uniform([3], [1, 2]),
        "f": tf.random.stateless_uniform([3], [1, 2]),
        "branch": tf.cond(x > 0, lambda: uniform([2]), lambda: uniform([2]) + 1),
        "normal": tf.random.normal([4]),
        "shuffled": tf.random.shuffle(tf.range(20)),
        "integers": uniform([4], 0, 1000, tf.int32),
        "choice": tf.random.categorical([[0.0, 0.0, 0.0]], 12),
        "twice": uniform([2]) + uniform([2]),
        "unused_shape": tf.shape(uniform([5])),
    }


def check_draws(calls: Results) -> None:
    first, second, third = calls
    for key in ("a", "b", "branch", "normal", "shuffled", "integers", "choice", "twice", "c"):
        assert not np.array_equal(first[key], second[key]), key
        assert not np.array_equal(second[key], third[key]), key
    assert not np.array_equal(first["a"], first["b"])
    assert np.array_equal(first["c"], first["d"]) and np.array_equal(second["c"], second["d"])
    assert np.array_equal(first["e"], first["f"]) and np.array_equal(first["e"], third["e"])
    assert sorted(first["shuffled"]) == list(range(20))
    assert all(np.all((key >= 0) & (key < 1)) for key in (first["a"], second["b"])) and np.all(third["branch"] >= 1)


def dropout(x: tf.Tensor) -> dict[str, Any]:
    """Masks: rows differ among each other and from call to call; one mask is one mask for all its readers."""
    mask = tf.nn.dropout(x, 0.5)
    hidden = tf.nn.dropout(x @ tf.eye(64), 0.5)
    return {
        "a": mask,
        "again": mask * 1.0,
        "b": tf.nn.dropout(x, 0.5),
        "hidden": hidden,
        "stateless": tf.nn.experimental.stateless_dropout(x, 0.5, [3, 4]),
        "sum": tf.reduce_sum(mask, 1),
        "noise": tf.nn.dropout(x, 0.5, noise_shape=[8, 1]),
    }


def check_dropout(calls: Results) -> None:
    for found in calls:
        for key in ("a", "b", "hidden", "stateless"):
            assert set(np.unique(found[key])) == {0.0, 2.0}, key
            assert len({row.tobytes() for row in found[key]}) == 8, f"{key}: shards have equal masks"
        assert np.array_equal(found["a"], found["again"]) and np.array_equal(found["sum"], found["a"].sum(1))
        assert not np.array_equal(found["a"], found["b"])
        assert all(len(set(row)) == 1 for row in found["noise"])
    assert not np.array_equal(calls[0]["a"], calls[1]["a"])
    assert np.array_equal(calls[0]["stateless"], calls[1]["stateless"])


class Streams(tf.Module):
    def __init__(self) -> None:
        super().__init__()
        self.generator = tf.random.Generator.from_seed(5)
        self.average, self.count = tf.Variable(tf.zeros(3)), tf.Variable(0.0)


def generators(held: Streams, x: tf.Tensor) -> dict[str, Any]:
    """A generator's counter is a variable: every draw moves it, the unread one too."""
    held.generator.normal([2])
    first, second = held.generator.uniform([2]), held.generator.uniform([2])
    return {"first": first + x, "second": second, "normal": held.generator.normal([3]), "state": held.generator.state.read_value()}


def stateless(x: tf.Tensor) -> dict[str, Any]:
    """What depends on a seed alone is the same in every process, divided or not, folded or not."""
    seed = tf.cast(tf.stack([x[0, 0], x[0, 1]]), tf.int32)
    noise = tf.random.stateless_normal(tf.shape(x), seed)
    return {
        "noise": noise,
        "sum": x + noise,
        "constant": tf.random.stateless_uniform([7, 4], [1, 2]) + x[:1, :4],
        "uniform": tf.random.stateless_uniform(tf.shape(x), seed),
        "integers": tf.random.stateless_uniform([5], seed, 0, 100, tf.int32),
        "split": tf.random.split([1, 2], 3),
        "mask": tf.nn.experimental.stateless_dropout(x, 0.5, seed),
        "truncated": tf.random.stateless_truncated_normal([3], seed),
        "gamma": tf.random.stateless_gamma([3], seed, 2.0),
    }


def averages(held: Streams, x: tf.Tensor) -> dict[str, Any]:
    """A moving average is moved once a call, by the mean of the whole batch."""
    held.average.assign(held.average * 0.5 + tf.reduce_mean(x, 0) * 0.5)
    held.count.assign_add(tf.cast(tf.shape(x)[0], tf.float32))
    return {"average": held.average.read_value(), "count": held.count.read_value()}


DRAWN = ("a", "b", "c", "d", "branch", "normal", "shuffled", "integers", "choice", "twice")


def draws_in_loops(x: tf.Tensor) -> dict[str, Any]:
    """Each turn draws anew, in a loop's body as in a mapped function."""
    array = tf.TensorArray(tf.float32, 4)
    drawn = tf.while_loop(lambda i, _: i < 4, lambda i, a: (i + 1, a.write(i, tf.random.uniform([2]))), [0, array])[1].stack()
    return {"turns": drawn, "mapped": tf.map_fn(lambda e: e + tf.random.uniform([]), x)}


def check_turns(calls: Results) -> None:
    assert len({row.tobytes() for row in calls[0]["turns"]}) == 4
    assert not np.array_equal(calls[0]["turns"], calls[1]["turns"])
    assert len(set(calls[0]["mapped"].tolist())) == 3


CASES = {
    "draws": Case(
        draws, (f32(),), (call({"unused_shape": np.array([5], np.int32)}, x=1), call(x=1), call(x=-1)), drawn=DRAWN, check=check_draws
    ),
    "dropout": Case(
        dropout, (f32(8, 64),), (call(x=np.ones((8, 64))),) * 2, drawn=("a", "again", "b", "hidden", "sum", "noise"), check=check_dropout
    ),
    "generators": Case(generators, (f32(),), (call(x=0),) * 3, Streams),
    "stateless": Case(stateless, (f32(None, 6),), (call(x=np.arange(42).reshape(7, 6)), call(x=np.arange(6).reshape(1, 6)))),
    "averages": Case(
        averages,
        (f32(None, 3),),
        (
            call({"average": [1.2, 1.2, 1.2], "count": 5}, x=np.array([[0], [0], [0], [4], [8]]) * np.ones((1, 3))),
            call({"average": [1.6, 1.6, 1.6], "count": 6}, x=np.full((1, 3), 2)),
        ),
        Streams,
        1e-6,
    ),
    "draws_in_loops": Case(draws_in_loops, (f32(3),), (call(x=[0, 0, 0]),) * 2, drawn=("turns", "mapped"), check=check_turns),
}


@pytest.mark.parametrize(("cluster", "route"), runs("randomness"))
@pytest.mark.parametrize("name", CASES)
def test_values(name: str, cluster: str, route: str, suite: Suite) -> None:
    suite.check("randomness", name, cluster, route)
