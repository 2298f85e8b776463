"""Normalisations: along the last axis (Softmax), by channel (batch-norm), across channels (LRN), and the losses made of them.

What is normalised over divides in steps, two collectives in between (the maximum, the sum), or is whole; every other dimension is parallel.
Inference batch-norm normalises over nothing.
"""

from __future__ import annotations

from dataclasses import replace

from compiler.ir.dims import Dim, KnownDim
from compiler.ir.types import TensorType
from compiler.ops.elementwise import unary_type
from compiler.ops.rules import ValueFactors, factor, int32, same_shape_rule
from compiler.ops.shapes import agree, agree_shapes, broadcast, misfit, with_rank
from compiler.ops.spec import DimFactors, Factor, Kind, Operation, OpSpec, ShardingRule, Step
from compiler.ops.windows import layout


def _last_whole(operation: Operation) -> ShardingRule | None:
    shape = operation.operands[0].shape
    return None if not shape else same_shape_rule(operation, (len(shape) - 1,))


def _softmax_rule(operation: Operation) -> ShardingRule | None:
    """The last dimension in steps, the others in parallel."""
    rule = _last_whole(operation)
    if rule is None:
        return None
    last = rule.factors[-1]
    return replace(rule, factors=(*rule.factors[:-1], factor(last.name, last.size, Kind.STEPS)))


def _softmax_steps(operation: Operation) -> tuple[Step, ...]:
    """exp(x - max) / sum exp(x - max), and x - max - log sum exp(x - max): the maximum of maxima and the sum of sums."""
    shape = operation.operands[0].shape
    assert shape, "a rule without a shape is none"
    last, same = int32(len(shape) - 1), {f"d{i}": f"d{i}" for i in range(len(shape))}
    keep = {"keep_dims": True}
    steps = (
        Step("max", "Max", (0, last), keep, same),
        Step("shifted", "Sub", (0, "max"), {}, same),
        Step("exp", "Exp", ("shifted",), {}, same),
        Step("total", "Sum", ("exp", last), keep, same),
    )
    if operation.op == "Softmax":
        return (*steps, Step("quotient", "RealDiv", ("exp", "total"), {}, same))
    return (*steps, Step("log", "Log", ("total",), {}, same), Step("difference", "Sub", ("shifted", "log"), {}, same))


# ---- batch normalisation


def _batch_norm_type(operation: Operation) -> tuple[TensorType, ...]:
    """(x, scale, offset, mean, variance) -> (y, mean, variance, reserves: two by channel, and for V3 one that no CPU fills)."""
    where = layout(operation, "NHWC")
    image = list(with_rank(operation, 0, where.rank))
    channels: Dim = image[where.channel]
    for slot in (1, 2):
        channels = agree(operation, channels, with_rank(operation, slot, 1)[0], "channels")
    image[where.channel] = channels
    statistics = TensorType(operation.operands[1].dtype, (channels,))
    results = (TensorType(operation.operands[0].dtype, tuple(image)), *(statistics,) * 4)
    return (*results, TensorType(statistics.dtype, None)) if operation.op == "FusedBatchNormV3" else results


def _batch_norm_rule(operation: Operation) -> ShardingRule | None:
    """Channels always; batch and space only in inference, where the statistics are operands (and results alike on every shard)."""
    if operation.operands[0].shape is None or operation.attrs.get("is_training") is not False:
        return _channel_rule(operation, Kind.WHOLE)
    return _channel_rule(operation, Kind.PARALLEL)


def _channel_rule(operation: Operation, rest: Kind) -> ShardingRule | None:
    if operation.operands[0].shape is None:
        return None
    where = layout(operation, "NHWC")
    image = with_rank(operation, 0, where.rank)
    channel = where.channel
    factors = tuple(factor("c" if i == channel else f"d{i}", s, Kind.PARALLEL if i == channel else rest) for i, s in enumerate(image))
    dims: tuple[DimFactors, ...] = tuple(("c",) if i == channel else (f"d{i}",) for i in range(where.rank))
    statistics: ValueFactors = (("c",),)
    vectors = tuple(_statistics_factors(operation, slot) for slot in range(1, len(operation.operands)))
    reserves: tuple[ValueFactors, ...] = (None,) if operation.op == "FusedBatchNormV3" else ()
    return ShardingRule(factors, (dims, *vectors), (dims, *(statistics,) * 4, *reserves))


def _statistics_factors(operation: Operation, slot: int) -> ValueFactors:
    """By channel, or empty: training takes no mean and no variance."""
    return None if operation.operands[slot].shape == (0,) else (("c",),)


def _batch_norm_gradient_type(operation: Operation) -> tuple[TensorType, ...]:
    """(dy, x, scale, reserves) -> (dx, dscale, doffset, two unused)."""
    gradient, value, scale = operation.operands[:3]
    shape = agree_shapes(operation, gradient.shape, value.shape)
    by_channel = TensorType(scale.dtype, scale.shape)
    unused = TensorType(scale.dtype, None)
    return (TensorType(gradient.dtype, shape), by_channel, by_channel, unused, unused)


def _batch_norm_gradient_rule(operation: Operation) -> ShardingRule | None:
    """Channels only."""
    if any(t.shape is None for t in operation.operands[:2]) or operation.operands[2].shape is None:
        return None
    where = layout(operation, "NHWC")
    image = with_rank(operation, 1, where.rank)
    if image[where.channel] != operation.operands[2].shape[0]:
        return None
    factors = tuple(factor("c", s) if i == where.channel else Factor(f"d{i}", s, Kind.WHOLE) for i, s in enumerate(image))
    dims: tuple[DimFactors, ...] = tuple(("c",) if i == where.channel else (f"d{i}",) for i in range(where.rank))
    reserves = tuple(None if i > 4 else (("c",),) for i in range(3, len(operation.operands)))
    return ShardingRule(factors, (dims, dims, (("c",),), *reserves), (dims, (("c",),), (("c",),), None, None))


# ---- losses


def _sparse_loss_type(operation: Operation) -> tuple[TensorType, ...]:
    """(features [b, c], labels [b]) -> (loss [b], gradient [b, c])."""
    batch, classes = with_rank(operation, 0, 2)
    batch = agree(operation, batch, with_rank(operation, 1, 1)[0], "batch")
    dtype = operation.operands[0].dtype
    return TensorType(dtype, (batch,)), TensorType(dtype, (batch, classes))


def _sparse_loss_rule(operation: Operation) -> ShardingRule | None:
    features, labels = operation.operands[0].shape, operation.operands[1].shape
    if features is None or labels is None:
        return None
    batch = factor("b", features[0], Kind.PARALLEL if features[0] == labels[0] else Kind.WHOLE)
    dims: ValueFactors = (("b",), ("c",))
    return ShardingRule((batch, Factor("c", features[1], Kind.WHOLE)), (dims, (("b",),)), ((("b",),), dims))


def _dense_loss_type(operation: Operation) -> tuple[TensorType, ...]:
    """(features [b, c], labels [b, c]) -> (loss [b], gradient [b, c]), the operands broadcast against each other."""
    shape = broadcast(operation, *(t.shape for t in operation.operands))
    if shape is not None and len(shape) != 2:
        raise misfit(operation, "expected matrices of batch and classes")
    batch, classes = shape if shape is not None else (None, None)
    dtype = operation.operands[0].dtype
    return TensorType(dtype, (batch,)), TensorType(dtype, (batch, classes))


def _dense_loss_rule(operation: Operation) -> ShardingRule | None:
    """Where both operands have the batch; otherwise one may be broadcast over it."""
    features, labels = operation.operands[0].shape, operation.operands[1].shape
    if features is None or labels is None or features != labels or None in features:
        return None
    dims: ValueFactors = (("b",), ("c",))
    return ShardingRule((factor("b", features[0]), Factor("c", features[1], Kind.WHOLE)), (dims, dims), ((("b",),), dims))


# ---- across channels


def _channels_whole(operation: Operation) -> ShardingRule | None:
    """LRN sums squares over neighbouring channels of one position."""
    return same_shape_rule(operation, (3,), tuple(range(len(operation.operands))))


def _batch_norm_flops(operation: Operation) -> KnownDim | None:
    """A multiplication and an addition for each element in inference; five more to gather the statistics."""
    elements = operation.operands[0].elements
    return None if elements is None else elements * (2 if operation.attrs.get("is_training") is False else 7)


def _batch_norm(name: str) -> OpSpec:
    return OpSpec(name, _batch_norm_type, _batch_norm_rule, flops=_batch_norm_flops, double=False)


def _batch_norm_gradient(name: str) -> OpSpec:
    return OpSpec(name, _batch_norm_gradient_type, _batch_norm_gradient_rule, point_flops=10, double=False)


SPECS: tuple[OpSpec, ...] = (
    OpSpec("Softmax", unary_type, _softmax_rule, point_flops=15, expand=_softmax_steps),
    OpSpec("LogSoftmax", unary_type, _softmax_rule, point_flops=15, expand=_softmax_steps),
    _batch_norm("FusedBatchNorm"),
    _batch_norm("FusedBatchNormV2"),
    _batch_norm("FusedBatchNormV3"),
    _batch_norm_gradient("FusedBatchNormGrad"),
    _batch_norm_gradient("FusedBatchNormGradV2"),
    _batch_norm_gradient("FusedBatchNormGradV3"),
    OpSpec("SparseSoftmaxCrossEntropyWithLogits", _sparse_loss_type, _sparse_loss_rule, point_flops=20),
    OpSpec("SoftmaxCrossEntropyWithLogits", _dense_loss_type, _dense_loss_rule, point_flops=20),
    OpSpec("LRN", unary_type, _channels_whole, point_flops=20, double=False),
    OpSpec("LRNGrad", unary_type, _channels_whole, point_flops=40, double=False),
)
