"""What is imported computes what the original computes: the module as a bare graph, the original as its own loader runs it."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from compiler.backend.executor import GraphExecutor
from compiler.backend.pool import Pool
from compiler.execution import Array, Arrays, RunResult, RuntimeConfig
from compiler.frontend.source import SourceModel, load
from fixtures import zoo

pytestmark = pytest.mark.tf

ONE_THREAD = RuntimeConfig(intra_threads=1, inter_threads=1)
ROUNDING = 1e-4
"""Of the largest magnitude: what float32 kernels may differ by when memory lies differently.  A wrong operand is off by far more."""


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    with Pool() as shared:
        yield shared


def both(pool: Pool, source: SourceModel, entry: str, requests: Sequence[Arrays]) -> list[tuple[RunResult, RunResult]]:
    """(the original's, the module's) answers, state kept from one request to the next."""
    original = pool.run(source.artefact_of(entry), requests, config=ONE_THREAD)
    imported = GraphExecutor(pool).run_module(source.module, entry, requests, config=ONE_THREAD)
    return list(zip(original, imported, strict=True))


def assert_same(expected: RunResult, found: RunResult) -> None:
    assert expected.error is None and found.error is None, f"{expected.error} / {found.error}"
    assert found.outputs.keys() == expected.outputs.keys()
    for key, array in expected.outputs.items():
        assert found.outputs[key].dtype == array.dtype and found.outputs[key].shape == array.shape
        if array.dtype.kind == "f":
            np.testing.assert_allclose(found.outputs[key], array, rtol=0, atol=ROUNDING * _magnitude(array))
        else:
            np.testing.assert_array_equal(found.outputs[key], array)


def _magnitude(array: Array) -> float:
    return float(np.max(np.abs(array[np.isfinite(array)]), initial=0.0))


@pytest.mark.system
@pytest.mark.parametrize("name", zoo.names())
def test_a_published_model_computes_what_it_did(pool: Pool, name: str) -> None:
    model = zoo.get(name)
    source = load(zoo.path(name), outputs=model.outputs if model.kind == "frozen" else None)
    entry = "serving_default"  # of guesslang too, whose `predict` reads a table, which a bare graph has not
    feeds = [model.inputs(batch, batch) for batch in (1, 3)]
    if entry != model.signature:
        (key,), (given,) = source.signatures[entry].inputs, feeds[0]
        feeds = [{key: feed[given]} for feed in feeds]
    for expected, found in both(pool, source, entry, feeds):
        assert_same(expected, found)


@pytest.mark.system
@pytest.mark.parametrize("name", [n for n in zoo.names() if zoo.get(n).kind != "frozen"])
def test_every_weight_is_the_one_tensorflow_restores(pool: Pool, name: str) -> None:
    model, source = zoo.get(name), load(zoo.path(name))
    by_session = replace(source.artefact_of(model.signature), loader="v1")  # it knows variables by the names of their nodes, as we do
    (result,) = pool.run(by_session, [model.inputs(1, 1)], config=ONE_THREAD, want_variables=True)
    assert result.error is None and result.variables is not None, result.error
    assert source.module.variables
    for key, variable in source.module.variables.items():
        assert variable.initial is not None
        np.testing.assert_array_equal(source.module.stores.load(variable.initial), result.variables[key], err_msg=key)


def test_state_is_written_and_read_in_order_through_branches_loops_and_calls(pool: Pool, tmp_path: Path) -> None:
    source = load(_stateful(tmp_path))
    one, five = np.array([1.0, 1.0], np.float32), np.array([5.0, 5.0], np.float32)
    requests = [{"p": np.array(p), "x": x} for p, x in ((False, five), (True, five), (False, one))]
    answers = both(pool, source, "write", requests)
    assert [found.outputs["twice"].tolist() for _, found in answers] == [[2.0, 2.0], [10.0, 10.0], [10.0, 10.0]]
    for expected, found in answers:
        assert_same(expected, found)
    for expected, found in both(pool, source, "loop", [{"n": np.array(n, np.int32), "x": five} for n in (0, 3)]):
        assert_same(expected, found)


def _stateful(directory: Path) -> Path:
    import tensorflow as tf

    class Model(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.state, self.scale = tf.Variable([1.0, 1.0], name="same"), tf.Variable([2.0, 3.0], name="same")

        @tf.function(input_signature=[tf.TensorSpec([], tf.bool), tf.TensorSpec([2])])
        def write(self, p: Any, x: Any) -> dict[str, Any]:
            if p:
                self.state.assign(x)
            return {"twice": 2.0 * self.state}

        @tf.function(input_signature=[tf.TensorSpec([], tf.int32), tf.TensorSpec([2])])
        def loop(self, n: Any, x: Any) -> dict[str, Any]:
            found = tf.TensorArray(tf.float32, 0, dynamic_size=True, element_shape=[2])
            for i in tf.range(n):
                x = self.scaled(x)
                found = found.write(i, x)
            return {"last": x, "all": found.stack(), "shape": tf.shape(x, tf.int64), "text": tf.strings.as_string(n)}

        @tf.function
        def scaled(self, x: Any) -> Any:
            low, high = tf.split(x * self.scale - self.state, 2)
            return tf.concat([high, low], 0)

    model = Model()
    tf.saved_model.save(model, str(directory / "model"), signatures={"write": model.write, "loop": model.loop})
    return directory / "model"
