"""Which nodes of a graph run exactly once in a call: those outside v1 loops and conditionals.

Switch(x, p):1 -> y -> Merge   =>   y is conditional, the Merge is not

A node's region is its frame and the set of (predicate, branch) it waits for; a Merge keeps only what all its inputs share.
"""

from __future__ import annotations

from compiler.ir.graph import Graph, Value

_SWITCHES = frozenset({"Switch", "RefSwitch", "_SwitchN"})
_MERGES = frozenset({"Merge", "RefMerge"})
_ENTERS = frozenset({"Enter", "RefEnter"})
_EXITS = frozenset({"Exit", "RefExit"})

Region = frozenset[tuple[str, str, int]]


def unconditional(graph: Graph) -> frozenset[str]:
    """Names of the nodes that run once in every call."""
    if not any(node.op in _SWITCHES or node.op in _ENTERS for node in graph):
        return frozenset(node.name for node in graph)
    regions: dict[str, Region] = {}
    for name in graph.order():
        regions[name] = _region(graph, name, regions)
    return frozenset(name for name, region in regions.items() if not region)


def _region(graph: Graph, name: str, regions: dict[str, Region]) -> Region:
    op = graph.node(name).op
    found = [_of_value(graph, edge.value, regions) for edge in graph.edges(name) if not edge.back]
    if op in _MERGES:
        return frozenset.intersection(*found) if found else frozenset()
    region: Region = frozenset().union(*found, *(regions[source] for source in graph.controls(name)))
    if op in _ENTERS:
        return region | {("frame", str(graph.node(name).attrs.get("frame_name", "")), 0)}
    if op in _EXITS:
        return _left(graph, name, region)
    return region


def _of_value(graph: Graph, value: Value, regions: dict[str, Region]) -> Region:
    """What reading a value adds: one branch of a Switch runs only if its predicate says so."""
    region = regions[value.node]
    if graph.node(value.node).op not in _SWITCHES:
        return region
    predicate = graph.operands(value.node)[1]
    return region | {("branch", str(predicate), value.port)}


def _left(graph: Graph, name: str, region: Region) -> Region:
    """An Exit runs once when its loop ends: its frame, and the loop's own condition, no longer hold it back."""
    switch = graph.operands(name)[0]
    own = ("branch", str(graph.operands(switch.node)[1]), switch.port) if graph.node(switch.node).op in _SWITCHES else None
    frames = [item for item in region if item[0] == "frame"]
    return region - {own} - frozenset(frames if len(frames) == 1 else ())
