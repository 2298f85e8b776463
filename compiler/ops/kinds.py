"""The sharding rule of an outlined body, composed from those of its nodes: LayerNorm, gelu, attention divide as their bodies allow.

Every dimension of every value in the body is a place.  A node's factor joins the places where it is major into one group: what divides one
divides all.  A group may be divided if no node forbids it:

    a whole factor, or one that is minor somewhere, forbids its places; so does a halo or an offset, which a whole body cannot be given
    a value that no rule speaks of forbids its places
    a reduction's partial result must be the body's only output, or reach it through linear ops of one operand
    a factor whose shards differ from the whole op (`localize`: a Reshape's new shape, a constant's slice) forbids, unless each shard
    is to get a body of its own
    a group whose places have different sizes is divided by the smallest, which must be the major part of each

No body is looked into twice: calls in a body are opaque here, so compose the inner kinds first or inline them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from compiler.ir.dims import Dim, KnownDim, add, ceil_div, exact_div, mul
from compiler.ir.graph import Graph, Value
from compiler.ir.module import Module
from compiler.ops.attributes import stored
from compiler.ops.queries import infer_graph, localize, operation, rule
from compiler.ops.registry import has
from compiler.ops.rules import factor
from compiler.ops.spec import DimFactors, Factor, Kind, Localized, Operation, Shard, ShardingRule, Trait

Place = tuple[Value, int]


@dataclass
class Groups:
    """Places joined into groups (union-find, by the first place added), and what is known of each group."""

    parent: dict[Place, Place] = field(default_factory=dict)
    sizes: dict[Place, KnownDim] = field(default_factory=dict)
    forbidden: set[Place] = field(default_factory=set)
    combine: dict[Place, str] = field(default_factory=dict)

    def find(self, place: Place) -> Place:
        root = place
        while self.parent.setdefault(root, root) != root:
            root = self.parent[root]
        while self.parent[place] != root:
            self.parent[place], place = root, self.parent[place]
        return root

    def join(self, places: Iterable[Place], size: Dim) -> None:
        """One group; its size is the smaller where one divides the other, otherwise it is forbidden."""
        roots = list(dict.fromkeys(self.find(p) for p in places))
        for root in roots[1:]:
            self._absorb(roots[0], root)
        if roots:
            self._shrink(roots[0], size)

    def _absorb(self, root: Place, other: Place) -> None:
        self.parent[other] = root
        if other in self.forbidden:
            self.forbidden.add(root)
        if other in self.combine:
            self._reduce(root, self.combine[other])
        if other in self.sizes:
            self._shrink(root, self.sizes[other])

    def _shrink(self, root: Place, size: Dim) -> None:
        known = self.sizes.get(root)
        if size is None:
            self.forbidden.add(root)
        elif known is None or exact_div(known, size) is not None:
            self.sizes[root] = size
        elif exact_div(size, known) is None:
            self.forbidden.add(root)

    def forbid(self, place: Place) -> None:
        self.forbidden.add(self.find(place))

    def reduce(self, place: Place, combine: str) -> None:
        self._reduce(self.find(place), combine)

    def _reduce(self, root: Place, combine: str) -> None:
        if self.combine.setdefault(root, combine) != combine:
            self.forbidden.add(root)


def compose_rule(module: Module, graph: Graph, *, own_bodies: bool = False) -> ShardingRule | None:
    """The rule of a call of `graph`: operands are its inputs, results its outputs; None where no dimension may be divided.

    `own_bodies`: the caller localizes every node of a body for each shard, instead of calling one body on all of them.
    """
    groups = Groups()
    contents = infer_graph(module, graph).contents
    for name in graph.order():
        if graph.node(name).op != "Input":
            _add_node(graph, operation(module, graph, name, contents), groups, own_bodies)
    return _assembled(graph, groups)


def _add_node(graph: Graph, op: Operation, groups: Groups, own_bodies: bool) -> None:
    found = rule(op)
    results = [Value(op.name, port) for port in range(len(op.results))]
    values = [*graph.operands(op.name), *results]
    dims = (None,) * len(values) if found is None else (*found.operands, *found.results)
    for value, factors in zip(values, dims, strict=True):
        if factors is None:
            _forbid_all(graph, groups, value)
    for entry in () if found is None else found.factors:
        places = list(_places(values, dims, entry.name))
        _join(graph, groups, entry, places, results)
        if entry.kind not in (Kind.WHOLE, Kind.STEPS) and places and not own_bodies and not _alike(op, entry):
            groups.forbid(places[0][0])


def _alike(op: Operation, entry: Factor) -> bool:
    """Is a shard of this factor the same op with the same attributes and contents?"""
    if entry.size is None or entry.kind is Kind.HALO:
        return False
    first = ceil_div(entry.size, 2)
    shard = Shard({entry.name: 1}, {entry.name: 2}, {entry.name: first}, {entry.name: add(entry.size, mul(-1, first))})
    dtypes = [t.dtype for t in op.operands]
    local = localize(op, shard, op.operands)
    return local == Localized(op.op, stored(op.op, op.attrs, dtypes))


def _forbid_all(graph: Graph, groups: Groups, value: Value) -> None:
    for axis in range(graph.type_of(value).rank or 0):
        groups.forbid((value, axis))


def _places(values: list[Value], dims: tuple[tuple[DimFactors, ...] | None, ...], name: str) -> Iterator[tuple[Place, int]]:
    """(place, position of the factor in it)"""
    for value, factors in zip(values, dims, strict=True):
        for axis, names in enumerate(factors or ()):
            if name in names:
                yield (value, axis), names.index(name)


def _join(graph: Graph, groups: Groups, entry: Factor, places: list[tuple[Place, int]], results: list[Value]) -> None:
    major = [place for place, position in places if position == 0]
    groups.join(major, entry.size)
    if len(major) != len(places) or entry.kind in (Kind.WHOLE, Kind.HALO, Kind.OFFSET, Kind.STEPS) or entry.least:
        for place in major:
            groups.forbid(place)
    if entry.kind is Kind.REDUCTION and major:
        groups.reduce(major[0], entry.combine)
        if len(graph.outputs) != 1 or not all(_may_be_partial(graph, value, entry.combine) for value in results):
            groups.forbid(major[0])


def _may_be_partial(graph: Graph, value: Value, combine: str) -> bool:
    """Does the value go nowhere but to outputs, through linear ops of one operand if the partial results are summed?"""
    waiting = [value]
    while waiting:
        current = waiting.pop()
        needs = graph.needs(current)
        for use in needs.data:
            user = graph.node(use.user)
            passes = has(user, Trait.IDENTITY) or (combine == "sum" and has(user, Trait.LINEAR))
            if not passes or len(graph.operands(use.user)) != 1:
                return False
            waiting.extend(Value(use.user, port) for port in range(len(user.types)))
    return True


def _assembled(graph: Graph, groups: Groups) -> ShardingRule | None:
    """Names for the groups that reach an input or an output; what is left of a dimension beside its group is a factor of its own."""
    names: dict[Place, str] = {}
    factors: dict[str, Factor] = {}

    def dims(value: Value) -> tuple[DimFactors, ...] | None:
        shape = graph.type_of(value).shape
        if shape is None:
            return None
        return tuple(_dim(groups, (value, axis), size, names, factors) for axis, size in enumerate(shape))

    operands = tuple(dims(Value(name)) for name in graph.inputs)
    results = tuple(dims(output.value) for output in graph.outputs)
    for name in {n for value in results for dim in value or () for n in dim}:
        if factors[name].kind is Kind.REDUCTION:
            factors[name] = Factor(name, factors[name].size, Kind.WHOLE)
    if not any(f.kind is not Kind.WHOLE for f in factors.values()):
        return None
    return ShardingRule(tuple(factors.values()), operands, results)


def _dim(groups: Groups, place: Place, size: Dim, names: dict[Place, str], factors: dict[str, Factor]) -> DimFactors:
    if size == 1:
        return ()
    root = groups.find(place)
    name = names.setdefault(root, f"g{len(names)}")
    known = groups.sizes.get(root, size)
    rest = exact_div(size, known) if size is not None and known is not None else None
    if name not in factors:
        factors[name] = _group_factor(groups, root, name, known)
    if rest == 1:
        return (name,)
    if rest is None:  # its group's size does not divide it: forbidden, and alone
        factors[name] = Factor(name, known, Kind.WHOLE)
        return (name,)
    minor = f"m{len(factors)}"
    factors[minor] = Factor(minor, rest, Kind.WHOLE)
    return (name, minor)


def _group_factor(groups: Groups, root: Place, name: str, size: Dim) -> Factor:
    if root in groups.forbidden:
        return Factor(name, size, Kind.WHOLE)
    if root in groups.combine:
        return factor(name, size, Kind.REDUCTION, groups.combine[root])
    return factor(name, size)
