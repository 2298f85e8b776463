"""Which nodes must share a device, where they may be, and which have no will of their own.

resources   whoever reads or writes a variable, a table or a variant list stands where it lives (calls and branches excepted, but for
            what XLA compiles as one: it cannot reach another device)
state       a variable or table of the model lives where it was saved to be, or on the first worker's host, where a loader puts it
v1 loops    a graph with Switch, Merge, Enter, ... stays whole
pins        a node that has a device keeps it, and its group with it
host        strings, variants, integers that no float is computed from, and ops an accelerator has no kernel for, live on a CPU
followers   constants, handles, and views of them go to whoever reads them first
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from compiler.ir.errors import CleaveError
from compiler.ir.graph import INPUT, Graph, Node
from compiler.ir.module import Module, function_refs
from compiler.ops.registry import has
from compiler.ops.spec import Trait
from cost_model.cluster import Cluster
from cost_model.flow import Flow
from cost_model.model import Prices
from passes.place.kernels import EVERYTHING, Kernels, accelerators

_HOST_TYPES = ("string", "variant")
_SHARED_TYPES = ("resource", "variant")


@dataclass(frozen=True)
class Groups:
    """By position: the group (its least member), whether it follows its reader, whether a host must run it.  `fixed` is by group."""

    of: tuple[int, ...]
    follows: tuple[bool, ...]
    host: tuple[bool, ...]
    fixed: Mapping[int, str]


def groups_of(graph: Graph, flow: Flow, prices: Prices, cluster: Cluster, pins: Mapping[str, str], kernels: Kernels = EVERYTHING) -> Groups:
    """The groups of a graph; `pins` are the devices nodes already have, as the cluster calls them.  CleaveError where pins contradict."""
    parent = list(range(len(flow)))
    for position, node in enumerate(flow.nodes):
        for producer, port in flow.operands[position]:
            if _shares(node, flow.type_of(producer, port).dtype, prices.module):
                _join(parent, producer, position)
    if any(has(node, Trait.LOOP) for node in flow.nodes):
        for position in range(1, len(flow)):
            _join(parent, 0, position)
    kinds = accelerators(cluster)

    def runs(name: str) -> bool:
        return all(kernels.runs(graph, name, kind) for kind in kinds)

    group = tuple(_find(parent, position) for position in range(len(flow)))
    return Groups(
        group,
        _followers(graph, flow, prices, pins),
        tuple(_host_only(types) or not runs(name) for name, types in zip(flow.names, _types(flow), strict=True)),
        _fixed(graph, flow, group, cluster, {**_homes(flow, prices.module, cluster), **pins}),
    )


def _homes(flow: Flow, module: Module, cluster: Cluster) -> dict[str, str]:
    """Where the model's own state lives, by the node that yields its handle."""
    host = cluster.host(cluster.workers[0].name)
    found: dict[str, str] = {}
    for node in flow.nodes:
        variable = module.variables.get(str(node.attrs.get("ref"))) if has(node, Trait.HANDLE) else None
        saved = variable.device if variable is not None else ""
        if "ref" in node.attrs and has(node, Trait.HANDLE):
            found[node.name] = saved if saved in cluster else host
    return found


def _shares(node: Node, dtype: str, module: Module) -> bool:
    called = has(node, Trait.CALL) or has(node, Trait.CONTROL_FLOW)
    return (not called or _is_one(node, module)) and (dtype in _SHARED_TYPES or dtype.endswith("_ref"))


def _is_one(node: Node, module: Module) -> bool:
    """Does XLA compile what the node runs, so that all of it is on one device?"""
    bodies = (module.functions[ref.name] for ref in function_refs(node) if ref.name in module.functions)
    return any(attrs.get("_XlaMustCompile") is True for attrs in (node.attrs, *(body.attrs for body in bodies)))


def _find(parent: list[int], position: int) -> int:
    while parent[position] != position:
        parent[position] = parent[parent[position]]
        position = parent[position]
    return position


def _join(parent: list[int], left: int, right: int) -> None:
    one, two = _find(parent, left), _find(parent, right)
    parent[max(one, two)] = min(one, two)


def _followers(graph: Graph, flow: Flow, prices: Prices, pins: Mapping[str, str]) -> tuple[bool, ...]:
    follows: list[bool] = []
    for position, node in enumerate(flow.nodes):
        if node.op == INPUT or node.name in pins:
            follows.append(False)
        elif prices.work(graph, node.name).free:
            follows.append(True)
        else:
            before = flow.operands[position]
            idle = bool(before) and not flow.controls[position] and all(follows[p] for p, _ in before)
            follows.append(idle and prices.is_view(graph, node.name))
    return tuple(follows)


def _types(flow: Flow) -> list[tuple[str, ...]]:
    """The element types a node reads and writes."""
    return [
        tuple(str(flow.type_of(p, port).dtype) for p, port in operands) + tuple(str(t.dtype) for t in node.types)
        for operands, node in zip(flow.operands, flow.nodes, strict=True)
    ]


def _host_only(types: tuple[str, ...]) -> bool:
    return any(t in _HOST_TYPES for t in types) or (bool(types) and all(t.startswith(("int", "uint")) for t in types))


def _fixed(graph: Graph, flow: Flow, group: tuple[int, ...], cluster: Cluster, pins: Mapping[str, str]) -> dict[int, str]:
    """A group stands where its handle is pinned, else where its first pinned member is, else on the host if an input is in it."""
    by: dict[int, tuple[int, str, str]] = {}
    host = cluster.host(cluster.workers[0].name)
    for position, node in enumerate(flow.nodes):
        device = pins.get(node.name, host if node.op == INPUT else "")
        if not device:
            continue
        weight = 2 if has(node, Trait.HANDLE) else 1 if node.name in pins else 0
        held, who, where = by.setdefault(group[position], (weight, node.name, device))
        if weight == held == 2 and where != device:
            raise CleaveError(
                f"place: in {graph.name!r} {who!r} is pinned to {where} and {node.name!r} to {device}, but one operator uses both: "
                f"pin them to one device"
            )
        if weight > held:
            by[group[position]] = (weight, node.name, device)
    return {key: device for key, (_, _, device) in by.items()}
