"""Adding typed nodes: operands and attributes in, `infer`red types and fresh names out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from compiler.ir.graph import Attr, Graph, Value
from compiler.ir.module import Module
from compiler.ir.weights import Literal, literal_type
from compiler.ops.queries import infer, operation
from compiler.ops.spec import Content


@dataclass
class Emitter:
    """Adds nodes to one graph of a module; `contents` is what is known of small integer values, for ops whose shape depends on them."""

    module: Module
    graph: Graph
    contents: dict[Value, Content] = field(default_factory=dict)

    def add(
        self,
        op: str,
        operands: Sequence[Value],
        attrs: Mapping[str, Attr] | None = None,
        *,
        name: str,
        device: str = "",
        origin: Iterable[str] = (),
        controls: Iterable[str] = (),
    ) -> Value:
        """Add a node, its types inferred; returns its output 0."""
        fresh = self.graph.fresh_name(name)
        self.graph.add(op, operands, attrs, name=fresh, device=device, origin=origin, controls=controls)
        self.graph.set_types(fresh, infer(operation(self.module, self.graph, fresh, self.contents)))
        return Value(fresh)

    def constant(self, literal: Literal, *, name: str, device: str = "", origin: Iterable[str] = ()) -> Value:
        fresh = self.graph.fresh_name(name)
        self.graph.add("Const", (), {"value": literal}, (literal_type(literal),), name=fresh, device=device, origin=origin)
        return Value(fresh)
