"""What an op means, as data and small functions: `OpSpec`.

One entry per TensorFlow op, in the file of its family; `registry.py` is the literal table of them.  Everything else in the compiler asks
an entry's functions and traits, never the op's name.  An op without an entry is opaque: never cut, fused, folded or moved.

The heart is the *sharding rule*, as in Shardy's OpShardingRule: every dimension of every operand and result is written as a list of
*factors*, major to minor.  MatMul is `m k, k n -> m n`.  A factor that runs over a mesh axis divides every dimension it is major in:

    parallel    the results have it too: shards are independent and the results are concatenated
    reduction   no result has it: each shard is a partial result, joined by `combine` (sum, max, ...)
    halo        parallel, but a shard needs `lo` rows before and `hi` after its own (convolution over height)
    offset      parallel or reduction, but the shard must know where it starts (Range)
    steps       the shards meet on the way (Softmax along its axis): divided as the ops that `OpSpec.expand` gives are
    whole       never divided

The rule yields every legal split (`splits`), its communication, and the work (`points`): FLOPs divide with the points.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TypeAlias

from compiler.ir.dims import Dim, KnownDim, exact_div, mul
from compiler.ir.errors import IrError
from compiler.ir.graph import Attr
from compiler.ir.sharding import Sharding, Window
from compiler.ir.types import DType, TensorType, size_of
from compiler.ir.weights import Array, Tensor

Content: TypeAlias = "KnownDim | tuple[KnownDim | None, ...] | None"
"""What is known of a small integer tensor: a scalar, a vector (None where an element is unknown), or nothing."""


class Trait(Enum):
    """Facts that passes ask for instead of names."""

    ELEMENTWISE = auto()  # result[i] depends on operand[i] only, after broadcasting
    IDENTITY = auto()  # result 0 is operand 0, bit for bit
    VIEW = auto()  # result 0 is operand 0 under another shape, in the same buffer: costs nothing (Reshape, Squeeze, ExpandDims)
    MOVEMENT = auto()  # moves or copies elements, computes none: exact in any order
    LINEAR = auto()  # f(a + b) = f(a) + f(b) in operand 0 with the others fixed: partial sums pass through
    COMMUTATIVE = auto()
    CONSTANT = auto()  # no operands, the value is in the attributes
    SHAPE = auto()  # reads shapes only, never the elements, of operand 0
    RANDOM = auto()  # draws from a hidden stream: two equal nodes are two draws
    STATE_READ = auto()
    STATE_WRITE = auto()
    EFFECT = auto()  # prints, asserts, files: keeps its place even when nobody reads the result
    FILE = auto()  # reads or writes files or the network: refused unless allowed
    CALL = auto()  # runs a body named by a FunctionRef attribute once
    CONTROL_FLOW = auto()  # If, While, Case: runs bodies some number of times
    LOOP = auto()  # v1 Switch, Merge, Enter, Exit, NextIteration
    HANDLE = auto()  # yields a resource handle
    OWN_STATE = auto()  # each run makes a resource of its own (TensorArray, Stack)
    COLLECTIVE = auto()


@dataclass(frozen=True)
class Signature:
    """What a body takes and gives: the types of its inputs and outputs, in order."""

    inputs: tuple[TensorType, ...]
    outputs: tuple[TensorType, ...]


@dataclass(frozen=True)
class Operation:
    """A node as its spec sees it: attributes with the OpDef's defaults filled in, operand types, and what is known of operand values.

    `attrs` also holds the type and number attributes that the operands determine (`T`, `N`, `Tin`).
    `constant(i)` is the array of operand i where it is a compile-time constant, else None.
    `contents[i]` is the symbolic content of a small integer operand.  `results` are the node's recorded types: rules, FLOPs and
    `localize` read them; `infer` does only where nothing else says what the node yields (Input, Variable, an opaque op's dtypes).
    `body(name)` is the signature of a function that an attribute names.
    """

    name: str
    op: str
    attrs: Mapping[str, Attr]
    operands: tuple[TensorType, ...]
    results: tuple[TensorType, ...] = ()
    constants: Callable[[int], Array | None] = field(default=lambda _: None, compare=False)
    contents: tuple[Content, ...] = ()
    bodies: Callable[[str], Signature | None] = field(default=lambda _: None, compare=False)

    def body(self, name: str) -> Signature:
        """The signature of the function `name`."""
        found = self.bodies(name)
        if found is None:
            raise IrError(f"{self.op} {self.name!r} names function @{name}, which is not known here")
        return found

    def constant(self, slot: int) -> Array | None:
        return self.constants(slot) if -len(self.operands) <= slot < len(self.operands) else None

    def content(self, slot: int) -> Content:
        """Symbolic content of an operand; a constant's own values where it is a small integer constant."""
        if slot < len(self.contents) and self.contents[slot] is not None:
            return self.contents[slot]
        array = self.constant(slot)
        if array is None or array.ndim > 1 or array.dtype.kind not in "iu" or array.size > 64:
            return None
        return int(array) if array.ndim == 0 else tuple(int(v) for v in array)

    def attr(self, name: str) -> Attr:
        try:
            return self.attrs[name]
        except KeyError:
            raise IrError(f"{self.op} {self.name!r} has no attribute {name!r}, it has {sorted(self.attrs)}") from None

    def int_attr(self, name: str) -> int:
        value = self.attr(name)
        if isinstance(value, int):
            return value
        raise IrError(f"{self.op} {self.name!r}: attribute {name!r} is {value!r}, expected an integer")

    def str_attr(self, name: str) -> str:
        value = self.attr(name)
        if isinstance(value, str):
            return value
        raise IrError(f"{self.op} {self.name!r}: attribute {name!r} is {value!r}, expected a string")

    def ints_attr(self, name: str) -> tuple[int, ...]:
        value = self.attr(name)
        if isinstance(value, tuple) and all(isinstance(v, int) for v in value):
            return tuple(v for v in value if isinstance(v, int))
        raise IrError(f"{self.op} {self.name!r}: attribute {name!r} is {value!r}, expected a list of integers")


PARTIAL = "+"
"""In place of a factor: partial sums over a mesh axis pass through (`ShardingRule.linear`)."""


def axes_of(text: str) -> tuple[str, ...]:
    """The mesh axes that a factor runs over, major first: `x*y` => x, y."""
    return tuple(text.split("*")) if text else ()


class Kind(Enum):
    PARALLEL = "parallel"
    REDUCTION = "reduction"
    HALO = "halo"
    OFFSET = "offset"
    STEPS = "steps"
    WHOLE = "whole"


@dataclass(frozen=True)
class Factor:
    """One loop of the op.

    `halo` = (lo, hi, stride): rows [s, e) of the result need the operand's rows [s*stride - lo, (e-1)*stride + 1 + hi), clipped to those
    it has; `localize` pads what was clipped.  `size` counts the result's rows, the operand's dimension has its own size.
    A factor may divide an operand and no result without being a reduction: the result is then the same on every shard.
    `least` rows are what a shard must have where the kernel refuses empty ones (filters, rows under a window).
    """

    name: str
    size: Dim
    kind: Kind = Kind.PARALLEL
    combine: str = ""
    halo: tuple[int, int, int] = (0, 0, 1)
    least: int = 0

    def divides_into(self, parts: int) -> bool:
        """Has each of `parts` shards the rows its kernel needs?  A size known at run time alone may be 0 then."""
        rows = self.size // parts if isinstance(self.size, int) else 0
        return self.kind is not Kind.WHOLE and rows >= self.least


DimFactors: TypeAlias = tuple[str, ...]
"""Factors of one dimension, major to minor; () is a dimension of size 1 or one that is broadcast."""


@dataclass(frozen=True)
class ShardingRule:
    """Factors, and for each operand and each result the factors of each of its dimensions (None: the value is never divided)."""

    factors: tuple[Factor, ...]
    operands: tuple[tuple[DimFactors, ...] | None, ...]
    results: tuple[tuple[DimFactors, ...] | None, ...]
    linear: tuple[int, ...] = ()
    """Operands that may be partial sums, all at once: op(sum of x_i, sum of y_i) = sum of op(x_i, y_i), the other operands whole."""

    def factor(self, name: str) -> Factor:
        for factor in self.factors:
            if factor.name == name:
                return factor
        raise IrError(f"sharding rule has no factor {name!r}, expected one of {[f.name for f in self.factors]}")

    @property
    def points(self) -> KnownDim | None:
        """The size of the iteration space: the product of all factors."""
        return size_of(f.size for f in self.factors)

    def splits(self) -> Iterator[Factor]:
        """Factors that may run over a mesh axis: not whole, not of size 1, and major in every dimension they occur in."""
        for factor in self.factors:
            if factor.kind not in (Kind.WHOLE, Kind.STEPS) and factor.size != 1 and self._major_everywhere(factor.name):
                yield factor

    def stepped(self) -> Iterator[Factor]:
        """Factors that may run over a mesh axis once the op is expanded."""
        yield from (f for f in self.factors if f.kind is Kind.STEPS and f.size != 1 and self._major_everywhere(f.name))

    def _major_everywhere(self, name: str) -> bool:
        places = [dim for value in (*self.operands, *self.results) if value is not None for dim in value if name in dim]
        return bool(places) and all(dim[0] == name for dim in places)

    def divides_evenly(self, name: str, parts: int) -> bool:
        """Do shard boundaries of the factor fall on those of `Sharding` in each dimension it is major in, whatever the sizes?

        They do where the factor is the whole dimension; in a compound dimension `(b s)` only if `parts` divides b."""
        size = self.factor(name).size
        alone = all(dim == (name,) for value in (*self.operands, *self.results) if value is not None for dim in value if name in dim)
        return alone or (size is not None and exact_div(size, parts) is not None)

    def shardings(self, assignment: Mapping[str, str]) -> tuple[tuple[Sharding | None, ...], tuple[Sharding | None, ...]]:
        """Operand and result shardings when each factor runs over the mesh axes `assignment[factor]` (None: a value never divided).

        `PARTIAL` for a factor: the operands `linear` are partial sums over that axis, and so are the results.
        """
        passed = tuple((axis, "sum") for axis in axes_of(assignment.get(PARTIAL, "")))
        reduced = [(axes, self.factor(f)) for f, axes in assignment.items() if f != PARTIAL]
        partial = (*passed, *((axis, f.combine) for axes, f in reduced if f.combine for axis in axes_of(axes)))

        def of(value: tuple[DimFactors, ...] | None, unreduced: tuple[tuple[str, str], ...]) -> Sharding | None:
            if value is None:
                return None
            return Sharding(tuple(tuple(a for f in dim if f in assignment for a in axes_of(assignment[f])) for dim in value), unreduced)

        operands = tuple(of(v, passed if slot in self.linear else ()) for slot, v in enumerate(self.operands))
        return operands, tuple(of(v, partial) for v in self.results)

    def windows(self, slot: int, assignment: Mapping[str, str]) -> Iterator[tuple[int, Window]]:
        """(dimension, window) of each dimension of operand `slot` that a factor with a halo divides."""
        for dim, names in enumerate(self.operands[slot] or ()):
            for name in names:
                found = self.factor(name)
                if name in assignment and found.kind is Kind.HALO and isinstance(found.size, int):
                    yield dim, Window(found.size, *found.halo)


def einsum_rule(
    text: str, sizes: Mapping[str, Dim], reductions: Mapping[str, str] | None = None, whole: tuple[str, ...] = ()
) -> ShardingRule:
    """A rule from its sugar, `"m k, k n -> m n"`: one factor a dimension, `1` an undivided one, `-` a value left whole, `(h w)` compound.

    `reductions` gives the combine operator of each factor that no result has (default sum).  A factor of unknown size is whole."""
    left, right = text.split("->")
    operands, results = (tuple(_parse_value(v) for v in side.split(",")) if side.strip() else () for side in (left, right))
    in_results = {f for value in results if value is not None for dim in value for f in dim}
    factors = []
    for name in dict.fromkeys(f for value in (*operands, *results) if value is not None for dim in value for f in dim):
        if name in whole or sizes[name] is None:
            factors.append(Factor(name, sizes[name], Kind.WHOLE))
        elif name in in_results:
            factors.append(Factor(name, sizes[name]))
        else:
            factors.append(Factor(name, sizes[name], Kind.REDUCTION, (reductions or {}).get(name, "sum")))
    return ShardingRule(tuple(factors), operands, results)


def _parse_value(text: str) -> tuple[DimFactors, ...] | None:
    if text.strip() == "-":
        return None
    dims: list[DimFactors] = []
    group: list[str] | None = None
    for token in text.replace("(", " ( ").replace(")", " ) ").split():
        if token == "(":
            group = []
        elif token == ")":
            dims.append(tuple(group or ()))
            group = None
        elif group is not None:
            group.append(token)
        else:
            dims.append(() if token == "1" else (token,))
    return tuple(dims)


@dataclass(frozen=True)
class Shard:
    """Which part of the op one device does: for each split factor, the mesh axis's index and count, and the rows [start, start + size)."""

    index: Mapping[str, int]
    count: Mapping[str, int]
    start: Mapping[str, KnownDim]
    size: Mapping[str, KnownDim]


@dataclass(frozen=True)
class Finish:
    """An op applied to a shard's results before they are combined: `op(result, content)`; Mean over a split axis is Sum, then RealDiv."""

    op: str
    content: KnownDim | tuple[KnownDim, ...]


@dataclass(frozen=True)
class Size:
    """A symbolic size, or several, as an operand."""

    content: KnownDim | tuple[KnownDim, ...]
    dtype: DType = field(default_factory=lambda: DType("int32"))


@dataclass(frozen=True)
class Step:
    """One op of several that stand for one.

    `operands` are the one's (a number), results of earlier steps (a name), constants and sizes.  In an expansion `factors` says which of
    this op's factors a factor of the whole op is; the others of the whole op do not divide this one.
    """

    name: str
    op: str
    operands: tuple[int | str | Tensor | Size, ...]
    attrs: Mapping[str, Attr] = field(default_factory=dict)
    factors: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Localized:
    """How one shard differs from the whole op: its op and attributes, and operands whose *content* changes (a Reshape's new shape).

    `steps`, where there are any, are what it does instead, the last of them its result: a look-up in a part of a table masks what is
    elsewhere.
    """

    op: str
    attrs: Mapping[str, Attr]
    contents: Mapping[int, tuple[KnownDim, ...] | KnownDim] = field(default_factory=dict)
    finish: tuple[Finish, ...] = ()
    steps: tuple[Step, ...] = ()


Expand: TypeAlias = Callable[[Operation], tuple[Step, ...]]
"""An op as several that compute the same and divide each by itself; the last step is result 0."""
Infer: TypeAlias = Callable[[Operation], tuple[TensorType, ...]]
Rule: TypeAlias = Callable[[Operation], ShardingRule | None]
Localize: TypeAlias = Callable[[Operation, Shard, tuple[TensorType, ...]], Localized]
"""(the whole operation, which shard, local operand types) -> the shard's op."""


@dataclass(frozen=True)
class OpSpec:
    """One op.

    `infer`     operand types, attributes, contents -> result types; raises IrError when they do not fit.
    `rule`      the sharding rule; None: the op is never divided.
    `content`   symbolic content of result 0, for ops that compute shapes; `contents` that of every result, for ops with several.
    `flops`     floating-point operations of the whole op (default: `point_flops` x the rule's points, else per result element).
    `localize`  how a shard differs from the whole op (default: not at all).
    `expand`    the op as several; what its factors of kind STEPS are divided as.
    `double`    has a float64 kernel (for the validation's reference run).
    """

    name: str
    infer: Infer
    rule: Rule | None = None
    traits: frozenset[Trait] = frozenset()
    content: Callable[[Operation], Content] | None = None
    contents: Callable[[Operation], tuple[Content, ...]] | None = None
    flops: Callable[[Operation], KnownDim | None] | None = None
    point_flops: int = 1
    localize: Localize | None = None
    expand: Expand | None = None
    double: bool = True

    def has(self, trait: Trait) -> bool:
        return trait in self.traits

    def work(self, operation: Operation) -> KnownDim | None:
        """FLOPs; 0 for data movement, None where a size is unknown."""
        if self.flops is not None:
            return self.flops(operation)
        if self.traits & {Trait.MOVEMENT, Trait.IDENTITY, Trait.CONSTANT, Trait.SHAPE, Trait.HANDLE}:
            return 0
        rule = self.rule(operation) if self.rule is not None else None
        points = rule.points if rule is not None else _largest(operation.results)
        return None if points is None else mul(self.point_flops, points)


def _largest(types: tuple[TensorType, ...]) -> KnownDim | None:
    sizes = [t.elements for t in types]
    if not sizes or any(s is None for s in sizes):
        return None
    static = [s for s in sizes if isinstance(s, int)]
    return math.prod([max(static)]) if len(static) == len(sizes) else sizes[0]
