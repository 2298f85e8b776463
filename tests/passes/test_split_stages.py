"""Pipeline stages: PipeDream's published plans, brute force on small chains, memory in flight."""

from itertools import combinations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.pipedream import FIXTURES, KNOWN, read_profile
from compiler.ir.errors import CleaveError
from passes.split.stages import Layer, Pipeline, plan_stages


@pytest.mark.parametrize("name", sorted(KNOWN))
def test_pipedreams_own_plans_are_found(name: str) -> None:
    stages, seconds, alone = KNOWN[name]
    layers = read_profile(FIXTURES / name)
    plan = plan_stages(layers, Pipeline(4, 1e10, count_transfers=False))
    assert tuple((s.start, s.end, s.devices) for s in plan.stages) == stages
    assert plan.slowest_seconds == pytest.approx(seconds, rel=1e-5)
    assert sum(layer.seconds for layer in layers) == pytest.approx(alone, rel=1e-5)


LAYER = st.builds(Layer, *(st.integers(0, 20).map(float),) * 3)


@given(st.lists(LAYER, min_size=1, max_size=5), st.integers(1, 4), st.booleans(), st.sampled_from([None, 20.0, 60.0]), st.integers(1, 4))
def test_no_other_stages_are_faster(layers: list[Layer], devices: int, training: bool, memory: float | None, microbatches: int) -> None:
    pipeline = Pipeline(devices, 7.0, training, True, memory, microbatches)
    best = min((_slowest(layers, pipeline, cuts, used) for cuts, used in _ways(len(layers), devices)), default=float("inf"))
    if best == float("inf"):
        with pytest.raises(CleaveError, match="fit"):
            plan_stages(layers, pipeline)
        return
    plan = plan_stages(layers, pipeline)
    assert plan.slowest_seconds == pytest.approx(best)
    cuts, used = [stage.start for stage in plan.stages], [stage.devices for stage in plan.stages]
    assert _slowest(layers, pipeline, [*cuts, len(layers)], used) == pytest.approx(best)


def _ways(layers: int, devices: int) -> list[tuple[list[int], list[int]]]:
    return [
        ([0, *inner, layers], list(used))
        for count in range(1, min(layers, devices) + 1)
        for inner in combinations(range(1, layers), count - 1)
        for used in product(range(1, devices + 1), repeat=count)
        if sum(used) == devices
    ]


def _slowest(layers: list[Layer], pipeline: Pipeline, cuts: list[int], used: list[int]) -> float:
    """Written out anew from the formulas."""
    slowest = 0.0
    for number, (start, end, m) in enumerate(zip(cuts, cuts[1:], used, strict=False)):
        mine = layers[start:end]
        weights = sum(layer.weight_bytes for layer in mine)
        synchronised = 4 * (m - 1) * weights / (pipeline.bytes_per_second * m) if pipeline.training else 0.0
        slowest = max(slowest, (sum(layer.seconds for layer in mine) + synchronised) / m)
        if start:
            slowest = max(slowest, (2 if pipeline.training else 1) * layers[start - 1].activation_bytes / (pipeline.bytes_per_second * m))
        held = min(len(used) - number, pipeline.microbatches) * sum(layer.activation_bytes for layer in mine) / m
        if pipeline.memory_bytes is not None and weights * (4 if pipeline.training else 1) + held > pipeline.memory_bytes:
            return float("inf")
    return slowest


def test_a_transfer_that_is_dear_moves_the_cut() -> None:
    layers = [Layer(1.0, 100.0, 1e9), Layer(0.3, 1.0, 0.0), Layer(0.9, 1.0, 0.0)]
    free = plan_stages(layers, Pipeline(2, 10.0, count_transfers=False))
    counted = plan_stages(layers, Pipeline(2, 10.0))
    assert ([stage.end for stage in free.stages], free.slowest_seconds) == ([1, 3], pytest.approx(1.2))
    assert ([stage.end for stage in counted.stages], counted.slowest_seconds) == ([2, 3], pytest.approx(1.3))


def test_a_batch_takes_the_stages_and_the_slowest_once_more_for_each_microbatch() -> None:
    plan = plan_stages([Layer(1.0, 0.0, 1e9), Layer(2.0, 0.0, 1e9)], Pipeline(2, 1.0))
    assert [(s.start, s.end) for s in plan.stages] == [(0, 1), (1, 2)]
    assert plan.batch_seconds(5) == pytest.approx(3.0 + 4 * 2.0)
