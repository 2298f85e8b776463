"""The `op` of `Rule.rewrite`: `op.MatMul(x, y, transpose_a=True)` adds a typed node beside the match and is its output 0.

Built nodes take the root's device, the union of the matched origins and the matched control inputs; their names come from the root's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from compiler.ir.graph import Attr, Value, attr_key
from compiler.ir.weights import Array, Literal
from compiler.ops.attributes import defaults
from compiler.rewrite.emitter import Emitter


@dataclass
class Builder:
    """Builds the replacement of one match."""

    emitter: Emitter
    root: str
    device: str
    origin: tuple[str, ...]
    controls: tuple[str, ...]
    built: list[str] = field(default_factory=list)

    def __getattr__(self, op: str) -> Callable[..., Value]:
        if op.startswith("_"):
            raise AttributeError(op)
        return partial(self.node, op)

    def node(self, op: str, *operands: Value, **attrs: Attr) -> Value:
        """Add a node; an attribute equal to the OpDef's default is left out."""
        known = {name: attr_key(value) for name, value in defaults(op).items()}
        kept = {name: value for name, value in attrs.items() if known.get(name) != attr_key(value)}
        name = f"{self.root}/{op.lower()}"
        made = self.emitter.add(op, operands, kept, name=name, device=self.device, origin=self.origin, controls=self.controls)
        self.built.append(made.node)
        return made

    def constant(self, array: Array) -> Value:
        """A constant with the array's own element type."""
        return self.literal(self.emitter.module.stores.constant(array))

    def literal(self, literal: Literal) -> Value:
        made = self.emitter.constant(literal, name=f"{self.root}/const", device=self.device, origin=self.origin)
        self.built.append(made.node)
        return made
