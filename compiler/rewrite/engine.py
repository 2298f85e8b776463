"""Applies rules to every graph of a module until none fits: a worklist, with a cap, fuel, and counts of what fired and what refused.

A fired rule puts the nodes it built, and everyone within the deepest pattern's reach who reads them, back on the list; nothing else is
looked at twice, so the work is linear in the graph plus the rewrites.  Rules that undo each other meet the cap, which is reported.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from compiler.ir.errors import IrError
from compiler.ir.graph import Graph, Node, Value
from compiler.ir.module import Module
from compiler.ir.types import TensorType, compatible
from compiler.ops.effects import Bodies
from compiler.ops.queries import infer_graph
from compiler.ops.regions import in_control_flow
from compiler.rewrite.builder import Builder
from compiler.rewrite.emitter import Emitter
from compiler.rewrite.matcher import Match, automatic_refusal, matches
from compiler.rewrite.rule import CompiledRule, Refusal, Rule, compile_rule

REWRITES_PER_NODE = 4
"""A graph of n nodes may be rewritten this many times n (plus a hundred) before the rules are taken to undo each other."""


class Ledger(Protocol):
    """Where rewrites are counted and reported; a pass's `Context` is one."""

    def spend(self) -> bool: ...
    def change(self, where: str, what: str) -> None: ...
    def refuse(self, where: str, why: str) -> None: ...


@dataclass
class Statistics:
    """How often each rule fired, and refused for which reason."""

    fired: Counter[str] = field(default_factory=Counter)
    refused: Counter[tuple[str, str]] = field(default_factory=Counter)


def apply_rules(module: Module, rules: Sequence[Rule], ledger: Ledger) -> Statistics:
    """Rewrite every graph to a fixpoint of `rules`, tried in their order at each node."""
    compiled = [compile_rule(rule) for rule in rules]
    statistics = Statistics()
    bodies = Bodies(module)
    for graph in module.graphs.values():
        _Engine(module, graph, compiled, ledger, bodies, statistics).run()
    return statistics


@dataclass
class _Engine:
    module: Module
    graph: Graph
    rules: Sequence[CompiledRule]
    ledger: Ledger
    bodies: Bodies
    statistics: Statistics
    emitter: Emitter = field(init=False)
    queue: deque[str] = field(default_factory=deque)
    queued: set[str] = field(default_factory=set)

    guarded: frozenset[str] = field(init=False)
    """Nodes inside v1 control flow: nothing new may be put beside them."""

    def __post_init__(self) -> None:
        self.guarded = in_control_flow(self.graph)
        self.emitter = Emitter(self.module, self.graph, infer_graph(self.module, self.graph).contents)

    def run(self) -> None:
        by_op: dict[str, list[CompiledRule]] = {}
        for rule in self.rules:
            for op in rule.root_ops:
                by_op.setdefault(op, []).append(rule)
        self._push(name for name in self.graph.order() if name not in self.guarded)
        left = REWRITES_PER_NODE * len(self.graph) + 100
        while self.queue:
            name = self.queue.popleft()
            self.queued.discard(name)
            if name not in self.graph:
                continue
            if any(self._try(rule, name) for rule in by_op.get(self.graph.node(name).op, ())):
                left -= 1
            if not left:
                self.ledger.refuse(self.graph.name, f"the rules {[r.rule.name for r in self.rules]} seem to undo each other: stopped")
                return

    def _push(self, names: Iterable[str]) -> None:
        for name in names:
            if name not in self.queued:
                self.queued.add(name)
                self.queue.append(name)

    def _try(self, compiled: CompiledRule, root: str) -> bool:
        """Fire the rule at the first way it fits and does not refuse."""
        for match in matches(self.module, self.graph, compiled, root):
            if match.port is not None and not self._is_read(Value(root, match.port)):
                continue
            refusal = automatic_refusal(match, self.bodies) or compiled.rule.check(match)
            if refusal is None:
                if not self.ledger.spend():
                    return False
                refusal = self._rewrite(compiled.rule, match)
            if refusal is None:
                self.statistics.fired[compiled.rule.name] += 1
                return True
            self.statistics.refused[compiled.rule.name, refusal.reason] += 1
            if not refusal.quiet:
                self.ledger.refuse(root, f"{compiled.rule.name}: {refusal}")
        return False

    def _is_read(self, value: Value) -> bool:
        needs = self.graph.needs(value)
        return bool(needs.data or needs.outputs)

    def _rewrite(self, rule: Rule, match: Match) -> Refusal | None:
        root = self.graph.node(match.root)
        controls = tuple(dict.fromkeys(c for n in match.seen for c in self.graph.controls(n)))
        builder = Builder(self.emitter, match.root, root.device, match.origin, controls)
        readers = self._readers(match.root, max(r.depth for r in self.rules))
        try:
            answer = rule.rewrite(builder, match)
        except IrError as error:
            raise IrError(f"rule {rule.name!r} at {match.root!r}: {error}") from None
        refusal = answer if isinstance(answer, Refusal) else self._lost(root, answer, controls, builder.built)
        if refusal is not None or isinstance(answer, Refusal):
            self._discard(builder.built)
            return refusal
        values = (answer,) if isinstance(answer, Value) else answer
        self._check(rule, match, values)
        self.ledger.change(match.root, f"{rule.name}: {root.op} became {', '.join(self.graph.node(v.node).op for v in values)}")
        self._replace(match, values, builder.built)
        self._push(n for n in (match.root, *builder.built, *readers) if n in self.graph and n not in self.guarded)
        return None

    def _lost(self, root: Node, answer: Value | tuple[Value, ...], controls: Sequence[str], built: list[str]) -> Refusal | None:
        """What would get lost where existing values take the root's place."""
        if built:
            return None
        if controls:
            return Refusal("a control edge into it would be lost", root.name)
        values = (answer,) if isinstance(answer, Value) else answer
        pinned = root.device and any(self.graph.node(v.node).device != root.device for v in values)
        return Refusal(f"its place on {root.device} would be lost", root.name) if pinned else None

    def _check(self, rule: Rule, match: Match, values: tuple[Value, ...]) -> None:
        """A rule that answers with other types, or not for each port, is wrong, and named."""
        types = self.graph.node(match.root).types
        wanted = types if match.port is None else types[match.port : match.port + 1]
        found = tuple(self.graph.type_of(v) for v in values)
        if len(found) != len(wanted) or not all(map(compatible, found, wanted)):
            answer, expected = (f"({', '.join(map(str, t))})" for t in (found, wanted))
            raise IrError(f"rule {rule.name!r} at {match.root!r}: it answers {answer}, expected {expected}")

    def _replace(self, match: Match, values: tuple[Value, ...], built: list[str]) -> None:
        graph, root = self.graph, match.root
        if self._transplant(root, values, built):
            self._discard(n for n in match.matched if n != root)
            return
        for port, value in enumerate(values, match.port or 0):
            self._keep_type(value, graph.node(root).types[port])
            graph.replace_uses(Value(root, port), value)
        if match.port is None:
            for user in graph.needs(root).control:
                graph.set_control(user, [*(c for c in graph.controls(user) if c != root), values[0].node])
        self._discard(match.matched)

    def _transplant(self, root: str, values: tuple[Value, ...], built: list[str]) -> bool:
        """A replacement that is one new node takes the root's name and place."""
        graph = self.graph
        if len(values) != 1 or values[0].node not in built or len(graph.node(root).types) != 1 or graph.is_needed(values[0].node):
            return False
        made = graph.node(values[0].node)
        if len(made.types) != 1:
            return False
        operands, controls = graph.operands(made.name), graph.controls(made.name)
        type_ = _better(made.types[0], graph.node(root).types[0])
        graph.remove(made.name)
        built.remove(made.name)
        graph.set_operands(root, operands)
        graph.set_control(root, controls)
        graph.set_node(replace(made, name=root, types=(type_,)))
        return True

    def _keep_type(self, value: Value, old: TensorType) -> None:
        types = list(self.graph.node(value.node).types)
        types[value.port] = _better(types[value.port], old)
        self.graph.set_types(value.node, types)

    def _discard(self, names: Iterable[str]) -> None:
        """Remove those nobody needs any more, users before producers."""
        left = [n for n in names if n in self.graph]
        removed = True
        while removed:
            removed = False
            for name in list(left):
                if not self.graph.is_needed(name):
                    self.graph.remove(name)
                    left.remove(name)
                    removed = True

    def _readers(self, root: str, depth: int) -> list[str]:
        """Everyone who may now match: users of the root, their users, as deep as the deepest pattern looks."""
        found: dict[str, None] = {}
        level = [root]
        for _ in range(depth - 1):
            level = [u for name in level for u in self.graph.users(name)[:64] if u not in found]
            found.update(dict.fromkeys(level))
        return list(found)


def _better(new: TensorType, old: TensorType) -> TensorType:
    """What two types of one value know together; where both know, the new one."""
    handle = new.handle if new.handle is not None else old.handle
    if new.shape is None or old.shape is None:
        return replace(new, shape=old.shape if new.shape is None else new.shape, handle=handle)
    return replace(new, shape=tuple(o if n is None else n for n, o in zip(new.shape, old.shape, strict=True)), handle=handle)
