"""An annotated node becomes one node for each device of the mesh; reshards are inserted where forms differ.

%y = MatMul(%x, %w) {_factors=["n:d"]} : f32[b,8]@[_,d]
=>  %y/0 = MatMul(%x, %w/0) : f32[b,4] on cpu:0        %y/1 = MatMul(%x, %w/1) : f32[b,4] on cpu:1

It writes down what became of everything (`derivation`), and `check` proves it from that, each time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from compiler.ir.errors import IrError
from compiler.ir.graph import Attr, Graph, Node, Value
from compiler.ir.module import Module
from compiler.ir.sharding import Mesh, Sharding, Windowed
from compiler.ir.types import TensorType, compatible
from compiler.ir.weights import Tensor
from compiler.ops.attributes import stored
from compiler.ops.queries import Contents, infer_graph, operation
from compiler.ops.registry import spec
from compiler.ops.spec import Localized, Operation, Shard, ShardingRule, Size, Step
from compiler.pipeline.base import ANNOTATED, PARTITIONED, PLACED, SERIALISED, TYPED, Context, Numerics, Pass
from compiler.rewrite.emitter import Emitter
from passes.split.check import check
from passes.split.choose import SplitPlan
from passes.split.derivation import Derivation, Divided, Part
from passes.split.expand import ExpandSplits
from passes.split.factors import ATTRIBUTE, assignment_of, attribute, local_type, shard_of, wanted
from passes.split.kinds import Kinds
from passes.split.reshard import Resharder
from passes.split.sizes import Sizes


@dataclass(frozen=True)
class Partition(Pass):
    """Materialise the shards of every annotated node of the entries."""

    name = "partition"
    requires = frozenset({TYPED, ANNOTATED})
    establishes = frozenset({PARTITIONED})
    breaks = frozenset({ANNOTATED, PLACED, SERIALISED})
    numerics = Numerics.REASSOCIATES

    def run(self, module: Module, context: Context) -> None:
        if module.mesh is None or not any(ATTRIBUTE in node.attrs for graph in module.entries.values() for node in graph):
            return
        ExpandSplits().run(module, context)  # a pipeline may have left it out
        before, derivations = module.copy(), []
        for entry, graph in module.entries.items():
            derivations.append(Derivation(entry))
            if any(ATTRIBUTE in node.attrs for node in graph):
                _Partitioner(module, graph, module.mesh, context, derivations[-1]).run()
        check(before, module, derivations)
        plan = context.services.get(SplitPlan)
        if isinstance(plan, SplitPlan):
            plan.derivations = tuple(derivations)


@dataclass
class _Partitioner:
    module: Module
    graph: Graph
    mesh: Mesh
    context: Context
    derivation: Derivation
    emitter: Emitter = field(init=False)
    forms: Resharder = field(init=False)
    sizes: Sizes = field(init=False)
    contents: Contents = field(init=False)
    kinds: Kinds = field(init=False)
    parts: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.emitter = Emitter(self.module, self.graph)
        self.sizes = Sizes(self.emitter)
        self.kinds = Kinds(self.module)
        self.forms = Resharder(self.emitter, self.sizes, self.mesh, self.derivation)
        self.contents = infer_graph(self.module, self.graph).contents

    def run(self) -> None:
        order = self.graph.order()
        for name in order:
            node = self.graph.node(name)
            assignment = assignment_of(node)
            if assignment is None:
                self._keep(name)
            else:
                self.parts[name] = self._split(node, assignment)
                self.context.change(name, f"{node.op} split {', '.join(sorted(node.attrs[ATTRIBUTE])) or 'into replicas'}")  # type: ignore[arg-type]
        self.graph.set_outputs((o.name, self.forms.whole(o.value)) for o in self.graph.outputs)
        self._sweep(order)

    def _keep(self, name: str) -> None:
        """A whole node reads whole values, and waits for every part of what it waited for."""
        for slot, value in enumerate(self.graph.operands(name)):
            whole = self.forms.whole(value)
            if whole != value:
                self.graph.set_operand(name, slot, whole)
        self.graph.set_control(name, self._controls(name))

    def _controls(self, name: str) -> list[str]:
        return [part for source in self.graph.controls(name) for part in self.parts.get(source, (source,))]

    def _split(self, node: Node, assignment: Mapping[str, str]) -> tuple[str, ...]:
        whole = operation(self.module, self.graph, node.name, self.contents)
        rule = rule_of(whole, self.kinds)
        _, given = rule.shardings(assignment)
        operands = self.graph.operands(node.name)
        columns = [self._column(v, lies) for v, lies in zip(operands, wanted(rule, assignment, whole.operands), strict=True)]
        controls = self._controls(node.name)
        results: list[list[Value]] = []
        parts: list[Part] = []
        for k, at in enumerate(self.mesh.coordinates()):
            shard = shard_of({f.name: f for f in rule.factors}, assignment, at, self.mesh)
            local = tuple(column[k] for column in columns)
            localized = _localize(whole, shard, tuple(self.graph.type_of(v) for v in local), self.kinds)
            before, first = self._emit(node, whole, k, localized, local, controls)
            chains = [self._finished(node, k, localized, Value(first.node, port)) for port in range(len(node.types))]
            results.append([chain[-1] for chain in chains])
            self._check_types(node, results[-1], given, at)
            made = (*before, *dict.fromkeys(value.node for chain in chains for value in chain))
            parts.append(Part(self.mesh.devices[k], made or (first.node,), tuple(results[-1])))
        layouts = tuple(_known(sharding, type_) for sharding, type_ in zip(given, node.types, strict=True))
        self.derivation.divided.append(Divided(node.name, node.op, attribute(assignment), tuple(parts), layouts))
        for port, (type_, layout) in enumerate(zip(node.types, layouts, strict=True)):
            self.forms.settle(Value(node.name, port), type_.with_sharding(None), layout, [r[port] for r in results])
        return tuple(dict.fromkeys(value.node for row in results for value in row))

    def _column(self, value: Value, lies: Sharding | Windowed | None) -> tuple[Value, ...]:
        rank = self.graph.type_of(value).rank
        if lies is None and rank is None:
            return (self.forms.whole(value),) * len(self.mesh.devices)
        return self.forms.local(value, lies if lies is not None else Sharding(((),) * (rank or 0)))

    def _emit(
        self, node: Node, whole: Operation, k: int, localized: Localized, operands: tuple[Value, ...], controls: list[str]
    ) -> tuple[list[str], Value]:
        """The nodes before a shard's own, and its own."""
        if localized.steps:
            return self._emit_steps(node, k, localized.steps, operands, controls)
        values = list(operands)
        for slot, content in sorted(localized.contents.items()):
            values[slot] = self._size(Size(content, self.graph.type_of(operands[slot]).dtype))
        attrs = _explicit(localized, whole, node)
        name, device = f"{node.name}/{k}", self.mesh.devices[k]
        return [], self.emitter.add(localized.op, values, attrs, name=name, device=device, origin=node.origin, controls=controls)

    def _emit_steps(
        self, node: Node, k: int, steps: tuple[Step, ...], operands: tuple[Value, ...], controls: list[str]
    ) -> tuple[list[str], Value]:
        made: dict[str, Value] = {}
        device = self.mesh.devices[k]
        for step in steps:
            values = [self._step_operand(node, k, what, operands, made) for what in step.operands]
            attrs = stored(step.op, step.attrs, [self.graph.type_of(v).dtype for v in values])
            name = f"{node.name}/{k}" if step is steps[-1] else f"{node.name}/{step.name}_{k}"
            made[step.name] = self.emitter.add(step.op, values, attrs, name=name, device=device, origin=node.origin, controls=controls)
        *before, last = made.values()
        return [value.node for value in before], last

    def _step_operand(
        self, node: Node, k: int, what: int | str | Tensor | Size, operands: tuple[Value, ...], made: Mapping[str, Value]
    ) -> Value:
        if isinstance(what, Size):
            return self._size(what)
        if isinstance(what, Tensor):
            return self.emitter.constant(what, name=f"{node.name}/const_{k}", device=self.mesh.devices[k], origin=node.origin)
        return made[what] if isinstance(what, str) else operands[what]

    def _size(self, size: Size) -> Value:
        if isinstance(size.content, tuple):
            return self.sizes.vector(size.content, size.dtype)
        return self.sizes.scalar(size.content, size.dtype)

    def _finished(self, node: Node, k: int, localized: Localized, value: Value) -> list[Value]:
        """The part, then what finishes it before it is combined: a sum of quotients is the quotient of the sum."""
        chain = [value]
        for finish in localized.finish:
            dtype = self.graph.type_of(value).dtype
            content = self._size(Size(finish.content) if isinstance(finish.content, tuple) else Size(finish.content, dtype))
            name = f"{node.name}/{finish.op.lower()}_{k}"
            chain.append(self.emitter.add(finish.op, [chain[-1], content], name=name, device=self.mesh.devices[k], origin=node.origin))
        return chain

    def _check_types(self, node: Node, parts: list[Value], given: tuple[Sharding | None, ...], at: Mapping[str, int]) -> None:
        """What the shard's own types say must be what the sharding says; the sharding may know more."""
        for part, type_, sharding in zip(parts, node.types, given, strict=True):
            expected = local_type(type_, _known(sharding, type_), at, self.mesh) if type_.shape is not None else type_
            found = self.graph.type_of(part)
            if not compatible(found, expected):
                raise IrError(f"{node.op} {node.name!r}: its shard {part} is {found}, expected {expected} by sharding {sharding}")
            types = list(self.graph.node(part.node).types)
            types[part.port] = TensorType(expected.dtype, expected.shape, None, found.handle)
            self.graph.set_types(part.node, types)

    def _sweep(self, order: tuple[str, ...]) -> None:
        """Remove the annotated originals, and constants that were divided and are read whole by nobody."""
        for name in reversed(order):
            if name in self.parts or (name in self.forms.divided and not self.graph.is_needed(name)):
                self.graph.remove(name)


def rule_of(whole: Operation, kinds: Kinds) -> ShardingRule:
    known = spec(whole.op)
    rule = known.rule(whole) if known is not None and known.rule is not None else kinds.rule(whole) if kinds.has(whole) else None
    if rule is None:
        raise IrError(f"{whole.op} {whole.name!r} is annotated but has no sharding rule, expected it whole")
    return rule


def _localize(whole: Operation, shard: Shard, local: tuple[TensorType, ...], kinds: Kinds) -> Localized:
    if kinds.has(whole):
        return kinds.localized(whole, local)
    known = spec(whole.op)
    if known is None or known.localize is None:
        return Localized(whole.op, whole.attrs)
    return known.localize(whole, shard, local)


def _explicit(localized: Localized, whole: Operation, node: Node) -> dict[str, Attr]:
    """The attributes a node stores: those the original stored, and those localizing changed."""
    found = {key: value for key, value in localized.attrs.items() if key in node.attrs or value != whole.attrs.get(key)}
    found.pop(ATTRIBUTE, None)
    return found


def _known(sharding: Sharding | None, type_: TensorType) -> Sharding:
    return sharding if sharding is not None else Sharding(((),) * (type_.rank or 0))
