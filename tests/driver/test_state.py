"""State through the whole compiler: order of reads and writes, failing calls, other signatures, tables, random streams, call after call."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import compiler
from compiler.backend.pool import Pool
from compiler.execution import RunResult, RuntimeConfig, SavedModelArtefact

pytestmark = [pytest.mark.tf, pytest.mark.timeout(600)]

F = tf.float32
SCALAR = tf.TensorSpec([], F, "x")
ROWS = tf.TensorSpec([None, 4], F, "x")


class Model(tf.Module):
    def __init__(self) -> None:
        super().__init__()
        self.v, self.w = tf.Variable(1.0), tf.Variable(2.0)
        self.calls = tf.Variable(0, dtype=tf.int64)
        self.kernel, self.table = tf.Variable(tf.ones((4, 4))), tf.Variable(tf.zeros((5, 2)))
        self.list = tf.Variable([1.0, 2.0, 3.0])

    @tf.function(input_signature=[SCALAR])
    def reads(self, x: tf.Tensor) -> dict[str, Any]:
        first = self.v.read_value()
        self.v.assign_add(10.0 * x)
        second = self.v.read_value()
        self.v.assign(3.0 * first)
        return {"a": first, "b": second, "c": self.v.read_value()}

    @tf.function
    def bump(self, x: tf.Tensor) -> tf.Tensor:
        self.v.assign_add(x)
        return x * 2

    @tf.function(input_signature=[SCALAR])
    def hidden(self, x: tf.Tensor) -> dict[str, Any]:
        """Writes in a called function, a branch and a loop."""
        first, y = self.v + 0.0, self.bump(x)
        second = self.v + 0.0
        branch = tf.cond(x > 0, lambda: self.bump(x), lambda: x)
        third = self.v + 0.0
        tf.while_loop(lambda i: i < 3, lambda i: [i + tf.cast(self.bump(x) * 0, tf.int32) + 1], [0])
        return {"a": first, "b": second, "c": third, "d": self.v + 0.0, "y": y, "branch": branch}

    @tf.function(input_signature=[SCALAR, tf.TensorSpec([], tf.bool, "p")])
    def sometimes(self, x: tf.Tensor, p: tf.Tensor) -> dict[str, Any]:
        if p:
            self.w.assign(x)
        return {"y": 2 * self.w}

    @tf.function(input_signature=[ROWS])
    def effects(self, x: tf.Tensor) -> dict[str, Any]:
        tf.debugging.assert_positive(x)
        self.calls.assign_add(1)
        return {"y": tf.constant(1.0)}

    @tf.function(input_signature=[ROWS])
    def train(self, x: tf.Tensor) -> dict[str, Any]:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(x @ self.kernel))
        self.kernel.assign_sub(0.1 * tape.gradient(loss, self.kernel))
        return {"loss": loss}

    @tf.function(input_signature=[ROWS])
    def serve(self, x: tf.Tensor) -> dict[str, Any]:
        return {"y": tf.nn.relu(x @ self.kernel)}

    @tf.function(input_signature=[tf.TensorSpec([], tf.int32, "i"), tf.TensorSpec([2], F, "x")])
    def slices(self, i: tf.Tensor, x: tf.Tensor) -> dict[str, Any]:
        self.table.scatter_add(tf.IndexedSlices(x[None], i[None]))
        self.list[i].assign(x[0])
        row = tf.gather(self.table, i)
        self.table[i].assign(x)
        return {"row": row, "table": self.table.read_value(), "list": self.list * 1.0}

    @tf.function(input_signature=[SCALAR])
    def sizes(self, x: tf.Tensor) -> dict[str, Any]:
        """What is read of a variable is its size alone, which is known; the order stays."""
        count = tf.cast(tf.size(self.list), F)
        self.list.assign(self.list * 2.0 + x)
        before = self.v.read_value()
        self.v.assign(before + count)
        return {"n": count, "after": self.v.read_value(), "before": before, "list": self.list.read_value()}


CALLS: dict[str, list[dict[str, Any]]] = {
    "reads": [{"x": 1.0}] * 3,
    "hidden": [{"x": 1.0}, {"x": -1.0}, {"x": 2.0}],
    "sometimes": [{"x": 5.0, "p": False}, {"x": 5.0, "p": True}, {"x": 5.0, "p": False}],
    "effects": [{"x": np.ones((1, 4))}, {"x": np.ones((3, 4))}],
    "train": [{"x": np.arange(8).reshape(2, 4) * 0.1}, {"x": np.ones((3, 4))}],
    "serve": [{"x": np.ones((3, 4))}],
    "slices": [{"i": 1, "x": [1.0, 2.0]}, {"i": 2, "x": [3.0, 4.0]}, {"i": 1, "x": [5.0, 6.0]}],
    "sizes": [{"x": 1.0}, {"x": 2.0}],
}
TYPES = {"x": np.float32, "p": np.bool_, "i": np.int32}


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    with Pool(max_children=3) as made:
        yield made


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path, model = tmp_path_factory.mktemp("state") / "model", Model()
    tf.saved_model.save(model, str(path), signatures={name: getattr(model, name) for name in CALLS})
    return path


@pytest.fixture(scope="module", params=["all", "hidden"])
def compiled(request: pytest.FixtureRequest, original: Path) -> compiler.Compiled:
    """All signatures, and one while the others are kept as they are."""
    signature = None if request.param == "all" else request.param
    return compiler.compile_model(original, cluster="cpu:2", signature=signature, validate=signature is None)


def run(pool: Pool, path: Path | str, name: str, calls: Sequence[dict[str, Any]], grappler: bool = False) -> list[RunResult]:
    requests = [{key: np.asarray(value, TYPES[key]) for key, value in call.items()} for call in calls]
    config = RuntimeConfig(devices=2, grappler=grappler)
    return pool.run(SavedModelArtefact(path, name), requests, config=config, want_variables=True)


@pytest.mark.parametrize("name", CALLS)
def test_call_after_call_is_the_same(name: str, compiled: compiler.Compiled, original: Path, pool: Pool) -> None:
    expected = run(pool, original, name, CALLS[name])
    for grappler in (False, True):
        found = run(pool, compiled.artefact, name, CALLS[name], grappler)
        for want, got in zip(expected, found, strict=True):
            assert want.error is None and got.error is None, (want.error, got.error)
            assert want.variables is not None and got.variables is not None
            for left, right in ((want.outputs, got.outputs), (want.variables, got.variables)):
                assert left.keys() == right.keys()
                for key, array in left.items():
                    np.testing.assert_allclose(right[key], array, rtol=1e-6, atol=1e-6, err_msg=key)


def test_reads_between_writes_are_as_written(compiled: compiler.Compiled, pool: Pool) -> None:
    calls = run(pool, compiled.artefact, "reads", CALLS["reads"])[:2]
    assert [[float(call.outputs[key]) for key in "abc"] for call in calls] == [[1, 11, 3], [3, 13, 9]]


def test_an_assertion_without_readers_still_fails(compiled: compiler.Compiled, pool: Pool) -> None:
    (result,) = run(pool, compiled.artefact, "effects", [{"x": -np.ones((2, 4))}])
    assert result.error is not None and result.error.kind == "run"


def test_a_signature_that_asserts_and_writes_is_found_valid(compiled: compiler.Compiled) -> None:
    if compiled.report.valid is not None:
        assert compiled.report.valid, str(compiled.report)


def test_what_one_signature_trains_the_other_serves(compiled: compiler.Compiled) -> None:
    loaded = tf.saved_model.load(str(compiled.artefact))
    x = tf.ones((2, 4))
    before = loaded.signatures["serve"](x=x)["y"]
    loaded.signatures["train"](x=x)
    after = loaded.signatures["serve"](x=x)["y"]
    assert np.all(np.asarray(after) < np.asarray(before))


class Drawing(tf.Module):
    def __init__(self, words: Path) -> None:
        super().__init__()
        source = tf.lookup.TextFileInitializer(str(words), tf.string, tf.lookup.TextFileIndex.WHOLE_LINE, tf.int64, -1)
        self.words, self.generator = tf.lookup.StaticVocabularyTable(source, 1), tf.random.Generator.from_seed(5)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "w")])
    def look(self, w: tf.Tensor) -> dict[str, Any]:
        return {"i": self.words.lookup(w)}

    @tf.function(input_signature=[SCALAR])
    def draw(self, x: tf.Tensor) -> dict[str, Any]:
        stateless = [tf.random.stateless_uniform([3], [1, 2]) for _ in range(2)]
        branch = tf.cond(x > 0, lambda: tf.random.uniform([2]), lambda: tf.random.uniform([2]) + 1)
        seeded = [tf.random.uniform([3], seed=7) for _ in range(2)]
        return {
            "a": tf.random.uniform([3]), "b": tf.random.uniform([3]), "c": seeded[0], "d": seeded[1],
            "e": stateless[0], "f": stateless[1], "branch": branch,
        }  # fmt: skip

    @tf.function(input_signature=[SCALAR])
    def generate(self, x: tf.Tensor) -> dict[str, Any]:
        return {"a": self.generator.uniform([2]) + x, "b": self.generator.normal([2])}


def test_tables_and_random_streams(tmp_path: Path, pool: Pool) -> None:
    words, path = tmp_path / "words.txt", tmp_path / "model"
    words.write_text("a\nb\nc\n")
    model = Drawing(words)
    tf.saved_model.save(model, str(path), signatures={"look": model.look, "draw": model.draw, "generate": model.generate})
    found = compiler.compile_model(path, cluster="cpu:2")
    assert found.report.valid, str(found.report)
    out = found.save(tmp_path / "out")
    zeros = [{"x": 0.0}] * 2
    expected, generated = run(pool, path, "generate", zeros), run(pool, out, "generate", zeros)
    shutil.rmtree(path)
    words.unlink()
    for want, got in zip(expected, generated, strict=True):
        for key in want.outputs:
            np.testing.assert_array_equal(got.outputs[key], want.outputs[key])
    request = {"w": np.array([b"b", b"zz"], object)}
    (looked,) = pool.run(SavedModelArtefact(out, "look"), [request], config=RuntimeConfig(devices=2))
    assert looked.outputs["i"].tolist() == [1, 3]
    first, second = (r.outputs for r in run(pool, out, "draw", [{"x": 1.0}] * 2))
    assert not np.array_equal(first["a"], first["b"]) and not np.array_equal(first["a"], second["a"])
    assert np.array_equal(first["c"], first["d"]) and not np.array_equal(first["c"], second["c"])
    assert np.array_equal(first["e"], first["f"]) and np.array_equal(first["e"], second["e"])
