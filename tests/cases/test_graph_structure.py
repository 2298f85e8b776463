"""Kind 1, graph structure loses information: parallel edges, ports, the order of inputs, control edges, frames, names."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import compiler
from tests.cases.case import Case, call, f32, spec
from tests.cases.suite import CLUSTERS, Suite, run_client, runs

pytestmark = [pytest.mark.tf, pytest.mark.timeout(900)]

X7 = np.arange(14, dtype=np.float32).reshape(2, 7) ** 2
X3 = np.array([[3, -1, 4], [1, 5, -9]], np.float32)


def parallel_edges(x: tf.Tensor) -> dict[str, Any]:
    s0, s1, s2 = tf.raw_ops.SplitV(value=x, size_splits=[2, 2, 3], axis=1, num_split=3)
    twice = tf.raw_ops.IdentityN(input=[s0, s0])
    return {
        "out0": s1 - s0,
        "out1": s0 * s0,
        "left": twice[0],
        "right": twice[1],
        "out3": tf.concat([s2, s0, s2], 1),
        "indices": tf.raw_ops.TopKV2(input=x, k=3).indices,
        "thrice": tf.add_n([s1, s1, s1]),
        "packed": tf.stack([s0, s1, s0, s0]),
        "swapped": tf.raw_ops.IdentityN(input=[s1, s0])[0] - tf.raw_ops.IdentityN(input=[s1, s0])[1],
    }


def waits_for_a_port(x: tf.Tensor) -> dict[str, Any]:
    s0, s1, s2 = tf.split(x, [2, 2, 3], 1)
    with tf.control_dependencies([s0]):
        nothing = tf.no_op()
    with tf.control_dependencies([nothing, s1, s2]):
        return {"y": s1 + s1, "z": tf.identity(s0)}


def later_ports(x: tf.Tensor) -> dict[str, Any]:
    """Nobody reads port 0."""
    rows = tf.unstack(x, num=3, axis=1)
    unique = tf.raw_ops.UniqueWithCounts(x=tf.reshape(x, [-1]))
    moments = tf.nn.moments(x, [0])
    return {
        "last": rows[2] - rows[1],
        "index": unique.idx,
        "count": unique.count,
        "variance": moments[1],
        "power": tf.pow(rows[1], rows[2]),
    }


def two_of_one(held: Any, x: tf.Tensor) -> dict[str, Any]:
    """A call that gives two values, each read under the other's name; a branch and a loop with two results."""
    first, second = held.pair(x)
    up, down = tf.cond(x[0] > 0, lambda: (x + 1, x - 1), lambda: (x - 1, x + 1))
    count, total = tf.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y + tf.cast(i, tf.float32)), [tf.constant(0), x])
    return {"a": second - first, "up": up, "down": down, "count": count, "total": total}


class Pair(tf.Module):
    @tf.function
    def pair(self, x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return x * 2, x * 3


def same_names(held: Any, x: tf.Tensor) -> dict[str, Any]:
    """One function called three times, two of one name and different bodies, names like those the compiler makes, names but for case."""
    with tf.name_scope("x"):
        one = tf.identity(held.first(x), "_1")
    with tf.name_scope("split_0"):
        two = tf.identity(held.second(one), "0")
    return {"A": tf.identity(held.first(held.first(two)), "Case"), "a": tf.identity(held.second(two), "case"), "split_0": two, "y_1": one}


class SameNames(tf.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = self._make(2.0), self._make(10.0)

    @staticmethod
    def _make(factor: float) -> Any:
        @tf.function
        def f(x: tf.Tensor) -> tf.Tensor:
            return x * factor

        return f


def higher_order(x: tf.Tensor) -> dict[str, Any]:
    """Loops that TensorFlow makes of functions over rows: several results, arrays and lists inside."""
    return {
        "map": tf.map_fn(lambda r: r * 2 + tf.reduce_sum(r), x),
        "scan": tf.scan(lambda a, r: a + r, x),
        "fold": tf.foldl(lambda a, r: a * 0.5 + r, x),
        "vectorized": tf.vectorized_map(lambda r: tf.reduce_sum(r) * r, x),
        "pair": tf.map_fn(lambda r: (r, -r), x, fn_output_signature=(tf.float32, tf.float32))[1],
    }


def recurrent(x: tf.Tensor) -> dict[str, Any]:
    """A cell by hand in a scan: weights that the body captures, a state of unknown batch."""
    w, u = (tf.constant(np.sin(np.arange(n * 9, dtype=np.float32)).reshape(n, 9)) for n in (4, 3))

    def step(state: tf.Tensor, row: tf.Tensor) -> tf.Tensor:
        enter, forget, new = tf.split(row @ w + state @ u, 3, 1)
        return tf.tanh(new) * tf.sigmoid(enter) + state * tf.sigmoid(forget)

    states = tf.scan(step, tf.transpose(x, [1, 0, 2]), tf.zeros([tf.shape(x)[0], 3]))
    return {"last": states[-1], "all": tf.transpose(states, [1, 0, 2])}


def branches(x: tf.Tensor, p: tf.Tensor) -> dict[str, Any]:
    """Branches in branches, a loop in a branch, a loop that swaps what it carries, operators that divide around all of them."""
    y = tf.cond(p, lambda: tf.nn.relu(x) @ tf.eye(4), lambda: tf.nn.softmax(x))
    case = tf.switch_case(tf.shape(x)[0] - 1, [lambda: x * 2, lambda: x + 1, lambda: tf.reverse(x, [0])], default=lambda: x * 0)
    count, a, b = tf.while_loop(lambda i, *_: i < tf.shape(x)[0], lambda i, a, b: (i + 1, b, a + tf.reduce_sum(x[i])), [0, x[0], x[0] * 2])
    doubled = lambda: tf.while_loop(lambda v: tf.reduce_sum(v) < 100.0, lambda v: [v * 2 + 1], [tf.abs(x)])[0]  # noqa: E731
    nested = tf.cond(p, lambda: tf.cond(x[0, 0] > 0, lambda: x, lambda: -x), doubled)
    return {"y": y, "case": case, "count": count, "a": a, "b": b, "nested": nested, "sum": tf.nn.softmax(y) + nested}


CASES = {
    "parallel_edges": Case(
        parallel_edges,
        (f32(None, 7),),
        (
            call(
                {
                    "out0": [[4, 8], [32, 36]],
                    "out1": [[0, 1], [49**2, 64**2]],
                    "left": X7[:, :2],
                    "right": X7[:, :2],
                    "out3": np.concatenate([X7[:, 4:], X7[:, :2], X7[:, 4:]], 1),
                    "indices": np.array([[6, 5, 4]] * 2, np.int32),
                    "thrice": 3 * X7[:, 2:4],
                    "swapped": X7[:, 2:4] - X7[:, :2],
                    "packed": np.stack([X7[:, :2], X7[:, 2:4], X7[:, :2], X7[:, :2]]),
                },
                x=X7,
            ),
            call(x=X7[:1]),
        ),
    ),
    "waits_for_a_port": Case(waits_for_a_port, (f32(None, 7),), (call({"y": 2 * X7[:, 2:4], "z": X7[:, :2]}, x=X7),)),
    "later_ports": Case(
        later_ports,
        (f32(None, 3),),
        (call({"last": [5, -14], "index": np.arange(6, dtype=np.int32), "count": np.ones(6, np.int32), "variance": [1, 9, 42.25]}, x=X3),),
    ),
    "two_of_one": Case(
        two_of_one,
        (f32(None),),
        (
            call({"a": [1, 2], "up": [2, 3], "down": [0, 1], "count": 3, "total": [4, 5]}, x=[1, 2]),
            call({"a": [-1], "up": [-2], "down": [0], "total": [2]}, x=[-1]),
        ),
        Pair,
    ),
    "same_names": Case(
        same_names, (f32(None),), (call({"A": [80, 160], "a": [200, 400], "split_0": [20, 40], "y_1": [2, 4]}, x=[1, 2]),), SameNames
    ),
    "higher_order": Case(
        higher_order,
        (f32(None, 3),),
        (call({"scan": [[3, -1, 4], [4, 4, -5]], "pair": -X3, "fold": [2.5, 4.5, -7]}, x=X3), call(x=X3[:1])),
        close=1e-6,
    ),
    "recurrent": Case(
        recurrent, (f32(None, None, 4),), (call(x=np.cos(np.arange(60)).reshape(3, 5, 4)), call(x=np.ones((1, 2, 4)))), close=1e-5
    ),
    "branches": Case(
        branches,
        (f32(None, 4), spec("bool", name="p")),
        (
            call(x=np.ones((3, 4)), p=True),
            call({"case": [[2, 2, 2, 2]]}, x=np.ones((1, 4)), p=False),
            call({"count": 2}, x=-np.eye(4)[:2], p=True),
        ),
        close=1e-5,
    ),
}


@pytest.mark.parametrize(("cluster", "route"), runs("graph_structure"))
@pytest.mark.parametrize("name", CASES)
def test_values(name: str, cluster: str, route: str, suite: Suite) -> None:
    suite.check("graph_structure", name, cluster, route)


def v1_loops(path: Path) -> None:
    """Loops and branches as cycles of Enter, Merge, Switch, NextIteration and Exit; nested, with an array, in two signatures."""
    v1 = tf.compat.v1
    v1.disable_control_flow_v2()
    try:
        with tf.Graph().as_default(), v1.Session() as session:
            x, n = v1.placeholder(tf.float32, [None], "x"), v1.placeholder(tf.int32, [], "n")
            w = v1.get_variable("w", initializer=[1.0], use_resource=True)
            once = v1.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, 2 * y + w), [tf.constant(0), x])[1]

            def outer(i: tf.Tensor, y: tf.Tensor, other: tf.Tensor) -> Any:
                inner = v1.while_loop(lambda j, z: j < i + 1, lambda j, z: (j + 1, z * 2 + w), [tf.constant(0), y])
                return i + 1, inner[1], v1.cond(i > 0, lambda: other - y, lambda: other + 1 + 0 * w)

            _, nested, swapped = v1.while_loop(lambda i, *_: i < n, outer, [tf.constant(0), x, x], back_prop=False)
            array = tf.TensorArray(tf.float32, 0, dynamic_size=True, infer_shape=False)

            def append(i: tf.Tensor, a: Any) -> Any:
                return i + 1, a.write(i, x * tf.cast(i, tf.float32))

            array = v1.while_loop(lambda i, a: i < n, append, [tf.constant(0), array])[1]
            branch = v1.cond(tf.reduce_sum(x) > 0, lambda: (x + 1, x - 1), lambda: (x - 1, x + 1))
            either = v1.cond(tf.reduce_sum(x) > 0, lambda: w.read_value(), lambda: w.read_value() * 2)
            session.run(v1.global_variables_initializer())
            define = v1.saved_model.signature_def_utils.predict_signature_def
            flat, deep = (
                {"once": once, "either": either, "up": branch[0], "down": branch[1]},
                {"nested": nested, "swapped": swapped, "array": array.stack()},
            )
            signatures = {"flat": define({"x": x}, flat), "deep": define({"x": x, "n": n}, deep)}
            builder = v1.saved_model.Builder(str(path))
            builder.add_meta_graph_and_variables(session, ["serve"], signatures)
            builder.save()
    finally:
        v1.enable_control_flow_v2()


def test_loops_that_are_cycles_are_sound(tmp_path: Path) -> None:
    """Compiled, with common subexpressions merged, for devices that want everything divided; then compiled once more."""
    v1_loops(tmp_path / "0")
    for generation in (0, 1):
        found = compiler.compile_model(tmp_path / str(generation), cluster=CLUSTERS["2 eager"][0], validate=False)
        out = found.save(tmp_path / str(generation + 1))
        calls = {"flat": [{"x": np.float32(x)} for x in ([1, -2, 0], [-1], [3])], "deep": [{"x": np.float32([1, 0]), "n": np.int32(3)}]}
        run_client(out, calls, "load" if generation else "session", 2, tmp_path / f"found{generation}")
        results = pickle.loads((tmp_path / f"found{generation}").read_bytes())
        first, second, third = results["flat"]
        assert [r["either"].tolist() for r in (first, second, third)] == [[2], [2], [1]]
        assert [first["once"].tolist(), first["up"].tolist(), first["down"].tolist()] == [[15, -9, 7], [0, -3, -1], [2, -1, 1]]
        assert [second["once"].tolist(), second["up"].tolist()] == [[-1], [-2]]
        (deep,) = results["deep"]
        assert deep["nested"].tolist() == [127, 63]  # one, two and three steps of 2y + 1
        assert deep["swapped"].tolist() == [2 - 3 - 15, 1 - 1 - 7]
        assert deep["array"].tolist() == [[0, 0], [1, 0], [2, 0]]
