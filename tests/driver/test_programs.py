"""Functions where compilers go wrong, as signatures of one model: compiled at once, each compared with the original."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import compiler
from compiler.backend.pool import Pool
from compiler.execution import Array, RunResult, RuntimeConfig, SavedModelArtefact
from tests.driver.programs import PROGRAMS

pytestmark = [pytest.mark.tf, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    with Pool(max_children=3) as made:
        yield made


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One SavedModel, one signature a program; output keys with blanks are made names."""
    model, signatures = tf.Module(), {}
    for name, program in PROGRAMS.items():
        function = tf.function(_named(program.function))
        setattr(model, f"f_{name}", function)
        signatures[name] = function.get_concrete_function(*program.inputs)
    path = tmp_path_factory.mktemp("programs") / "model"
    tf.saved_model.save(model, str(path), signatures=signatures)
    return path


def _named(function: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
    return lambda *arguments: {key.replace(" ", "_"): value for key, value in function(*arguments).items()}


@pytest.fixture(scope="module", params=["reassociate", "exact"])
def compiled(request: pytest.FixtureRequest, original: Path) -> compiler.Compiled:
    return compiler.compile_model(original, cluster="cpu:2", numerics=request.param, validate=False)


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_results_are_tensorflows(name: str, compiled: compiler.Compiled, original: Path, pool: Pool) -> None:
    requests = PROGRAMS[name].requests()
    close = PROGRAMS[name].close and any(p.name == "freeze-variables" for p in compiled.report.passes)
    expected = run(pool, original, name, requests, grappler=False)
    for grappler in (False, True) if close else (False,):
        for want, found in zip(expected, run(pool, compiled.artefact, name, requests, grappler), strict=True):
            assert (found.error is None) == (want.error is None), (want.error, found.error)
            assert found.outputs.keys() == want.outputs.keys()
            for key, array in want.outputs.items():
                assert_same(key, array, found.outputs[key], close)


def run(pool: Pool, path: Path | str, name: str, requests: list[dict[str, Array]], grappler: bool) -> list[RunResult]:
    config = RuntimeConfig(devices=2, grappler=grappler, intra_threads=1)
    return pool.run(SavedModelArtefact(path, name), requests, config=config)


def assert_same(key: str, expected: Array, found: Array, close: bool) -> None:
    """dtype, shape, NaN and signs of zero; floats bit for bit unless `close`."""
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape), key
    if close and expected.dtype.kind == "f":
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5, err_msg=key)
        return
    np.testing.assert_array_equal(found, expected, err_msg=key)
    if expected.dtype.kind == "f":
        numbers = ~np.isnan(expected)
        np.testing.assert_array_equal(np.signbit(found[numbers]), np.signbit(expected[numbers]), err_msg=key)
