"""Where v1 control flow is: nodes that may be dead, or run once for each turn of a loop.

A node without operands there is in its place by a control edge only, so nothing may be added, folded or merged beside it.
"""

from __future__ import annotations

from compiler.ir.graph import Graph
from compiler.ops.registry import has
from compiler.ops.spec import Trait


def in_control_flow(graph: Graph) -> frozenset[str]:
    """The v1 control-flow nodes and everything downstream of one, by data or control."""
    found: set[str] = set()
    if not any(has(node, Trait.LOOP) for node in graph):
        return frozenset()
    for name in graph.order():
        sources = (*(v.node for v in graph.operands(name)), *graph.controls(name))
        if has(graph.node(name), Trait.LOOP) or any(source in found for source in sources):
            found.add(name)
    return frozenset(found)
