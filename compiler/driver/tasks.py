"""The devices of a cluster's tasks, as those of one process, and the other way round.

    worker:0 CPU:0, worker:1 CPU:0   <=>   /device:CPU:0, /device:CPU:1

A saved model names no tasks: it would load nowhere else.  The k-th device of a kind, in the cluster's order, is that kind's k-th there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from compiler.ir.errors import CleaveError
from compiler.ir.module import Module
from compiler.ir.sharding import Mesh
from cost_model.cluster import Cluster
from cost_model.devices import DeviceName


def has_tasks(cluster: Cluster) -> bool:
    return cluster.task_names != ("",)


def local_names(cluster: Cluster) -> dict[str, str]:
    """Each device's name in one process that has them all."""
    seen: Counter[str] = Counter()
    found = {}
    for device in cluster.devices:
        found[device.name] = str(DeviceName(None, None, device.kind, seen[device.kind]))
        seen[device.kind] += 1
    return found


def without_tasks(module: Module, cluster: Cluster) -> Module:
    """The module as one process runs it; itself, where no tasks are named."""
    return renamed(module, local_names(cluster)) if has_tasks(cluster) else module


def kept_pins(pins: Mapping[str, str], cluster: Cluster) -> dict[str, str]:
    """The pins whose devices are still there."""
    found = {}
    for what, device in pins.items():
        try:
            cluster.resolve(device if device.startswith("/") else f"/{device}")
        except CleaveError:
            continue
        found[what] = device
    return found


def folded_names(cluster: Cluster, devices: Mapping[str, int]) -> dict[str, str]:
    """`/device:CPU:k` of a model made for `devices` of each kind => a device of the cluster; neighbours share one where it has fewer."""
    found: dict[str, str] = {}
    for kind, count in devices.items():
        there = [d.name for d in cluster.workers if d.kind == kind] or [d.name for d in cluster.devices if d.kind == kind]
        if not there:
            raise CleaveError(f"cluster {cluster.name!r} has no {kind}, the model is placed on {count}")
        found |= {str(DeviceName(None, None, kind, k)): there[k * min(len(there), count) // count] for k in range(count)}
    return found


def renamed(module: Module, names: Mapping[str, str]) -> Module:
    """A copy with other devices' names; the rest is the same."""
    copy = module.copy()
    for graph in copy.graphs.values():
        for name in graph.order():
            device = graph.node(name).device
            if device in names and names[device] != device:
                graph.set_device(name, names[device])
    for ref, variable in copy.variables.items():
        copy.variables[ref] = replace(variable, device=names.get(variable.device, variable.device))
    if copy.mesh is not None:
        copy.mesh = Mesh(copy.mesh.axes, tuple(names.get(d, d) for d in copy.mesh.devices))
    return copy
