"""Pieces of constants: what each holds, compared reference by reference with the constant it is a piece of; no weight is read."""

from __future__ import annotations

import math

from compiler.ir.graph import Node, Value
from compiler.ir.weights import Literal, Splat, Tensor, WeightRef
from passes.split.denote import Piece, Unproven
from passes.split.derivation import Share


def share(node: Node, constant: Node | None, claim: Share) -> Piece:
    """What a piece of a constant denotes, if it holds just that."""
    found = node.attrs.get("value")
    if constant is None or constant.op != "Const":
        raise Unproven(f"rule 'share': {claim.constant!r} is no constant of the module before")
    literal = constant.attrs.get("value")
    if node.op != "Const" or not isinstance(found, Tensor | Splat | WeightRef) or not isinstance(literal, Tensor | Splat | WeightRef):
        raise Unproven("rule 'share': expected a constant")
    expected = _piece_of(literal, claim.bounds)
    if found != expected:
        raise Unproven(f"rule 'share': it holds {_reference(found)}, expected {_reference(expected)} of {claim.constant!r}")
    return Piece(Value(claim.constant), tuple((start, start + size) for start, size in claim.bounds))


def elements(node: Node) -> int:
    """Of a constant; 0 where it has no value."""
    literal = node.attrs.get("value")
    return math.prod(literal.shape) if isinstance(literal, Tensor | Splat | WeightRef) else 0


def _piece_of(literal: Literal, bounds: tuple[tuple[int, int], ...]) -> Literal:
    """The piece as a literal of the same kind."""
    inside = len(bounds) == len(literal.shape) and all(
        0 <= start <= start + size <= whole for (start, size), whole in zip(bounds, literal.shape, strict=True)
    )
    if not inside:
        raise Unproven(f"rule 'share': rows {bounds} of a constant of shape {literal.shape} are out of range")
    if isinstance(literal, Splat):
        return Splat(literal.item, tuple(size for _, size in bounds))
    if isinstance(literal, Tensor):
        return Tensor(literal.dtype, literal.array[tuple(slice(start, start + size) for start, size in bounds)])
    base = literal.region or tuple((0, size) for size in literal.full_shape)
    region = tuple((b + start, size) for (b, _), (start, size) in zip(base, bounds, strict=True))
    full = region == tuple((0, size) for size in literal.full_shape)
    return WeightRef(literal.store, literal.offset, literal.dtype, literal.full_shape, None if full else region)


def _reference(literal: Literal) -> str:
    if isinstance(literal, WeightRef):
        return f"store {literal.store!r} at byte {literal.offset}, rows {literal.region or 'all'}"
    return f"{type(literal).__name__.lower()} {literal.dtype}{list(literal.shape)}"
