"""Calibration finds the figures of a machine that is made of them, and of this one."""

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from compiler.execution import Arrays, RunError, RunResult, RuntimeConfig
from compiler.ir.errors import CleaveError
from compiler.ir.module import Module
from cost_model.calibrate import Bench, calibrate, fastest
from cost_model.cluster import Cluster
from cost_model.model import CostModel, Prices
from cost_model.simulator import simulate


class Machine:
    """An executor whose timings are the simulator's on a known cluster, and a constant for the call."""

    def __init__(self, cluster: Cluster, error: str = "") -> None:
        self.cluster, self.error = cluster, error

    def run_module(
        self,
        module: Module,
        entry: str,
        requests: Sequence[Arrays],
        *,
        config: RuntimeConfig = RuntimeConfig(),  # noqa: B008 - frozen
        timeout_seconds: float = 120.0,
        want_variables: bool = False,
        repeat: int = 0,
    ) -> list[RunResult]:
        if self.error:
            return [RunResult(error=RunError("run", self.error))]
        found = simulate(module, module.entries[entry], Prices(module, CostModel(self.cluster)))
        return [RunResult(timings=(found.makespan_seconds + 1e-3,) * max(1, repeat))]


def test_known_figures_are_found_again() -> None:
    text = Path("fixtures/clusters/cpu2.toml").read_text(encoding="utf-8")
    text = re.sub(r"efficiency = .*", "efficiency = { matmul = 1.0, conv = 0.5 }", text)
    known = Cluster.parse(text)
    found = calibrate(Bench(Machine(known), 2))
    device = found.devices[0]
    assert device.peak_flops["float32"] == pytest.approx(90e9, rel=0.02)
    assert device.memory_bandwidth == pytest.approx(12e9, rel=0.02)
    assert device.overhead_seconds == pytest.approx(1e-6, rel=0.05)
    assert device.share_of_peak("conv", 1e8) == pytest.approx(0.5, rel=0.02)
    assert found.links[0].alpha_seconds == pytest.approx(50e-6, rel=0.05)
    assert found.links[0].bytes_per_second == pytest.approx(50e9, rel=0.05)
    assert Cluster.parse(found.to_toml()) == found


def test_one_device_has_no_link() -> None:
    assert calibrate(Bench(Machine(Cluster.parse("cpu:1")), 1)).links == ()


def test_a_failed_run_says_what_failed() -> None:
    with pytest.raises(CleaveError, match="calibrate: a chain of 200 Neg of \\(1,\\) failed: run: out of order"):
        calibrate(Bench(Machine(Cluster.parse("cpu:1"), "out of order"), 1))


def test_disturbed_calls_do_not_count() -> None:
    assert fastest([5.0] * 5 + [1.0, 1.1, 1.2] + [9.0] * 22) == 1.1


@pytest.mark.tf
def test_this_machine_has_sane_figures() -> None:
    from compiler.backend.executor import GraphExecutor
    from compiler.backend.pool import Pool

    with Pool() as pool:
        found = calibrate(Bench(GraphExecutor(pool), 2, repeat=10))
    device = found.devices[0]
    assert 1e9 < device.peak_flops["float32"] < 1e13
    assert 1e8 < device.memory_bandwidth < 1e13
    assert 0 < device.overhead_seconds < 1e-3
    assert 0 < found.links[0].alpha_seconds < 1e-2
    print(found.to_toml())
