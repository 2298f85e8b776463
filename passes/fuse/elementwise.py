"""Chains of elementwise operators become one outlined function: one pass over memory for whoever emits it as one.

    %s = Mul(%x, %a)   %y = AddV2(%s, %b)      =>      %y = Call(%x, %a, %b) {f=@fused_1f0c...}      function @fused_... {kind="fused"}

A producer joins its reader if nobody else needs it, nothing makes it wait, it is where the reader is, and it has the reader's shape:
one that grows on the way stays outside.  The body is the nodes as they are, so the values are bit for bit the same.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace

from compiler.ir.graph import FunctionRef, Graph, Node
from compiler.ir.module import Module
from compiler.ops.effects import Bodies, is_pure
from compiler.ops.regions import in_control_flow
from compiler.ops.registry import has
from compiler.ops.spec import Trait
from compiler.pipeline.base import TYPED, Context, Pass
from passes.outline.body import KIND, outline

FUSED = "fused"


@dataclass(frozen=True)
class FuseElementwise(Pass):
    """Groups of at most `max_ops` operators that end in one result."""

    name = "fuse-elementwise"
    requires = frozenset({TYPED})
    max_ops: int = 16

    def run(self, module: Module, context: Context) -> None:
        bodies = Bodies(module)
        for graph in list(module.graphs.values()):
            if KIND not in graph.attrs:
                _Fuser(module, graph, context, bodies, in_control_flow(graph), self.max_ops).run()


@dataclass
class _Fuser:
    module: Module
    graph: Graph
    context: Context
    bodies: Bodies
    guarded: frozenset[str]
    """Nodes inside v1 control flow."""
    max_ops: int
    taken: set[str] = field(default_factory=set)

    def run(self) -> None:
        for name in reversed(self.graph.order()):
            if name in self.graph and name not in self.taken and self._is_elementwise(self.graph.node(name)):
                group = self._group(name)
                self.taken |= group.keys()
                if len(group) > 1 and self.context.spend():
                    _replace(self.module, self.graph, group, name)
                    self.context.change(name, f"{len(group)} elementwise operators became one")

    def _is_elementwise(self, node: Node) -> bool:
        plain = has(node, Trait.ELEMENTWISE) and len(node.types) == 1 and node.types[0].shape is not None
        return plain and node.name not in self.guarded and is_pure(self.module, node, self.bodies)

    def _group(self, root: str) -> dict[str, None]:
        """The root and the producers that join it; a producer is asked once for each of its readers in the group."""
        group, waiting, refusals = {root: None}, [root], dict[str, str]()
        while waiting and len(group) < self.max_ops:
            for value in self.graph.operands(waiting.pop()):
                producer = self.graph.node(value.node)
                if value.node in group or value.node in self.taken or not self._is_elementwise(producer):
                    continue
                refusal = _refusal(self.graph, producer, self.graph.node(root), group)
                if refusal:
                    refusals[value.node] = refusal
                elif len(group) < self.max_ops:
                    group[value.node] = None
                    waiting.append(value.node)
        for name, refusal in refusals.items():
            if name not in group:
                self.context.refuse(name, refusal)
        return group


def _refusal(graph: Graph, producer: Node, root: Node, group: Collection[str]) -> str:
    """Why an elementwise producer does not join the group, "" if it does."""
    other = graph.outsider(producer.name, group)
    if other is not None:
        return f"{producer.op} is also needed by {other}"
    if producer.device != root.device:
        return f"{producer.op} is on {producer.device or 'no device'}, {root.name} on {root.device or 'none'}"
    if graph.controls(producer.name):
        return f"{producer.op} waits by a control edge"
    same = producer.types[0].shape == root.types[0].shape and None not in (root.types[0].shape or ())
    return "" if same else f"{producer.op} is {producer.types[0]}, {root.name} is {root.types[0]}"


def _replace(module: Module, graph: Graph, group: dict[str, None], root: str) -> None:
    """The root becomes the call, under its own name; the others go."""
    ref, arguments = outline(module, graph, group, root, FUSED)
    node = graph.node(root)
    origin = tuple(dict.fromkeys(o for name in reversed(group) for o in graph.node(name).origin))
    graph.set_operands(root, arguments)
    graph.set_node(replace(node, op="Call", attrs={"f": FunctionRef(ref.name)}, origin=origin))
    for name in group:  # whoever reads a member joined before it
        if name != root:
            graph.remove(name)
