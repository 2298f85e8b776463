"""A graph's nodes as specs see them, and what follows: types, symbolic contents, work.

node, operand types, constants  =>  Operation  =>  result types, content of small integer tensors, sharding rule, FLOPs.

One node: `operation`, `infer`.  A whole graph, in one linear sweep that carries shape chains along: `infer_graph`.
The questions of purity and state are `compiler.ops.effects`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from compiler.ir.dims import KnownDim
from compiler.ir.errors import IrError
from compiler.ir.graph import Attr, Graph, Node, Value
from compiler.ir.module import Module
from compiler.ir.types import DType, TensorType
from compiler.ir.weights import Array, Splat, Tensor, WeightRef
from compiler.ops import opdefs
from compiler.ops.attributes import complete, defaults, stored
from compiler.ops.registry import has, spec
from compiler.ops.spec import Content, Localized, Operation, Shard, ShardingRule, Signature, Trait

Contents = Mapping[Value, Content]
"""What is known of small integer values, by value; `infer_graph(...).contents` is one."""


@dataclass(frozen=True)
class Inferred:
    """The types of every node and the contents of shape-computing values, of one graph at one version."""

    types: dict[str, tuple[TensorType, ...]] = field(default_factory=dict)
    contents: dict[Value, Content] = field(default_factory=dict)


def attrs_with_defaults(node: Node) -> dict[str, Attr]:
    """The node's attributes and, for those it leaves out, the OpDef's defaults (not what operands determine: see `operation`)."""
    return {**defaults(node.op), **node.attrs}


def operation(module: Module, graph: Graph, name: str, contents: Contents | None = None) -> Operation:
    """The node as its spec sees it.  Constants are loaded when asked for; without `contents` only constants' own values are known."""
    node = graph.node(name)
    operands = graph.operands(name)
    types = tuple(graph.type_of(v) for v in operands)
    return _operation(module, graph, node, operands, types, contents or {})


def infer(operation: Operation) -> tuple[TensorType, ...]:
    """Result types: the spec's, or for an opaque op the OpDef's dtypes with unknown shapes; IrError where operands do not fit."""
    found = spec(operation.op)
    return found.infer(operation) if found is not None else opaque_types(operation)


def rule(operation: Operation) -> ShardingRule | None:
    """The sharding rule; None: never divided."""
    found = spec(operation.op)
    return None if found is None or found.rule is None else found.rule(operation)


def localize(operation: Operation, shard: Shard, operands: tuple[TensorType, ...]) -> Localized:
    """What one shard runs; its attributes are as a node stores them: no defaults, nothing the operands determine."""
    found = spec(operation.op)
    if found is None or found.localize is None:
        local = Localized(operation.op, operation.attrs)
    else:
        local = found.localize(operation, shard, operands)
    return local if local.steps else replace(local, attrs=stored(local.op, local.attrs, [t.dtype for t in operands]))


def work(operation: Operation) -> KnownDim | None:
    """FLOPs of the whole op, None where they are not known (an opaque op's never are)."""
    found = spec(operation.op)
    return None if found is None else found.work(operation)


def content(operation: Operation) -> Content:
    """Symbolic content of result 0, None where nothing is known."""
    found = spec(operation.op)
    return None if found is None or found.content is None else found.content(operation)


def contents_of(operation: Operation) -> tuple[Content, ...]:
    """Symbolic content of every result, as far as the tuple goes."""
    found = spec(operation.op)
    if found is not None and found.contents is not None:
        return found.contents(operation)
    return (content(operation),)


def arguments(graph: Graph, name: str) -> tuple[Value, ...] | None:
    """What every body the node refers to gets as its inputs; None where they may get something else, as a loop's do."""
    node, operands = graph.node(name), graph.operands(name)
    if has(node, Trait.CALL):
        return operands
    branches = has(node, Trait.CONTROL_FLOW) and node.op not in ("While", "StatelessWhile")
    return operands[1:] if branches else None


def opaque_types(operation: Operation) -> tuple[TensorType, ...]:
    """OpDef dtypes and unknown shapes; what is recorded for an op that the table does not know or whose attributes do not tell."""
    if opdefs.get(operation.op) is None:
        return operation.results
    try:
        dtypes = opdefs.output_dtypes(operation.op, operation.attrs)
    except opdefs.OpDefError as error:
        if operation.results:
            return tuple(TensorType(t.dtype) for t in operation.results)
        raise IrError(f"{operation.op} {operation.name!r}: {error}") from None
    return tuple(TensorType(DType(d)) for d in dtypes)


def infer_graph(module: Module, graph: Graph) -> Inferred:
    """Types and contents of the whole graph, producers first.  Inputs keep their recorded types, and so do values behind v1 back edges."""
    found = Inferred()
    for name in graph.order():
        node = graph.node(name)
        operands = graph.operands(name)
        types = tuple(found.types[v.node][v.port] if v.node in found.types else graph.type_of(v) for v in operands)
        op = _operation(module, graph, node, operands, types, found.contents)
        found.types[name] = infer(op)
        for port, known in enumerate(contents_of(replace(op, results=found.types[name]))):
            if known is not None:
                found.contents[Value(name, port)] = known
    return found


def _operation(
    module: Module, graph: Graph, node: Node, operands: tuple[Value, ...], types: tuple[TensorType, ...], contents: Contents
) -> Operation:
    try:
        attrs = complete(node.op, node.attrs, [t.dtype for t in types])
    except IrError as error:
        raise IrError(f"{node.op} {node.name!r}: {error}") from None
    return Operation(
        node.name,
        node.op,
        attrs,
        types,
        node.types,
        _constants(module, graph, operands),
        tuple(contents.get(v) for v in operands),
        _signatures(module),
    )


def _constants(module: Module, graph: Graph, operands: tuple[Value, ...]) -> Callable[[int], Array | None]:
    def constant(slot: int) -> Array | None:
        node = graph.node(operands[slot].node)
        literal = node.attrs.get("value")
        if node.op != "Const" or not isinstance(literal, Tensor | Splat | WeightRef):
            return None
        return module.stores.load(literal)

    return constant


def _signatures(module: Module) -> Callable[[str], Signature | None]:
    def signature(name: str) -> Signature | None:
        body = module.functions.get(name)
        if body is None:
            return None
        inputs = tuple(body.node(i).type for i in body.inputs)
        return Signature(inputs, tuple(body.type_of(o.value) for o in body.outputs))

    return signature
