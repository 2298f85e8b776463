"""Proves that a partitioned module computes what it did: from the module before, the module after, and the derivation alone.

Every value of the module after is given what it denotes, producers first (`denote`), and every node must be one of

    kept       the node it was, reading whole values, waiting for all it waited for
    part       a shard of a divided node, as the op's sharding rule says (`check_shard`)
    share      the piece of a constant that the derivation says, compared reference by reference: store, offset, slice
    move       a Slice, ConcatV2, AddN ... of pieces; what it denotes follows from theirs
    size       arithmetic on shapes: known by its symbolic content, read for nothing else

and every output must denote the whole of what it was.  Nothing is run.  None of partition's or reshard's code is used; the rules of
`compiler.ops` are trusted, tests prove those against TensorFlow's kernels.  Linear in nodes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from compiler.ir.dims import KnownDim
from compiler.ir.errors import IrError
from compiler.ir.graph import Graph, Node, Value, attrs_key
from compiler.ir.module import Module
from compiler.ir.sharding import Mesh
from compiler.ir.weights import Tensor
from compiler.ops.attributes import stored
from compiler.ops.effects import Bodies, is_pure
from compiler.ops.queries import Contents, infer_graph, operation
from compiler.ops.regions import in_control_flow
from compiler.ops.spec import PARTIAL, Content, Finish, Kind, Localized, Operation, Shard, Size, Step
from passes.split.check_shard import ANNOTATION, Claim, Rules, lies, runs, same_body
from passes.split.check_share import elements, share
from passes.split.denote import MOVEMENTS, Piece, Terms, Unproven, normal, whole
from passes.split.derivation import Derivation, Divided, Part

BIGGEST_SIZE = 64
"""Elements of a constant that no part of the derivation speaks of: a size, an axis, a count."""


def check(before: Module, after: Module, derivations: Sequence[Derivation]) -> None:
    """Raise `Unproven`, which names the node, the rule, and what was expected, unless every entry is proven."""
    claimed = {derivation.entry: derivation for derivation in derivations}
    if list(before.entries) != list(after.entries):
        raise Unproven(f"the entries are {list(after.entries)}, expected {list(before.entries)}")
    for name, body in before.functions.items():
        if name not in after.functions or after.functions[name].version != body.version:
            raise Unproven(f"function @{name} is not what it was, expected partition to leave it")
    for entry, graph in before.entries.items():
        _Checker(before, after, graph, after.entries[entry], claimed.get(entry, Derivation(entry))).run()


@dataclass(frozen=True)
class _Role:
    """A node that the derivation names as one of the nodes of a part."""

    divided: Divided
    part: Part
    index: int


@dataclass
class _Checker:
    before: Module
    after: Module
    old: Graph
    new: Graph
    derivation: Derivation
    pieces: dict[Value, Piece] = field(default_factory=dict)
    unfinished: dict[Value, tuple[Finish, ...]] = field(default_factory=dict)
    """Results of shards that wait for these, in order, before they are what the rule says."""
    roles: dict[str, _Role] = field(default_factory=dict)
    claims: dict[str, Claim] = field(default_factory=dict)
    terms: dict[tuple[str, int], dict[int, tuple[Terms, ...]]] = field(default_factory=dict)
    """(node, operand) -> by shard index, the term of its sum that is read there."""

    def run(self) -> None:
        self._read_derivation()
        self.rules = Rules(self.before)
        self.was: Contents = infer_graph(self.before, self.old).contents
        try:
            self.now: Contents = infer_graph(self.after, self.new).contents
        except IrError as error:
            raise Unproven(f"entry @{self.derivation.entry} is not proven: rule 'types': {error}") from None
        self._check_gone()
        for name in self.new.order():
            self._at(name, self._denote)
        for name in self.new.order():
            self._at(name, self._settled)
        self._check_ends()

    def _at(self, name: str, step: object) -> None:
        node = self.new.node(name)
        try:
            step(node)  # type: ignore[operator]
        except Unproven as error:
            raise Unproven(f"entry @{self.derivation.entry}: {node.op} {name!r} is not proven: {error}") from None

    # ---- the derivation against the module before

    def _read_derivation(self) -> None:
        bodies, looped = Bodies(self.before), in_control_flow(self.old)
        for divided in self.derivation.divided:
            if divided.node not in self.old or not is_pure(self.before, self.old.node(divided.node), bodies) or divided.node in looped:
                raise Unproven(f"{divided.op} {divided.node!r} is divided, expected a pure node of the module before, outside v1 loops")
            for index, part in enumerate(divided.parts):
                self.roles.update({name: _Role(divided, part, index) for name in part.nodes})
        self.divided = {divided.node: divided for divided in self.derivation.divided}

    def _check_gone(self) -> None:
        for node in self.old:
            if node.name not in self.new and node.name not in self.divided and node.op != "Const":
                raise Unproven(f"{node.op} {node.name!r} is gone, expected it whole or in parts")
            if node.name in self.new and node.name in self.divided:
                raise Unproven(f"{node.op} {node.name!r} is divided and still there, expected only its parts")

    def _check_ends(self) -> None:
        if self.old.inputs != self.new.inputs or dict(self.old.attrs) != dict(self.new.attrs):
            raise Unproven(f"entry @{self.derivation.entry}: its inputs are {self.new.inputs}, expected {self.old.inputs}")
        if [o.name for o in self.old.outputs] != [o.name for o in self.new.outputs]:
            raise Unproven(f"entry @{self.derivation.entry}: its outputs are not those it had")
        for was, now in zip(self.old.outputs, self.new.outputs, strict=True):
            self._expect(now.value, self._whole(was.value), f"entry @{self.derivation.entry}: output {now.name!r}")

    # ---- what each node denotes

    def _denote(self, node: Node) -> None:
        if node.name in self.roles:
            self._part(node, self.roles[node.name])
        elif node.name in self.old:
            self.pieces.update({Value(node.name, port): self._whole(Value(node.name, port)) for port in range(len(node.types))})
        elif node.name in self.derivation.shares:
            self.pieces[Value(node.name)] = self._share(node)
        elif node.op == "Const":
            if elements(node) > BIGGEST_SIZE:
                raise Unproven("it is a constant that the derivation does not speak of, expected a share of one of the module before")
        elif any(v in self.pieces or v in self.unfinished for v in self.new.operands(node.name)) and not self._is_size(node):
            self.pieces[Value(node.name)] = self._moved(node)
        elif not self._is_size(node):
            raise Unproven("it is not in the derivation, and what it yields is not a known size")

    def _is_size(self, node: Node) -> bool:
        return node.name not in self.derivation.moves and self._number(Value(node.name)) is not None

    def _moved(self, node: Node) -> Piece:
        movement = MOVEMENTS.get(node.op)
        if movement is None or node.name not in self.derivation.moves or node.attrs:
            raise Unproven(f"rule 'move': expected a node of the derivation, one of {', '.join(MOVEMENTS)}")
        values = self.new.operands(node.name)
        moved = values[: len(values) - movement.last]
        piece = movement.apply([self._piece(v) for v in moved], [self.now.get(v) for v in values])
        if piece.value != self.derivation.moves[node.name]:
            raise Unproven(f"rule 'move': it denotes {piece}, expected a piece of {self.derivation.moves[node.name]}")
        return piece

    def _share(self, node: Node) -> Piece:
        claim = self.derivation.shares[node.name]
        return share(node, self.old.node(claim.constant) if claim.constant in self.old else None, claim)

    # ---- kept nodes, and what everyone waits for: after all is known, for loops read what comes later

    def _settled(self, node: Node) -> None:
        role = self.roles.get(node.name)
        was = role.divided.node if role is not None else node.name
        if role is None and node.name not in self.old:
            return
        if role is None:
            self._kept(node)
        if role is None or node.name == role.part.nodes[0]:
            expected = {part for source in self.old.controls(was) for part in self._now(source)}
            missing = expected - set(self.new.controls(node.name))
            if missing:
                raise Unproven(f"rule 'control': it does not wait for {min(missing)!r}, expected it to wait for all that {was!r} did")

    def _kept(self, node: Node) -> None:
        was = self.old.node(node.name)
        if (was.op, attrs_key(was.attrs), was.device, was.types) != (node.op, attrs_key(node.attrs), node.device, node.types):
            raise Unproven(f"rule 'kept': expected the {was.op} it was, its attributes, types and pin")
        operands, edges = self.old.edges(node.name), self.new.edges(node.name)
        if [(e.slot, e.back) for e in operands] != [(e.slot, e.back) for e in edges]:
            raise Unproven(f"rule 'kept': it has {len(edges)} operands, expected the {len(operands)} it had")
        for a, b in zip(operands, edges, strict=True):
            self._expect(b.value, self._whole(a.value), f"rule 'kept': operand {a.slot}")

    def _now(self, source: str) -> list[str]:
        """The nodes that stand for a node of the module before."""
        if source in self.divided:
            return [self._last(part) for part in self.divided[source].parts]
        return [source] if source in self.new else []

    def _last(self, part: Part) -> str:
        return part.results[0].node if part.results else part.nodes[0]

    # ---- shards

    def _part(self, node: Node, role: _Role) -> None:
        claim, part = self._claim(role.divided), role.part
        if node.device != part.device or part.device != self.mesh.devices[role.index]:
            raise Unproven(f"rule 'part': it is on {node.device or 'no device'}, expected {self.mesh.devices[role.index]}")
        at = self.coordinates[role.index]
        shard = claim.shard(at)
        steps = runs(claim, shard, claim.operation.operands).steps
        if node.name in part.nodes[: len(steps)]:
            self._step(node, claim, role, steps, at)
            return
        if node.name != part.nodes[0]:
            self._finish(node, claim, role)
            return
        values = self.new.operands(node.name)
        if len(values) != len(claim.operands):
            raise Unproven(f"rule 'part': it has {len(values)} operands, expected {len(claim.operands)} as {claim.operation.name!r} had")
        local = runs(claim, shard, tuple(self.new.type_of(v) for v in values))
        for slot, value in enumerate(values):
            where = f"rule of {claim.operation.op} {claim.operation.name!r} split by {', '.join(role.divided.factors)}: operand {slot}"
            if slot in local.contents:
                self._expect_content(value, local.contents[slot], where)
            elif claim.passes(slot):
                self._expect_term(value, claim, slot, shard, claim.term(at), where)
            else:
                self._expect(value, claim.reads(slot, shard), where)
        self._expect_op(node, local)
        for port in range(len(node.types)):
            piece = claim.yields(port, shard, at)
            self._check_layout(claim, role, port, piece, at)
            self._yield(Value(node.name, port), piece, local.finish)

    def _step(self, node: Node, claim: Claim, role: _Role, steps: tuple[Step, ...], at: Mapping[str, int]) -> None:
        """One of several nodes that a shard is: it reads what the step says, and the last of them yields the shard's result."""
        names, shard, index = role.part.nodes, claim.shard(at), role.part.nodes.index(node.name)
        values, step = self.new.operands(node.name), steps[index]
        where = f"step {step.name!r} of {claim.operation.op} {claim.operation.name!r} split by {', '.join(role.divided.factors)}"
        if len(values) != len(step.operands):
            raise Unproven(f"{where} has {len(values)} operands, expected {len(step.operands)}")
        earlier = {earlier.name: Value(name) for earlier, name in zip(steps, names, strict=False)}
        for value, wanted in zip(values, step.operands, strict=True):
            if isinstance(wanted, int):
                self._expect(value, claim.reads(wanted, shard), where)
            elif isinstance(wanted, Size):
                self._expect_content(value, wanted.content, where)
            elif value != earlier[wanted] if isinstance(wanted, str) else self.new.node(value.node).attrs.get("value") != wanted:
                raise Unproven(f"{where} reads {value}, expected {wanted}")
        self._expect_op(node, Localized(step.op, stored(step.op, step.attrs, [self.new.type_of(v).dtype for v in values])))
        if step is steps[-1]:
            piece = claim.yields(0, shard, at)
            self._check_layout(claim, role, 0, piece, at)
            self._yield(Value(node.name), piece, ())

    @cached_property
    def mesh(self) -> Mesh:
        assert self.before.mesh is not None, "only modules with a mesh are partitioned"
        return self.before.mesh

    @cached_property
    def coordinates(self) -> list[dict[str, int]]:
        return list(self.mesh.coordinates())

    def _claim(self, divided: Divided) -> Claim:
        if divided.node not in self.claims:
            op = operation(self.before, self.old, divided.node, self.was)
            op = replace(op, attrs={n: v for n, v in op.attrs.items() if n != ANNOTATION})
            axes = {name: tuple(over.split("*")) for name, _, over in (f.partition(":") for f in divided.factors)}
            factors = {f.name for f in self.rules.of(op).splits()}
            used = [axis for over in axes.values() for axis in over]
            passed = axes.pop(PARTIAL, ())
            self._check_offsets(op, axes)
            if passed and not self.rules.of(op).linear:
                raise Unproven(f"{op.op} {op.name!r} passes partial sums through, expected an operator whose rule says that it is linear")
            if len(axes) + bool(passed) != len(divided.factors) or len(set(used)) != len(used) or not axes.keys() <= factors:
                raise Unproven(f"{op.op} {op.name!r} is divided by {divided.factors}, expected distinct axes for some of {sorted(factors)}")
            if len(divided.parts) != len(self.mesh.devices) or len(divided.layouts) != len(op.results):
                raise Unproven(
                    f"{op.op} {op.name!r} has {len(divided.parts)} parts, expected one for each of {len(self.mesh.devices)} devices"
                )
            self.claims[divided.node] = Claim(divided, op, self.old.operands(divided.node), self.rules.of(op), axes, passed, self.mesh)
        return self.claims[divided.node]

    def _check_offsets(self, op: Operation, factors: Iterable[str]) -> None:
        """Shards that know where they start are different ones: every result has to be divided by such a factor."""
        rule = self.rules.of(op)
        for name in factors:
            lies_in = all(any(name in dim for dim in dims or ()) for dims in rule.results)
            if rule.factor(name).kind is Kind.OFFSET and not lies_in:
                raise Unproven(f"{op.op} {op.name!r} is divided by {name!r}, whose shards differ, expected every result to have it")

    def _expect_op(self, node: Node, local: Localized) -> None:
        dtypes = [self.new.type_of(v).dtype for v in self.new.operands(node.name)]
        found, expected = stored(node.op, node.attrs, dtypes), dict(local.attrs)
        wanted, given = expected.get("f"), found.get("f")
        if node.op == local.op == "Call" and wanted != given:
            if not same_body(self.before.function(wanted), self.after.function(given)):  # type: ignore[arg-type]
                raise Unproven(f"rule 'part': it calls {given!r}, expected the nodes of {wanted!r}")
            del found["f"], expected["f"]
        if node.op != local.op or attrs_key(found) != attrs_key(expected):
            raise Unproven(f"rule 'part': it is {node.op} {dict(found)}, expected {local.op} {expected}")

    def _yield(self, value: Value, piece: Piece, finish: tuple[Finish, ...]) -> None:
        self.pieces[value] = piece
        if finish:
            self.unfinished[value] = finish

    def _finish(self, node: Node, claim: Claim, role: _Role) -> None:
        value, *rest = self.new.operands(node.name)
        waiting = self.unfinished.get(value)
        if not waiting or value.node not in role.part.nodes or len(rest) != 1 or node.op != waiting[0].op or node.attrs:
            raise Unproven(f"rule 'finish': expected {waiting[0].op if waiting else 'nothing'} of {value}")
        self._expect_content(rest[0], waiting[0].content, "rule 'finish': operand 1")
        self._yield(Value(node.name), self.pieces[value], waiting[1:])

    def _check_layout(self, claim: Claim, role: _Role, port: int, piece: Piece, at: Mapping[str, int]) -> None:
        layout, value = role.divided.layouts[port], Value(role.divided.node, port)
        expected = lies(value, self.old.type_of(value), layout, at, self.mesh)
        partial = {(axis, t.combine) for t in piece.terms for axis in claim.axes_of(t.factor) if self.mesh.axis(axis).size > 1}
        if piece.bounds != expected or partial != {(axis, c) for axis, c in layout.partial if self.mesh.axis(axis).size > 1}:
            raise Unproven(f"rule 'layout': by the sharding rule it yields {piece}, the derivation says that it lies as {layout}")

    # ---- expectations

    def _whole(self, value: Value) -> Piece:
        return whole(value, self.old.type_of(value))

    def _piece(self, value: Value) -> Piece:
        if value in self.unfinished:
            raise Unproven(f"{value} is not finished, expected {self.unfinished[value][0].op} of it first")
        if value not in self.pieces:
            raise Unproven(f"what {value} denotes is not known")
        return self.pieces[value]

    def _expect(self, value: Value, expected: Piece, where: str) -> None:
        try:
            found = self._piece(value)
        except Unproven as error:
            raise Unproven(f"{where}: {error}, expected {expected}") from None
        if found != expected:
            raise Unproven(f"{where} is {value} = {found}, expected {expected}")

    def _expect_term(self, value: Value, claim: Claim, slot: int, shard: Shard, term: Terms, where: str) -> None:
        """One term of the operand's sum, all shards with another index another one, as many terms as indices."""
        found, expected = self._piece(value), claim.reads(slot, shard)
        single = all(t.combine == "sum" and len(t.held) == 1 for t in found.terms)
        if replace(found, terms=()) != expected or not single or math.prod(t.count for t in found.terms) != term.count:
            raise Unproven(f"{where} is {value} = {found}, expected one of {term.count} terms of a sum, {expected}")
        (index,) = term.held
        known = self.terms.setdefault((claim.operation.name, slot), {})
        if known.setdefault(index, found.terms) != found.terms or list(known.values()).count(found.terms) > 1:
            raise Unproven(f"{where} is {value} = {found}, expected a term that no other shard reads")

    def _expect_content(self, value: Value, expected: tuple[KnownDim, ...] | KnownDim, where: str) -> None:
        found, wanted = self._number(value), _normal(expected)
        if found is None or _normal(found) != wanted:
            raise Unproven(f"{where} is {value} with content {found}, expected {wanted}")

    def _number(self, value: Value) -> Content:
        """Symbolic content; that of a float is the integer it was cast from."""
        node = self.new.node(value.node)
        while value not in self.now and node.op == "Cast":
            value = self.new.operands(node.name)[0]
            node = self.new.node(value.node)
        if value in self.now:
            return self.now[value]
        literal = node.attrs.get("value")
        if node.op != "Const" or not isinstance(literal, Tensor) or literal.array.ndim or literal.dtype.numpy.kind not in "fV":
            return None
        return int(literal.array) if float(literal.array) == int(literal.array) else None


def _normal(content: Content) -> Content:
    if isinstance(content, tuple):
        return tuple(None if d is None else normal(d) for d in content)
    return None if content is None else normal(content)
