"""A call of a body becomes the body's nodes; what the call waited for they wait for, and who waited for the call waits for them.

    %c = Call(%x) {f=@g}          =>   %c/add = AddV2(%x, ...)          function @g(%a) -> (y = %add) { %add = AddV2(%a, ...) }

Bodies of a `kind` (outlined ones) and those marked `_noinline` stay calls.  A new name is the
call's scopes, then the body's name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from compiler.ir.dims import Dim, substitute, symbols
from compiler.ir.graph import INPUT, FunctionRef, Graph, Node, Value
from compiler.ir.module import Module
from compiler.ir.types import TensorType
from compiler.ops.effects import Bodies, has_effect
from compiler.ops.registry import has
from compiler.ops.spec import Trait
from compiler.pipeline.base import CANONICAL, TYPED, Context, Pass

_GENERIC = re.compile(r"(Stateful)?PartitionedCall(_\d+)?")


@dataclass(frozen=True)
class InlineCalls(Pass):
    """Callees first, so that every body is inlined in its final form."""

    name = "inline-calls"
    breaks = frozenset({CANONICAL, TYPED})

    def run(self, module: Module, context: Context) -> None:
        bodies = Bodies(module)
        for name in module.reachable_functions():
            _inline_all(module, module.functions[name], context, bodies)
        for entry in module.entries.values():
            _inline_all(module, entry, context, bodies)
        needed = frozenset(module.reachable_functions())
        module.functions = {name: body for name, body in module.functions.items() if name in needed}


def _inline_all(module: Module, graph: Graph, context: Context, bodies: Bodies) -> None:
    for name in graph.order():
        node = graph.node(name)
        ref = node.attrs.get("f")
        if not has(node, Trait.CALL) or not isinstance(ref, FunctionRef):
            continue
        body = module.function(ref)
        refusal = _refusal(body, node)
        if refusal:
            context.refuse(name, refusal)
        elif context.spend():
            _inline(module, graph, node, body, bodies)
            context.change(name, f"inlined @{body.name}")


def _refusal(body: Graph, node: Node) -> str:
    if "kind" in body.attrs:
        return f"@{body.name} is outlined as {body.attrs['kind']!r}"
    if body.attrs.get("_noinline") is True:
        return f"@{body.name} is marked _noinline"
    if body.attrs.get("_XlaMustCompile") is True or node.attrs.get("_XlaMustCompile") is True:
        return f"@{body.name} is compiled by XLA as one"
    if any(has(inner, Trait.LOOP) for inner in body):
        return f"@{body.name} has v1 control flow"
    return ""


def _inline(module: Module, graph: Graph, call: Node, body: Graph, bodies: Bodies) -> None:
    before = graph.controls(call.name)
    operands = graph.operands(call.name)
    values: dict[Value, Value] = {}
    renamed: dict[str, str] = {}
    effects: list[str] = []
    unknown = _own_symbols(body)
    for name in body.order():
        node = body.node(name)
        if node.op == INPUT:
            values[Value(name)] = operands[body.inputs.index(name)]
            continue
        made = _copy(graph, call, body, node, values, renamed, before, unknown)
        renamed[name] = made
        values.update({Value(name, port): Value(made, port) for port in range(len(node.types))})
        if has_effect(module, node, bodies):
            effects.append(made)
    _redirect(graph, call, body, values, effects, before)


def _copy(
    graph: Graph, call: Node, body: Graph, node: Node, values: Mapping[Value, Value], renamed: Mapping[str, str], before: tuple[str, ...],
    unknown: Mapping[str, Dim],
) -> str:  # fmt: skip
    operands = [values[v] for v in body.operands(node.name)]
    inner = [renamed[c] for c in body.controls(node.name) if c in renamed]
    # Nodes that read something made inside wait through it; constants wait for nothing.
    waits = before if not any(v.node in renamed for v in body.operands(node.name)) and not inner and node.op != "Const" else ()
    fresh = graph.fresh_name(_joined(call.name, node.name))
    types = [_type_of(t, unknown) for t in node.types]
    origin = [_joined(outer, inner_origin) for outer in call.origin or ("",) for inner_origin in node.origin] or [fresh]
    device = node.device or call.device
    graph.add_node(replace(node, name=fresh, types=tuple(types), device=device, origin=tuple(origin)), operands, [*inner, *waits])
    return fresh


def _joined(outer: str, inner: str) -> str:
    """The call's scopes, less names that only say it is one, then the node's: `model/PartitionedCall` + `add` is `model/add`."""
    scopes = [part for part in outer.split("/") if part and not _GENERIC.fullmatch(part)]
    return "/".join((*scopes, inner))


def _redirect(graph: Graph, call: Node, body: Graph, values: Mapping[Value, Value], effects: list[str], before: tuple[str, ...]) -> None:
    """Readers of the call read the body's outputs; those who waited for it wait for its effects, or else its outputs."""
    waiting = graph.needs(call.name).control
    for port, output in enumerate(body.outputs):
        graph.replace_uses(Value(call.name, port), values[output.value])
    stand_in = effects or sorted({values[o.value].node for o in body.outputs}) or list(before)
    for user in waiting:
        graph.set_control(user, [*(c for c in graph.controls(user) if c != call.name), *stand_in])
    graph.remove(call.name)


def _own_symbols(body: Graph) -> dict[str, Dim]:
    """The body's symbols, all unknown to the caller: inference finds their sizes again."""
    return {s: None for node in body for t in node.types for d in t.shape or () for s in symbols(d)}


def _type_of(type_: TensorType, unknown: Mapping[str, Dim]) -> TensorType:
    if type_.shape is None or not unknown:
        return type_
    return type_.with_shape(tuple(substitute(d, unknown) for d in type_.shape))
