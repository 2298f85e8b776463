"""A call of a body becomes the body's nodes; what the call waited for they wait for, and who waited for the call waits for them.

    %c = Call(%x) {f=@g}          =>   %c/add = AddV2(%x, ...)          function @g(%a) -> (y = %add) { %add = AddV2(%a, ...) }

Bodies of a `kind` (outlined ones, see `inline-kinds`) and those marked `_noinline` stay calls, and so do bodies called from several places
once `most_copies` nodes were copied: functions that call functions twice are exponential.  A new name is the call's scopes, then the
body's name.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from compiler.ir.dims import Dim, substitute, symbols
from compiler.ir.graph import INPUT, FunctionRef, Graph, Node, Value
from compiler.ir.module import Module, function_refs
from compiler.ir.types import TensorType
from compiler.ops.effects import Bodies, has_effect, reads
from compiler.ops.regions import in_control_flow
from compiler.ops.registry import has
from compiler.ops.spec import Trait
from compiler.pipeline.base import CANONICAL, TYPED, Context, Pass

_GENERIC = re.compile(r"(Stateful)?PartitionedCall(_\d+)?")


@dataclass(frozen=True)
class InlineCalls(Pass):
    """Callees first, so that every body is inlined in its final form."""

    name = "inline-calls"
    breaks = frozenset({CANONICAL, TYPED})
    most_copies: int = 200_000

    def run(self, module: Module, context: Context) -> None:
        bodies = Bodies(module)
        names = module.reachable_functions()
        graphs = [*(module.functions[name] for name in names), *module.entries.values()]
        budget = _Budget(self.most_copies, Counter(ref.name for graph in graphs for node in graph for ref in function_refs(node)))
        for graph in graphs:
            _inline_all(module, graph, context, bodies, budget)
        needed = frozenset(module.reachable_functions())
        module.functions = {name: body for name, body in module.functions.items() if name in needed}


@dataclass
class _Budget:
    """How many more nodes may be copied because a body is wanted in several places."""

    left: int
    calls: Counter[str]
    """Of each body, before anything is inlined: in the nodes of all graphs."""

    def refusal(self, body: Graph) -> str:
        if self.calls[body.name] > 1 and len(body) > self.left:
            return f"@{body.name} is called from {self.calls[body.name]} places, and too many nodes were copied already"
        return ""

    def take(self, body: Graph) -> None:
        self.left -= len(body) if self.calls[body.name] > 1 else 0


def _inline_all(module: Module, graph: Graph, context: Context, bodies: Bodies, budget: _Budget) -> None:
    guarded = in_control_flow(graph)
    for name in graph.order():
        node = graph.node(name)
        ref = node.attrs.get("f")
        if not has(node, Trait.CALL) or not isinstance(ref, FunctionRef):
            continue
        body = module.function(ref)
        refusal = "it is inside v1 control flow" if name in guarded else _refusal(graph, body, node) or budget.refusal(body)
        if refusal:
            context.refuse(name, refusal)
        elif context.spend():
            budget.take(body)
            inline_call(module, graph, node, body, bodies)
            context.change(name, f"inlined @{body.name}")


def _refusal(graph: Graph, body: Graph, node: Node) -> str:
    if body is graph:
        return f"@{body.name} calls itself"
    if "kind" in body.attrs:
        return f"@{body.name} is outlined as {body.attrs['kind']!r}"
    if body.attrs.get("_noinline") is True:
        return f"@{body.name} is marked _noinline"
    if body.attrs.get("_XlaMustCompile") is True or node.attrs.get("_XlaMustCompile") is True:
        return f"@{body.name} is compiled by XLA as one"
    if any(has(inner, Trait.LOOP) for inner in body):
        return f"@{body.name} has v1 control flow"
    return ""


@dataclass
class _Splice:
    """A body on its way into the caller's graph."""

    graph: Graph
    call: Node
    body: Graph
    unknown: Mapping[str, Dim]
    before: tuple[str, ...]
    """What the call waited for."""
    values: dict[Value, Value]
    """The body's values, as the caller's."""
    renamed: dict[str, str] = field(default_factory=dict)
    anchored: set[str] = field(default_factory=set)
    """New nodes that run after `before`, by their own control edges or through what they read."""
    last: dict[str, None] = field(default_factory=dict)
    """New nodes that touch state or must run, less those that another of them waits for directly."""


def inline_call(module: Module, graph: Graph, call: Node, body: Graph, bodies: Bodies) -> list[str]:
    """Put the body's nodes in the call's place; their new names, producers first."""
    inputs = zip(body.inputs, graph.operands(call.name), strict=True)
    splice = _Splice(graph, call, body, _own_symbols(body), graph.controls(call.name), {Value(name): v for name, v in inputs})
    for name in body.order():
        node = body.node(name)
        if node.op == INPUT:
            continue
        made = _copy(splice, node)
        if has_effect(module, node, bodies) or reads(module, body, name, bodies):
            for earlier in graph.controls(made):
                splice.last.pop(earlier, None)
            splice.last[made] = None
    _redirect(splice)
    return list(splice.renamed.values())


def _copy(splice: _Splice, node: Node) -> str:
    graph, body, call = splice.graph, splice.body, splice.call
    operands = [splice.values[v] for v in body.operands(node.name)]
    # Who waits for an argument waits for whoever makes it.
    controls = [splice.renamed[c] if c in splice.renamed else splice.values[Value(c)].node for c in body.controls(node.name)]
    anchored = any(name in splice.anchored for name in (*controls, *(v.node for v in operands)))
    if node.op != "Const" and not anchored:  # constants wait for nothing, so whoever reads nothing else waits by itself
        controls += splice.before
        anchored = True
    fresh = graph.fresh_name(_joined(call.name, node.name))
    types = [_type_of(t, splice.unknown) for t in node.types]
    inner = () if "kind" in body.attrs else node.origin  # what was outlined came from where the call says
    origin = [_joined(outer, name) for outer in call.origin or ("",) for name in inner] or call.origin or [fresh]
    device = node.device or call.device
    graph.add_node(replace(node, name=fresh, types=tuple(types), device=device, origin=tuple(origin)), operands, controls)
    splice.renamed[node.name] = fresh
    splice.values.update({Value(node.name, port): Value(fresh, port) for port in range(len(node.types))})
    if anchored:
        splice.anchored.add(fresh)
    return fresh


def _redirect(splice: _Splice) -> None:
    """Readers of the call read the body's outputs; those who waited for it wait for what touches state in it, or else its outputs."""
    graph, call = splice.graph, splice.call.name
    waiting = graph.needs(call).control
    outputs = [splice.values[o.value] for o in splice.body.outputs]
    for port, value in enumerate(outputs):
        graph.replace_uses(Value(call, port), value)
    stand_in = list(splice.last) or sorted({v.node for v in outputs})
    if not all(name in splice.anchored for name in stand_in) or not stand_in:
        stand_in += splice.before
    for user in waiting:
        graph.set_control(user, [*(c for c in graph.controls(user) if c != call), *stand_in])
    graph.remove(call)


def _joined(outer: str, inner: str) -> str:
    """The call's scopes, less names that only say it is one, then the node's: `model/PartitionedCall` + `add` is `model/add`."""
    scopes = [part for part in outer.split("/") if part and not _GENERIC.fullmatch(part)]
    return "/".join((*scopes, inner))


def _own_symbols(body: Graph) -> dict[str, Dim]:
    """The body's symbols, all unknown to the caller: inference finds their sizes again."""
    return {s: None for node in body for t in node.types for d in t.shape or () for s in symbols(d)}


def _type_of(type_: TensorType, unknown: Mapping[str, Dim]) -> TensorType:
    if type_.shape is None or not unknown:
        return type_
    return type_.with_shape(tuple(substitute(d, unknown) for d in type_.shape))
