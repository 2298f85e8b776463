"""Putting a match into a body of its own.

    %m = Mul(%x, %s)   %s = Sigmoid(%x)      =>      %m = Call(%x) {f=@swish_1f0c...}      function @swish_1f0c...(%p0) {kind="swish"} {...}

The body is the matched nodes themselves, under short names; what they read from outside comes in as arguments, small constants come along.
A body's name is its kind and a digest of its text, so equal bodies are one, whoever made them first.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from compiler.ir.graph import FunctionRef, Graph, Node, Value
from compiler.ir.text import print_graph
from compiler.ir.weights import Splat, Tensor
from compiler.rewrite.builder import Builder
from compiler.rewrite.matcher import Match
from compiler.rewrite.rule import Refusal

KIND = "kind"


def inside(m: Match) -> Refusal | None:
    """A body that is outlined already is not outlined again: it would call itself."""
    return Refusal("it is the body of its kind", quiet=True) if KIND in m.graph.attrs else None


def outlined(op: Builder, m: Match, kind: str) -> Value:
    """The call that stands for the matched nodes."""
    body, arguments = _body(m.graph, _producers_first(m.graph, m.matched), m.root, kind)
    text = print_graph(body).partition("\n")[2]
    header = ",".join(str(body.node(name).type) for name in body.inputs)
    name = f"{kind}_{hashlib.sha256(f'{header}{text}'.encode()).hexdigest()[:10]}"
    if name not in m.module.functions:
        m.module.functions[name] = body.copy(name)
    return op.node("Call", *arguments, f=FunctionRef(name))


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
    body = Graph(kind, {KIND: kind})
    outside = dict.fromkeys(v for name in names for v in graph.operands(name) if v.node not in names and not _is_small(graph.node(v.node)))
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
    """A scalar or a few axes: part of what the function is, not of what it is given."""
    literal = node.attrs.get("value")
    return node.op == "Const" and isinstance(literal, Tensor | Splat) and literal.array.size <= 4 and literal.array.ndim <= 1
