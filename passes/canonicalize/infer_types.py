"""Every value gets the best type that inference gives: symbolic shapes carried through the graph, shape chains included.

%r = Reshape(%x, %s) : f32[*]   =>   %r = Reshape(%x, %s) : f32[b,128]
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from compiler.ir.dims import Dim
from compiler.ir.graph import Graph
from compiler.ir.module import Module
from compiler.ir.types import TensorType, compatible
from compiler.ops.queries import infer_graph
from compiler.pipeline.base import TYPED, Context, Pass


@dataclass(frozen=True)
class InferTypes(Pass):
    """Types are refined, never loosened; bodies first, so that calls know what they return."""

    name = "infer-types"
    establishes = frozenset({TYPED})

    def run(self, module: Module, context: Context) -> None:
        for name in module.reachable_functions():
            _infer(module, module.functions[name])
        for entry in module.entries.values():
            _infer(module, entry)


def _infer(module: Module, graph: Graph) -> None:
    for name, types in infer_graph(module, graph).types.items():
        node = graph.node(name)
        if len(types) == len(node.types):
            graph.set_types(name, [refine(old, new) for old, new in zip(node.types, types, strict=True)])


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
