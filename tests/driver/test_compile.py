"""The seed network end to end: compiled, called, saved, run by a client without this project, the same bytes twice."""

import filecmp
from pathlib import Path

import numpy as np
import pytest

import compiler
from fixtures.models import digit_cnn_deep, two_towers
from tests.system import independent

pytestmark = [pytest.mark.tf, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("digits") / "model"
    digit_cnn_deep.build(seed=0).export(str(path), verbose=False)
    return path


@pytest.fixture(scope="module")
def compiled(exported: Path) -> compiler.Compiled:
    return compiler.compile_model(exported, cluster="cpu:2")


def test_the_network_is_split_and_valid(compiled: compiler.Compiled) -> None:
    assert compiled.report.valid, str(compiled.report)
    assert {d.op for d in compiled.plan.splits} >= {"Conv2D"}
    assert "split by" in compiled.plan.explain("conv_2")
    assert compiled.aliases == {"serve": "serving_default"}


def test_a_client_without_this_project_gets_the_same(compiled: compiler.Compiled, exported: Path, tmp_path: Path) -> None:
    out = compiled.save(tmp_path / "out")
    images = np.random.default_rng(0).random((3, 28, 28, 1), np.float32)
    for signature in ("serving_default", "serve"):
        found, expected = (independent.run(model, {"image": images}, signature) for model in (out, exported))
        assert found.keys() == expected.keys()
        for name, array in expected.items():
            np.testing.assert_allclose(found[name], array, rtol=1e-5, atol=1e-6)
    nodes = independent.trace(out, {"image": images})
    for index in (0, 1):
        ran = [n for device, names in nodes.items() if device.endswith(f"CPU:{index}") for n in names]
        # oneDNN may run a convolution under the name of the bias it has fused with it.
        assert any(n.endswith((f"convolution/{index}", f"conv_2_1/BiasAdd/{index}")) for n in ran), ran
        assert any(n.endswith(f"conv_2_1/convolution/ReadVariableOp/{index}") for n in ran), ran


def test_two_compiles_give_the_same_folder(compiled: compiler.Compiled, exported: Path, tmp_path: Path) -> None:
    again = compiler.compile_model(exported, cluster="cpu:2", validate=False)
    left, right = compiled.save(tmp_path / "a"), again.save(tmp_path / "b")
    files = sorted(p.relative_to(left) for p in left.rglob("*") if p.is_file())
    assert files == sorted(p.relative_to(right) for p in right.rglob("*") if p.is_file())
    assert [f for f in files if not filecmp.cmp(left / f, right / f, shallow=False)] == []
    assert str(compiled.module) == str(again.module)
    assert compiled.plan.to_json() == again.plan.to_json()


def test_exact_numerics_keep_every_bit(exported: Path) -> None:
    found = compiler.compile_model(exported, cluster="cpu:2", numerics="exact")
    assert found.report.valid, str(found.report)


def test_memory_divides_the_weights(exported: Path) -> None:
    found = compiler.compile_model(exported, cluster="cpu:2", objective="memory")
    assert found.report.valid
    held = [load.weight_bytes for load in found.plan.loads]
    assert max(held) <= 0.6 * sum(held)


def test_a_keras_model_is_called_as_it_was() -> None:
    model = two_towers.build(seed=0)
    inputs = [np.ones([3 if d is None else d for d in t.shape], t.dtype) for t in model.inputs]
    compiled = compiler.compile_model(model, cluster="cpu:2")
    expected, found = model(inputs), compiled(*inputs)
    assert type(found) is type(expected) and compiled.report.valid
    for name, tensor in expected.items():
        np.testing.assert_allclose(np.asarray(found[name]), np.asarray(tensor), rtol=1e-5, atol=1e-6)


def test_real_number_algebra_is_not_assumed(tmp_path: Path) -> None:
    import tensorflow as tf

    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32)])
    def f(x: tf.Tensor) -> dict[str, tf.Tensor]:
        return {
            "eps": tf.math.log((1.0 - x) + 1e-9),
            "big": (x + 1e8) - 1e8,
            "zero": x * 0.0,
            "self": x - x,
            "argmin": tf.argmin(tf.nn.relu(tf.stack([x[0] * 3.0, x[0] * -2.0, x[0] * -7.0, x[0] * 4.0]))),
            "inverse": 1.0 / (x + 0.0),
            "scaled": (x * 1e30) * 1e-30,
        }

    out = compiler.compile_model(f, cluster="cpu:2")
    assert out.report.valid, str(out.report)
    saved = out.save(tmp_path / "out")
    found = independent.run(saved, {"x": np.array([1.0, 1e20, -0.0], np.float32)})
    np.testing.assert_allclose(found["eps"][0], np.log(np.float32(1e-9)), rtol=1e-6)
    assert found["big"][0] == 0.0 and found["argmin"] == 1 and np.isinf(found["scaled"][1])
    assert np.isposinf(found["inverse"][2]) and np.signbit(found["zero"][2])
