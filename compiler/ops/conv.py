"""Convolutions and their gradients, in two and three dimensions, grouped and depthwise.

    n s ci, k ci co -> n s co        n, co: parallel; ci: sum; s: halo; groups: parallel, in front of ci and co

2·N·OH·OW·KH·KW·(Cin/g)·Cout FLOPs.  The gradients split n, ci and co only.
"""

from __future__ import annotations

from compiler.ir.dims import Dim, KnownDim, exact_div, mul
from compiler.ir.graph import Attr
from compiler.ir.types import Shape, TensorType
from compiler.ops.rules import ValueFactors, factor, local_shape
from compiler.ops.shapes import agree, misfit, product, shape_from, with_rank
from compiler.ops.spec import DimFactors, Factor, Finish, Kind, Localized, Operation, OpSpec, Shard, ShardingRule, Trait
from compiler.ops.windows import Layout, Window, layout, pads_freely, shard_pads, space_factors, trimmed, windows


def _where(operation: Operation) -> Layout:
    return layout(operation, "NDHWC" if "3D" in operation.op else "NHWC")


def _spans(operation: Operation, image: int = 0, kernel: int = 1) -> tuple[Window, ...]:
    where = _where(operation)
    filters = with_rank(operation, kernel, where.rank)
    return windows(operation, where, with_rank(operation, image, where.rank), filters[: len(where.space)])


def _arranged(where: Layout, batch: DimFactors, channel: DimFactors, space: str) -> tuple[DimFactors, ...]:
    """Factors of an image, spatial ones named by `space` and their number."""
    inner: tuple[DimFactors, ...] = tuple((f"{space}{i}",) for i in range(len(where.space)))
    return (batch, channel, *inner) if where.channel == 1 else (batch, *inner, channel)


def _image(where: Layout, batch: Dim, channel: Dim, space: tuple[Dim, ...]) -> tuple[Dim, ...]:
    return (batch, channel, *space) if where.channel == 1 else (batch, *space, channel)


def _kernel(where: Layout, *rest: DimFactors) -> tuple[DimFactors, ...]:
    return (*((f"k{i}",) for i in range(len(where.space))), *rest)


def _kernel_factors(where: Layout, sizes: tuple[Dim, ...]) -> tuple[Factor, ...]:
    return tuple(Factor(f"k{i}", sizes[i], Kind.WHOLE) for i in range(len(where.space)))


# ---- forward


def _conv_type(operation: Operation) -> tuple[TensorType, ...]:
    where = _where(operation)
    image, filters = with_rank(operation, 0, where.rank), with_rank(operation, 1, where.rank)
    _groups(operation, image[where.channel], filters[-2])
    space = tuple(span.result(operation) for span in _spans(operation))
    return (TensorType(operation.operands[0].dtype, _image(where, image[0], filters[-1], space)),)


def _groups(operation: Operation, channels: Dim, depth: Dim) -> int | None:
    """How many groups: the image's channels over the filter's; None where unknown."""
    if channels is not None and channels == depth:
        return 1
    if not isinstance(channels, int) or not isinstance(depth, int):
        return None
    if depth == 0 or channels % depth:
        raise misfit(operation, f"{channels} channels and a filter of depth {depth}, expected a multiple")
    return channels // depth


def _conv_rule(operation: Operation) -> ShardingRule | None:
    if any(t.shape is None for t in operation.operands) or not operation.results or operation.results[0].shape is None:
        return None
    where = _where(operation)
    image, filters, result = with_rank(operation, 0, where.rank), with_rank(operation, 1, where.rank), operation.results[0].shape
    space = space_factors(operation, _spans(operation), tuple(result[a] for a in where.space))
    channels = _channel_factors(operation, image[where.channel], filters[-2], filters[-1])
    if channels is None:
        return None
    factors, depth, inner, outer = channels
    every = (factor("n", image[0]), *space, *_kernel_factors(where, filters), *factors)
    operands = (_arranged(where, ("n",), inner, "s"), _kernel(where, depth, outer))
    return ShardingRule(every, operands, (_arranged(where, ("n",), outer, "s"),))


Channels = tuple[tuple[Factor, ...], DimFactors, DimFactors, DimFactors]


def _channel_factors(operation: Operation, channels: Dim, depth: Dim, filters: Dim) -> Channels | None:
    """(factors, those of the filter's depth, of the image's channels, of the result's channels)."""
    groups = _groups(operation, channels, depth)
    if groups is None:
        return None
    if groups == 1:
        return (factor("ci", channels, Kind.REDUCTION, "sum", least=1), factor("co", filters, least=1)), ("ci",), ("ci",), ("co",)
    per_group = exact_div(filters, groups) if filters is not None else None
    if per_group is None:
        return None
    factors = (factor("g", groups, least=1), Factor("ci", depth, Kind.WHOLE), Factor("co", per_group, Kind.WHOLE))
    return factors, ("ci",), ("g", "ci"), ("g", "co")


def _conv_localize(operation: Operation, shard: Shard, operands: tuple[TensorType, ...]) -> Localized:
    """A shard of rows pads only what it lacks at the image's border: VALID where nothing is left to pad, else EXPLICIT."""
    where, finish = _where(operation), _reshaped(operation, shard)
    if not any(f"s{i}" in shard.start for i in range(len(where.space))):
        return Localized(operation.op, operation.attrs, finish=finish)
    if not pads_freely(operation, _spans(operation)):
        return Localized(operation.op, operation.attrs, finish=finish, steps=trimmed(operation, _spans(operation), shard, where, (0, 1)))
    pads = shard_pads(operation, _spans(operation), shard)
    if not any(any(p) for p in pads):
        return Localized(operation.op, _without_explicit(operation, "VALID"), finish=finish)
    explicit = [0] * (2 * where.rank)
    for axis, (before, after) in zip(where.space, pads, strict=True):
        explicit[2 * axis], explicit[2 * axis + 1] = before, after
    attrs = {**_without_explicit(operation, "EXPLICIT"), "explicit_paddings": tuple(explicit)}
    return Localized(operation.op, attrs, finish=finish)


def _reshaped(operation: Operation, shard: Shard) -> tuple[Finish, ...]:
    """oneDNN gives an empty batch its operand's shape (TensorFlow 2.21); a shard of a batch known at run time alone may be empty."""
    if isinstance(shard.size.get("n", 1), int) or shard.index["n"] == 0:
        return ()
    rule = _depthwise_rule(operation) if operation.op.startswith("Depthwise") else _conv_rule(operation)
    return (Finish("Reshape", local_shape(operation, rule, shard)),)


def _without_explicit(operation: Operation, padding: str) -> dict[str, Attr]:
    return {**{k: v for k, v in operation.attrs.items() if k != "explicit_paddings"}, "padding": padding}


def _conv_flops(operation: Operation) -> KnownDim | None:
    """2 · result elements · window elements · channels in a group."""
    result = operation.results[0].elements if operation.results else None
    filters = operation.operands[1].shape
    return None if result is None or filters is None else _doubled(product(result, *filters[:-1]))


def _doubled(points: KnownDim | None) -> KnownDim | None:
    return None if points is None else mul(2, points)


# ---- depthwise: channel c yields m results of its own


def _depthwise_type(operation: Operation) -> tuple[TensorType, ...]:
    where = _where(operation)
    image, filters = with_rank(operation, 0, where.rank), with_rank(operation, 1, where.rank)
    channels = agree(operation, image[where.channel], filters[2], "channels")
    space = tuple(span.result(operation) for span in _spans(operation))
    return (TensorType(operation.operands[0].dtype, _image(where, image[0], product(channels, filters[3]), space)),)


def _depthwise_rule(operation: Operation) -> ShardingRule | None:
    if any(t.shape is None for t in operation.operands) or not operation.results or operation.results[0].shape is None:
        return None
    where = _where(operation)
    image, filters, result = with_rank(operation, 0, where.rank), with_rank(operation, 1, where.rank), operation.results[0].shape
    space = space_factors(operation, _spans(operation), tuple(result[a] for a in where.space))
    multiplier: DimFactors = () if filters[3] == 1 else ("m",)
    factors = (factor("n", image[0]), *space, *_kernel_factors(where, filters), factor("c", image[where.channel], least=1))
    factors += (Factor("m", filters[3], Kind.WHOLE),) if multiplier else ()
    operands = (_arranged(where, ("n",), ("c",), "s"), _kernel(where, ("c",), multiplier))
    return ShardingRule(factors, operands, (_arranged(where, ("n",), ("c", *multiplier), "s"),))


def _depthwise_flops(operation: Operation) -> KnownDim | None:
    """2 · result elements · window elements."""
    result = operation.results[0].elements if operation.results else None
    filters = operation.operands[1].shape
    return None if result is None or filters is None else _doubled(product(result, *filters[:-2]))


# ---- gradients: to the image (which is also the transposed convolution) and to the filter


def _sized_type(operation: Operation, sizes: int, dtype: int) -> tuple[TensorType, ...]:
    rank = _where(operation).rank
    shape = shape_from(operation, sizes)
    return (TensorType(operation.operands[dtype].dtype, shape if shape is not None and len(shape) == rank else (None,) * rank),)


def _input_gradient_type(operation: Operation) -> tuple[TensorType, ...]:
    """(sizes, filter, gradient) -> image of `sizes`."""
    return _sized_type(operation, 0, 2)


def _filter_gradient_type(operation: Operation) -> tuple[TensorType, ...]:
    """(image, sizes, gradient) -> filter of `sizes`."""
    return _sized_type(operation, 1, 0)


def _known_shape(operation: Operation, slots: tuple[int, ...]) -> Shape:
    """The result's shape, where it and the operands' in `slots` are known."""
    if not operation.results or any(operation.operands[s].shape is None for s in slots):
        return None
    shape = operation.results[0].shape
    return None if shape is None or None in shape else shape


def _input_gradient_rule(operation: Operation) -> ShardingRule | None:
    """-, k ci co, n o co -> n s ci: co sums.  Grouped: n only."""
    shape = _known_shape(operation, (1, 2))
    if shape is None:
        return None
    where = _where(operation)
    filters, gradient = with_rank(operation, 1, where.rank), with_rank(operation, 2, where.rank)
    depth, depthwise = filters[-2], operation.op.startswith("Depthwise")
    if depthwise:
        return _depthwise_gradient_rule(operation, where, shape, filters, gradient, to_image=True)
    plain = depth == shape[where.channel]
    factors = (
        factor("n", shape[0]),
        *_whole_space(where, shape, "s"),
        *_whole_space(where, gradient, "o"),
        *_kernel_factors(where, filters),
        factor("ci", shape[where.channel], Kind.PARALLEL if plain else Kind.WHOLE, least=1),
        factor("co", filters[-1], Kind.REDUCTION if plain else Kind.WHOLE, "sum", least=1),
        *(() if plain else (Factor("cg", depth, Kind.WHOLE),)),
    )
    operands: tuple[ValueFactors, ...] = (
        None,
        _kernel(where, ("ci",) if plain else ("cg",), ("co",)),
        _arranged(where, ("n",), ("co",), "o"),
    )
    return ShardingRule(factors, operands, (_arranged(where, ("n",), ("ci",), "s"),))


def _filter_gradient_rule(operation: Operation) -> ShardingRule | None:
    """n s ci, -, n o co -> k ci co: n sums.  Grouped: n only."""
    shape = _known_shape(operation, (0, 2))
    if shape is None:
        return None
    where = _where(operation)
    image, gradient = with_rank(operation, 0, where.rank), with_rank(operation, 2, where.rank)
    if operation.op.startswith("Depthwise"):
        return _depthwise_gradient_rule(operation, where, image, shape, gradient, to_image=False)
    plain = shape[-2] == image[where.channel]
    kind = Kind.PARALLEL if plain else Kind.WHOLE
    factors = (
        factor("n", image[0], Kind.REDUCTION, "sum"),
        *_whole_space(where, image, "s"),
        *_whole_space(where, gradient, "o"),
        *_kernel_factors(where, shape),
        factor("ci", image[where.channel], kind, least=1),
        factor("co", shape[-1], kind, least=1),
        *(() if plain else (Factor("cg", shape[-2], Kind.WHOLE),)),
    )
    operands: tuple[ValueFactors, ...] = (_arranged(where, ("n",), ("ci",), "s"), None, _arranged(where, ("n",), ("co",), "o"))
    return ShardingRule(factors, operands, (_kernel(where, ("ci",) if plain else ("cg",), ("co",)),))


def _depthwise_gradient_rule(
    operation: Operation, where: Layout, image: tuple[Dim, ...], filters: tuple[Dim, ...], gradient: tuple[Dim, ...], *, to_image: bool
) -> ShardingRule:
    """Each channel by itself; the filter's gradient sums over n."""
    multiplier: DimFactors = () if filters[3] == 1 else ("m",)
    factors = (
        factor("n", image[0], Kind.PARALLEL if to_image else Kind.REDUCTION, "" if to_image else "sum"),
        *_whole_space(where, image, "s"),
        *_whole_space(where, gradient, "o"),
        *_kernel_factors(where, filters),
        factor("c", filters[2], least=1),
        *((Factor("m", filters[3], Kind.WHOLE),) if multiplier else ()),
    )
    images = _arranged(where, ("n",), ("c",), "s")
    kernels = _kernel(where, ("c",), multiplier)
    gradients = _arranged(where, ("n",), ("c", *multiplier), "o")
    if to_image:
        return ShardingRule(factors, (None, kernels, gradients), (images,))
    return ShardingRule(factors, (images, None, gradients), (kernels,))


def _whole_space(where: Layout, shape: tuple[Dim, ...], prefix: str) -> tuple[Factor, ...]:
    return tuple(Factor(f"{prefix}{i}", shape[a], Kind.WHOLE) for i, a in enumerate(where.space))


def _input_gradient_localize(operation: Operation, shard: Shard, operands: tuple[TensorType, ...]) -> Localized:
    return Localized(operation.op, operation.attrs, {0: local_shape(operation, _input_gradient_rule(operation), shard)})


def _filter_gradient_localize(operation: Operation, shard: Shard, operands: tuple[TensorType, ...]) -> Localized:
    return Localized(operation.op, operation.attrs, {1: local_shape(operation, _filter_gradient_rule(operation), shard)})


def _gradient_flops(operation: Operation) -> KnownDim | None:
    """As many as the forward convolution: 2 · gradient elements · window elements · channels in a group."""
    filters = operation.operands[1].shape if "Input" in operation.op else operation.results[0].shape
    elements = operation.operands[2].elements
    if filters is None or elements is None:
        return None
    inner = filters[:-2] if operation.op.startswith("Depthwise") else filters[:-1]
    return _doubled(product(elements, *inner))


LINEAR = frozenset({Trait.LINEAR})


def _to_image(name: str) -> OpSpec:
    return OpSpec(name, _input_gradient_type, _input_gradient_rule, flops=_gradient_flops, localize=_input_gradient_localize)


def _to_filter(name: str) -> OpSpec:
    return OpSpec(name, _filter_gradient_type, _filter_gradient_rule, LINEAR, flops=_gradient_flops, localize=_filter_gradient_localize)


SPECS: tuple[OpSpec, ...] = (
    OpSpec("Conv2D", _conv_type, _conv_rule, LINEAR, flops=_conv_flops, localize=_conv_localize),
    OpSpec("Conv3D", _conv_type, _conv_rule, LINEAR, flops=_conv_flops, localize=_conv_localize),
    OpSpec("DepthwiseConv2dNative", _depthwise_type, _depthwise_rule, LINEAR, flops=_depthwise_flops, localize=_conv_localize),
    _to_image("Conv2DBackpropInput"),
    _to_image("Conv3DBackpropInputV2"),
    _to_image("DepthwiseConv2dNativeBackpropInput"),
    _to_filter("Conv2DBackpropFilter"),
    _to_filter("Conv3DBackpropFilterV2"),
    _to_filter("DepthwiseConv2dNativeBackpropFilter"),
)
