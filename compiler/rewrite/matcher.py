"""Does a pattern fit at a node?  Backtracks over commutative operands and alternatives; linear in the pattern, never in the graph."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from compiler.ir.graph import Attr, Graph, Node, Value
from compiler.ir.module import Module
from compiler.ir.node import attr_key
from compiler.ir.types import DType, TensorType
from compiler.ir.weights import Array, Splat, Tensor, WeightRef
from compiler.ops.attributes import defaults
from compiler.ops.effects import Bodies, is_pure
from compiler.ops.registry import has
from compiler.ops.spec import Trait
from compiler.rewrite.rule import ANY, Capture, CompiledRule, NodePattern, OneOf, Pattern, PortPattern, Refusal, Rest


@dataclass(frozen=True)
class _State:
    """What is bound so far; extended by copying, so that a failed branch leaves no trace."""

    captures: Mapping[str, Value] = field(default_factory=dict)
    rests: Mapping[str, tuple[Value, ...]] = field(default_factory=dict)
    nodes: Mapping[int, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    shared: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Match:
    """A pattern bound to a place: `m.x` is the value captured as x; labels name nodes."""

    module: Module
    graph: Graph
    root: str
    state: _State
    port: int | None = None
    """The one output of the root that the pattern speaks of; None: all of them."""

    def __getattr__(self, name: str) -> Value:
        if name.startswith("_"):
            raise AttributeError(name)
        try:
            return self.state.captures[name]
        except KeyError:
            raise AttributeError(f"the match has no capture {name!r}, it has {sorted(self.state.captures)}") from None

    def has(self, name: str) -> bool:
        """Is this capture or label there (alternatives leave out some)?"""
        return name in self.state.captures or name in self.state.labels or name in self.state.rests

    def values(self, name: str) -> tuple[Value, ...]:
        """The operands of an `op.Rest`."""
        return self.state.rests[name]

    def node(self, label: str) -> Node:
        return self.graph.node(self.state.labels[label])

    def attr(self, label: str, name: str) -> Attr:
        """An attribute of a labelled node, its default counted in."""
        node = self.node(label)
        return node.attrs[name] if name in node.attrs else defaults(node.op)[name]

    def attrs(self, label: str) -> dict[str, Attr]:
        """All attributes that a labelled node stores: what a rule carries."""
        return dict(self.node(label).attrs)

    def type(self, name: str) -> TensorType:
        """The type of a captured value, or of a labelled node's output 0."""
        if name in self.state.captures:
            return self.graph.type_of(self.state.captures[name])
        return self.node(name).types[0]

    def literal(self, name: str) -> Tensor | Splat | WeightRef | None:
        """The literal behind a captured constant, None where it is none."""
        node = self.graph.node(self.state.captures[name].node)
        value = node.attrs.get("value")
        return value if node.op == "Const" and isinstance(value, Tensor | Splat | WeightRef) else None

    def array(self, name: str) -> Array | None:
        """A captured constant's array."""
        literal = self.literal(name)
        return None if literal is None else self.module.stores.load(literal)

    def const(self, name: str) -> object:
        """A small captured constant as a number or a (nested) tuple; None where it is no constant."""
        array = self.array(name)
        return None if array is None else _as_tuple(np.asarray(array).tolist())

    @property
    def matched(self) -> tuple[str, ...]:
        """Every node of the pattern, the root included, shared ones left out."""
        return tuple(dict.fromkeys(n for n in self.state.nodes.values() if n not in self.state.shared))

    @property
    def seen(self) -> tuple[str, ...]:
        """Every node of the pattern, shared ones too."""
        return tuple(dict.fromkeys(self.state.nodes.values()))

    @property
    def origin(self) -> tuple[str, ...]:
        names = dict.fromkeys(o for n in self.matched for o in self.graph.node(n).origin)
        return tuple(names) or self.graph.node(self.root).origin


def _as_tuple(value: object) -> object:
    return tuple(map(_as_tuple, value)) if isinstance(value, list) else value


def matches(module: Module, graph: Graph, compiled: CompiledRule, root: str) -> Iterator[Match]:
    """Every way the pattern fits with this root."""
    for port, pattern in _roots(compiled.root):
        if port is None or port < len(graph.node(root).types):
            for state in _fit_node(graph, pattern, root, _State()):
                yield Match(module, graph, root, state, port)


def automatic_refusal(match: Match, bodies: Bodies) -> Refusal | None:
    """Why the match may not be rewritten whatever the rule: see `rule`."""
    graph, among = match.graph, frozenset(match.matched)
    device = graph.node(match.root).device
    for name in match.seen:
        node = graph.node(name)
        if not is_pure(match.module, node, bodies):
            return Refusal(f"{node.op} is not pure", name)
        if name == match.root or node.op == "Const":
            continue
        if node.device != device:
            return Refusal(f"{node.op} is on {node.device or 'no device'}, {match.root} on {device or 'none'}", name)
        other = graph.outsider(name, among) if name in among else None
        if other is not None:
            return Refusal(f"{node.op} is also needed by {other}", name)
    return None


def _roots(pattern: Pattern) -> Iterator[tuple[int | None, NodePattern]]:
    """What may stand at the root, and the port it speaks of."""
    match pattern:
        case OneOf(alternatives=alternatives):
            for alternative in alternatives:
                yield from _roots(alternative)
        case PortPattern(node=node, port=port):
            yield port, node
        case NodePattern():
            yield None, pattern


def _fit(graph: Graph, pattern: Pattern, value: Value, state: _State) -> Iterator[_State]:
    match pattern:
        case Capture(name=name):
            if state.captures.get(name, value) == value:
                yield replace(state, captures={**state.captures, name: value})
        case OneOf(alternatives=alternatives):
            for alternative in alternatives:
                yield from _fit(graph, alternative, value, state)
        case PortPattern(node=node, port=port):
            if value.port == port:
                yield from _fit_node(graph, node, value.node, state)
        case NodePattern():
            if value.port == 0:
                yield from _fit_node(graph, pattern, value.node, state)


def _fit_node(graph: Graph, pattern: NodePattern, name: str, state: _State) -> Iterator[_State]:
    if pattern.serial in state.nodes:
        if state.nodes[pattern.serial] == name:
            yield state
        return
    node = graph.node(name)
    if node.op != pattern.op or name in state.nodes.values() or not _attributes_fit(pattern, node):
        return
    labels = {**state.labels, pattern.label: name} if pattern.label else state.labels
    shared = state.shared | {name} if pattern.shared else state.shared
    bound = replace(state, nodes={**state.nodes, pattern.serial: name}, labels=labels, shared=shared)
    operands = graph.operands(name)
    yield from _fit_operands(graph, pattern.operands, operands, bound)
    if has(node, Trait.COMMUTATIVE) and len(operands) == 2 and operands[0] != operands[1]:
        yield from _fit_operands(graph, pattern.operands, operands[::-1], bound)


def _fit_operands(graph: Graph, patterns: tuple[Pattern | Rest, ...], values: tuple[Value, ...], state: _State) -> Iterator[_State]:
    if not patterns:
        if not values:
            yield state
        return
    first = patterns[0]
    if isinstance(first, Rest):
        if len(patterns) > 1:
            count = len(values) - len(patterns) + 1
            if count >= 0:
                yield from _fit_operands(graph, patterns[1:], values[count:], _with_rest(state, first, values[:count]))
        else:
            yield _with_rest(state, first, values)
    elif values:
        for bound in _fit(graph, first, values[0], state):
            yield from _fit_operands(graph, patterns[1:], values[1:], bound)


def _with_rest(state: _State, rest: Rest, values: tuple[Value, ...]) -> _State:
    return replace(state, rests={**state.rests, rest.name: values})


def _attributes_fit(pattern: NodePattern, node: Node) -> bool:
    known = defaults(node.op)
    for name, wanted in pattern.attrs.items():
        if wanted is not ANY and (found := node.attrs.get(name, known.get(name))) is not None and not _same(found, wanted):
            return False
        if wanted is not ANY and name not in node.attrs and name not in known:
            return False
    if pattern.others_free:
        return True
    rest = [(n, a) for n, a in node.attrs.items() if n not in pattern.attrs]
    return all(_same(a, known[n]) if n in known else _is_dtype(a) for n, a in rest)


def _same(found: Attr, wanted: object) -> bool:
    return attr_key(found) == attr_key(wanted)  # type: ignore[arg-type]


def _is_dtype(attr: Attr) -> bool:
    return isinstance(attr, DType) or (isinstance(attr, tuple) and bool(attr) and all(isinstance(a, DType) for a in attr))
