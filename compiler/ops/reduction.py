"""Reductions over axes, and scans along one: Sum, Mean, Max, ArgMax, Cumsum, ...

Kept dimensions are parallel; a reduced one yields partial results joined by the op's own combine.  Mean has none: its shards Sum, and the
whole is divided once by the count, so uneven shards are right.  The norm and the position of an extreme take steps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from compiler.ir.dims import Dim, KnownDim, add, max_dim, min_dim, mul
from compiler.ir.types import DType, TensorType
from compiler.ir.weights import Tensor
from compiler.ops.elementwise import unary_type
from compiler.ops.rules import dim_factors, factor, int32, plain, same_shape_rule, sums_pass
from compiler.ops.shapes import axis_in, constant_axes, constant_int, dtype_attr, product
from compiler.ops.spec import Content, DimFactors, Factor, Finish, Kind, Localized, Operation, OpSpec, Shard, ShardingRule, Step, Trait

WIDE = ("float32", "float64", "bfloat16")
"""Whose sums are as large as their means can be: float16 overflows, integers divide with remainder."""


def _keeps(operation: Operation) -> bool:
    return operation.attrs.get("keep_dims") is True


def _axes(operation: Operation) -> tuple[int, ...] | None:
    shape = operation.operands[0].shape
    return None if shape is None else constant_axes(operation, 1, len(shape))


def _reduce_type(operation: Operation) -> tuple[TensorType, ...]:
    """The kept dimensions, and 1 for each reduced one with `keep_dims`; only the rank, or nothing, where the axes are not constant."""
    operand, axes = operation.operands[0], _axes(operation)
    shape = operand.shape
    if shape is None:
        return (TensorType(operand.dtype, None),)
    if axes is None:
        count = _axis_count(operation)
        if _keeps(operation):
            return (TensorType(operand.dtype, (None,) * len(shape)),)
        return (TensorType(operand.dtype, () if count is not None and count == len(shape) == 1 else None),)
    kept: list[Dim] = []
    for i, size in enumerate(shape):
        if i not in axes:
            kept.append(size)
        elif _keeps(operation):
            kept.append(1)
    return (TensorType(operand.dtype, tuple(kept)),)


def _axis_count(operation: Operation) -> int | None:
    shape = operation.operands[1].shape
    if shape is None or len(shape) > 1:
        return None
    return 1 if not shape else shape[0] if isinstance(shape[0], int) else None


def _reduce_rule(operation: Operation, combine: str | None) -> ShardingRule | None:
    """`combine` None: a reduced dimension is never divided."""
    shape, axes = operation.operands[0].shape, _axes(operation)
    if shape is None or axes is None:
        return None
    factors: list[Factor] = []
    result: list[DimFactors] = []
    for i, size in enumerate(shape):
        if i not in axes:
            factors.append(factor(f"d{i}", size))
            result.append((f"d{i}",))
            continue
        factors.append(factor(f"d{i}", size, Kind.WHOLE if combine is None else Kind.REDUCTION, combine or ""))
        if _keeps(operation):
            result.append(())
    operands = (plain(shape), *((None,) * (len(operation.operands) - 1)))
    return ShardingRule(tuple(factors), operands, (tuple(result),))


def _mean_rule(operation: Operation) -> ShardingRule | None:
    return _reduce_rule(operation, "sum" if operation.operands[0].dtype in WIDE and _count(operation) is not None else None)


def _count(operation: Operation) -> KnownDim | None:
    """How many elements a mean runs over."""
    shape, axes = operation.operands[0].shape, _axes(operation)
    return None if shape is None or axes is None else product(*(shape[a] for a in axes))


def _mean_localize(operation: Operation, shard: Shard, operands: tuple[TensorType, ...]) -> Localized:
    """Divided over a reduced axis, Mean is Sum / count of the whole."""
    axes, count = _axes(operation), _count(operation)
    if axes is None or count is None or not any(f"d{a}" in shard.start for a in axes):
        return Localized(operation.op, operation.attrs)
    return Localized("Sum", operation.attrs, finish=(Finish("RealDiv", count),))


def _folded(operation: Operation, apply: Callable[[KnownDim, KnownDim], KnownDim], start: KnownDim | None) -> Content:
    """A small integer vector reduced to a scalar."""
    content = operation.content(0)
    if not isinstance(content, tuple) or _axes(operation) != (0,) or _keeps(operation) or not operation.operands[0].dtype.is_integer:
        return None
    total = start
    for item in content:
        if item is None:
            return None
        total = item if total is None else apply(total, item)
    return total


def _accumulate(operation: Operation) -> ShardingRule | None:
    """Cumsum, Cumprod: every axis but the scanned one."""
    shape = operation.operands[0].shape
    axis = constant_int(operation, 1)
    if shape is None or axis is None:
        return None
    return same_shape_rule(operation, (axis_in(operation, axis, len(shape)),))


# ---- ArgMax


def _position_type(operation: Operation) -> tuple[TensorType, ...]:
    shape, axis = operation.operands[0].shape, constant_int(operation, 1)
    dtype = dtype_attr(operation, "output_type")
    if shape is None:
        return (TensorType(dtype, None),)
    if axis is None:
        return (TensorType(dtype, (None,) * (len(shape) - 1)),)
    axis = axis_in(operation, axis, len(shape))
    return (TensorType(dtype, shape[:axis] + shape[axis + 1 :]),)


def _position_rule(operation: Operation) -> ShardingRule | None:
    """The searched axis in steps, the least of positions; kept dimensions in parallel."""
    shape, axis = operation.operands[0].shape, constant_int(operation, 1)
    if shape is None or axis is None:
        return None
    axis = axis_in(operation, axis, len(shape))
    dims = plain(shape)
    stepped = isinstance(shape[axis], int) and _numpy(operation.operands[0].dtype) and dtype_attr(operation, "output_type") in _POSITIONS
    factors = list(dim_factors(shape, (axis,)))
    if stepped:
        factors[axis] = factor(f"d{axis}", shape[axis], Kind.STEPS, "min", least=1)
    return ShardingRule(tuple(factors), (dims, None), (dims[:axis] + dims[axis + 1 :],))


def _position_steps(operation: Operation) -> tuple[Step, ...]:
    """The least position that holds the extreme value: the first of ties.  Positions of NaN are never taken, as in the kernel."""
    shape, axis, value = operation.operands[0].shape, constant_int(operation, 1), operation.operands[0].dtype
    assert shape is not None and axis is not None, "a rule without a shape and an axis is none"
    axis = axis_in(operation, axis, len(shape))
    size, largest = shape[axis], operation.op == "ArgMax"
    assert isinstance(size, int), "only an axis of known size is divided"
    dtype, same = dtype_attr(operation, "output_type"), {f"d{i}": f"d{i}" for i in range(len(shape))}
    column = [size if i == axis else 1 for i in range(len(shape))]
    positions = Tensor(dtype, np.arange(size).reshape(column))
    steps: list[Step] = []
    clean: int | str = 0
    if value.is_floating:
        never = Tensor(value, np.array(-np.inf if largest else np.inf))
        steps = [Step("nan", "IsNan", (0,), {}, same), Step("clean", "SelectV2", ("nan", never, 0), {}, same)]
        clean = "clean"
    return (
        *steps,
        Step("extreme", "Max" if largest else "Min", (clean, int32(axis)), {"keep_dims": True}, same),
        Step("found", "Equal", (clean, "extreme"), {}, same),
        Step("positions", "SelectV2", ("found", positions, Tensor(dtype, np.array(size))), {}, same),
        Step("first", "Min", ("positions", int32(axis)), {}, same),
    )


_POSITIONS = ("int32", "int64")


def _numpy(dtype: DType) -> bool:
    return dtype in ("float32", "float64", "int32", "int64")


def _norm_rule(operation: Operation) -> ShardingRule | None:
    """Reduced dimensions in steps: the root of the sum of squares."""
    rule, axes = _reduce_rule(operation, None), _axes(operation)
    if rule is None or axes is None or not operation.operands[0].dtype.is_floating:
        return rule
    return replace(rule, factors=tuple(factor(f.name, f.size, Kind.STEPS) if i in axes else f for i, f in enumerate(rule.factors)))


def _norm_steps(operation: Operation) -> tuple[Step, ...]:
    shape, axes = operation.operands[0].shape, _axes(operation)
    assert shape is not None and axes is not None, "a rule without a shape and axes is none"
    same = {f"d{i}": f"d{i}" for i in range(len(shape))}
    kept = [i for i in range(len(shape)) if i not in axes]
    after = {f"d{i}": f"d{i if _keeps(operation) else place}" for place, i in enumerate(kept)}
    return (
        Step("squares", "Square", (0,), {}, same),
        Step("sum", "Sum", ("squares", int32(axes)), {"keep_dims": _keeps(operation)}, same),
        Step("root", "Sqrt", ("sum",), {}, after),
    )


# ---- to a scalar, or to the channels


def _scalar_type(operation: Operation) -> tuple[TensorType, ...]:
    return (TensorType(operation.operands[0].dtype, ()),)


def _l2_rule(operation: Operation) -> ShardingRule | None:
    """sum(x²)/2: the halves add up."""
    shape = operation.operands[0].shape
    if shape is None:
        return None
    return ShardingRule(tuple(factor(f"d{i}", s, Kind.REDUCTION, "sum") for i, s in enumerate(shape)), (plain(shape),), ((),))


def _bias_gradient_type(operation: Operation) -> tuple[TensorType, ...]:
    operand = operation.operands[0]
    channel = None if operand.shape is None else operand.shape[_channel(operation, len(operand.shape))]
    return (TensorType(operand.dtype, (channel,)),)


def _channel(operation: Operation, rank: int) -> int:
    return 1 if operation.attrs.get("data_format") == "NCHW" else rank - 1


def _bias_gradient_rule(operation: Operation) -> ShardingRule | None:
    shape = operation.operands[0].shape
    if shape is None:
        return None
    channel = _channel(operation, len(shape))
    factors = tuple(
        factor(f"d{i}", s, Kind.PARALLEL if i == channel else Kind.REDUCTION, "" if i == channel else "sum") for i, s in enumerate(shape)
    )
    return ShardingRule(factors, (plain(shape),), (((f"d{channel}",),),))


def _reduce(
    name: str, combine: str | None, traits: frozenset[Trait] = frozenset(), content: Callable[[Operation], Content] | None = None
) -> OpSpec:
    return OpSpec(name, _reduce_type, lambda o: _reduce_rule(o, combine), traits, content)


LINEAR = frozenset({Trait.LINEAR})

SPECS: tuple[OpSpec, ...] = (
    OpSpec("Sum", _reduce_type, sums_pass(lambda o: _reduce_rule(o, "sum"), 0), LINEAR, lambda o: _folded(o, add, 0)),
    OpSpec("Mean", _reduce_type, _mean_rule, LINEAR, localize=_mean_localize),
    _reduce("Prod", "prod", content=lambda o: _folded(o, mul, 1)),
    _reduce("Max", "max", content=lambda o: _folded(o, max_dim, None)),
    _reduce("Min", "min", content=lambda o: _folded(o, min_dim, None)),
    _reduce("Any", "any"),
    _reduce("All", "all"),
    OpSpec("EuclideanNorm", _reduce_type, _norm_rule, expand=_norm_steps),
    OpSpec("ArgMax", _position_type, _position_rule, expand=_position_steps),
    OpSpec("ArgMin", _position_type, _position_rule, expand=_position_steps),
    OpSpec("L2Loss", _scalar_type, _l2_rule, point_flops=2),
    OpSpec("BiasAddGrad", _bias_gradient_type, _bias_gradient_rule, LINEAR),
    OpSpec("Cumsum", unary_type, _accumulate, LINEAR),
    OpSpec("Cumprod", unary_type, _accumulate),
    OpSpec("CumulativeLogsumexp", unary_type, _accumulate, point_flops=20),
)
