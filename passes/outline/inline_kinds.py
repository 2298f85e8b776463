"""Outlined functions are opened again: a call of a kind becomes its body's nodes.

    %m = Call(%x) {f=@swish_1f0c...}      =>      %m/sigmoid = Sigmoid(%x)   %m/mul = Mul(%x, %m/sigmoid)

A call costs TensorFlow some 3 microseconds that the open nodes do not, so what is emitted is opened.
"""

from __future__ import annotations

from dataclasses import dataclass

from compiler.ir.graph import FunctionRef, Graph, Node, Value
from compiler.ir.module import Module
from compiler.ops.effects import Bodies
from compiler.ops.queries import infer, operation
from compiler.ops.regions import in_control_flow
from compiler.pipeline.base import OUTLINED, Context, Pass
from passes.canonicalize.infer_types import refine
from passes.canonicalize.inline_calls import inline_call
from passes.outline.body import kind_of


@dataclass(frozen=True)
class InlineKinds(Pass):
    """Every kind, or the `only` one; inner kinds too."""

    name = "inline-kinds"
    breaks = frozenset({OUTLINED})
    only: str = ""

    def run(self, module: Module, context: Context) -> None:
        bodies = Bodies(module)
        for graph in [*(module.functions[name] for name in module.reachable_functions()), *module.entries.values()]:
            self._open(module, graph, context, bodies)
        needed = frozenset(module.reachable_functions())
        module.functions = {name: body for name, body in module.functions.items() if name in needed or "kind" not in body.attrs}

    def _open(self, module: Module, graph: Graph, context: Context, bodies: Bodies) -> None:
        guarded = in_control_flow(graph)
        for name in graph.order():
            node = graph.node(name)
            kind, ref = kind_of(module, node), node.attrs.get("f")
            if not kind or not isinstance(ref, FunctionRef) or (self.only and kind != self.only):
                continue
            if name in guarded:
                context.refuse(name, "it is inside v1 control flow")
            elif context.spend():
                _expand(module, graph, node, module.function(ref), bodies)
                context.change(name, f"inlined @{ref.name}")


def _expand(module: Module, graph: Graph, call: Node, body: Graph, bodies: Bodies) -> None:
    """Inline; new nodes get the types that follow from what they read, results also keep what was known of the call's."""
    inner = [name for name in body.order() if name not in body.inputs]
    made = dict(zip(inner, inline_call(module, graph, call, body, bodies), strict=True))
    known = {Value(made[o.value.node], o.value.port): t for o, t in zip(body.outputs, call.types, strict=True) if o.value.node in made}
    for name in made.values():
        old, new = graph.node(name).types, infer(operation(module, graph, name))
        types = [refine(before, after) for before, after in zip(old, new, strict=True)]
        graph.set_types(name, [refine(known.get(Value(name, port), t), t) for port, t in enumerate(types)])
