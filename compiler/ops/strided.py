"""StridedSlice and its gradient: Python's `x[a:b:c, ..., None, i]`, read from begins, ends, strides and five masks.

The sparse specification becomes one `Cut` for each dimension of the operand.  Dimensions that are taken whole are parallel; a shard takes
them whole too, by their begin and end masks.  Static ones that are cut forwards divide alike: a shard reads from its first row to its last.
"""

from __future__ import annotations

from dataclasses import dataclass

from compiler.ir.dims import Dim, Expr, KnownDim, add, ceil_div, max_dim, min_dim, mul
from compiler.ir.types import Shape, TensorType
from compiler.ops.rules import ValueFactors, factor, plain
from compiler.ops.shapes import misfit, vector_content
from compiler.ops.spec import Content, DimFactors, Factor, Kind, Localized, Operation, OpSpec, Shard, ShardingRule, Trait


@dataclass(frozen=True)
class Cut:
    """What happens to one dimension, or between two: `kind` is range | index | new; `sparse` its place in the specification, or -1."""

    kind: str
    axis: int
    sparse: int
    begin: KnownDim | None = None
    end: KnownDim | None = None
    stride: int | None = 1
    open_begin: bool = True
    open_end: bool = True


def cuts(operation: Operation, rank: int, first: int = 1) -> list[Cut] | None:
    """One for each dimension of the operand and each new one, in the result's order; None where the specification's length is unknown.

    `first` is the slot of `begin`; `end` and `strides` follow it.
    """
    begin, end, strides = (vector_content(operation, first + i) for i in range(3))
    if begin is None or end is None or strides is None:
        return None
    if not len(begin) == len(end) == len(strides):
        raise misfit(operation, f"begin, end and strides have {len(begin)}, {len(end)} and {len(strides)} elements, expected as many")
    ellipsis, new = operation.int_attr("ellipsis_mask"), operation.int_attr("new_axis_mask")
    specified = sum(not (ellipsis | new) >> i & 1 for i in range(len(begin)))
    found: list[Cut] = []
    axis = 0
    for i in range(len(begin)):
        if ellipsis >> i & 1:
            found += [Cut("range", a, -1) for a in range(axis, axis + rank - specified)]
            axis += rank - specified
        elif new >> i & 1:
            found.append(Cut("new", axis, i))
        else:
            found.append(_cut(operation, i, axis, (begin[i], end[i], strides[i])))
            axis += 1
    if axis > rank:
        raise misfit(operation, f"the specification takes {axis} dimensions, expected at most {rank}")
    return [*found, *(Cut("range", a, -1) for a in range(axis, rank))]


def _cut(operation: Operation, i: int, axis: int, spec: tuple[KnownDim | None, ...]) -> Cut:
    begin, end, stride = spec
    step = stride if isinstance(stride, int) else None
    if step == 0:
        raise misfit(operation, "a stride is 0")
    if operation.int_attr("shrink_axis_mask") >> i & 1:
        return Cut("index", axis, i, begin, open_begin=False, open_end=False)
    masks = operation.int_attr("begin_mask") >> i & 1, operation.int_attr("end_mask") >> i & 1
    return Cut("range", axis, i, begin, end, step, bool(masks[0]), bool(masks[1]))


def is_whole(cut: Cut, size: Dim) -> bool:
    """Does it take the dimension as it is?"""
    if cut.kind != "range" or cut.stride != 1:
        return False
    starts = cut.open_begin or cut.begin == 0 or (isinstance(size, int) and isinstance(cut.begin, int) and cut.begin <= -size)
    ends = cut.open_end or (cut.end is not None and size is not None and _reaches(cut.end, size))
    return starts and ends


def _reaches(end: KnownDim, size: KnownDim) -> bool:
    return end == size or (isinstance(end, int) and isinstance(size, int) and end >= size)


def length(cut: Cut, size: Dim) -> Dim:
    """How many rows a range takes."""
    if is_whole(cut, size):
        return size
    if size is None or cut.stride is None:
        return None
    begin, end = (
        _bound(cut.begin, cut.open_begin, size, cut.stride, at_end=False),
        _bound(cut.end, cut.open_end, size, cut.stride, at_end=True),
    )
    if begin is None or end is None:
        return None
    room = add(end, mul(-1, begin)) if cut.stride > 0 else add(begin, mul(-1, end))
    count = ceil_div(room, abs(cut.stride))
    return count if cut.stride > 0 and (begin == 0 or end == size) else max_dim(count, 0)


def _bound(bound: KnownDim | None, is_open: bool, size: KnownDim, stride: int, *, at_end: bool) -> KnownDim | None:
    """The clamped bound: an open one is the side the stride starts from or runs to.  Backwards through a symbolic size only if open."""
    if is_open:
        return (size if at_end else 0) if stride > 0 else (-1 if at_end else add(size, -1))
    if bound is None or (isinstance(bound, Expr) and any(c < 0 for _, c in bound.terms)):
        return None
    if stride < 0 and not (isinstance(size, int) and isinstance(bound, int)):
        return None
    low, high = (0, size) if stride > 0 else (-1, add(size, -1))
    counted = add(bound, size) if isinstance(bound, int) and bound < 0 else bound
    return min_dim(max_dim(counted, low), high)


def sliced(operation: Operation, shape: tuple[Dim, ...], found: list[Cut]) -> Shape:
    """The result's dimensions."""
    dims: list[Dim] = []
    for cut in found:
        if cut.kind == "new":
            dims.append(1)
        elif cut.kind == "range":
            dims.append(length(cut, shape[cut.axis]))
    return tuple(dims)


def _strided_type(operation: Operation) -> tuple[TensorType, ...]:
    operand = operation.operands[0]
    found = None if operand.shape is None else cuts(operation, len(operand.shape))
    if operand.shape is None or found is None:
        return (TensorType(operand.dtype, None),)
    return (TensorType(operand.dtype, sliced(operation, operand.shape, found)),)


def _forward(cut: Cut, size: Dim) -> tuple[int, int] | None:
    """(rows taken, first of them) of a range that runs forwards through a static dimension."""
    rows = length(cut, size)
    if cut.kind != "range" or not isinstance(size, int) or not isinstance(rows, int) or cut.stride is None or cut.stride < 1:
        return None
    begin = _bound(cut.begin, cut.open_begin, size, cut.stride, at_end=False)
    return (rows, begin) if isinstance(begin, int) else None


def _axis_factor(cut: Cut, size: Dim, taken: tuple[int, int] | None) -> Factor:
    if is_whole(cut, size):
        return factor(f"d{cut.axis}", size)
    if taken is None or cut.stride is None:
        return Factor(f"d{cut.axis}", size, Kind.WHOLE)
    return factor(f"d{cut.axis}", taken[0], Kind.HALO, halo=(-taken[1], taken[1], cut.stride), least=1)


def _parts(shape: tuple[Dim, ...], found: list[Cut], *, divisible: bool) -> tuple[tuple[Factor, ...], tuple[DimFactors, ...]]:
    """Factors of the operand (and of what is cut out of it), and the result's dimensions; `divisible`: a shard may read any rows."""
    taken = {c.axis: _forward(c, shape[c.axis]) for c in found if divisible and c.kind == "range"}
    factors = [_axis_factor(c, shape[c.axis], taken.get(c.axis)) for c in found if c.kind != "new"]
    result: list[DimFactors] = []
    for cut in found:
        if cut.kind == "new":
            result.append(())
        elif cut.kind == "range" and (is_whole(cut, shape[cut.axis]) or taken.get(cut.axis) is not None):
            result.append((f"d{cut.axis}",))
        elif cut.kind == "range":
            factors.append(Factor(f"o{cut.axis}", length(cut, shape[cut.axis]), Kind.WHOLE))
            result.append((f"o{cut.axis}",))
    return tuple(factors), tuple(result)


def _strided_rule(operation: Operation) -> ShardingRule | None:
    shape = operation.operands[0].shape
    found = None if shape is None else cuts(operation, len(shape))
    if shape is None or found is None:
        return None
    factors, result = _parts(shape, found, divisible=True)
    return ShardingRule(factors, (plain(shape), None, None, None), (result,))


def _opened(operation: Operation, shape: tuple[Dim, ...], found: list[Cut], shard: Shard) -> dict[str, int]:
    """Begin and end masks with the divided dimensions open on both sides."""
    bits = 0
    for cut in found:
        if cut.sparse >= 0 and cut.kind == "range" and f"d{cut.axis}" in shard.start:
            bits |= 1 << cut.sparse
    return {name: operation.int_attr(name) | bits for name in ("begin_mask", "end_mask")}


def _strided_localize(operation: Operation, shard: Shard, operands: tuple[TensorType, ...]) -> Localized:
    shape = operation.operands[0].shape or ()
    found = cuts(operation, len(shape)) or []
    return Localized(operation.op, {**operation.attrs, **_opened(operation, shape, found, shard)})


def _strided_content(operation: Operation) -> Content:
    """`x[i]` and `x[a:b:c]` of a known vector."""
    content = operation.content(0)
    found = cuts(operation, 1) if isinstance(content, tuple) else None
    if not isinstance(content, tuple) or found is None or len(found) != 1:
        return None
    cut = found[0]
    if cut.kind == "index":
        inside = isinstance(cut.begin, int) and -len(content) <= cut.begin < len(content)
        return content[cut.begin] if inside and isinstance(cut.begin, int) else None
    begin, end = None if cut.open_begin else cut.begin, None if cut.open_end else cut.end
    if isinstance(begin, Expr) or isinstance(end, Expr) or cut.stride is None:
        return None
    if (begin is None and not cut.open_begin) or (end is None and not cut.open_end):
        return None
    return content[begin : end : cut.stride]


# ---- the gradient: (shape, begin, end, strides, dy) -> zeros of `shape` with dy written into the slice


def _gradient_type(operation: Operation) -> tuple[TensorType, ...]:
    return (TensorType(operation.operands[4].dtype, vector_content(operation, 0)),)


def _gradient_rule(operation: Operation) -> ShardingRule | None:
    shape = vector_content(operation, 0)
    found = None if shape is None else cuts(operation, len(shape))
    gradient = operation.operands[4].shape
    if shape is None or None in shape or found is None or gradient is None:
        return None
    factors, cut = _parts(shape, found, divisible=False)
    if len(cut) != len(gradient):
        return None
    operands: tuple[ValueFactors, ...] = (None, None, None, None, cut)
    return ShardingRule(factors, operands, (plain(shape),))


def _gradient_localize(operation: Operation, shard: Shard, operands: tuple[TensorType, ...]) -> Localized:
    shape = vector_content(operation, 0) or ()
    found = cuts(operation, len(shape)) or []
    local = tuple(shard.size.get(f"d{i}", d) for i, d in enumerate(shape))
    attrs = {**operation.attrs, **_opened(operation, shape, found, shard)}
    return Localized(operation.op, attrs, {0: tuple(d for d in local if d is not None)})


MOVES = frozenset({Trait.MOVEMENT, Trait.LINEAR})

SPECS: tuple[OpSpec, ...] = (
    OpSpec("StridedSlice", _strided_type, _strided_rule, MOVES, _strided_content, localize=_strided_localize),
    OpSpec("StridedSliceGrad", _gradient_type, _gradient_rule, frozenset({Trait.MOVEMENT}), localize=_gradient_localize),
)
