"""Equal pure nodes become one: the first.

%a = Relu(%x)   %b = Relu(%x)   =>   %a = Relu(%x), read by both's readers
"""

from __future__ import annotations

from dataclasses import dataclass

from compiler.ir.graph import Graph, Value, attrs_key
from compiler.ir.module import Module
from compiler.ops.effects import Bodies, is_pure
from compiler.ops.registry import has
from compiler.ops.spec import Trait
from compiler.pipeline.base import Context, Pass


@dataclass(frozen=True)
class CommonSubexpressions(Pass):
    """Same op, attributes (constants by their bytes), operands, control inputs and device; graphs with v1 control flow are left alone."""

    name = "cse"

    def run(self, module: Module, context: Context) -> None:
        bodies = Bodies(module)
        for graph in module.graphs.values():
            if any(has(node, Trait.LOOP) for node in graph):
                context.refuse(graph.name, "it has v1 control flow: a node may be dead where its equal is not")
                continue
            _merge(module, graph, context, bodies)


def _merge(module: Module, graph: Graph, context: Context, bodies: Bodies) -> None:
    first: dict[object, str] = {}
    origins: dict[str, set[str]] = {}  # set once at the end: a constant may be the twin of thousands
    outputs = {o.value.node for o in graph.outputs}
    for name in graph.order():
        node = graph.node(name)
        if not node.types or not is_pure(module, node, bodies):
            continue
        key = (node.op, attrs_key(node.attrs), graph.operands(name), graph.controls(name), node.device)
        twin = first.setdefault(key, name)
        if twin == name or (node.types != graph.node(twin).types) or name in outputs or not context.spend():
            continue
        for port in range(len(node.types)):
            graph.replace_uses(Value(name, port), Value(twin, port))
        for user in graph.needs(name).control:
            graph.set_control(user, [*(c for c in graph.controls(user) if c != name), twin])
        origins.setdefault(twin, set(graph.node(twin).origin)).update(node.origin)
        graph.remove(name)
        context.change(name, f"{node.op} is the same as {twin!r}")
    for name, origin in origins.items():
        graph.set_origin(name, origin)
