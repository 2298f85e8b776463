"""What a value of a partitioned graph denotes: a block of a value of the graph before, or some of the terms that sum to such a block.

    piece(x) = (v, [a0, b0) x [a1, b1) x ..., terms)          rows of v, and which terms of each unreduced factor it holds

    Slice(p, begin, size)      the rows [a + begin, a + begin + size) of p's
    ConcatV2(p, q, ...; d)     [a, c) in d where p is [a, b) and q is [b, c), all else the same
    AddN, Maximum, ...         the union of terms, each held once, of pieces of the same rows; nothing is unreduced when all are held
    Identity(p)                p

Everything else is `Unproven`.  Nothing of partition's or reshard's is used here: this file and `check` are read against them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from types import MappingProxyType

from compiler.ir.dims import Atom, Dim, Expr, KnownDim, add, floor_div, max_dim, min_dim, mul
from compiler.ir.errors import CleaveError
from compiler.ir.graph import Value
from compiler.ir.types import TensorType
from compiler.ops.spec import Content

Bounds = tuple[KnownDim, Dim]
"""[first row, end); an end of None is that of a dimension of unknown size, taken whole."""


class Unproven(CleaveError):
    """A node does not denote what the derivation says; the message names it, the rule, and what was expected."""


@dataclass(frozen=True)
class Terms:
    """Of the `count` partial results that `combine` joins over `factor` of `node`, the ones that are held."""

    node: str
    factor: str
    combine: str
    count: int
    held: frozenset[int]

    def __str__(self) -> str:
        return f"terms {sorted(self.held)} of the {self.combine} of {self.count} over {self.factor!r} of {self.node!r}"


@dataclass(frozen=True)
class Piece:
    """`bounds` None: of unknown rank, and whole.  `terms` are sorted; none: the elements themselves."""

    value: Value
    bounds: tuple[Bounds, ...] | None
    terms: tuple[Terms, ...] = ()

    def __str__(self) -> str:
        rows = "" if self.bounds is None else "[" + ", ".join(f"{a}:{'?' if b is None else b}" for a, b in self.bounds) + "]"
        return ", ".join([f"{self.value}{rows}", *map(str, self.terms)])


def normal(dim: KnownDim) -> KnownDim:
    """One form for equal sizes: ceil(a/n) as floor((a + n - 1)/n), as it is computed at run time."""
    return dim if isinstance(dim, int) else _normal(dim)


@lru_cache(maxsize=65536)
def _normal(dim: Expr) -> KnownDim:
    total: KnownDim = 0
    for monomial, coefficient in dim.terms:
        product: KnownDim = coefficient
        for atom in monomial:
            product = mul(product, _normal_atom(atom))
        total = add(total, product)
    return total


def _normal_atom(atom: Atom) -> KnownDim:
    if atom.op == "symbol":
        return Expr((((atom,), 1),))
    left, right = (normal(a) for a in atom.arguments)
    match atom.op:
        case "max":
            return max_dim(left, right)
        case "min":
            return min_dim(left, right)
        case "ceil":
            return floor_div(add(left, add(right, -1)), right)
        case _:
            return floor_div(left, right)


def bounds(start: KnownDim, size: Dim) -> Bounds:
    start = normal(start)
    return start, None if size is None else add(start, normal(size))


def whole(value: Value, type_: TensorType) -> Piece:
    """The value itself."""
    return Piece(value, None if type_.shape is None else tuple(bounds(0, size) for size in type_.shape))


# ---- nodes that move or combine pieces


def sliced(pieces: Sequence[Piece], contents: Sequence[Content]) -> Piece:
    """(pieces of one operand), contents of (value, begin, size)."""
    (piece,), (_, begin, size) = pieces, contents
    if piece.bounds is None or not isinstance(begin, tuple) or not isinstance(size, tuple) or len(begin) != len(piece.bounds):
        raise Unproven("where the slice begins or ends is not known")
    return replace(piece, bounds=tuple(_cut(old, b, s) for old, b, s in zip(piece.bounds, begin, size, strict=True)))


def _cut(old: Bounds, begin: KnownDim | None, size: KnownDim | None) -> Bounds:
    if begin is None or size is None:
        raise Unproven("where the slice begins or ends is not known")
    start = add(old[0], normal(begin))
    end = old[1] if size == -1 else add(start, normal(size))
    inside = old[1] is not None or size == -1
    if not inside or (isinstance(end, int) and isinstance(old[1], int) and end > old[1]) or (isinstance(begin, int) and begin < 0):
        raise Unproven(f"a slice from {begin} of size {size} of rows {old[0]}:{old[1]} is out of range")
    return start, end


def joined(pieces: Sequence[Piece], contents: Sequence[Content]) -> Piece:
    """Pieces that follow one another along the dimension that the last content says."""
    dim, first = contents[-1], pieces[0]
    if len(pieces) < 2:
        raise Unproven("one piece is concatenated, expected two or more: the kernel refuses it")
    if not isinstance(dim, int) or first.bounds is None or not 0 <= dim < len(first.bounds):
        raise Unproven("the dimension to concatenate along is not known")
    end = first.bounds[dim][1]
    for piece in pieces[1:]:
        if piece.bounds is None or _but(piece, dim) != _but(first, dim):
            raise Unproven(f"{piece} and {first} are concatenated, expected them to be the same but for dimension {dim}")
        if end is None or piece.bounds[dim][0] != end:
            raise Unproven(f"{piece} is concatenated where rows from {end} are expected in dimension {dim}")
        end = piece.bounds[dim][1]
    made = (*first.bounds[:dim], (first.bounds[dim][0], end), *first.bounds[dim + 1 :])
    return replace(first, bounds=made)


def _but(piece: Piece, dim: int) -> tuple[object, ...]:
    kept = [b for d, b in enumerate(piece.bounds or ()) if d != dim]
    return (piece.value, piece.terms, *kept)


def combined(op: str) -> Callable[[Sequence[Piece], Sequence[Content]], Piece]:
    """`op` joins partial results of that combine."""

    def combine(pieces: Sequence[Piece], contents: Sequence[Content]) -> Piece:
        total = pieces[0]
        for piece in pieces[1:]:
            total = _united(op, total, piece)
        return replace(total, terms=tuple(t for t in total.terms if len(t.held) < t.count))

    return combine


def _united(op: str, left: Piece, right: Piece) -> Piece:
    if (left.value, left.bounds) != (right.value, right.bounds):
        raise Unproven(f"{left} and {right} are combined by {op}, expected partial results of the same rows")
    apart = [i for i, (a, b) in enumerate(zip(left.terms, right.terms, strict=False)) if a != b]
    if len(left.terms) != len(right.terms) or len(apart) != 1:
        raise Unproven(f"{left} and {right} are combined by {op}, expected different terms of one partial result")
    a, b = left.terms[apart[0]], right.terms[apart[0]]
    if replace(a, held=b.held) != b or a.held & b.held:
        raise Unproven(f"{a} and {b} are combined by {op}, expected different terms of one partial result")
    if a.combine != op:
        raise Unproven(f"{a} is combined by {op}, expected {a.combine}")
    return replace(left, terms=(*left.terms[: apart[0]], replace(a, held=a.held | b.held), *left.terms[apart[0] + 1 :]))


def _same(pieces: Sequence[Piece], contents: Sequence[Content]) -> Piece:
    return pieces[0]


@dataclass(frozen=True)
class Movement:
    """What an operator makes of pieces.  `last` operands, such as sizes, are read by content; -1 is: all but the first."""

    apply: Callable[[Sequence[Piece], Sequence[Content]], Piece]
    last: int = 0


MOVEMENTS: Mapping[str, Movement] = MappingProxyType(
    {
        "Slice": Movement(sliced, 2),
        "ConcatV2": Movement(joined, 1),
        "Identity": Movement(_same),
        "AddN": Movement(combined("sum")),
        "AddV2": Movement(combined("sum")),
        "Maximum": Movement(combined("max")),
        "Minimum": Movement(combined("min")),
        "Mul": Movement(combined("prod")),
        "LogicalOr": Movement(combined("any")),
        "LogicalAnd": Movement(combined("all")),
    }
)
