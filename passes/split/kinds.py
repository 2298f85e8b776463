"""A call of an outlined body is divided as its body divides: one rule composed of its nodes' rules, one price summed over them.

%y = Call(%x) {f=@gelu_1f0c..., _factors=["g1:d"]}    =>    %y/0 = Call(%x/0) {f=@gelu_77ab...}    each shard's body for its own sizes
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from compiler.ir.graph import INPUT, FunctionRef, Graph
from compiler.ir.module import Module
from compiler.ir.types import TensorType
from compiler.ops.attributes import stored
from compiler.ops.kinds import compose_rule
from compiler.ops.queries import infer_graph, operation
from compiler.ops.spec import Localized, Operation, ShardingRule
from cost_model.model import CostModel
from passes.outline.body import KIND, registered, retyped

Types = tuple[TensorType, ...]


@dataclass
class Kinds:
    """Rules, prices and shards of calls; each is found once for a body and the types it is called with."""

    module: Module
    _rules: dict[tuple[str, Types], ShardingRule | None] = field(default_factory=dict)
    _typed: dict[tuple[str, Types], tuple[Operation, ...]] = field(default_factory=dict)
    _shards: dict[tuple[str, Types], FunctionRef] = field(default_factory=dict)

    def has(self, whole: Operation) -> bool:
        """Is it a call of a kind?"""
        return whole.op == "Call" and KIND in self.module.function(_ref(whole)).attrs

    def rule(self, whole: Operation) -> ShardingRule | None:
        """The body's composed rule, in the caller's sizes."""
        key = (_ref(whole).name, _plain(whole.operands))
        if key not in self._rules:
            self._rules[key] = compose_rule(self.module, _with_types(self.module, _ref(whole), key[1]))
        return self._rules[key]

    def seconds(self, whole: Operation, operands: Sequence[TensorType], costs: CostModel, device: str, sizes: Mapping[str, int]) -> float:
        """Seconds of the body's operators one after another, for operands of these types."""
        key = (_ref(whole).name, _plain(operands))
        if key not in self._typed:
            self._typed[key] = _operations(self.module, _with_types(self.module, _ref(whole), key[1]))
        return sum(costs.op_seconds(inner, device, sizes) for inner in self._typed[key])

    def localized(self, whole: Operation, operands: Sequence[TensorType]) -> Localized:
        """A shard's call: the same nodes, in a body for the shard's types."""
        key = (_ref(whole).name, _plain(operands))
        if key not in self._shards:
            self._shards[key] = registered(self.module, retyped(self.module, self.module.function(_ref(whole)), key[1]))
        attrs = stored(whole.op, {**whole.attrs, "f": self._shards[key]}, [t.dtype for t in operands])
        return Localized(whole.op, attrs)


def _ref(whole: Operation) -> FunctionRef:
    ref = whole.attrs["f"]
    assert isinstance(ref, FunctionRef), "a call names its function"
    return ref


def _plain(types: Sequence[TensorType]) -> Types:
    return tuple(t.with_sharding(None) for t in types)


def _with_types(module: Module, ref: FunctionRef, types: Types) -> Graph:
    """The body in the caller's own sizes."""
    body = module.function(ref).copy(ref.name)
    for name, type_ in zip(body.inputs, types, strict=True):
        body.set_types(name, (type_,))
    for name, found in infer_graph(module, body).types.items():
        if body.node(name).op != INPUT:
            body.set_types(name, found)
    return body


def _operations(module: Module, body: Graph) -> tuple[Operation, ...]:
    contents = infer_graph(module, body).contents
    names = [name for name in body.order() if body.node(name).op != INPUT]
    return tuple(operation(module, body, name, contents) for name in names)
