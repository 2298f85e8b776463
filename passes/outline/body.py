"""Putting nodes into a body of their own.

    %m = Mul(%x, %s)   %s = Sigmoid(%x)      =>      %m = Call(%x) {f=@swish_1f0c...}      function @swish_1f0c...(%p0) {kind="swish"} {...}

The body is the nodes themselves, under short names; what they read from outside comes in as arguments, small constants come along.
A body's sizes are its own (`d0`, `d1`: equal ones stay equal), its types are inferred anew, and its name is its kind and a digest of its
text, so equal bodies are one, whoever made them first.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from itertools import count

from compiler.ir.dims import Dim, Expr, symbol
from compiler.ir.graph import INPUT, FunctionRef, Graph, Node, Value
from compiler.ir.module import Module
from compiler.ir.text import print_graph
from compiler.ir.types import TensorType
from compiler.ir.weights import Splat, Tensor
from compiler.ops.queries import infer_graph
from compiler.rewrite.builder import Builder
from compiler.rewrite.matcher import Match
from compiler.rewrite.rule import Refusal

KIND = "kind"
MOST_AXES = 8
"""Longer integer vectors than any list of axes are data."""


def kind_of(module: Module, node: Node) -> str:
    """The kind of the body that a node calls, "" where it calls none or the body has none."""
    ref = node.attrs.get("f")
    if node.op != "Call" or not isinstance(ref, FunctionRef):
        return ""
    return _kind(module.function(ref))


def _kind(body: Graph) -> str:
    kind = body.attrs.get(KIND, "")
    return kind if isinstance(kind, str) else ""


def inside(m: Match) -> Refusal | None:
    """A body that is outlined already is not outlined again: it would call itself."""
    return Refusal("it is the body of its kind", quiet=True) if KIND in m.graph.attrs else None


def outlined(op: Builder, m: Match, kind: str) -> Value:
    """The call that stands for the matched nodes."""
    ref, arguments = outline(m.module, m.graph, m.matched, m.root, kind)
    return op.node("Call", *arguments, f=ref)


def outline(module: Module, graph: Graph, names: Iterable[str], root: str, kind: str) -> tuple[FunctionRef, list[Value]]:
    """A body of these nodes that returns the first result of `root`, and what it is to be called with."""
    body, arguments = _body(graph, _producers_first(graph, names), root, kind)
    return registered(module, retyped(module, body, [graph.type_of(v) for v in arguments])), arguments


def registered(module: Module, body: Graph) -> FunctionRef:
    """The body in the module, under its digest's name; an equal one that is there already serves as well."""
    text = print_graph(body).partition("\n")[2]
    header = ",".join(str(body.node(name).type) for name in body.inputs)
    name = f"{_kind(body)}_{hashlib.sha256(f'{header}{text}'.encode()).hexdigest()[:10]}"
    if name not in module.functions:
        module.functions[name] = body.copy(name)
    return FunctionRef(name)


def retyped(module: Module, body: Graph, types: Sequence[TensorType]) -> Graph:
    """The body for arguments of these types: sizes that are no numbers become its own symbols, inner types are inferred."""
    made = body.copy(body.name)
    for name, type_ in zip(made.inputs, own_sizes(types), strict=True):
        made.set_types(name, (type_,))
    for name, found in infer_graph(module, made).types.items():
        if made.node(name).op != INPUT:
            made.set_types(name, found)
    return made


def own_sizes(types: Sequence[TensorType]) -> list[TensorType]:
    """The types with each symbolic dimension replaced: equal ones by the same symbol `d0`, `d1`, ..."""
    known: dict[Dim, Dim] = {}
    serial = count()
    found = []
    for type_ in types:
        for dim in type_.shape or ():
            if isinstance(dim, Expr) and dim not in known:
                known[dim] = symbol(f"d{next(serial)}")
        found.append(_substituted(type_, known))
    return found


def _substituted(type_: TensorType, known: Mapping[Dim, Dim]) -> TensorType:
    plain = type_.with_sharding(None)
    return plain if plain.shape is None else plain.with_shape(tuple(known.get(d, d) for d in plain.shape))


def _producers_first(graph: Graph, names: Iterable[str]) -> list[str]:
    """The names, each after those among them that it reads."""
    wanted, done = dict.fromkeys(sorted(names)), dict[str, None]()
    stack = list(reversed(wanted))
    while stack:
        name = stack[-1]
        left = [v.node for v in graph.operands(name) if v.node in wanted and v.node not in done]
        if left:
            stack.extend(left)
            continue
        stack.pop()
        done.setdefault(name)
    return list(done)


def _body(graph: Graph, names: list[str], root: str, kind: str) -> tuple[Graph, list[Value]]:
    body, among = Graph(kind, {KIND: kind}), frozenset(names)
    outside = dict.fromkeys(v for name in names for v in graph.operands(name) if v.node not in among and not _is_small(graph.node(v.node)))
    values = {value: body.add_input(f"p{i}", graph.type_of(value).with_sharding(None)) for i, value in enumerate(outside)}
    for name in names:
        node = graph.node(name)
        for value in graph.operands(name):
            if value not in values:
                values[value] = _add(body, graph.node(value.node), [])
        made = _add(body, node, [values[v] for v in graph.operands(name)])
        values.update({Value(name, port): Value(made.node, port) for port in range(len(node.types))})
    body.set_outputs([("r", values[Value(root)])])
    return body, list(outside)


def _add(body: Graph, node: Node, operands: list[Value]) -> Value:
    fresh = body.fresh_name(node.op.lower())
    body.add(node.op, operands, node.attrs, [t.with_sharding(None) for t in node.types], name=fresh, origin=(fresh,))
    return Value(fresh)


def _is_small(node: Node) -> bool:
    """A scalar, or a few axes: part of what the function is, not of what it is given, as a short bias would be."""
    literal = node.attrs.get("value")
    if node.op != "Const" or not isinstance(literal, Tensor | Splat):
        return False
    array = literal.array
    return array.ndim == 0 or (array.ndim == 1 and array.size <= MOST_AXES and array.dtype.kind in "iu")
