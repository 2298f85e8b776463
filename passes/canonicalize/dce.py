"""Nodes that reach no output and have no effect go, and functions nobody refers to."""

from __future__ import annotations

from dataclasses import dataclass

from compiler.ir.graph import Graph
from compiler.ir.module import Module
from compiler.ops.effects import Bodies, has_effect
from compiler.pipeline.base import Context, Pass


@dataclass(frozen=True)
class DeadCode(Pass):
    """Inputs stay: they are the signature."""

    name = "dce"

    def run(self, module: Module, context: Context) -> None:
        bodies = Bodies(module)
        for graph in module.graphs.values():
            _sweep(module, graph, context, bodies)
        needed = frozenset(module.reachable_functions())
        if len(needed) != len(module.functions):
            module.functions = {name: body for name, body in module.functions.items() if name in needed}


def _sweep(module: Module, graph: Graph, context: Context, bodies: Bodies) -> None:
    live: set[str] = set()
    stack = [o.value.node for o in graph.outputs]
    stack += [node.name for node in graph if has_effect(module, node, bodies)]
    while stack:
        name = stack.pop()
        if name not in live:
            live.add(name)
            stack += [edge.value.node for edge in graph.edges(name)]
            stack += graph.controls(name)
    dead = [name for name in graph.order() if name not in live]
    if not dead or not context.spend():
        return
    for name in reversed(dead):
        graph.set_operands(name, ())
        graph.set_control(name, ())
    for name in reversed(dead):
        graph.remove(name)
    context.change(graph.name, f"{len(dead)} dead nodes removed")
