"""A compiled model's plan can be argued with: pins and splits are kept to, plans are followed, what is unknown is one line."""

from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.tf


@pytest.fixture(scope="module")
def network():  # type: ignore[no-untyped-def]
    import keras

    keras.utils.set_random_seed(0)
    return keras.Sequential(
        [keras.Input((64,), name="x"), keras.layers.Dense(96, "relu", name="hidden"), keras.layers.Dense(8, name="out")]
    )


def test_pins_splits_and_plans_through_the_front_door(network, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    import compiler

    compiled = compiler.compile_model(network, "cpu:2", splits={"hidden": "n"}, pins={"out": "CPU:1"})
    assert compiled.report.valid
    assert {d.chosen for d in compiled.plan.decisions if d.op == "MatMul"} == {"n:d", "whole"}
    assert {p.device for p in compiled.plan.placed if p.op == "MatMul" and any("out" in o for o in p.origin)} == {"/device:CPU:1"}
    assert "pinned to /device:CPU:1" in compiled.plan.explain("out")
    x = np.random.default_rng(0).standard_normal((3, 64)).astype(np.float32)
    np.testing.assert_allclose(compiled(x), network(x), rtol=1e-5, atol=1e-5)
    (tmp_path / "p.json").write_text(compiled.plan.to_json())
    again = compiler.plan(network, "cpu:2", plan=tmp_path / "p.json")
    assert compiled.plan.diff(again) == ""
    alone = compiler.plan(network, "cpu:2")
    assert alone.diff(again) != "" and alone.what_if("hidden", "n").difference >= 0


def test_the_problem_that_was_solved_is_written_as_the_contest_does(network, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    import compiler
    from passes.split.iopddl import read_problem
    from passes.split.problem import evaluate
    from passes.split.solve import solve

    plan = compiler.plan(network, "cpu:2")
    (tmp_path / "p.json.gz").write_bytes(plan.iopddl("serving_default", compressed=True))
    written, study = read_problem(tmp_path / "p.json.gz"), plan.studies["serving_default"]
    assert solve(written).cost == pytest.approx(evaluate(written, study.solution.choice).total, rel=1e-6)
    with pytest.raises(compiler.CleaveError, match="one signature's problem can be exported"):
        plan.iopddl("other")


def test_an_unknown_layer_is_one_line(network) -> None:  # type: ignore[no-untyped-def]
    import compiler

    with pytest.raises(compiler.CleaveError, match="no operator or layer 'hiddn'; did you mean 'hidden"):
        compiler.plan(network, "cpu:2", pins={"hiddn": "CPU:0"})
