"""The read of a variable that nothing writes is its stored value.

    %h = Variable() {ref="w"}   %r = ReadVariableOp(%h)   =>   %r = Const() {value=weight(...)}

Writes are looked for in every graph of the module, through bodies and aliases; a write by a signature that is kept as it is counts too.
The value stays a reference into the checkpoint.  Not exact: oneDNN packs constant weights and takes other kernels (last bit, measured).
"""

from __future__ import annotations

from dataclasses import dataclass

from compiler.ir.graph import Graph, Node
from compiler.ir.module import Module, Variable
from compiler.ir.weights import literal_type
from compiler.ops.effects import ANY_STATE, Bodies, handle_of, writes
from compiler.ops.regions import in_control_flow
from compiler.pipeline.base import CANONICAL, Context, Numerics, Pass


@dataclass(frozen=True)
class FreezeVariables(Pass):
    """Only plain reads whose handle leads straight to a variable."""

    name = "freeze-variables"
    breaks = frozenset({CANONICAL})
    numerics = Numerics.REASSOCIATES

    def run(self, module: Module, context: Context) -> None:
        bodies = Bodies(module)
        written: set[str] = set()
        for graph in module.graphs.values():
            for node in graph:
                written |= writes(module, graph, node.name, bodies)
        for graph in module.graphs.values():
            guarded = in_control_flow(graph)
            for name in graph.order():
                node = graph.node(name)
                if node.op == "ReadVariableOp":
                    _freeze(module, graph, node, frozenset(written), guarded, context)


def _freeze(module: Module, graph: Graph, node: Node, written: frozenset[str], guarded: frozenset[str], context: Context) -> None:
    ref = handle_of(graph, graph.operands(node.name)[0])
    variable = module.variables.get(ref.removeprefix("@")) if ref.startswith("@") else None
    if variable is None:
        return
    reason = _refusal(variable, ref, written, graph.controls(node.name))
    if node.name in guarded and guarded.isdisjoint(graph.controls(node.name)):
        reason = "in a v1 loop or branch the handle alone says that the read is there"
    if reason:
        context.refuse(node.name, reason)
        return
    assert variable.initial is not None, "checked above"
    if not context.spend():
        return
    graph.set_operands(node.name, ())
    graph.set_node(Node(node.name, "Const", {"value": variable.initial}, (literal_type(variable.initial),), node.device, node.origin))
    context.change(node.name, f"the read of {variable.name!r} became its value")


def _refusal(variable: Variable, ref: str, written: frozenset[str], controls: tuple[str, ...]) -> str:
    if ref in written or ANY_STATE in written:
        return f"variable {variable.name!r} is written"
    if variable.written_elsewhere:
        return f"variable {variable.name!r} is written by a signature that is kept as it is"
    if variable.initial is None:
        return f"variable {variable.name!r} has no stored value"
    return ""
