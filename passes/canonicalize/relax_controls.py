"""Waiting for a node without effect is waiting for nothing; waiting for what it waits for remains.

    %r = Const()   %n = NoOp() after(%r)   %y = Identity(%x) after(%n)      =>      %y = Identity(%x)

A control edge from a node that has no effect and reads no state is replaced by edges from the nearest nodes before it that have or do.
Graphs with v1 control flow are left alone: there an edge says where a node is alive.
"""

from __future__ import annotations

from dataclasses import dataclass

from compiler.ir.graph import INPUT, Graph
from compiler.ir.module import Module
from compiler.ops.effects import Bodies, has_effect, reads
from compiler.ops.registry import has
from compiler.ops.spec import Trait
from compiler.pipeline.base import CANONICAL, Context, Pass

MOST = 64
"""Where a node has more effects than this before it, the edge stays: listing them would cost more than it frees."""


@dataclass(frozen=True)
class RelaxControls(Pass):
    """Control edges between effects only."""

    name = "relax-controls"
    breaks = frozenset({CANONICAL})

    def run(self, module: Module, context: Context) -> None:
        bodies = Bodies(module)
        for graph in module.graphs.values():
            if any(has(node, Trait.LOOP) for node in graph):
                context.refuse(graph.name, "it has v1 control flow: control edges say where a node is alive")
            else:
                _relax(module, graph, bodies, context)


def _relax(module: Module, graph: Graph, bodies: Bodies, context: Context) -> None:
    before: dict[str, frozenset[str] | None] = {}
    for name in graph.order():
        controls = graph.controls(name)
        kept = _nearest(controls, before)
        if kept is not None and kept != frozenset(controls) and context.spend():
            graph.set_control(name, kept)
            context.change(name, f"waits for {len(kept)} nodes with effects in place of {len(controls)}")
        node = graph.node(name)
        ordered = node.op != INPUT and (has_effect(module, node, bodies) or bool(reads(module, graph, name, bodies)))
        sources = (*graph.controls(name), *(v.node for v in graph.operands(name)))
        before[name] = frozenset((name,)) if ordered else _nearest(sources, before)


def _nearest(sources: tuple[str, ...], before: dict[str, frozenset[str] | None]) -> frozenset[str] | None:
    """The nearest ordered nodes at or before the sources; None where there are too many to list."""
    found: set[str] = set()
    for source in dict.fromkeys(sources):
        known = before[source]
        if known is None:
            return None
        found |= known
        if len(found) > MOST:
            return None
    return frozenset(found)
