"""Every value gets the best type that inference gives: symbolic shapes carried through the graph, shape chains included.

%r = Reshape(%x, %s) : f32[*]   =>   %r = Reshape(%x, %s) : f32[b,128]
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from compiler.ir.dims import Dim, symbols
from compiler.ir.graph import Graph
from compiler.ir.module import Module, function_refs
from compiler.ir.types import TensorType, compatible
from compiler.ops.queries import arguments, infer_graph
from compiler.pipeline.base import TYPED, Context, Pass

MOST_SWEEPS = 4
"""Bodies learn from their callers, callers from their bodies; what is not known after this many rounds stays unknown."""


@dataclass(frozen=True)
class InferTypes(Pass):
    """Types are refined, never loosened; bodies first, so that calls know what they return; then bodies with one caller learn its types."""

    name = "infer-types"
    establishes = frozenset({TYPED})

    def run(self, module: Module, context: Context) -> None:
        names = module.reachable_functions()
        graphs = [*(module.functions[name] for name in names), *module.entries.values()]
        for _ in range(MOST_SWEEPS):
            for graph in graphs:
                _infer(module, graph)
            if not _hand_down(module, graphs[::-1]):
                return


def _infer(module: Module, graph: Graph) -> None:
    for name, types in infer_graph(module, graph).types.items():
        node = graph.node(name)
        if len(types) == len(node.types):
            graph.set_types(name, [refine(old, new) for old, new in zip(node.types, types, strict=True)])


def _hand_down(module: Module, callers_first: Sequence[Graph]) -> bool:
    """Give bodies that one node refers to the types of its operands; did a body learn something?"""
    counts = Counter(ref.name for graph in module.graphs.values() for node in graph for ref in function_refs(node))
    learned: set[str] = set()
    for graph in callers_first:
        if graph.name in learned:
            _infer(module, graph)
        for node in graph:
            refs = [ref for ref in function_refs(node) if counts[ref.name] == 1]
            values = arguments(graph, node.name) if refs else None
            for ref in refs if values is not None else ():
                if _learn(module.function(ref), [graph.type_of(v) for v in values or ()]):
                    learned.add(ref.name)
    return bool(learned)


def _learn(body: Graph, given: Sequence[TensorType]) -> bool:
    """Refine the body's inputs.  A caller's symbol enters only where the body has none of its own: `b` here and there are two sizes."""
    version = body.version
    closed = any(symbols(d) for node in body for t in node.types for d in t.shape or ())
    for name, type_ in zip(body.inputs, given, strict=True):
        known = type_.shape
        if closed and known is not None:
            known = tuple(d if isinstance(d, int) else None for d in known)
        body.set_types(name, [refine(body.node(name).type, replace(type_, shape=known))])
    return body.version != version


def refine(old: TensorType, new: TensorType) -> TensorType:
    """What both know of one value; where they contradict, the recorded type stands."""
    if old.dtype != new.dtype or not compatible(old, new):
        return old
    handle = new.handle if new.handle is not None else old.handle
    if new.shape is None:
        return replace(old, handle=handle)
    if old.shape is None:
        return replace(old, shape=new.shape, handle=handle)
    return replace(old, shape=tuple(_known(a, b) for a, b in zip(old.shape, new.shape, strict=True)), handle=handle)


def _known(old: Dim, new: Dim) -> Dim:
    """Static beats symbolic beats unknown; the recorded symbol stays."""
    if old is None or isinstance(new, int):
        return new
    return old
