"""The order of accesses to one piece of state is said by control edges, so that rewriting data never loses it.

    %w = Assign(%h, %x)   %r = Read(%h) after(%w)   %n = Size(%r)   %v = Assign(%h, %n)      =>      %v = Assign(%h, %n) after(%r, %w)

A read comes after the last write, a write after the last write and the reads since.  A valid module has a path there already (the
verifier wants one), so an edge that is added only says again what holds; but a path of data ends where a size becomes known.
Graphs with v1 control flow are left alone: there an edge says where a node is alive.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from compiler.ir.graph import Graph
from compiler.ir.module import Module
from compiler.ops.effects import ANY_STATE, Bodies, reads, writes
from compiler.ops.registry import has
from compiler.ops.spec import Trait
from compiler.pipeline.base import Context, Pass


@dataclass(frozen=True)
class OrderEffects(Pass):
    """Linear in nodes and accesses; nothing to do where nothing is written."""

    name = "order-effects"

    def run(self, module: Module, context: Context) -> None:
        bodies = Bodies(module)
        for graph in module.graphs.values():
            if any(has(node, Trait.LOOP) for node in graph):
                context.refuse(graph.name, "it has v1 control flow: control edges say where a node is alive")
            else:
                _order(module, graph, bodies, context)


@dataclass
class _History:
    """Of one piece of state: who wrote it last, and who read it since."""

    writer: tuple[str, ...] = ()
    readers: list[str] = field(default_factory=list)

    def read(self, name: str) -> Iterable[str]:
        self.readers.append(name)
        return self.writer

    def write(self, name: str) -> Iterable[str]:
        before = (*self.writer, *self.readers)
        self.writer, self.readers = (name,), []
        return before


def _order(module: Module, graph: Graph, bodies: Bodies, context: Context) -> None:
    accesses = [(name, reads(module, graph, name, bodies), writes(module, graph, name, bodies)) for name in graph.order()]
    written = frozenset().union(*(w for _, _, w in accesses))
    if not written:
        return
    keys = sorted(written if ANY_STATE not in written else {key for _, r, w in accesses for key in r | w})
    histories = {key: _History() for key in keys}
    for name, read, write in accesses:
        touched = [k for k in keys if k in read or k in write] if ANY_STATE not in read | write else keys
        before = {b for k in touched for b in (histories[k].write(name) if write & {k, ANY_STATE} else histories[k].read(name))}
        missing = before - {name, *graph.controls(name), *(v.node for v in graph.operands(name))}
        if missing and context.spend():
            graph.set_control(name, {*graph.controls(name), *missing})
            context.change(name, f"comes after {', '.join(sorted(missing)[:3])}, which touch the same state")
