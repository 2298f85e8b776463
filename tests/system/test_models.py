"""Every published model, on one device and on two: valid, saved, run by a client without this project, equal to the original."""

import filecmp
from pathlib import Path

import numpy as np
import pytest

import compiler
from compiler.backend.pool import Pool
from compiler.execution import RuntimeConfig
from compiler.ir.text import equal, parse_module, print_module
from fixtures import zoo
from tests.system import independent

pytestmark = [pytest.mark.tf, pytest.mark.system, pytest.mark.timeout(1800)]
SPLIT = ("resnet50", "basic_pitch")
BATCHES = (1, 3)


def source_of(name: str) -> compiler.SourceModel:
    model = zoo.get(name)
    return compiler.load(zoo.path(name), outputs=model.outputs if model.kind == "frozen" else None)


def rounded(inputs: dict[str, np.ndarray], seed: int) -> dict[str, np.ndarray]:
    """The inputs as another rounding might have left them: each float moved by at most half an ulp."""
    rng = np.random.default_rng(seed)
    return {k: (a * (1 + rng.uniform(-6e-8, 6e-8, a.shape))).astype(a.dtype) if a.dtype == np.float32 else a for k, a in inputs.items()}


@pytest.mark.parametrize("cluster", ["cpu:1", "cpu:2"])
@pytest.mark.parametrize("name", zoo.names())
def test_a_model_is_the_same_function_afterwards(name: str, cluster: str, tmp_path: Path) -> None:
    model, source = zoo.get(name), source_of(name)
    compiled = compiler.compile_model(source, cluster=cluster, dump=tmp_path / "dump")
    assert compiled.report.valid, "\n".join(map(str, compiled.report.verdicts.values()))
    out = compiled.save(tmp_path / "out")
    entry = model.signature if model.signature in source.signatures else next(iter(source.signatures))
    for batch in BATCHES:
        inputs = {k: np.asarray(v) for k, v in model.inputs(batch, 0).items()}
        with Pool() as pool:
            (expected,) = pool.run(source.artefact_of(entry), [inputs], config=RuntimeConfig(grappler=False))
            moved = [inputs, *(rounded(inputs, seed) for seed in range(24))]
            others = [
                result
                for onednn in (None, False)
                for result in pool.run(source.artefact_of(entry), moved, config=RuntimeConfig(grappler=False, onednn=onednn))
            ]
        if expected.error is not None:
            assert batch != 1, expected.error
            continue
        found = independent.run(out, inputs, entry)
        assert set(found) == set(expected.outputs)
        for key, array in expected.outputs.items():
            assert found[key].shape == array.shape and found[key].dtype == array.dtype
            if array.dtype.kind == "f":
                # What the original itself moves between kernels and for half an ulp of its inputs, four times: EfficientNet with
                # random weights moves by 1e-2.
                spread = 4 * max(float(np.abs(array - other.outputs[key]).max()) for other in others)
                np.testing.assert_allclose(found[key], array, rtol=2e-4, atol=max(spread, 2e-5 * max(1.0, float(np.abs(array).max()))))
            else:
                np.testing.assert_array_equal(found[key], array)


@pytest.mark.parametrize("name", [*SPLIT, "distilbert"])  # the last one's weights are variables
def test_sub_operators_and_weight_reads_run_on_both_devices(name: str, tmp_path: Path) -> None:
    source = source_of(name)
    compiled = compiler.compile_model(source, cluster="cpu:2", validate=False)
    assert compiled.plan.splits
    assert all(row[2] not in ("whole", "replica") for row in compiled.plan.table())
    out = compiled.save(tmp_path / "out")
    inputs = {k: np.asarray(v) for k, v in zoo.get(name).inputs(1, 0).items()}
    nodes = independent.trace(out, inputs)
    for index in (0, 1):
        ran = [n for device, names in nodes.items() if device.endswith(f"CPU:{index}") for n in names]
        shards = tuple(p.node for p in compiled.plan.placed if p.device.endswith(f":{index}") and p.node.endswith(f"/{index}"))
        assert any(n.endswith(f"/{index}") and n in shards for n in ran), f"no sub-operator on CPU:{index}"
        weights = {p.node for p in compiled.plan.placed if p.device.endswith(f":{index}") and p.op == "Const"}
        read = {n for n in ran if n.removeprefix("weight/") in weights}
        assert len(read) > len(weights) / 2, f"{len(read)} of {len(weights)} weights of CPU:{index} are read there"


@pytest.mark.parametrize("name", [*SPLIT, "mobilenet_v2", "gpt2_small"])
def test_memory_puts_at_most_three_fifths_of_the_weights_on_one_device(name: str) -> None:
    compiled = compiler.compile_model(source_of(name), cluster="cpu:2", objective="memory")
    assert compiled.report.valid
    held = [load.weight_bytes for load in compiled.plan.loads]
    assert max(held) <= 0.6 * sum(held), held


@pytest.mark.parametrize("name", ["mobilenet_v2", "basic_pitch", "guesslang", "sleepecg_ws"])
def test_compiling_twice_gives_the_same_bytes(name: str, tmp_path: Path) -> None:
    folders = []
    for turn in ("a", "b"):
        compiled = compiler.compile_model(source_of(name), cluster="cpu:2", validate=False)
        folders.append(compiled.save(tmp_path / turn))
    files = sorted(p.relative_to(folders[0]) for p in folders[0].rglob("*") if p.is_file())
    assert files == sorted(p.relative_to(folders[1]) for p in folders[1].rglob("*") if p.is_file())
    assert [f for f in files if not filecmp.cmp(folders[0] / f, folders[1] / f, shallow=False)] == []


@pytest.mark.parametrize("name", zoo.names())
def test_text_round_trips_after_every_pass(name: str) -> None:
    from compiler.backend.executor import GraphExecutor
    from compiler.pipeline.base import Context, Pass
    from compiler.pipeline.manager import Silent, run_pipeline
    from compiler.pipeline.text import parse_pipeline
    from cost_model.cluster import Cluster
    from passes import PASSES
    from passes.pipelines import PIPELINES

    class RoundTrip(Silent):
        def after_pass(self, position: int, step: Pass, module: object) -> None:
            text = print_module(module)  # type: ignore[arg-type]
            again = parse_module(text, stores=module.stores)  # type: ignore[attr-defined]
            assert equal(again, module), step.name  # type: ignore[arg-type]
            assert print_module(again) == text, step.name

    module = source_of(name).module
    with Pool() as pool:
        context = Context(executor=GraphExecutor(pool), services={Cluster: Cluster.parse("cpu:2")})
        run_pipeline(module, parse_pipeline(PIPELINES["default"], PASSES), context, [RoundTrip()])
