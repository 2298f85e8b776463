"""Cut a chain of layers into pipeline stages, each on some of the devices, so that the slowest stage is fastest.

    A[j][m] = least over k < j, m' < m of max(A[k][m-m'], transfer(k, m'), T(k, j, m')),   or T(0, j, m) as one stage     `_tables`
    T(i, j, m)     = (compute(i..j) + [training] 4 (m-1) weights(i..j) / (bandwidth m)) / m                               `stage_seconds`
    transfer(k, m) = (training: 2, else 1) x activations_k / (bandwidth m)                      if transfers are counted  `transfer_seconds`
    a stage with s stages from it to the end holds min(s, microbatches) microbatches in flight, and is legal if
    weights(i..j) x (training: 4) + in flight x activations(i..j) / m <= memory                 if memory is limited      `stage_bytes`
    a batch of B microbatches takes sum of stages + (B-1) x the slowest                                                   `batch_seconds`

Sources: Narayanan et al., "PipeDream" (SOSP 2019), section 3.1, whose planner counts transfers only where they are compressed; Zheng et
al., "Alpa" (OSDI 2022), section 5, for memory in flight (1F1B) and the time of a batch.  Plain data: a layer is three numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from compiler.ir.errors import CleaveError

_GRADIENTS_MOVED = 4
_STATE_PER_WEIGHT = 4
"""In training: weights, gradients and Adam's two moments."""


@dataclass(frozen=True)
class Layer:
    """Seconds on one device (forward, and backward in training); bytes of what it hands on; bytes of its weights."""

    seconds: float
    activation_bytes: float
    weight_bytes: float


@dataclass(frozen=True)
class Pipeline:
    """What stages are planned for.  `microbatches` divide the layers' figures already: a layer is one microbatch's."""

    devices: int
    bytes_per_second: float
    training: bool = True
    count_transfers: bool = True
    memory_bytes: float | None = None
    microbatches: int = 1


@dataclass(frozen=True)
class Stage:
    """Layers start .. end, not including end, replicated on `devices`."""

    start: int
    end: int
    devices: int
    seconds: float


@dataclass(frozen=True)
class StagePlan:
    stages: tuple[Stage, ...]
    slowest_seconds: float
    """Of the slowest stage or transfer: one microbatch leaves the pipeline this often."""

    def batch_seconds(self, microbatches: int) -> float:
        return sum(stage.seconds for stage in self.stages) + (microbatches - 1) * self.slowest_seconds


@dataclass(frozen=True)
class _Sums:
    pipeline: Pipeline
    seconds: tuple[float, ...]
    activations: tuple[float, ...]
    weights: tuple[float, ...]
    handed_on: tuple[float, ...]

    def stage_seconds(self, start: int, end: int, devices: int) -> float:
        compute, weights = self.seconds[end] - self.seconds[start], self.weights[end] - self.weights[start]
        moved = _GRADIENTS_MOVED * (devices - 1) * weights / devices if self.pipeline.training else 0.0
        return (compute + moved / self.pipeline.bytes_per_second) / devices

    def transfer_seconds(self, before: int, devices: int) -> float:
        if not self.pipeline.count_transfers:
            return 0.0
        times = 2 if self.pipeline.training else 1
        return times * self.handed_on[before - 1] / (self.pipeline.bytes_per_second * devices)

    def stage_bytes(self, start: int, end: int, devices: int, to_the_end: int) -> float:
        weights = (self.weights[end] - self.weights[start]) * (_STATE_PER_WEIGHT if self.pipeline.training else 1)
        in_flight = min(to_the_end, self.pipeline.microbatches)
        return weights + in_flight * (self.activations[end] - self.activations[start]) / devices

    def cost(self, start: int, end: int, devices: int, to_the_end: int) -> float:
        """Of a stage and of what it receives; infinite where it does not fit."""
        memory = self.pipeline.memory_bytes
        if memory is not None and self.stage_bytes(start, end, devices, to_the_end) > memory:
            return float("inf")
        seconds = self.stage_seconds(start, end, devices)
        return max(seconds, self.transfer_seconds(start, devices)) if start else seconds


def plan_stages(layers: Sequence[Layer], pipeline: Pipeline) -> StagePlan:
    """The best stages over exactly `pipeline.devices` devices, of equals those with fewest stages."""
    if not layers or pipeline.devices < 1:
        raise CleaveError(f"cannot plan stages for {len(layers)} layers on {pipeline.devices} devices, expected at least one of each")
    sums = _Sums(
        pipeline, _sums([layer.seconds for layer in layers]), _sums([layer.activation_bytes for layer in layers]),
        _sums([layer.weight_bytes for layer in layers]), tuple(layer.activation_bytes for layer in layers),
    )  # fmt: skip
    plans = [_with_stages(sums, len(layers), count) for count in range(1, min(pipeline.devices, len(layers)) + 1)]
    best = min(plans, key=lambda plan: plan.slowest_seconds)
    if best.slowest_seconds == float("inf"):
        raise CleaveError(f"no stages of {len(layers)} layers fit on {pipeline.devices} devices of {pipeline.memory_bytes:.0f} bytes")
    return best


def _sums(values: Sequence[float]) -> tuple[float, ...]:
    return tuple(accumulate(values, initial=0.0))


def _with_stages(sums: _Sums, layers: int, count: int) -> StagePlan:
    """The best of exactly `count` stages: so that each knows how many come after it."""
    tables = _tables(sums, layers, count)
    slowest, _, _ = tables[-1].get((layers, sums.pipeline.devices), (float("inf"), 0, 0))
    stages: list[Stage] = []
    end, devices = layers, sums.pipeline.devices
    for table in reversed(tables):
        _, start, used = table.get((end, devices), (float("inf"), 0, devices))
        stages.append(Stage(start, end, used, sums.stage_seconds(start, end, used)))
        end, devices = start, devices - used
    return StagePlan(tuple(reversed(stages)), slowest)


def _tables(sums: _Sums, layers: int, count: int) -> list[dict[tuple[int, int], tuple[float, int, int]]]:
    """By number of stages: (end, devices) -> (slowest, start of the last stage, devices of the last stage)."""
    most = sums.pipeline.devices
    first = {(j, m): (sums.cost(0, j, m, count), 0, m) for j in range(1, layers + 1) for m in range(1, most + 1)}
    tables = [first]
    for stage in range(1, count):
        table: dict[tuple[int, int], tuple[float, int, int]] = {}
        for j in range(stage + 1, layers + 1):
            for m in range(stage + 1, most + 1):
                found = (
                    (max(tables[-1][k, m - used][0], sums.cost(k, j, used, count - stage)), k, used)
                    for k in range(stage, j)
                    for used in range(1, m - stage + 1)
                )
                table[j, m] = min(found, key=lambda candidate: candidate[0])
        tables.append(table)
    return tables
