"""One call of a model on a cluster: planned for it, placed on it, run there; nothing is saved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from compiler.backend.cluster import DEADLINE_SECONDS
from compiler.backend.pool import Pool
from compiler.driver.compare import chosen_entry
from compiler.driver.compile import Options, Progress, planned_of, remote_of
from compiler.driver.plan import Plan
from compiler.driver.remote import MemoryRow, refuse_absent
from compiler.execution import Array
from compiler.frontend.source import SourceModel, load
from compiler.ir.errors import CleaveError
from cost_model.cluster import Cluster
from passes.split.choose import Objective


@dataclass(frozen=True)
class RemoteRun:
    """What came back, by what plan, and the memory it took."""

    outputs: Mapping[str, Array]
    plan: Plan
    memory: tuple[MemoryRow, ...]


def run_on_cluster(
    model: Any,
    inputs: Mapping[str, Array],
    cluster: Cluster,
    *,
    deadline_seconds: float = DEADLINE_SECONDS,
    objective: str = "latency",
    signature: str | None = None,
    allow_files: bool = False,
    progress: Progress = lambda _: None,
) -> RemoteRun:
    """Plan with the sizes of these inputs, then run.  A TaskLost names tasks that are not there; `cluster.without(...)` is the others."""
    refuse_absent(cluster, min(1.0, deadline_seconds))
    progress("loading")
    source = model if isinstance(model, SourceModel) else load(model, signature=signature, allow_files=allow_files)
    entry = chosen_entry(source, signature)
    wanted = source.module.entries[entry].inputs
    if set(wanted) != set(inputs):
        raise CleaveError(f"signature {entry!r} takes inputs {sorted(wanted)}, {sorted(inputs)} were given")
    shapes: dict[str, tuple[int | None, ...]] = {name: array.shape for name, array in inputs.items()}
    options = Options(cluster, Objective(objective), input_shapes=shapes, deadline_seconds=deadline_seconds)
    with Pool() as pool:
        planned = planned_of(source, options, pool, progress)
        remote = remote_of(planned.module, options, pool)
        assert remote is not None
        with remote.executor:
            progress(f"running on {cluster.name}")
            remote.reset_memory()
            outputs = remote.call(planned.aliases.get(entry, entry), inputs)
            return RemoteRun(outputs, planned.plan, remote.memory(planned.plan.loads))
