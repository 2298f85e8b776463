"""A compiled model, bound to the tasks of a cluster.

/device:CPU:k   =>   the cluster's k-th CPU, /job:worker/task:k/device:CPU:0       where it has as many as the model is made for
                =>   neighbours on one device                                      where it has fewer
planned anew from the original                                                     where that is given: for fewer, for more, for others
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from compiler.backend.bound import save_bound
from compiler.backend.pool import Pool
from compiler.driver.compile import Options, Progress, planned_of
from compiler.driver.plan import Plan
from compiler.driver.tasks import folded_names, has_tasks, renamed
from compiler.frontend.source import SourceModel, load
from compiler.ir.errors import CleaveError
from compiler.ir.module import Module
from cost_model.cluster import Cluster
from cost_model.devices import device_name
from passes.split.choose import Objective


@dataclass(frozen=True)
class Bound:
    """Where the bound model lies, and how many of its nodes each device has."""

    path: Path
    nodes: dict[str, int]


def bind(
    model: Any,
    out_dir: str | Path,
    cluster: Cluster,
    *,
    original: Any = None,
    plan: Plan | None = None,
    objective: str = "latency",
    overwrite: bool = False,
    progress: Progress = lambda _: None,
) -> Bound:
    """Bind a compiled model as it is, or, with its `original`, divide that anew for this cluster, from `plan` where one is given."""
    if not has_tasks(cluster):
        raise CleaveError(f"cluster {cluster.name!r} has no tasks to bind to, expected devices such as '/job:worker/task:0/device:CPU:0'")
    progress("loading")
    source = _loaded(model if original is None else original)
    with Pool() as pool:
        if original is None:
            source.module = _opened(renamed(source.module, folded_names(cluster, _devices(source.module))))
            planned = planned_of(source, Options(cluster, numerics="exact"), pool, progress)
        else:
            planned = planned_of(source, Options(cluster, Objective(objective), follow=plan), pool, progress)
        progress("writing")
        target = save_bound(planned.module, out_dir, planned.aliases, overwrite)
    return Bound(target, dict(sorted(Counter(p.device for p in planned.plan.placed).items())))


def _loaded(model: Any) -> SourceModel:
    return model if isinstance(model, SourceModel) else load(model)


def _opened(module: Module) -> Module:
    """A function may not span tasks, so the one that a compiled model is called through, Grappler kept out of it, becomes its nodes."""
    for body in module.functions.values():
        body.attrs.pop("_noinline", None)
    return module


def _devices(module: Module) -> dict[str, int]:
    """How many of each kind the model is made for; CleaveError for one that is bound already."""
    found: dict[str, int] = {}
    for name in sorted({node.device for graph in module.graphs.values() for node in graph if node.device}):
        parts = device_name(name)
        if parts.job is not None:
            raise CleaveError(f"the model is bound already: it has nodes on {name}; bind the model it was made from")
        if parts.kind is not None:
            found[parts.kind] = max(found.get(parts.kind, 0), (parts.number or 0) + 1)
    return found
