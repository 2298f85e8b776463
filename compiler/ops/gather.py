"""Indexing by data: gathers, scatters, one-hot, segments, top-k, where.

Indices and the axes that are not gathered are parallel.  Over the gathered axis (the vocabulary) each shard looks up what it has, and the
rest is -0.0, which adds nothing to anything.  Sizes that the data decide are unknown.
"""

from __future__ import annotations

import numpy as np

from compiler.ir.dims import Dim, KnownDim
from compiler.ir.types import DType, Shape, TensorType
from compiler.ir.weights import Tensor
from compiler.ops.elementwise import unary_type
from compiler.ops.rules import ValueFactors, dim_factors, factor, plain
from compiler.ops.shapes import axis_in, constant_int, constant_ints, misfit, scalar_content, shape_from, with_rank
from compiler.ops.spec import Content, DimFactors, Factor, Kind, Localized, Operation, OpSpec, Shard, ShardingRule, Size, Step, Trait

# ---- Gather


def _gather_axes(operation: Operation) -> tuple[int, int] | None:
    """(axis, batch dimensions), both non-negative; None where unknown."""
    params, indices = operation.operands[0].shape, operation.operands[1].shape
    axis = constant_int(operation, 2) if len(operation.operands) > 2 else 0
    if params is None or indices is None or axis is None:
        return None
    batch = operation.attrs.get("batch_dims", 0)
    batch = batch if isinstance(batch, int) else 0
    return axis_in(operation, axis, len(params)), batch + len(indices) if batch < 0 else batch


def _gather_type(operation: Operation) -> tuple[TensorType, ...]:
    """params[:axis] + indices[batch:] + params[axis+1:]."""
    dtype, axes = operation.operands[0].dtype, _gather_axes(operation)
    params, indices = operation.operands[0].shape, operation.operands[1].shape
    if axes is None or params is None or indices is None:
        return (TensorType(dtype, None),)
    axis, batch = axes
    return (TensorType(dtype, (*params[:axis], *indices[batch:], *params[axis + 1 :])),)


def _gather_rule(operation: Operation) -> ShardingRule | None:
    axes = _gather_axes(operation)
    params, indices = operation.operands[0].shape, operation.operands[1].shape
    if axes is None or params is None or indices is None:
        return None
    axis, batch = axes
    unequal = {i for i in range(batch) if params[i] != indices[i]}
    left = plain(params)
    right: tuple[DimFactors, ...] = (*left[:batch], *((f"i{i}",) for i in range(batch, len(indices))))
    factors = [*dim_factors(params, unequal | {axis}), *(factor(f"i{i}", indices[i]) for i in range(batch, len(indices)))]
    if isinstance(params[axis], int) and batch == 0 and operation.operands[0].dtype in _ADDED:
        factors[axis] = factor(f"d{axis}", params[axis], Kind.REDUCTION, "sum", least=1)
    rest: tuple[ValueFactors, ...] = (None,) * (len(operation.operands) - 2)
    return ShardingRule(tuple(factors), (left, right, *rest), ((*left[:axis], *right[batch:], *left[axis + 1 :]),))


_ADDED = ("float32", "float64", "float16", "bfloat16", "int32", "int64")
"""What a look-up in a divided table may hold: AddN joins the parts."""


def _gather_localize(operation: Operation, shard: Shard, operands: tuple[TensorType, ...]) -> Localized:
    """Indices that fall in the shard's rows; the first and the last shard keep those below and above the table, and fail on them."""
    axes, params = _gather_axes(operation), operation.operands[0]
    if axes is None or f"d{axes[0]}" not in shard.start:
        return Localized(operation.op, operation.attrs)
    axis, indices = axes[0], operation.operands[1].dtype
    name = f"d{axis}"
    zero = Tensor(indices, np.zeros((), indices.numpy))
    steps: list[Step] = [Step("local", "Sub", (1, Size(shard.start[name], indices)))]
    inside: list[str] = []
    if shard.index[name] > 0:
        steps.append(Step("reached", "GreaterEqual", ("local", zero)))
        inside.append("reached")
    if shard.index[name] < shard.count[name] - 1:
        steps.append(Step("before_end", "Less", ("local", Size(shard.size[name], indices))))
        inside.append("before_end")
    if len(inside) == 2:
        steps.append(Step("inside", "LogicalAnd", tuple(inside)))
    mask = steps[-1].name
    steps += [
        Step("safe", "SelectV2", (mask, "local", zero)),
        Step("rows", "GatherV2", (0, "safe", Tensor(DType("int32"), np.array(axis, np.int32)))),
    ]
    for i in range(len(params.shape or ()) - axis - 1):
        steps.append(Step(f"mask_{i}", "ExpandDims", (mask, Tensor(DType("int32"), np.array(-1, np.int32)))))
        mask = steps[-1].name
    nothing = Tensor(params.dtype, np.array(-0.0 if params.dtype.is_floating else 0, params.dtype.numpy))
    return Localized(operation.op, operation.attrs, steps=(*steps, Step("own", "SelectV2", (mask, "rows", nothing))))


def _gather_content(operation: Operation) -> Content:
    """Elements of a known vector."""
    content, indices = operation.content(0), operation.content(1)
    axes = _gather_axes(operation)
    if not isinstance(content, tuple) or axes != (0, 0):
        return None
    if isinstance(indices, int):
        return content[indices] if 0 <= indices < len(content) else None
    found = constant_ints(operation, 1)
    if not isinstance(indices, tuple) or found is None or not all(0 <= i < len(content) for i in found):
        return None
    return tuple(content[i] for i in found)


def _gather_nd_type(operation: Operation) -> tuple[TensorType, ...]:
    """indices[..., k] into the first k dimensions: indices[:-1] + params[k:]."""
    dtype, params, indices = operation.operands[0].dtype, operation.operands[0].shape, operation.operands[1].shape
    if params is None or not indices or not isinstance(indices[-1], int):
        return (TensorType(dtype, None),)
    if indices[-1] > len(params):
        raise misfit(operation, f"indices of {indices[-1]} coordinates, expected at most {len(params)}")
    return (TensorType(dtype, (*indices[:-1], *params[indices[-1] :])),)


def _gather_nd_rule(operation: Operation) -> ShardingRule | None:
    params, indices = operation.operands[0].shape, operation.operands[1].shape
    if params is None or not indices or not isinstance(indices[-1], int):
        return None
    depth = indices[-1]
    factors = (*dim_factors(params, range(depth)), *dim_factors(indices, (len(indices) - 1,), "i"))
    left, right = plain(params), plain(indices, "i")
    return ShardingRule(factors, (left, right), ((*right[:-1], *left[depth:]),))


# ---- OneHot, TopK, Where, Unique


def _one_hot_axis(operation: Operation, rank: int) -> int:
    axis = operation.int_attr("axis")
    return rank if axis == -1 else axis_in(operation, axis, rank + 1)


def _one_hot_type(operation: Operation) -> tuple[TensorType, ...]:
    """(indices, depth, on, off): a dimension of `depth` at `axis`."""
    indices, dtype = operation.operands[0].shape, operation.operands[2].dtype
    if indices is None:
        return (TensorType(dtype, None),)
    axis = _one_hot_axis(operation, len(indices))
    return (TensorType(dtype, (*indices[:axis], scalar_content(operation, 1), *indices[axis:])),)


def _one_hot_rule(operation: Operation) -> ShardingRule | None:
    indices = operation.operands[0].shape
    if indices is None:
        return None
    axis = _one_hot_axis(operation, len(indices))
    dims = plain(indices)
    signed = operation.operands[0].dtype in ("int32", "int64")
    factors = (*dim_factors(indices), factor("depth", scalar_content(operation, 1), Kind.OFFSET if signed else Kind.WHOLE))
    return ShardingRule(factors, (dims, None, None, None), ((*dims[:axis], ("depth",), *dims[axis:]),))


def _one_hot_localize(operation: Operation, shard: Shard, operands: tuple[TensorType, ...]) -> Localized:
    """An index before or past the shard's rows is off there."""
    if "depth" not in shard.start:
        return Localized(operation.op, operation.attrs)
    dtype, axis = operation.operands[0].dtype, operation.int_attr("axis")
    steps = (
        Step("local", "Sub", (0, Size(shard.start["depth"], dtype))),
        Step("hot", "OneHot", ("local", Size(shard.size["depth"]), 2, 3), {} if axis == -1 else {"axis": axis}),
    )
    return Localized(operation.op, operation.attrs, steps=steps)


def _top_k_type(operation: Operation) -> tuple[TensorType, ...]:
    operand = operation.operands[0]
    shape: Shape = None
    if operand.shape is not None:
        if not operand.shape:
            raise misfit(operation, "expected a value of rank 1 or more")
        shape = (*operand.shape[:-1], scalar_content(operation, 1))
    positions = DType(str(operation.attrs.get("index_type", "int32")))
    return TensorType(operand.dtype, shape), TensorType(positions, shape)


def _top_k_rule(operation: Operation) -> ShardingRule | None:
    """Every dimension but the searched one."""
    shape = operation.operands[0].shape
    if not shape:
        return None
    last = len(shape) - 1
    factors = (*dim_factors(shape, (last,)), Factor("k", scalar_content(operation, 1), Kind.WHOLE))
    result: ValueFactors = (*plain(shape)[:-1], ("k",))
    return ShardingRule(factors, (plain(shape), None), (result, result))


def _where_type(operation: Operation) -> tuple[TensorType, ...]:
    return (TensorType(DType("int64"), (None, operation.operands[0].rank)),)


def _unique_type(operation: Operation) -> tuple[TensorType, ...]:
    operand, positions = operation.operands[0], DType(str(operation.attrs.get("out_idx", "int32")))
    found = TensorType(operand.dtype, (None,)), TensorType(positions, operand.shape)
    return (*found, TensorType(positions, (None,))) if operation.op == "UniqueWithCounts" else found


# ---- scatters and segments


def _scatter_nd_type(operation: Operation) -> tuple[TensorType, ...]:
    return (TensorType(operation.operands[1].dtype, shape_from(operation, 2)),)


def _update_type(operation: Operation) -> tuple[TensorType, ...]:
    return (TensorType(operation.operands[0].dtype, operation.operands[0].shape),)


def _segment_shapes(operation: Operation) -> tuple[tuple[Dim, ...], int] | None:
    """(shape of the data, how many leading dimensions the segment ids cover)."""
    data, ids = operation.operands[0].shape, operation.operands[1].shape
    if data is None or ids is None:
        return None
    if len(ids) > len(data):
        raise misfit(operation, "segment ids have more dimensions than the data")
    return data, len(ids)


def _unsorted_type(operation: Operation) -> tuple[TensorType, ...]:
    """(data, ids, n) -> n segments of the dimensions that ids do not cover."""
    found = _segment_shapes(operation)
    if found is None:
        return (TensorType(operation.operands[0].dtype, None),)
    return (TensorType(operation.operands[0].dtype, (scalar_content(operation, 2), *found[0][found[1] :])),)


def _unsorted_rule(operation: Operation, combine: str) -> ShardingRule | None:
    """Rows are partial results of every segment; an empty segment is the combine's own neutral element."""
    found = _segment_shapes(operation)
    if found is None:
        return None
    data, covered = found
    ids = operation.operands[1].shape or ()
    factors = tuple(_segment_factor(i, d, covered, ids, combine) for i, d in enumerate(data))
    segments = Factor("segments", scalar_content(operation, 2), Kind.WHOLE)
    dims = plain(data)
    return ShardingRule((*factors, segments), (dims, dims[:covered], None), ((("segments",), *dims[covered:]),))


def _segment_factor(i: int, size: Dim, covered: int, ids: tuple[Dim, ...], combine: str) -> Factor:
    if i >= covered:
        return factor(f"d{i}", size)
    return factor(f"d{i}", size, Kind.REDUCTION if ids[i] == size else Kind.WHOLE, combine)


def _sorted_type(operation: Operation) -> tuple[TensorType, ...]:
    """(data, ids): as many segments as the last id says."""
    shape = operation.operands[0].shape
    return (TensorType(operation.operands[0].dtype, None if not shape else (None, *shape[1:])),)


def _sorted_rule(operation: Operation) -> ShardingRule | None:
    """Rows are whole: a shard of sorted ids would have another number of segments."""
    shape, ids = operation.operands[0].shape, operation.operands[1].shape
    if not shape or ids is None or len(ids) != 1:
        return None
    factors = (*dim_factors(shape, (0,)), Factor("i", ids[0], Kind.WHOLE), Factor("segments", None, Kind.WHOLE))
    return ShardingRule(factors, (plain(shape), (("i",),)), ((("segments",), *plain(shape)[1:]),))


def _sparse_segment_type(operation: Operation) -> tuple[TensorType, ...]:
    """(data, indices, ids): rows of the data are picked first."""
    shape = operation.operands[0].shape
    return (TensorType(operation.operands[0].dtype, None if not shape else (None, *shape[1:])),)


def _bincount_type(operation: Operation) -> tuple[TensorType, ...]:
    """(values, size, weights) -> counts [size], by row for a matrix of values (DenseBincount)."""
    values, size = operation.operands[0].shape, scalar_content(operation, 1)
    dtype = operation.operands[2].dtype
    if operation.op == "Bincount":
        return (TensorType(dtype, (size,)),)
    if values is None:
        return (TensorType(dtype, None),)
    return (TensorType(dtype, (size,) if len(values) < 2 else (with_rank(operation, 0, 2)[0], size)),)


def _picked_flops(operation: Operation) -> KnownDim | None:
    """Every element of the data is added once."""
    return operation.operands[0].elements


MOVES = frozenset({Trait.MOVEMENT})
LINEAR = frozenset({Trait.MOVEMENT, Trait.LINEAR})


def _unsorted(name: str, combine: str) -> OpSpec:
    traits = frozenset({Trait.LINEAR}) if combine == "sum" else frozenset[Trait]()
    return OpSpec(name, _unsorted_type, lambda o: _unsorted_rule(o, combine), traits, flops=_picked_flops)


def _sorted(name: str) -> OpSpec:
    return OpSpec(name, _sorted_type, _sorted_rule, flops=_picked_flops)


SPECS: tuple[OpSpec, ...] = (
    OpSpec("Gather", _gather_type, _gather_rule, LINEAR, _gather_content, localize=_gather_localize),
    OpSpec("GatherV2", _gather_type, _gather_rule, LINEAR, _gather_content, localize=_gather_localize),
    OpSpec("GatherNd", _gather_nd_type, _gather_nd_rule, LINEAR),
    OpSpec("OneHot", _one_hot_type, _one_hot_rule, MOVES, localize=_one_hot_localize),
    OpSpec("TopKV2", _top_k_type, _top_k_rule),
    OpSpec("InTopK", lambda o: (TensorType(DType("bool"), o.operands[1].shape),)),
    OpSpec("InTopKV2", lambda o: (TensorType(DType("bool"), o.operands[1].shape),)),
    OpSpec("Where", _where_type, None, MOVES),
    OpSpec("Unique", _unique_type, None, MOVES),
    OpSpec("UniqueWithCounts", _unique_type, None, MOVES),
    OpSpec("ScatterNd", _scatter_nd_type, None, MOVES),
    OpSpec("TensorScatterUpdate", _update_type, None, MOVES),
    OpSpec("TensorScatterAdd", _update_type),
    OpSpec("TensorScatterSub", _update_type),
    OpSpec("TensorScatterMax", _update_type),
    OpSpec("TensorScatterMin", _update_type),
    _unsorted("UnsortedSegmentSum", "sum"),
    _unsorted("UnsortedSegmentProd", "prod"),
    _unsorted("UnsortedSegmentMax", "max"),
    _unsorted("UnsortedSegmentMin", "min"),
    _sorted("SegmentSum"),
    _sorted("SegmentMean"),
    _sorted("SegmentMax"),
    _sorted("SegmentMin"),
    _sorted("SegmentProd"),
    OpSpec("SparseSegmentSum", _sparse_segment_type, flops=_picked_flops),
    OpSpec("SparseSegmentMean", _sparse_segment_type, flops=_picked_flops),
    OpSpec("SparseSegmentSqrtN", _sparse_segment_type, flops=_picked_flops),
    OpSpec("Bincount", _bincount_type),
    OpSpec("DenseBincount", _bincount_type),
    OpSpec("MatrixBandPart", unary_type, None, LINEAR),
)
