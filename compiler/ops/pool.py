"""Pooling: a window slides over each image and channel by itself.  Batch and channel are parallel, rows have a halo.

AvgPool divides by the valid count at a SAME border, and only MaxPool takes explicit padding: rows of the others are padded by SAME, then
trimmed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from compiler.ir.dims import Dim, KnownDim
from compiler.ir.graph import Attr
from compiler.ir.types import DType, TensorType
from compiler.ops.rules import ValueFactors, factor
from compiler.ops.shapes import misfit, product, shape_from, vector_content, with_rank
from compiler.ops.spec import DimFactors, Factor, Kind, Localized, Operation, OpSpec, Shard, ShardingRule, Trait
from compiler.ops.windows import Layout, Window, layout, pads_freely, shard_pads, space_factors, trimmed, windows


def _where(operation: Operation) -> Layout:
    return layout(operation, "NDHWC" if "3D" in operation.op else "NHWC")


def _spans(operation: Operation, sizes: tuple[Dim, ...]) -> tuple[Window, ...]:
    where = _where(operation)
    kernel = operation.ints_attr("ksize")
    if len(kernel) != where.rank or kernel[0] != 1 or kernel[where.channel] != 1:
        raise misfit(operation, f"ksize {kernel}, expected {where.rank} sizes, 1 over batch and channels")
    return windows(operation, where, sizes, tuple(kernel[a] for a in where.space))


def _image(where: Layout, batch: Dim, channel: Dim, space: tuple[Dim, ...]) -> tuple[Dim, ...]:
    return (batch, channel, *space) if where.channel == 1 else (batch, *space, channel)


def _dims(where: Layout, space: str) -> tuple[DimFactors, ...]:
    inner: tuple[DimFactors, ...] = tuple((f"{space}{i}",) for i in range(len(where.space)))
    return (("n",), ("c",), *inner) if where.channel == 1 else (("n",), *inner, ("c",))


def _pooled(operation: Operation) -> tuple[Dim, ...]:
    where = _where(operation)
    image = with_rank(operation, 0, where.rank)
    return _image(where, image[0], image[where.channel], tuple(s.result(operation) for s in _spans(operation, image)))


def _pool_type(operation: Operation) -> tuple[TensorType, ...]:
    return (TensorType(operation.operands[0].dtype, _pooled(operation)),)


def _argmax_type(operation: Operation) -> tuple[TensorType, ...]:
    """MaxPoolWithArgmax is channels-last and has no data format."""
    shape = _pooled(operation)
    return TensorType(operation.operands[0].dtype, shape), TensorType(DType(str(operation.attr("Targmax"))), shape)


def _pool_rule(operation: Operation) -> ShardingRule | None:
    if operation.operands[0].shape is None or not operation.results or operation.results[0].shape is None:
        return None
    where = _where(operation)
    image, result = with_rank(operation, 0, where.rank), operation.results[0].shape
    spans = _spans(operation, image)
    space = space_factors(operation, spans, tuple(result[a] for a in where.space))
    factors = (factor("n", image[0]), *space, factor("c", image[where.channel]))
    return ShardingRule(factors, (_dims(where, "s"),), (_dims(where, "s"),))


def _argmax_rule(operation: Operation) -> ShardingRule | None:
    """Positions count through rows and channels of an image, so only the batch divides, and that only if it does not count too.

    The kernel refuses an empty batch."""
    rule = _pool_rule(operation)
    if rule is None or operation.attrs.get("include_batch_in_index") is True:
        return None
    factors = tuple(replace(f, least=1) if f.name == "n" else Factor(f.name, f.size, Kind.WHOLE) for f in rule.factors)
    return ShardingRule(factors, rule.operands, rule.results * 2)


def _pool_localize(operation: Operation, shard: Shard, operands: tuple[TensorType, ...]) -> Localized:
    where = _where(operation)
    if not any(f"s{i}" in shard.start for i in range(len(where.space))):
        return Localized(operation.op, operation.attrs)
    spans = _spans(operation, with_rank(operation, 0, where.rank))
    if not pads_freely(operation, spans):
        return Localized(operation.op, operation.attrs, steps=trimmed(operation, spans, shard, where, (0,)))
    pads = shard_pads(operation, spans, shard)
    attrs: dict[str, Attr] = {k: v for k, v in operation.attrs.items() if k != "explicit_paddings"}
    if not any(any(p) for p in pads):
        return Localized(operation.op, {**attrs, "padding": "VALID"})
    explicit = [0] * (2 * where.rank)
    for axis, (before, after) in zip(where.space, pads, strict=True):
        explicit[2 * axis], explicit[2 * axis + 1] = before, after
    return Localized(operation.op, {**attrs, "padding": "EXPLICIT", "explicit_paddings": tuple(explicit)})


def _pool_flops(operation: Operation) -> KnownDim | None:
    """One operation for each element of each window."""
    return product(operation.results[0].elements, *_window(operation.attrs)) if operation.results else None


def _window(attrs: Mapping[str, Attr]) -> tuple[int, ...]:
    kernel = attrs.get("ksize")
    return tuple(k for k in kernel if isinstance(k, int)) if isinstance(kernel, tuple) else ()


# ---- gradients: batch and channels


def _max_gradient_type(operation: Operation) -> tuple[TensorType, ...]:
    """(image, pooled, gradient) -> gradient of the image."""
    return (TensorType(operation.operands[0].dtype, operation.operands[0].shape),)


def _max_gradient_rule(operation: Operation) -> ShardingRule | None:
    if any(t.shape is None for t in operation.operands):
        return None
    where = _where(operation)
    image, pooled = with_rank(operation, 0, where.rank), with_rank(operation, 1, where.rank)
    small = _dims(where, "o")
    return ShardingRule(_outer_factors(where, image, pooled), (_dims(where, "s"), small, small), (_dims(where, "s"),))


def _outer_factors(where: Layout, image: tuple[Dim, ...], pooled: tuple[Dim, ...]) -> tuple[Factor, ...]:
    large = tuple(Factor(f"s{i}", image[a], Kind.WHOLE) for i, a in enumerate(where.space))
    small = tuple(Factor(f"o{i}", pooled[a], Kind.WHOLE) for i, a in enumerate(where.space))
    return (factor("n", image[0]), *large, *small, factor("c", image[where.channel]))


def _average_gradient_type(operation: Operation) -> tuple[TensorType, ...]:
    """(shape of the image, gradient) -> gradient of the image."""
    shape = shape_from(operation, 0)
    return (TensorType(operation.operands[1].dtype, shape if shape is not None else (None,) * _where(operation).rank),)


def _average_gradient_rule(operation: Operation) -> ShardingRule | None:
    shape = vector_content(operation, 0)
    if shape is None or None in shape or operation.operands[1].shape is None:
        return None
    where = _where(operation)
    operands: tuple[ValueFactors, ...] = (None, _dims(where, "o"))
    return ShardingRule(_outer_factors(where, shape, with_rank(operation, 1, where.rank)), operands, (_dims(where, "s"),))


def _average_gradient_localize(operation: Operation, shard: Shard, operands: tuple[TensorType, ...]) -> Localized:
    where, shape = _where(operation), list(shape_from(operation, 0) or ())
    for name, axis in (("n", 0), ("c", where.channel)):
        shape[axis] = shard.size.get(name, shape[axis])
    return Localized(operation.op, operation.attrs, {0: tuple(d for d in shape if d is not None)})


def _gradient_flops(operation: Operation) -> KnownDim | None:
    return product(operation.operands[-1].elements, *_window(operation.attrs))


def _pool(name: str) -> OpSpec:
    traits = frozenset({Trait.LINEAR}) if name.startswith("Avg") else frozenset[Trait]()
    return OpSpec(name, _pool_type, _pool_rule, traits, flops=_pool_flops, localize=_pool_localize)


def _max_gradient(name: str) -> OpSpec:
    return OpSpec(name, _max_gradient_type, _max_gradient_rule, flops=_gradient_flops)


def _average_gradient(name: str) -> OpSpec:
    return OpSpec(name, _average_gradient_type, _average_gradient_rule, flops=_gradient_flops, localize=_average_gradient_localize)


SPECS: tuple[OpSpec, ...] = (
    _pool("MaxPool"),
    _pool("AvgPool"),
    _pool("MaxPool3D"),
    _pool("AvgPool3D"),
    OpSpec("MaxPoolWithArgmax", _argmax_type, _argmax_rule, flops=_pool_flops),
    _max_gradient("MaxPoolGrad"),
    _max_gradient("MaxPool3DGrad"),
    _average_gradient("AvgPoolGrad"),
    _average_gradient("AvgPool3DGrad"),
)
