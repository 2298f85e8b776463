"""Resizing and rearranging images: batch and channels are parallel, space is whole."""

from __future__ import annotations

import numpy as np

from compiler.ir.dims import Dim, KnownDim, add, exact_div, floor_div, mul
from compiler.ir.types import DType, TensorType
from compiler.ops.rules import ValueFactors, factor, plain
from compiler.ops.shapes import product, vector_content, with_rank
from compiler.ops.spec import DimFactors, Factor, Kind, Operation, OpSpec, ShardingRule, Trait
from compiler.ops.windows import layout

# ---- resizing, NHWC


def _resized_type(dtype: str | None, operation: Operation) -> tuple[TensorType, ...]:
    """(images, size) -> images of that height and width."""
    batch, _, _, channels = with_rank(operation, 0, 4)
    size = vector_content(operation, 1) or (None, None)
    found = DType(dtype) if dtype is not None else operation.operands[0].dtype
    return (TensorType(found, (batch, size[0], size[1], channels)),)


def _resized_rule(operation: Operation) -> ShardingRule | None:
    if operation.operands[0].shape is None or not operation.results or operation.results[0].shape is None:
        return None
    before, after = with_rank(operation, 0, 4), operation.results[0].shape
    return _outer_rule(before, after, None)


def _outer_rule(before: tuple[Dim, ...], after: tuple[Dim, ...], rest: ValueFactors) -> ShardingRule:
    factors = (
        factor("n", before[0]),
        *(Factor(f"s{i}", before[i], Kind.WHOLE) for i in (1, 2)),
        *(Factor(f"o{i}", after[i], Kind.WHOLE) for i in (1, 2)),
        factor("c", before[3]),
    )
    return ShardingRule(factors, ((("n",), ("s1",), ("s2",), ("c",)), rest), ((("n",), ("o1",), ("o2",), ("c",)),))


def _resize_gradient_type(operation: Operation) -> tuple[TensorType, ...]:
    """(gradient, image) -> gradient of the image."""
    return (TensorType(operation.operands[1].dtype, operation.operands[1].shape),)


def _resize_gradient_rule(operation: Operation) -> ShardingRule | None:
    if any(t.shape is None for t in operation.operands):
        return None
    gradient, image = with_rank(operation, 0, 4), with_rank(operation, 1, 4)
    if gradient[0] != image[0] or gradient[3] != image[3]:
        return None
    return _outer_rule(gradient, image, (("n",), ("o1",), ("o2",), ("c",)))


# ---- space against depth and batch


def _depth_type(into_depth: bool, operation: Operation) -> tuple[TensorType, ...]:
    where, block = layout(operation, "NHWC"), operation.int_attr("block_size")
    shape = list(with_rank(operation, 0, where.rank))
    for axis in where.space:
        shape[axis] = _divided(shape[axis], block) if into_depth else product(shape[axis], block)
    channel = shape[where.channel]
    shape[where.channel] = product(channel, block * block) if into_depth else _divided(channel, block * block)
    return (TensorType(operation.operands[0].dtype, tuple(shape)),)


def _divided(size: Dim, by: int) -> Dim:
    if size is None:
        return None
    exact = exact_div(size, by)
    return exact if exact is not None else floor_div(size, by)


def _depth_rule(operation: Operation) -> ShardingRule | None:
    """Batch only."""
    shape, result = operation.operands[0].shape, operation.results[0].shape if operation.results else None
    if shape is None or result is None:
        return None
    factors = (
        factor("n", shape[0]),
        *(Factor(f"d{i}", shape[i], Kind.WHOLE) for i in range(1, len(shape))),
        *(Factor(f"o{i}", result[i], Kind.WHOLE) for i in range(1, len(result))),
    )
    after: tuple[DimFactors, ...] = (("n",), *plain(result, "o")[1:])
    return ShardingRule(factors, ((("n",), *plain(shape)[1:]),), (after,))


def _blocks(operation: Operation) -> tuple[tuple[int, ...], np.ndarray[tuple[int, ...], np.dtype[np.int64]]] | None:
    """(block sizes, paddings or crops), where both are constant."""
    block, paddings = operation.constant(1), operation.constant(2)
    if block is None or paddings is None:
        return None
    return tuple(int(b) for b in np.asarray(block, np.int64)), np.asarray(paddings, np.int64)


def _batch_type(into_batch: bool, operation: Operation) -> tuple[TensorType, ...]:
    """SpaceToBatchND [b, s...] -> [b·∏block, (s + padding)/block...]; BatchToSpaceND undoes it and crops."""
    operand, found = operation.operands[0], _blocks(operation)
    if operand.shape is None or found is None:
        return (TensorType(operand.dtype, None if operand.shape is None else (None,) * len(operand.shape)),)
    dims = list(operand.shape)
    blocks = 1
    for i, (size, edges) in enumerate(zip(*found, strict=True), 1):
        blocks *= size
        amount = int(edges.sum())
        dim = dims[i]
        if dim is not None:
            dims[i] = _divided(add(dim, amount), size) if into_batch else add(mul(dim, size), -amount)
    dims[0] = product(dims[0], blocks) if into_batch else _divided(dims[0], blocks)
    return (TensorType(operand.dtype, tuple(dims)),)


def _batch_rule(operation: Operation) -> ShardingRule | None:
    """Channels only: the batch of the result is block-major, so a shard of the operand's batch is no run of rows of the result's."""
    shape, result, found = operation.operands[0].shape, operation.results[0].shape if operation.results else None, _blocks(operation)
    if shape is None or result is None or found is None:
        return None
    space = range(len(found[0]) + 1)
    factors = (
        *(Factor(f"d{i}", shape[i], Kind.WHOLE) for i in space),
        *(Factor(f"o{i}", result[i], Kind.WHOLE) for i in space),
        *(factor(f"c{i}", shape[i]) for i in range(len(space), len(shape))),
    )
    rest: tuple[DimFactors, ...] = plain(shape, "c")[len(space) :]
    return ShardingRule(factors, ((*plain(shape)[: len(space)], *rest), None, None), ((*plain(result, "o")[: len(space)], *rest),))


def _resize(name: str, dtype: str | None, flops: int) -> OpSpec:
    return OpSpec(name, lambda o: _resized_type(dtype, o), _resized_rule, flops=lambda o: _per_result(flops, o))


def _per_result(flops: int, operation: Operation) -> KnownDim | None:
    elements = operation.results[0].elements if operation.results else None
    return None if elements is None else mul(flops, elements)


MOVES = frozenset({Trait.MOVEMENT, Trait.LINEAR})

SPECS: tuple[OpSpec, ...] = (
    _resize("ResizeBilinear", "float32", 8),
    _resize("ResizeBicubic", "float32", 32),
    _resize("ResizeArea", "float32", 8),
    _resize("ResizeNearestNeighbor", None, 0),
    OpSpec("ResizeBilinearGrad", _resize_gradient_type, _resize_gradient_rule, flops=lambda o: _per_result(8, o)),
    OpSpec("SpaceToDepth", lambda o: _depth_type(True, o), _depth_rule, MOVES),
    OpSpec("DepthToSpace", lambda o: _depth_type(False, o), _depth_rule, MOVES),
    OpSpec("SpaceToBatchND", lambda o: _batch_type(True, o), _batch_rule, MOVES),
    OpSpec("BatchToSpaceND", lambda o: _batch_type(False, o), _batch_rule, MOVES),
)
