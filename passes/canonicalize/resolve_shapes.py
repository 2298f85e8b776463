"""What is known of sizes becomes constant, so that chains of shape arithmetic die.

    %s = StridedSlice(Shape(%x), ...) : i32[]        known to be 28        =>   %s = Const() {value=28}
    %r = Reshape(%x, %s)    %s known to be [b, 128]                        =>   %r = Reshape(%x, [-1, 128])

A shape may hold one -1, and only where the other sizes are known and not 0: with a 0 among them TensorFlow could not tell what -1 means.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from compiler.ir.graph import Graph, Node, Value
from compiler.ir.module import Module
from compiler.ir.weights import Array, Tensor, literal_type
from compiler.ops.effects import Bodies, is_pure
from compiler.ops.queries import infer_graph
from compiler.ops.regions import in_control_flow
from compiler.ops.spec import Content
from compiler.pipeline.base import CANONICAL, TYPED, Context, Pass


@dataclass(frozen=True)
class ResolveShapes(Pass):
    """Static contents first, then the shapes of Reshapes."""

    name = "resolve-shapes"
    requires = frozenset({TYPED})
    breaks = frozenset({CANONICAL})

    def run(self, module: Module, context: Context) -> None:
        bodies = Bodies(module)
        for graph in module.graphs.values():
            contents = infer_graph(module, graph).contents
            guarded = in_control_flow(graph)
            for name in graph.order():
                node = graph.node(name)
                if name in guarded:
                    continue
                if node.op == "Reshape":
                    _reshape(graph, node, context)
                elif node.op != "Const" and is_pure(module, node, bodies) and len(node.types) == 1:
                    _constant(graph, node, contents.get(Value(name)), context)


def _constant(graph: Graph, node: Node, content: Content, context: Context) -> None:
    array = static(content, node)
    if array is None or graph.controls(node.name) or not context.spend():
        return
    graph.set_operands(node.name, ())
    literal = Tensor(node.type.dtype, array)
    graph.set_node(Node(node.name, "Const", {"value": literal}, (literal_type(literal),), node.device, node.origin))
    context.change(node.name, f"{node.op} is known to be {array.tolist()}")


def static(content: Content, node: Node) -> Array | None:
    """The content as an array of the node's type, None where a part is symbolic or does not fit the type."""
    values = content if isinstance(content, tuple) else (content,)
    if not all(isinstance(v, int) for v in values) or not node.type.dtype.is_integer:
        return None
    limits = np.iinfo(node.type.dtype.numpy)
    if any(not limits.min <= int(v) <= limits.max for v in values if isinstance(v, int)):
        return None
    return np.array(content if not isinstance(content, tuple) else list(content), node.type.dtype.numpy)


def _reshape(graph: Graph, node: Node, context: Context) -> None:
    shape = graph.operands(node.name)[1]
    content = node.type.shape  # says more than the operand does: there a -1 may stand for a size that is known
    if graph.node(shape.node).op == "Const" or content is None:
        return
    unknown = [i for i, d in enumerate(content) if not isinstance(d, int)]
    if len(unknown) > 1:
        context.refuse(node.name, "two or more dimensions of the new shape are not static")
        return
    if any(d == 0 for d in content):
        context.refuse(node.name, "a dimension of the new shape is 0, -1 would be ambiguous")
        return
    if not context.spend():
        return
    dtype = graph.type_of(shape).dtype
    literal = Tensor(dtype, np.array([-1 if i in unknown else d for i, d in enumerate(content)], dtype.numpy))
    made = graph.fresh_name(f"{node.name}/shape")
    graph.add("Const", (), {"value": literal}, (literal_type(literal),), name=made, device=node.device, origin=node.origin)
    graph.set_operand(node.name, 1, Value(made))
    context.change(node.name, f"the new shape is {literal.array.tolist()}")
