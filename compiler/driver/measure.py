"""Measured time: the original and the result in turn, each in a process set up as a user would, medians of many calls."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

from compiler.execution import RuntimeConfig, SavedModelArtefact
from compiler.ir.errors import CleaveError
from compiler.validate.draw import draws, schemes
from compiler.validate.texts import kinds_of_text

if TYPE_CHECKING:
    from compiler.driver.compile import Compiled

ROUNDS = 5


def measure(compiled: Compiled, repeat: int = 20) -> dict[str, float]:
    """Median seconds a call: the original with TensorFlow's own threads and Grappler on, the result with one thread for each device."""
    entry = next(iter(compiled.module.entries))
    graph = compiled.source.module.entries[entry]
    inputs = {name: graph.node(name).type for name in graph.inputs}
    devices = max(1, len(compiled.plan.loads))
    sides = {
        "original": (compiled.source.artefact_of(entry), RuntimeConfig(devices=1, grappler=True)),
        "compiled": (
            SavedModelArtefact(compiled.artefact, entry),
            RuntimeConfig(devices=devices, grappler=True, intra_threads=1, inter_threads=devices),
        ),
    }
    for scheme in schemes(inputs, kinds_of_text(compiled.source.module)):
        request = draws(inputs, scheme, batches=(max(1, min(compiled.plan.sizes.values(), default=1)),))[0].inputs
        times: dict[str, list[float]] = {name: [] for name in sides}
        for _ in range(ROUNDS):
            for name, (artefact, config) in sides.items():
                (result,) = compiled.pool.run(artefact, [request], config=config, repeat=repeat)
                times[name] += list(result.timings)
        if all(times.values()):
            return {name: statistics.median(found) for name, found in times.items()}
    raise CleaveError("the original accepts none of the inputs drawn, so nothing can be measured")
