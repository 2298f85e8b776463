"""What depends on constants alone is computed once, by TensorFlow's own kernels in a child process, never by arithmetic of ours.

    %c = Mul(%w, %s)   w, s constant   =>   %c = Const() {value=...}

All foldable nodes of a graph are evaluated in one run, and only the values that something else reads come back.  A run that fails is
repeated without the nodes it fails at; they stay and fail when the model runs, if it reaches them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from compiler.execution import Array, RuntimeConfig
from compiler.ir.graph import Graph, Node, Value
from compiler.ir.module import Module
from compiler.ir.types import DType, static_bytes
from compiler.ir.weights import literal_type
from compiler.ops.effects import Bodies, is_pure
from compiler.ops.regions import in_control_flow
from compiler.ops.registry import spec
from compiler.pipeline.base import CANONICAL, TYPED, Context, Pass

MOST_BYTES = 1 << 20
"""A result may be this large; a larger one only if it is no larger than what it is computed from."""
_NO_ARRAY = ("resource", "variant")


@dataclass(frozen=True)
class FoldConstants(Pass):
    """One run a graph."""

    name = "fold-constants"
    requires = frozenset({TYPED})
    breaks = frozenset({CANONICAL})

    def run(self, module: Module, context: Context) -> None:
        bodies = Bodies(module)
        for graph in module.graphs.values():
            foldable = _foldable(module, graph, bodies)
            wanted = [v for v in _wanted(graph, foldable) if context.spend()]
            if not wanted:
                continue
            if context.executor is None:
                context.refuse(graph.name, "there is nothing to evaluate constants with")
                continue
            for value, array in _evaluate(module, graph, foldable, wanted, context).items():
                _replace(module, graph, value, array, context)


def _foldable(module: Module, graph: Graph, bodies: Bodies) -> dict[str, None]:
    """Nodes that depend on constants alone, in order, constants included."""
    found: dict[str, None] = {}
    sizes: dict[str, int] = {}
    guarded = in_control_flow(graph)
    for name in graph.order():
        if name in guarded:
            continue
        node = graph.node(name)
        operands = graph.operands(name)
        constant = node.op == "Const" and not graph.controls(name)  # what waits keeps its readers in their place
        if not constant and not (operands and all(v.node in found for v in operands) and _is_candidate(module, graph, node, bodies)):
            continue
        own = sum(static_bytes(t) or 0 for t in node.types)
        within = max(MOST_BYTES, sum(sizes[source] for source in {v.node for v in operands}))
        if constant or (own <= within and all(static_bytes(t) is not None for t in node.types)):
            found[name] = None
            sizes[name] = own
    return found


def _is_candidate(module: Module, graph: Graph, node: Node, bodies: Bodies) -> bool:
    if spec(node.op) is None or graph.controls(node.name) or not node.types:
        return False
    return all(t.dtype not in _NO_ARRAY for t in node.types) and is_pure(module, node, bodies)


def _wanted(graph: Graph, foldable: dict[str, None]) -> list[Value]:
    """Values of foldable nodes that something not foldable reads, or waits for where the constant can take the node's name."""
    found = []
    for name in foldable:
        ports = len(graph.node(name).types)
        if graph.node(name).op == "Const":
            continue
        for port in range(ports):
            needs = graph.needs(Value(name, port))
            waited_for = ports == 1 and bool(needs.control)
            if needs.outputs or waited_for or any(use.user not in foldable for use in needs.data):
                found.append(Value(name, port))
    return found


def _evaluate(module: Module, graph: Graph, foldable: dict[str, None], wanted: list[Value], context: Context) -> dict[Value, Array]:
    """The values; in halves where the whole run fails, so that one bad node costs itself only."""
    assert context.executor is not None, "checked by the caller"
    small = _cut_out(module, graph, foldable, wanted)
    (result,) = context.executor.run_module(small, "fold", [{}], config=RuntimeConfig(intra_threads=1))
    if result.error is None:
        return {value: result.outputs[str(k)] for k, value in enumerate(wanted)}
    if len(wanted) == 1:
        context.refuse(wanted[0].node, f"evaluating it fails: {result.error.message}")
        return {}
    half = len(wanted) // 2
    return {**_evaluate(module, graph, foldable, wanted[:half], context), **_evaluate(module, graph, foldable, wanted[half:], context)}


def _cut_out(module: Module, graph: Graph, foldable: dict[str, None], wanted: list[Value]) -> Module:
    """A module that computes `wanted` and nothing else."""
    needed: set[str] = set()
    stack = [value.node for value in wanted]
    while stack:
        name = stack.pop()
        if name not in needed:
            needed.add(name)
            stack.extend(v.node for v in graph.operands(name))
    part = Graph("fold")
    for name in foldable:
        if name in needed:
            part.add_node(replace(graph.node(name), device=""), graph.operands(name))
    part.set_outputs((str(k), value) for k, value in enumerate(wanted))
    return Module("fold", {"fold": part}, dict(module.functions), stores=module.stores)


def _replace(module: Module, graph: Graph, value: Value, array: Array, context: Context) -> None:
    node = graph.node(value.node)
    dtype = DType(node.types[value.port].dtype.removesuffix("_ref"))
    literal = module.stores.constant(np.asarray(array), dtype)
    if len(node.types) == 1:
        graph.set_operands(node.name, ())
        graph.set_node(Node(node.name, "Const", {"value": literal}, (literal_type(literal),), node.device, node.origin))
    else:
        name = graph.fresh_name(f"{node.name}/{value.port}")
        graph.add("Const", (), {"value": literal}, (literal_type(literal),), name=name, device=node.device, origin=node.origin)
        graph.replace_uses(value, Value(name))
    context.change(node.name, f"{node.op} folded")
