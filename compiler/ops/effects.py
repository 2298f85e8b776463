"""Is it pure, must it run, which state does it touch: the shared answers every pass asks for, and never guesses.

Purity: no stateful bit in the OpDef, no resource operand, pure bodies.  An op nobody knows is not pure.
State is named by strings: `@w` the variable or resource w, `%h` the handle that enters a body as input h, `*` any state at all.

Bodies are summarised once in each call of a function here (callees first, no recursion); hand the same `Bodies` to many calls instead
of starting anew.  It must not outlive a change of the module.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from compiler.ir.graph import FunctionRef, Graph, Node, Value
from compiler.ir.module import Module, function_refs
from compiler.ops import opdefs
from compiler.ops.registry import has, spec
from compiler.ops.spec import Trait

ANY_STATE = "*"
INTERFACE = frozenset({"Input", "Placeholder", "PlaceholderV2", "PlaceholderWithDefault"})
"""Fed from outside: never merged, folded or dropped."""


@dataclass(frozen=True)
class Summary:
    """What running a body does."""

    pure: bool
    effect: bool
    reads: frozenset[str]
    writes: frozenset[str]


@dataclass
class Bodies:
    """Summaries of a module's functions, filled on demand; valid as long as the module does not change."""

    module: Module
    found: dict[str, Summary] = field(default_factory=dict)

    def summary(self, name: str) -> Summary:
        if name not in self.found:
            body = self.module.function(FunctionRef(name))
            for callee in self.module.reachable_functions([body], self.found):
                if callee not in self.found:
                    self.found[callee] = OPAQUE  # what a recursive function finds when it asks for itself
                    self.found[callee] = _summary(self, self.module.function(FunctionRef(callee)))
        return self.found.get(name, OPAQUE)


OPAQUE = Summary(False, True, frozenset({ANY_STATE}), frozenset({ANY_STATE}))
"""Nothing may be assumed: a recursive function while it is being summarised."""


def is_pure(module: Module, node: Node, bodies: Bodies | None = None) -> bool:
    """May the node be merged with an equal one, moved, computed again or not at all?  Default no."""
    if not node.types or node.op in INTERFACE or has(node, Trait.LOOP) or has(node, Trait.EFFECT) or has(node, Trait.RANDOM):
        return False
    refs = tuple(function_refs(node))
    if refs and not all((bodies or Bodies(module)).summary(ref.name).pure for ref in refs):
        return False
    if has(node, Trait.CALL) or has(node, Trait.CONTROL_FLOW):
        return bool(refs)
    if node.op in ("Variable", "Resource"):
        return True
    definition = opdefs.get(node.op)
    if definition is None or definition.is_stateful:
        return False
    return not any(arg.dtype == "resource" or arg.is_ref for arg in definition.inputs)


def has_effect(module: Module, node: Node, bodies: Bodies | None = None) -> bool:
    """Must the node run even if nobody needs its results?  An input is part of the interface, so it counts."""
    if node.op in INTERFACE:
        return True
    refs = tuple(function_refs(node))
    if refs and any((bodies or Bodies(module)).summary(ref.name).effect for ref in refs):
        return True
    known = spec(node.op)
    if known is None:
        definition = opdefs.get(node.op)  # Assign and its kin on v1 references are not marked stateful
        return definition is None or definition.is_stateful or any(arg.is_ref for arg in definition.inputs)
    if known.traits & {Trait.STATE_WRITE, Trait.EFFECT, Trait.COLLECTIVE}:
        return True
    return known.has(Trait.RANDOM)


def reads(module: Module, graph: Graph, node: str, bodies: Bodies | None = None) -> frozenset[str]:
    """The state whose value the node's results may depend on."""
    return _state(module, graph, graph.node(node), bodies or Bodies(module))[0]


def writes(module: Module, graph: Graph, node: str, bodies: Bodies | None = None) -> frozenset[str]:
    """The state the node may change."""
    return _state(module, graph, graph.node(node), bodies or Bodies(module))[1]


def handle_of(graph: Graph, value: Value) -> str:
    """The state a handle stands for, followed back through identities, v1 loops and While to where it comes from."""
    while True:
        node = graph.node(value.node)
        if node.op in ("Variable", "Resource"):
            return f"@{node.attrs['ref']!s}"
        if node.op == "Input":
            return f"%{node.name}"
        slot = _forwarded(node, value.port)
        operands = graph.operands(node.name)
        if slot is None or slot >= len(operands):
            return f"%{node.name}" if has(node, Trait.OWN_STATE) else ANY_STATE
        value = operands[slot]


def _forwarded(node: Node, port: int) -> int | None:
    """The operand that result `port` is, where it is one."""
    known = spec(node.op)
    if known is None:
        return None
    if known.has(Trait.IDENTITY):
        return port
    if known.has(Trait.LOOP):
        return None if node.op in ("Merge", "RefMerge") else 0
    return port if node.op in ("While", "StatelessWhile") else None


def _summary(bodies: Bodies, graph: Graph) -> Summary:
    inner = [node for node in graph if node.op != "Input"]
    state = [_state(bodies.module, graph, node, bodies) for node in inner]
    return Summary(
        all(is_pure(bodies.module, node, bodies) for node in inner),
        any(has_effect(bodies.module, node, bodies) for node in inner),
        frozenset().union(*(r for r, _ in state)),
        frozenset().union(*(w for _, w in state)),
    )


def _state(module: Module, graph: Graph, node: Node, bodies: Bodies) -> tuple[frozenset[str], frozenset[str]]:
    """(reads, writes) of one node."""
    if any(True for _ in function_refs(node)):
        return _called_state(graph, node, bodies)
    known = spec(node.op)
    if known is not None and not known.traits & {Trait.STATE_READ, Trait.STATE_WRITE}:
        return frozenset(), frozenset()
    touched = frozenset(handle_of(graph, value) for value in _handles(graph, node))
    if known is None:
        return (touched, touched) if opdefs.is_stateful(node.op) or touched else (frozenset(), frozenset())
    return touched, touched if known.has(Trait.STATE_WRITE) else frozenset()


def _handles(graph: Graph, node: Node) -> Iterator[Value]:
    for value in graph.operands(node.name):
        dtype = graph.type_of(value).dtype
        if dtype == "resource" or dtype.endswith("_ref"):
            yield value


def _called_state(graph: Graph, node: Node, bodies: Bodies) -> tuple[frozenset[str], frozenset[str]]:
    """What the bodies touch, their inputs replaced by the operands they stand for."""
    read: set[str] = set()
    written: set[str] = set()
    operands = graph.operands(node.name)
    skipped = 0 if has(node, Trait.CALL) or node.op in ("While", "StatelessWhile") else 1
    for ref in function_refs(node):
        summary = bodies.summary(ref.name)
        inputs = bodies.module.function(ref).inputs
        names = {f"%{name}": value for name, value in zip(inputs, operands[skipped:], strict=False)}
        for keys, target in ((summary.reads, read), (summary.writes, written)):
            target.update(_outer(graph, key, names) for key in keys)
    return frozenset(read), frozenset(written)


def _outer(graph: Graph, key: str, names: dict[str, Value]) -> str:
    if not key.startswith("%"):
        return key
    return handle_of(graph, names[key]) if key in names else ANY_STATE
