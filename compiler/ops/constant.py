"""Values that no operand decides, or only a shape: constants, fills, ranges, and the pseudo-ops that bring values in from outside."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from compiler.ir.dims import Dim, Expr, KnownDim, add, ceil_div, mul
from compiler.ir.errors import IrError
from compiler.ir.types import DType, TensorType
from compiler.ir.weights import Literal, Splat, Tensor, WeightRef, literal_type
from compiler.ops.elementwise import unary_type
from compiler.ops.rules import dim_factors, plain, same_shape_rule
from compiler.ops.shapes import constant_int, misfit, scalar_content, shape_attr, shape_from, vector_content
from compiler.ops.spec import Content, Kind, Localized, Operation, OpSpec, Shard, ShardingRule, Trait

SMALL = 64


def literal_of(operation: Operation) -> Literal:
    """A Const's value."""
    value = operation.attr("value")
    if isinstance(value, Tensor | Splat | WeightRef):
        return value
    raise misfit(operation, f"attribute 'value' is {type(value).__name__}, expected a tensor")


def literal_content(value: Literal) -> Content:
    """A small integer tensor's elements."""
    if isinstance(value, WeightRef) or len(value.shape) > 1 or not value.dtype.is_integer:
        return None
    if value.shape and value.shape[0] > SMALL:
        return None
    return int(value.array) if not value.shape else tuple(int(v) for v in value.array)


def slice_literal(value: Literal, starts: tuple[int, ...], sizes: tuple[int, ...]) -> Literal:
    """The sub-tensor; a reference stays a reference, a splat a splat."""
    if isinstance(value, WeightRef):
        return value.slice(starts, sizes)
    if isinstance(value, Splat):
        return Splat(value.item, sizes)
    index = tuple(slice(start, start + size) for start, size in zip(starts, sizes, strict=True))
    return Tensor(value.dtype, value.array[index])


def _const_type(operation: Operation) -> tuple[TensorType, ...]:
    return (literal_type(literal_of(operation)),)


def _const_rule(operation: Operation) -> ShardingRule:
    shape = literal_of(operation).shape
    return ShardingRule(dim_factors(shape), (), (plain(shape),))


def _const_localize(operation: Operation, shard: Shard, operands: tuple[TensorType, ...]) -> Localized:
    """The slice of the constant; a literal's dimensions are static, so are its shards'."""
    value = literal_of(operation)
    starts, sizes = [], []
    for i, size in enumerate(value.shape):
        start, count = shard.start.get(f"d{i}", 0), shard.size.get(f"d{i}", size)
        if not isinstance(start, int) or not isinstance(count, int):
            raise IrError(f"Const {operation.name!r}: shard {start}+{count} of dimension {i}, expected static rows")
        starts.append(start)
        sizes.append(count)
    return Localized("Const", {**operation.attrs, "value": slice_literal(value, tuple(starts), tuple(sizes))})


def _recorded(operation: Operation) -> tuple[TensorType, ...]:
    """Only the node itself says what it yields."""
    if len(operation.results) != 1:
        raise misfit(operation, f"{len(operation.results)} recorded types, expected one")
    return operation.results


def _placeholder_type(operation: Operation) -> tuple[TensorType, ...]:
    if operation.results:
        return _recorded(operation)
    dtype = operation.attr("dtype")
    return (TensorType(DType(str(dtype)), shape_attr(operation, "shape")),)


def _default_type(operation: Operation) -> tuple[TensorType, ...]:
    """PlaceholderWithDefault: the declared shape, never the default value's."""
    return (TensorType(operation.operands[0].dtype, shape_attr(operation, "shape")),)


def _fill_type(operation: Operation) -> tuple[TensorType, ...]:
    return (TensorType(operation.operands[1].dtype, shape_from(operation, 0)),)


def _shaped_rule(operation: Operation) -> ShardingRule | None:
    """The operands only say the shape (or are scalars); every known dimension splits."""
    shape = operation.results[0].shape if operation.results else None
    if shape is None or vector_content(operation, 0) is None or None in (vector_content(operation, 0) or ()):
        return None
    return ShardingRule(dim_factors(shape), (None,) * len(operation.operands), (plain(shape),))


def shaped_localize(operation: Operation, shard: Shard, operands: tuple[TensorType, ...]) -> Localized:
    """Operand 0, the shape, with the divided dimensions at their shard's sizes."""
    shape = operation.results[0].shape
    assert shape is not None
    local = tuple(_known(operation, shard.size.get(f"d{i}", size)) for i, size in enumerate(shape))
    return Localized(operation.op, operation.attrs, {0: local})


def _known(operation: Operation, dim: Dim) -> KnownDim:
    if dim is None:
        raise misfit(operation, "a dimension is unknown, expected a known shape to divide")
    return dim


def _fill_content(operation: Operation) -> Content:
    """A vector of equal elements, its length known."""
    shape, item = shape_from(operation, 0), scalar_content(operation, 1)
    if shape is None or item is None or not operation.operands[1].dtype.is_integer:
        return None
    if len(shape) > 1 or (shape and not (isinstance(shape[0], int) and shape[0] <= SMALL)):
        return None
    return (item,) * shape[0] if shape and isinstance(shape[0], int) else item


def _like_content(value: int, operation: Operation) -> Content:
    operand = operation.operands[0]
    if operand.shape is None or not operand.dtype.is_integer or len(operand.shape) > 1:
        return None
    if not operand.shape:
        return value
    length = operand.shape[0]
    return (value,) * length if isinstance(length, int) and length <= SMALL else None


def _range_type(operation: Operation) -> tuple[TensorType, ...]:
    """max(0, ceil((limit - start) / delta)) elements."""
    return (TensorType(operation.operands[0].dtype, (_range_length(operation),)),)


def _range_length(operation: Operation) -> Dim:
    arrays = [operation.constant(slot) for slot in range(3)]
    if all(a is not None for a in arrays) and operation.operands[0].dtype.is_floating:
        start, limit, delta = (float(a) for a in arrays if a is not None)
        return None if delta == 0 else max(0, int(np.ceil(abs(limit - start) / abs(delta))) if (limit - start) * delta > 0 else 0)
    begin, end, step = scalar_content(operation, 0), scalar_content(operation, 1), constant_int(operation, 2)
    if begin is None or end is None or step is None or step == 0:
        return None
    room = add(end, mul(-1, begin)) if step > 0 else add(begin, mul(-1, end))
    count = ceil_div(room, abs(step))
    if isinstance(count, int):
        return max(0, count)
    return count if isinstance(count, Expr) and all(c > 0 for _, c in count.terms) else None


def _range_content(operation: Operation) -> Content:
    start, length, step = scalar_content(operation, 0), _range_length(operation), constant_int(operation, 2)
    if start is None or step is None or not isinstance(length, int) or length > SMALL or not operation.operands[0].dtype.is_integer:
        return None
    return tuple(add(start, step * i) for i in range(length))


def _range_rule(operation: Operation) -> ShardingRule | None:
    """Integer ranges only: a float range adds up its step from the start, so a shard that starts later may differ."""
    if not operation.results or operation.results[0].shape is None or not operation.results[0].dtype.is_integer:
        return None
    if constant_int(operation, 2) is None or scalar_content(operation, 0) is None:
        return None
    factors = tuple(replace(f, kind=Kind.OFFSET) if f.kind is not Kind.WHOLE else f for f in dim_factors(operation.results[0].shape))
    return ShardingRule(factors, (None, None, None), ((("d0",),),))


def _range_localize(operation: Operation, shard: Shard, operands: tuple[TensorType, ...]) -> Localized:
    """[start + first·delta, start + (first + rows)·delta)."""
    if "d0" not in shard.start:
        return Localized(operation.op, operation.attrs)
    start, step = scalar_content(operation, 0), constant_int(operation, 2)
    assert start is not None and step is not None
    first = add(start, mul(step, shard.start["d0"]))
    return Localized(operation.op, operation.attrs, {0: first, 1: add(first, mul(step, shard.size["d0"]))})


def _like_rule(operation: Operation) -> ShardingRule | None:
    return same_shape_rule(operation)


CONSTANT = frozenset({Trait.CONSTANT})
MOVEMENT = frozenset({Trait.MOVEMENT})
HANDLE = frozenset({Trait.HANDLE})
EMPTY: frozenset[Trait] = frozenset()

SPECS: tuple[OpSpec, ...] = (
    OpSpec("Const", _const_type, _const_rule, CONSTANT, lambda o: literal_content(literal_of(o)), localize=_const_localize),
    OpSpec("Input", _recorded, flops=lambda o: 0),
    OpSpec("Variable", _recorded, traits=HANDLE),
    OpSpec("Resource", _recorded, traits=HANDLE),
    OpSpec("Placeholder", _placeholder_type, flops=lambda o: 0),
    OpSpec("PlaceholderV2", _placeholder_type, flops=lambda o: 0),
    OpSpec("PlaceholderWithDefault", _default_type, flops=lambda o: 0),
    OpSpec("Fill", _fill_type, _shaped_rule, MOVEMENT, _fill_content, localize=shaped_localize),
    OpSpec("Empty", lambda o: (TensorType(DType(str(o.attr("dtype"))), shape_from(o, 0)),), traits=MOVEMENT),
    OpSpec("ZerosLike", unary_type, _like_rule, MOVEMENT | {Trait.SHAPE}, lambda o: _like_content(0, o)),
    OpSpec("OnesLike", unary_type, _like_rule, MOVEMENT | {Trait.SHAPE}, lambda o: _like_content(1, o)),
    OpSpec("Range", _range_type, _range_rule, MOVEMENT, _range_content, localize=_range_localize),
)
