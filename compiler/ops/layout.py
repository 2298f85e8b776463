"""Data movement that keeps every element: identities, Reshape, Transpose, Squeeze, Tile, and the ops that read a shape.

Transposes permute factors, reshapes regroup them: `[b,s,h] => [b*s,h]` is divided over b, the major part of `(b s)`.
"""

from __future__ import annotations

from compiler.ir.dims import Dim, KnownDim
from compiler.ir.types import DType, Shape, TensorType, size_of
from compiler.ops.elementwise import unary_type
from compiler.ops.rules import ValueFactors, aligned_rule, dim_factors, factor, local_shape, plain, regrouped, same_shape_rule, sums_pass
from compiler.ops.shapes import (
    agree_shapes,
    axis_in,
    broadcast,
    constant_axes,
    constant_int,
    constant_ints,
    dtype_attr,
    misfit,
    product,
    reshaped,
    scalar_content,
    shape_attr,
    shape_from,
    vector_content,
    with_rank,
)
from compiler.ops.spec import Content, DimFactors, Factor, Kind, Localized, Operation, OpSpec, Shard, ShardingRule, Trait

SMALL = 64


def first_content(operation: Operation) -> Content:
    """An identity's content is its operand's."""
    return operation.content(0)


# ---- identities


def _identity_n_type(operation: Operation) -> tuple[TensorType, ...]:
    return tuple(TensorType(t.dtype, t.shape, handle=t.handle) for t in operation.operands)


def _identity_type(operation: Operation) -> tuple[TensorType, ...]:
    operand = operation.operands[0]
    return (TensorType(operand.dtype, operand.shape, handle=operand.handle),)


def _identity_n_rule(operation: Operation) -> ShardingRule:
    """Each operand has factors of its own."""
    factors: list[Factor] = []
    values: list[ValueFactors] = []
    for slot, operand in enumerate(operation.operands):
        if operand.shape is None:
            values.append(None)
            continue
        factors.extend(dim_factors(operand.shape, prefix=f"v{slot}d"))
        values.append(plain(operand.shape, f"v{slot}d"))
    return ShardingRule(tuple(factors), tuple(values), tuple(values))


def _ensure_type(operation: Operation) -> tuple[TensorType, ...]:
    shape = agree_shapes(operation, operation.operands[0].shape, shape_attr(operation, "shape"))
    return (TensorType(operation.operands[0].dtype, shape),)


def _ensure_rule(operation: Operation) -> ShardingRule | None:
    """Dimensions that it does not check."""
    checked = shape_attr(operation, "shape")
    return same_shape_rule(operation, () if checked is None else [i for i, d in enumerate(checked) if d is not None])


# ---- Reshape


def _reshape_type(operation: Operation) -> tuple[TensorType, ...]:
    operand = operation.operands[0]
    return (TensorType(operand.dtype, reshaped(operation, operand.elements, vector_content(operation, 1))),)


def _reshape_rule(operation: Operation) -> ShardingRule | None:
    """The new shape must be known, for a shard has one of its own."""
    before = operation.operands[0].shape
    after = operation.results[0].shape if operation.results else None
    if before is None or after is None or None in after:
        return None
    factors, left, right = regrouped(before, after)
    return ShardingRule(factors, (left, None), (right,))


def _reshape_localize(operation: Operation, shard: Shard, operands: tuple[TensorType, ...]) -> Localized:
    return Localized(operation.op, operation.attrs, {1: local_shape(operation, _reshape_rule(operation), shard)})


def _reshape_content(operation: Operation) -> Content:
    """A vector to a vector or, with one element, a scalar; and back."""
    content, shape = operation.content(0), vector_content(operation, 1)
    if content is None or shape is None or len(shape) > 1:
        return None
    if not shape:
        return scalar_content(operation, 0)
    return content if isinstance(content, tuple) else (content,)


def _expand_type(operation: Operation) -> tuple[TensorType, ...]:
    """A dimension of 1 before `axis`, counted in the result's rank."""
    operand, axis = operation.operands[0], constant_int(operation, 1)
    if operand.shape is None:
        return (TensorType(operand.dtype, None),)
    if axis is None:
        return (TensorType(operand.dtype, (None,) * (len(operand.shape) + 1)),)
    axis = axis_in(operation, axis, len(operand.shape) + 1)
    return (TensorType(operand.dtype, (*operand.shape[:axis], 1, *operand.shape[axis:])),)


def _expand_rule(operation: Operation) -> ShardingRule | None:
    shape, axis = operation.operands[0].shape, constant_int(operation, 1)
    if shape is None or axis is None:
        return None
    axis = axis_in(operation, axis, len(shape) + 1)
    dims = plain(shape)
    return ShardingRule(dim_factors(shape), (dims, None), ((*dims[:axis], (), *dims[axis:]),))


def _expand_content(operation: Operation) -> Content:
    """A scalar becomes a vector of one element."""
    content = operation.content(0)
    return None if content is None or isinstance(content, tuple) else (content,)


def _squeezed(operation: Operation) -> tuple[int, ...] | None:
    """The axes that go: the named ones, or all static ones of size 1 where no other could be."""
    shape = operation.operands[0].shape
    named = operation.ints_attr("squeeze_dims")
    if shape is None:
        return None
    if named:
        axes = tuple(sorted({axis_in(operation, a, len(shape)) for a in named}))
        for axis in axes:
            if isinstance(shape[axis], int) and shape[axis] != 1:
                raise misfit(operation, f"cannot squeeze dimension {axis} of size {shape[axis]}, expected 1")
        return axes
    if not all(isinstance(d, int) for d in shape):
        return None
    return tuple(i for i, d in enumerate(shape) if d == 1)


def _squeeze_type(operation: Operation) -> tuple[TensorType, ...]:
    operand, axes = operation.operands[0], _squeezed(operation)
    if operand.shape is None or axes is None:
        return (TensorType(operand.dtype, None),)
    return (TensorType(operand.dtype, tuple(d for i, d in enumerate(operand.shape) if i not in axes)),)


def _squeeze_rule(operation: Operation) -> ShardingRule | None:
    shape, axes = operation.operands[0].shape, _squeezed(operation)
    if shape is None or axes is None:
        return None
    dims = plain(shape)
    return ShardingRule(dim_factors(shape, axes), (dims,), (tuple(d for i, d in enumerate(dims) if i not in axes),))


def _squeeze_localize(operation: Operation, shard: Shard, operands: tuple[TensorType, ...]) -> Localized:
    """Axes by name: a shard may have one row where the whole has more, and must keep that dimension."""
    return Localized(operation.op, {**operation.attrs, "squeeze_dims": _squeezed(operation) or ()})


def _squeeze_content(operation: Operation) -> Content:
    content = operation.content(0)
    return content[0] if isinstance(content, tuple) and len(content) == 1 else None


# ---- Transpose, broadcast, tile, reverse


def _permutation(operation: Operation) -> tuple[int, ...] | None:
    found = constant_ints(operation, 1)
    if found is None:
        return None
    rank = len(found)
    perm = tuple(axis_in(operation, a, rank) for a in found)
    if sorted(perm) != list(range(rank)):
        raise misfit(operation, f"perm {found}, expected a permutation")
    return perm


def _transpose_type(operation: Operation) -> tuple[TensorType, ...]:
    operand, perm = operation.operands[0], _permutation(operation)
    if perm is None:
        length = operation.operands[1].shape
        rank = len(operand.shape) if operand.shape is not None else length[0] if length and isinstance(length[0], int) else None
        return (TensorType(operand.dtype, None if rank is None else (None,) * rank),)
    shape = with_rank(operation, 0, len(perm))
    return (TensorType(operand.dtype, tuple(shape[a] for a in perm)),)


def _transpose_rule(operation: Operation) -> ShardingRule | None:
    shape, perm = operation.operands[0].shape, _permutation(operation)
    if shape is None or perm is None:
        return None
    dims = plain(shape)
    return ShardingRule(dim_factors(shape), (dims, None), (tuple(dims[a] for a in perm),))


def _broadcast_type(operation: Operation) -> tuple[TensorType, ...]:
    """The operand must broadcast to the shape, never the other way."""
    operand, shape = operation.operands[0], shape_from(operation, 1)
    if operand.shape is not None and shape is not None:
        if len(operand.shape) > len(shape):
            raise misfit(operation, f"cannot broadcast rank {len(operand.shape)} to rank {len(shape)}")
        known = broadcast(operation, operand.shape, shape) or ()
        shape = tuple(k if d is None else d for d, k in zip(shape, known, strict=True))
    return (TensorType(operand.dtype, shape),)


def _broadcast_rule(operation: Operation) -> ShardingRule | None:
    shape = operation.results[0].shape if operation.results else None
    if shape is None or None in shape:
        return None
    rule = aligned_rule(shape, operation.operands[:1])
    return None if rule is None else ShardingRule(rule.factors, (*rule.operands, None), rule.results)


def _broadcast_localize(operation: Operation, shard: Shard, operands: tuple[TensorType, ...]) -> Localized:
    return Localized(operation.op, operation.attrs, {1: local_shape(operation, _broadcast_rule(operation), shard)})


def _multiples(operation: Operation) -> tuple[KnownDim | None, ...] | None:
    return vector_content(operation, 1)


def _tile_type(operation: Operation) -> tuple[TensorType, ...]:
    operand, multiples = operation.operands[0], _multiples(operation)
    if multiples is None:
        return (TensorType(operand.dtype, None if operand.shape is None else (None,) * len(operand.shape)),)
    shape = with_rank(operation, 0, len(multiples))
    return (TensorType(operand.dtype, tuple(product(d, m) for d, m in zip(shape, multiples, strict=True))),)


def _tile_rule(operation: Operation) -> ShardingRule | None:
    """Dimensions that are not repeated, and those of size 1 that are: their copies are parallel."""
    shape, multiples = operation.operands[0].shape, _multiples(operation)
    if shape is None or multiples is None or None in multiples or len(shape) != len(multiples):
        return None
    factors: list[Factor] = []
    before: list[DimFactors] = []
    after: list[DimFactors] = []
    for i, (size, count) in enumerate(zip(shape, multiples, strict=True)):
        if size == 1:
            factors.append(factor(f"t{i}", count))
            before.append(())
            after.append((f"t{i}",))
        elif count == 1:
            factors.append(factor(f"d{i}", size))
            before.append((f"d{i}",))
            after.append((f"d{i}",))
        else:
            factors += [Factor(f"t{i}", count, Kind.WHOLE), Factor(f"d{i}", size, Kind.WHOLE)]
            before.append((f"d{i}",))
            after.append((f"t{i}", f"d{i}"))
    return ShardingRule(tuple(factors), (tuple(before), None), (tuple(after),))


def _tile_localize(operation: Operation, shard: Shard, operands: tuple[TensorType, ...]) -> Localized:
    multiples = _multiples(operation) or ()
    local = tuple(shard.size.get(f"t{i}", m) for i, m in enumerate(multiples))
    return Localized(operation.op, operation.attrs, {1: tuple(m for m in local if m is not None)})


def _reverse_rule(operation: Operation) -> ShardingRule | None:
    shape = operation.operands[0].shape
    axes = None if shape is None else constant_axes(operation, 1, len(shape))
    return None if axes is None else same_shape_rule(operation, axes)


def _reverse_content(operation: Operation) -> Content:
    content = operation.content(0)
    return content[::-1] if isinstance(content, tuple) and constant_ints(operation, 1) in ((0,), (-1,)) else None


# ---- what reads a shape


def _shape_type(operation: Operation) -> tuple[TensorType, ...]:
    return tuple(TensorType(dtype_attr(operation, "out_type"), (t.rank,)) for t in operation.operands)


def _shape_contents(operation: Operation) -> tuple[Content, ...]:
    return tuple(t.shape if t.shape is not None and len(t.shape) <= SMALL else None for t in operation.operands)


def _count_type(operation: Operation) -> tuple[TensorType, ...]:
    return (TensorType(DType(str(operation.attrs.get("out_type", "int32"))), ()),)


def _size_content(operation: Operation) -> Content:
    shape = operation.operands[0].shape
    return None if shape is None else size_of(shape)


def _inverted(operation: Operation) -> Content:
    """InvertPermutation of a constant."""
    perm = constant_ints(operation, 0)
    if perm is None or sorted(perm) != list(range(len(perm))):
        return None
    return tuple(perm.index(i) for i in range(len(perm)))


def _dynamic_shape(operation: Operation) -> Content:
    """BroadcastArgs of two known shapes."""
    left, right = vector_content(operation, 0), vector_content(operation, 1)
    if left is None or right is None:
        return None
    shape: Shape = broadcast(operation, left, right)
    return shape


def _args_type(operation: Operation) -> tuple[TensorType, ...]:
    lengths: list[Dim] = [with_rank(operation, slot, 1)[0] for slot in (0, 1)]
    known = [n for n in lengths if isinstance(n, int)]
    return (TensorType(operation.operands[0].dtype, (max(known) if len(known) == 2 else None,)),)


# ---- entries

IDENTITY = frozenset({Trait.IDENTITY, Trait.MOVEMENT, Trait.LINEAR, Trait.ELEMENTWISE})
MOVES = frozenset({Trait.MOVEMENT, Trait.LINEAR})
SHAPE = frozenset({Trait.SHAPE})


def _identity(name: str) -> OpSpec:
    return OpSpec(name, _identity_type, sums_pass(same_shape_rule), IDENTITY, first_content)


def _guard(name: str) -> OpSpec:
    """Passes its operand on, or raises: not an identity that may be dropped."""
    return OpSpec(name, unary_type, same_shape_rule, frozenset({Trait.MOVEMENT, Trait.EFFECT}), first_content)


SPECS: tuple[OpSpec, ...] = (
    _identity("Identity"),
    _identity("StopGradient"),
    _identity("PreventGradient"),
    _identity("Snapshot"),
    OpSpec(
        "IdentityN", _identity_n_type, _identity_n_rule, IDENTITY, contents=lambda o: tuple(o.content(s) for s in range(len(o.operands)))
    ),
    _guard("CheckNumerics"),
    _guard("CheckNumericsV2"),
    OpSpec("EnsureShape", _ensure_type, _ensure_rule, frozenset({Trait.MOVEMENT, Trait.VIEW}), first_content),
    OpSpec("Reshape", _reshape_type, sums_pass(_reshape_rule, 0), MOVES | {Trait.VIEW}, _reshape_content, localize=_reshape_localize),
    OpSpec("ExpandDims", _expand_type, sums_pass(_expand_rule, 0), MOVES | {Trait.VIEW}, _expand_content),
    OpSpec("Squeeze", _squeeze_type, sums_pass(_squeeze_rule, 0), MOVES | {Trait.VIEW}, _squeeze_content, localize=_squeeze_localize),
    OpSpec("Transpose", _transpose_type, sums_pass(_transpose_rule, 0), MOVES),
    OpSpec("ConjugateTranspose", _transpose_type, _transpose_rule, MOVES),
    OpSpec("BroadcastTo", _broadcast_type, _broadcast_rule, MOVES, localize=_broadcast_localize),
    OpSpec("Tile", _tile_type, _tile_rule, MOVES, localize=_tile_localize),
    OpSpec("ReverseV2", unary_type, _reverse_rule, MOVES, _reverse_content),
    OpSpec("InvertPermutation", unary_type, None, frozenset({Trait.MOVEMENT}), _inverted),
    OpSpec("Shape", _shape_type, None, SHAPE, contents=_shape_contents),
    OpSpec("ShapeN", _shape_type, None, SHAPE, contents=_shape_contents),
    OpSpec("Size", _count_type, None, SHAPE, _size_content),
    OpSpec("Rank", _count_type, None, SHAPE, lambda o: o.operands[0].rank),
    OpSpec("BroadcastArgs", _args_type, None, frozenset({Trait.MOVEMENT}), _dynamic_shape),
    OpSpec("BroadcastGradientArgs", lambda o: (TensorType(o.operands[0].dtype, (None,)),) * 2, None, frozenset({Trait.MOVEMENT})),
)
