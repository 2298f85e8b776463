"""Cutting and joining: Slice, Split, Concat, Pack, Pad.

Dimensions that are taken whole are parallel.  Slice and Pad divide the others too, where their sizes are static: a shard reads the rows
that it yields, wherever they lie (a halo that begins elsewhere).  Split, Concat and Pack do not divide the dimension that they cut or join.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from compiler.ir.dims import Dim, KnownDim, add, exact_div, floor_div, mul
from compiler.ir.types import DType, TensorType
from compiler.ir.weights import Tensor
from compiler.ops.rules import ValueFactors, dim_factors, factor, plain
from compiler.ops.shapes import agree, axis_in, constant_int, misfit, vector_content, with_rank
from compiler.ops.spec import Content, DimFactors, Factor, Kind, Localized, Operation, OpSpec, Shard, ShardingRule, Step, Trait

# ---- Slice


def _slice_sizes(operation: Operation) -> tuple[Dim, ...] | None:
    """Size of each dimension: -1 is what is left after `begin`."""
    begin, size = vector_content(operation, 1), vector_content(operation, 2)
    if begin is None or size is None:
        return None
    shape = with_rank(operation, 0, len(begin))
    return tuple(_rest(d, b) if s == -1 else s for d, b, s in zip(shape, begin, size, strict=True))


def _rest(dim: Dim, begin: KnownDim | None) -> Dim:
    return None if dim is None or begin is None else add(dim, mul(-1, begin))


def _slice_type(operation: Operation) -> tuple[TensorType, ...]:
    operand, sizes = operation.operands[0], _slice_sizes(operation)
    if sizes is None:
        sizes = None if operand.shape is None else (None,) * len(operand.shape)
    return (TensorType(operand.dtype, sizes),)


def _slice_whole(operation: Operation) -> list[int] | None:
    """Dimensions that are really cut, or may be."""
    begin, size, shape = vector_content(operation, 1), vector_content(operation, 2), operation.operands[0].shape
    if begin is None or size is None or shape is None:
        return None
    rewritable = None not in size
    return [
        i
        for i, (d, b, s) in enumerate(zip(shape, begin, size, strict=True))
        if b != 0 or not (s == -1 or (rewritable and s is not None and s == d))
    ]


def _slice_rule(operation: Operation) -> ShardingRule | None:
    shape, whole = operation.operands[0].shape, _slice_whole(operation)
    result = operation.results[0].shape if operation.results else None
    if shape is None or whole is None or result is None:
        return None
    begin = vector_content(operation, 1) or ()
    return _cut_rule(shape, result, whole, (None, None), {i: b for i, b in enumerate(begin) if isinstance(b, int)})


def _cut_rule(
    before: tuple[Dim, ...], after: tuple[Dim, ...], whole: list[int], rest: tuple[ValueFactors, ...], moved: Mapping[int, int]
) -> ShardingRule:
    """Same rank on both sides; a dimension in `whole` has another size in the result, whose row r is the operand's row r + moved[i]."""
    able = {i for i in whole if i in moved and isinstance(before[i], int) and isinstance(after[i], int)}
    factors = tuple(
        factor(f"d{i}", after[i], Kind.HALO, halo=(-moved[i], moved[i], 1), least=1) if i in able else f
        for i, f in enumerate(dim_factors(before, set(whole) - able))
    )
    cut = tuple(Factor(f"o{i}", after[i], Kind.WHOLE) for i in whole if i not in able)
    result: tuple[DimFactors, ...] = tuple((f"o{i}",) if i in whole and i not in able else (f"d{i}",) for i in range(len(after)))
    return ShardingRule((*factors, *cut), (plain(before), *rest), (result,))


def _slice_localize(operation: Operation, shard: Shard, operands: tuple[TensorType, ...]) -> Localized:
    """A divided dimension is taken from its first row to its last: the shard reads no others."""
    begin, size = vector_content(operation, 1) or (), vector_content(operation, 2) or ()
    divided = [i for i in range(len(size)) if f"d{i}" in shard.start]
    contents = {}
    if any(begin[i] != 0 for i in divided):
        contents[1] = tuple(0 if i in divided else b for i, b in enumerate(begin) if b is not None)
    if any(size[i] != -1 for i in divided):
        contents[2] = tuple(-1 if i in divided else s for i, s in enumerate(size) if s is not None)
    return Localized(operation.op, operation.attrs, contents)


def _slice_content(operation: Operation) -> Content:
    content, begin, size = operation.content(0), constant_int(operation, 1), constant_int(operation, 2)
    if not isinstance(content, tuple) or begin is None or size is None:
        return None
    return content[begin:] if size == -1 else content[begin : begin + size]


# ---- Split, concat, pack


def _split_type(operation: Operation) -> tuple[TensorType, ...]:
    """(axis, value) -> num_split equal parts."""
    operand, count, axis = operation.operands[1], operation.int_attr("num_split"), constant_int(operation, 0)
    shape = operand.shape
    if shape is not None and axis is not None:
        axis = axis_in(operation, axis, len(shape))
        size = shape[axis]
        part = None if size is None else exact_div(size, count)
        if isinstance(size, int) and part is None:
            raise misfit(operation, f"{size} rows do not divide into {count}")
        part = floor_div(size, count) if part is None and size is not None else part
        shape = (*shape[:axis], part, *shape[axis + 1 :])
    elif shape is not None:
        shape = (None,) * len(shape)
    return (TensorType(operand.dtype, shape),) * count


def _split_v_type(operation: Operation) -> tuple[TensorType, ...]:
    """(value, sizes, axis) -> one part for each size; one size may be -1."""
    operand, sizes, axis = operation.operands[0], vector_content(operation, 1), constant_int(operation, 2)
    count = operation.int_attr("num_split")
    if operand.shape is None or axis is None:
        return (TensorType(operand.dtype, None if operand.shape is None else (None,) * len(operand.shape)),) * count
    axis = axis_in(operation, axis, len(operand.shape))
    parts = _part_sizes(operand.shape[axis], sizes) if sizes is not None else (None,) * count
    return tuple(TensorType(operand.dtype, (*operand.shape[:axis], p, *operand.shape[axis + 1 :])) for p in parts)


def _part_sizes(size: Dim, parts: tuple[KnownDim | None, ...]) -> tuple[Dim, ...]:
    known: KnownDim = 0
    for part in parts:
        if part is not None and part != -1:
            known = add(known, part)
    rest = add(size, mul(-1, known)) if size is not None and None not in parts else None
    return tuple(rest if p == -1 else p for p in parts)


def _split_rule_at(operation: Operation, value: int, axis_slot: int) -> ShardingRule | None:
    shape, axis = operation.operands[value].shape, constant_int(operation, axis_slot)
    if shape is None or axis is None:
        return None
    axis = axis_in(operation, axis, len(shape))
    factors = [*dim_factors(shape, (axis,))]
    results: list[ValueFactors] = []
    for port, result in enumerate(operation.results):
        if result.shape is None:
            return None
        factors.append(Factor(f"o{port}", result.shape[axis], Kind.WHOLE))
        results.append(tuple((f"o{port}",) if i == axis else (f"d{i}",) for i in range(len(shape))))
    operands: list[ValueFactors] = [None] * len(operation.operands)
    operands[value] = plain(shape)
    return ShardingRule(tuple(factors), tuple(operands), tuple(results))


def _split_contents(operation: Operation, value: int) -> tuple[Content, ...]:
    content = operation.content(value)
    if not isinstance(content, tuple):
        return ()
    lengths = [t.shape[0] if t.shape else None for t in operation.results]
    parts: list[Content] = []
    start = 0
    for length in lengths:
        if not isinstance(length, int):
            return tuple(parts)
        parts.append(content[start : start + length])
        start += length
    return tuple(parts)


def _concat(operation: Operation) -> tuple[tuple[int, ...], int]:
    """(slots of the values, slot of the axis)."""
    count = len(operation.operands) - 1
    return (tuple(range(1, count + 1)), 0) if operation.op == "Concat" else (tuple(range(count)), count)


def _concat_type(operation: Operation) -> tuple[TensorType, ...]:
    slots, axis_slot = _concat(operation)
    axis, dtype = constant_int(operation, axis_slot), operation.operands[slots[0]].dtype
    shapes = [operation.operands[s].shape for s in slots]
    known = next((s for s in shapes if s is not None), None)
    if known is None:
        return (TensorType(dtype, None),)
    if axis is None:
        return (TensorType(dtype, (None,) * len(known)),)
    axis = axis_in(operation, axis, len(known))
    total: Dim = 0
    dims: list[Dim] = [None] * len(known)
    for slot in slots:
        shape = with_rank(operation, slot, len(known))
        dims = [agree(operation, a, b, f"dimension {i}") if i != axis else None for i, (a, b) in enumerate(zip(dims, shape, strict=True))]
        size = shape[axis]
        total = None if total is None or size is None else add(total, size)
    dims[axis] = total
    return (TensorType(dtype, tuple(dims)),)


def _concat_rule(operation: Operation) -> ShardingRule | None:
    slots, axis_slot = _concat(operation)
    axis, shape = constant_int(operation, axis_slot), operation.results[0].shape if operation.results else None
    if axis is None or shape is None or any(operation.operands[s].shape is None for s in slots):
        return None
    axis = axis_in(operation, axis, len(shape))
    values = {s: operation.operands[s].shape or () for s in slots}
    whole = {axis} | {i for i in range(len(shape)) for v in values.values() if v[i] != shape[i]}
    factors = [*dim_factors(shape, whole)]
    operands: list[ValueFactors] = [None] * len(operation.operands)
    for slot in slots:
        factors.append(Factor(f"a{slot}", values[slot][axis], Kind.WHOLE))
        operands[slot] = tuple((f"a{slot}",) if i == axis else (f"d{i}",) for i in range(len(shape)))
    return ShardingRule(tuple(factors), tuple(operands), (plain(shape),))


def _concat_content(operation: Operation) -> Content:
    parts = [vector_content(operation, slot) for slot in _concat(operation)[0]]
    if any(p is None for p in parts) or not any(isinstance(operation.content(s), tuple) for s in _concat(operation)[0]):
        return None
    return tuple(item for part in parts if part is not None for item in part)


def _pack_type(operation: Operation) -> tuple[TensorType, ...]:
    dtype, count = operation.operands[0].dtype, len(operation.operands)
    dims: tuple[Dim, ...] | None = None
    for operand in operation.operands:
        if operand.shape is not None:
            dims = operand.shape if dims is None else _agreed(operation, dims, operand.shape)
    if dims is None:
        return (TensorType(dtype, None),)
    axis = axis_in(operation, operation.int_attr("axis"), len(dims) + 1)
    return (TensorType(dtype, (*dims[:axis], count, *dims[axis:])),)


def _agreed(operation: Operation, left: tuple[Dim, ...], right: tuple[Dim, ...]) -> tuple[Dim, ...]:
    if len(left) != len(right):
        raise misfit(operation, "expected operands of one rank")
    return tuple(agree(operation, a, b, f"dimension {i}") for i, (a, b) in enumerate(zip(left, right, strict=True)))


def _pack_rule(operation: Operation) -> ShardingRule | None:
    shape = operation.results[0].shape if operation.results else None
    if shape is None or any(t.shape is None for t in operation.operands):
        return None
    axis = axis_in(operation, operation.int_attr("axis"), len(shape))
    kept = [i for i in range(len(shape)) if i != axis]
    whole = {axis} | {k for t in operation.operands for k, size in zip(kept, t.shape or (), strict=True) if size != shape[k]}
    dims: ValueFactors = tuple((f"d{k}",) for k in kept)
    return ShardingRule(dim_factors(shape, whole), (dims,) * len(operation.operands), (plain(shape),))


def _pack_content(operation: Operation) -> Content:
    """Scalars to a vector."""
    items = [operation.content(slot) for slot in range(len(operation.operands))]
    if operation.operands[0].shape != () or not operation.operands[0].dtype.is_integer:
        return None
    return tuple(None if isinstance(item, tuple) else item for item in items)


def _unpack_type(operation: Operation) -> tuple[TensorType, ...]:
    operand, count = operation.operands[0], operation.int_attr("num")
    if operand.shape is None:
        return (TensorType(operand.dtype, None),) * count
    axis = axis_in(operation, operation.int_attr("axis"), len(operand.shape))
    agree(operation, operand.shape[axis], count, "rows to unpack")
    return (TensorType(operand.dtype, operand.shape[:axis] + operand.shape[axis + 1 :]),) * count


def _unpack_rule(operation: Operation) -> ShardingRule | None:
    shape = operation.operands[0].shape
    if shape is None:
        return None
    axis = axis_in(operation, operation.int_attr("axis"), len(shape))
    dims = plain(shape)
    return ShardingRule(dim_factors(shape, (axis,)), (dims,), (dims[:axis] + dims[axis + 1 :],) * len(operation.results))


def _unpack_contents(operation: Operation) -> tuple[Content, ...]:
    content = operation.content(0)
    return content if isinstance(content, tuple) else ()


# ---- Pad


def _paddings(operation: Operation) -> tuple[tuple[int, int], ...] | None:
    array = operation.constant(1)
    if array is None:
        return None
    return tuple((int(before), int(after)) for before, after in np.asarray(array, np.int64))


def _pad_type(operation: Operation) -> tuple[TensorType, ...]:
    operand, paddings = operation.operands[0], _paddings(operation)
    if paddings is None:
        rank = operation.operands[1].shape[0] if operation.operands[1].shape else None
        rank = len(operand.shape) if operand.shape is not None else rank
        return (TensorType(operand.dtype, (None,) * rank if isinstance(rank, int) else None),)
    shape = with_rank(operation, 0, len(paddings))
    return (TensorType(operand.dtype, tuple(None if d is None else add(d, b + a) for d, (b, a) in zip(shape, paddings, strict=True))),)


def _pad_rule(operation: Operation) -> ShardingRule | None:
    """Dimensions that are not padded are parallel; those that are divide with their padding."""
    return _padded_rule(operation, divisible=True)


def _padded_rule(operation: Operation, *, divisible: bool) -> ShardingRule | None:
    shape, paddings = operation.operands[0].shape, _paddings(operation)
    result = operation.results[0].shape if operation.results else None
    if shape is None or paddings is None or result is None:
        return None
    rest = (None,) * (len(operation.operands) - 1)
    moved = {i: -before for i, (before, after) in enumerate(paddings) if divisible and before >= 0 and after >= 0}
    return _cut_rule(shape, result, [i for i, p in enumerate(paddings) if p != (0, 0)], rest, moved)


def _pad_localize(operation: Operation, shard: Shard, operands: tuple[TensorType, ...]) -> Localized:
    """A shard pads what of it lies outside the operand."""
    shape, paddings = operation.operands[0].shape, list(_paddings(operation) or ())
    divided = [i for i, p in enumerate(paddings) if p != (0, 0) and f"d{i}" in shard.start]
    if not divided or shape is None:
        return Localized(operation.op, operation.attrs)
    for i in divided:
        start, rows, size = shard.start[f"d{i}"], shard.size[f"d{i}"], shape[i]
        assert isinstance(start, int) and isinstance(rows, int) and isinstance(size, int), "padded dimensions divide where they are static"
        before, after = paddings[i][0] - start, start + rows - paddings[i][0] - size
        paddings[i] = (min(rows, max(0, before)), min(rows, max(0, after)))
    local = Tensor(DType("int32"), np.array(paddings, np.int32))
    operand = (0, local, 2) if operation.op == "PadV2" else (0, local)
    return Localized(operation.op, operation.attrs, steps=(Step("own", operation.op, operand),))


def _mirror_rule(operation: Operation) -> ShardingRule | None:
    """As Pad; the kernel refuses to reflect what has an empty dimension, padded or not."""
    rule = _padded_rule(operation, divisible=False)
    return None if rule is None else replace(rule, factors=tuple(replace(f, least=1) for f in rule.factors))


MOVES = frozenset({Trait.MOVEMENT, Trait.LINEAR})
JOINS = frozenset({Trait.MOVEMENT})


def _splitter(value: int, axis: int) -> tuple[Callable[[Operation], ShardingRule | None], Callable[[Operation], tuple[Content, ...]]]:
    return lambda o: _split_rule_at(o, value, axis), lambda o: _split_contents(o, value)


_SPLIT_RULE, _SPLIT_CONTENTS = _splitter(1, 0)
_SPLIT_V_RULE, _SPLIT_V_CONTENTS = _splitter(0, 2)

SPECS: tuple[OpSpec, ...] = (
    OpSpec("Slice", _slice_type, _slice_rule, MOVES, _slice_content, localize=_slice_localize),
    OpSpec("Split", _split_type, _SPLIT_RULE, JOINS, contents=_SPLIT_CONTENTS),
    OpSpec("SplitV", _split_v_type, _SPLIT_V_RULE, MOVES, contents=_SPLIT_V_CONTENTS),
    OpSpec("Concat", _concat_type, _concat_rule, JOINS, _concat_content),
    OpSpec("ConcatV2", _concat_type, _concat_rule, JOINS, _concat_content),
    OpSpec("Pack", _pack_type, _pack_rule, JOINS, _pack_content),
    OpSpec("Unpack", _unpack_type, _unpack_rule, MOVES, contents=_unpack_contents),
    OpSpec("Pad", _pad_type, _pad_rule, MOVES, localize=_pad_localize),
    OpSpec("PadV2", _pad_type, _pad_rule, JOINS, localize=_pad_localize),
    OpSpec("MirrorPad", _pad_type, _mirror_rule, MOVES),
)
