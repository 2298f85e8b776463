"""Steps over images: convolutions, pools, batch-norms, resizes, and the gradients of some."""

from __future__ import annotations

from compiler.ir.dims import Expr
from compiler.ir.graph import Value
from compiler.ir.types import DType
from tests.programs.drawn import Drawn, Grade, Step
from tests.programs.layout import after_batch, kept, numbers, packed_shape


def image(d: Drawn, most: float = 100.0) -> Value | None:
    """A [b, h, w, c] of float32; made from a value of another rank where none is at hand."""
    value = d.pick("float32", rank=4, where=lambda k: after_batch(k) and k.shape[1] * k.shape[2] > 1)  # type: ignore[operator]
    if value is not None:
        return d.tame(value, most)
    flat = d.pick("float32", rank=3, where=after_batch)
    if flat is None:
        return None
    return d.tame(d.add("ExpandDims", (flat, d.scalar(-1)), **kept(d, flat)), most)


def windowed(d: Drawn, height: int, width: int) -> tuple[int, int, dict[str, object]]:
    """(kernel height, kernel width, strides and padding) that fit the image."""
    tall, wide = d.choose.integer(1, min(3, height)), d.choose.integer(1, min(3, width))
    stride = d.choose.of((1, 1, 2))
    across = stride if d.choose.integer(0, 2) else d.choose.of((1, 2))
    return tall, wide, {"strides": (1, stride, across, 1), "padding": d.choose.of(("SAME", "VALID"))}


def conv(d: Drawn) -> None:
    value = image(d)
    if value is None:
        return
    height, width, channels = numbers(d, value)
    tall, wide, attrs = windowed(d, height, width)
    kind = d.choose.integer(0, 5)
    if kind == 1 and attrs["strides"] == (1, 1, 1, 1) and 2 * tall - 1 <= height and 2 * wide - 1 <= width:
        attrs["dilations"] = (1, 2, 2, 1)
    if kind == 2 and "dilations" not in attrs:
        attrs |= {"padding": "EXPLICIT", "explicit_paddings": (0, 0, d.choose.integer(0, 2), 1, 1, d.choose.integer(0, 2), 0, 0)}
    inside = channels
    filters = d.choose.integer(1, 4)
    if kind == 3 and channels % 2 == 0:
        inside, filters = channels // 2, 2 * filters
    most = d.known[value].largest * tall * wide * inside + 1
    weight = d.weight(tall, wide, inside, filters)
    made = d.add("Conv2D", (value, weight), attrs, low=-most, high=most, grade=Grade.ROUGH)  # type: ignore[arg-type]
    if d.choose.flag():
        follow(d, made, filters, most)


def follow(d: Drawn, value: Value, channels: int, most: float) -> None:
    """What comes after a convolution: a bias, a norm, an activation; or the Mul and Add a norm opens into."""
    kind = d.choose.integer(0, 3)
    bounds = {"low": -most * 4 - 4, "high": most * 4 + 4, "grade": Grade.ROUGH}
    if kind == 0:
        value = d.add("BiasAdd", (value, d.weight(channels)), **bounds)  # type: ignore[arg-type]
        d.add("Relu", (value,), low=0.0, high=most * 4 + 4, grade=Grade.ROUGH)
    elif kind == 1:
        batch_norm(d, value)
    else:
        value = d.add("Mul", (value, d.weight(channels)), hidden=kind == 3, **bounds)  # type: ignore[arg-type]
        d.add(d.choose.of(("AddV2", "Sub")), (value, d.weight(channels)), **bounds)  # type: ignore[arg-type]


def depthwise(d: Drawn) -> None:
    value = image(d)
    if value is None:
        return
    height, width, channels = numbers(d, value)
    tall, wide, attrs = windowed(d, height, width)
    attrs["strides"] = d.choose.of(((1, 1, 1, 1), (1, 2, 2, 1)))  # kernels take square strides only
    times = d.choose.integer(1, 2)
    most = d.known[value].largest * tall * wide + 1
    made = d.add("DepthwiseConv2dNative", (value, d.weight(tall, wide, channels, times)), attrs,  # type: ignore[arg-type]
                 low=-most, high=most, grade=Grade.ROUGH)  # fmt: skip
    if d.choose.flag():
        follow(d, made, channels * times, most)


def transposed_conv(d: Drawn) -> None:
    value = image(d)
    if value is None or not isinstance(d.shape(value)[0], Expr):
        return
    height, width, channels = numbers(d, value)
    stride, size, out = d.choose.of((1, 2)), d.choose.integer(1, 3), d.choose.integer(1, 3)
    sizes = packed_shape(d, value, [height * stride, width * stride, out])
    attrs = {"strides": (1, stride, stride, 1), "padding": "SAME"}
    most = d.known[value].largest * size * size * channels + 1
    d.add("Conv2DBackpropInput", (sizes, d.weight(size, size, out, channels), value), attrs, low=-most, high=most, grade=Grade.ROUGH)


def filter_gradient(d: Drawn) -> None:
    value = image(d)
    if value is None:
        return
    height, width, channels = numbers(d, value)
    tall, wide = min(2, height), min(2, width)
    attrs = {"strides": (1, 1, 1, 1), "padding": "SAME"}
    made = d.add("Conv2D", (value, d.weight(tall, wide, channels, 2)), attrs, low=-1e4, high=1e4, grade=Grade.ROUGH)
    if d.choose.flag():
        d.add("Conv2DBackpropFilter", (value, d.ints(tall, wide, channels, 2), made), attrs, low=-1e6, high=1e6, grade=Grade.ROUGH)
    else:
        deep = d.add("DepthwiseConv2dNative", (value, d.weight(tall, wide, channels, 1)), attrs, low=-1e4, high=1e4, grade=Grade.ROUGH)
        d.add("DepthwiseConv2dNativeBackpropFilter", (value, d.ints(tall, wide, channels, 1), deep), attrs,
              low=-1e6, high=1e6, grade=Grade.ROUGH)  # fmt: skip


def pool(d: Drawn) -> None:
    value = image(d)
    if value is None:
        return
    height, width, channels = numbers(d, value)
    tall, wide, attrs = windowed(d, height, width)
    attrs["ksize"] = (1, tall, wide, 1)
    k, kind = d.known[value], d.choose.integer(0, 4)
    if kind < 2:
        d.add("MaxPool", (value,), attrs, grade=min(k.grade, Grade.SIGNLESS))  # type: ignore[arg-type]
    elif kind < 4:
        made = d.add("AvgPool", (value,), attrs, grade=Grade.ROUGH)  # type: ignore[arg-type]
        if d.choose.chance(3):
            shape = packed_shape(d, value, [height, width, channels]) if isinstance(d.shape(value)[0], Expr) else None
            if shape is not None:
                d.add("AvgPoolGrad", (shape, made), attrs, grade=Grade.ROUGH, low=-9e2, high=9e2)  # type: ignore[arg-type]
    elif k.grade >= Grade.SIGNLESS:
        value = d.cleaned(value)
        if d.choose.flag():
            d.add("MaxPoolWithArgmax", (value,), attrs, grade=Grade.SIGNLESS)  # type: ignore[arg-type]
        else:
            made = d.add("MaxPool", (value,), attrs, grade=Grade.SIGNLESS)  # type: ignore[arg-type]
            d.add("MaxPoolGrad", (value, made, made), attrs, grade=Grade.ROUGH, low=-9e2, high=9e2)  # type: ignore[arg-type]


def batch_norm(d: Drawn, value: Value | None = None) -> None:
    value = value if value is not None else image(d)
    if value is None:
        return
    channels, k = numbers(d, value)[-1], d.known[value]
    scale, offset, mean = (d.weight(channels) for _ in range(3))
    variance = d.weight(channels, low=0.1, high=2.0)
    op = d.choose.of(("FusedBatchNormV3", "FusedBatchNormV3", "FusedBatchNormV2", "FusedBatchNorm"))
    most = 5 * (k.largest + 2)
    if d.choose.chance(5):
        nothing = d.weight(0)
        d.add(op, (value, scale, offset, nothing, nothing), {"epsilon": 0.0078125}, low=-1e4, high=1e4, grade=Grade.ROUGH, clean=False)
        del d.values[-(len(d.graph.node(d.values[-1].node).types) - 3) :]  # the saved statistics are the kernel's own business
        return
    d.add(op, (value, scale, offset, mean, variance), {"is_training": False, "epsilon": 0.0078125}, low=-most, high=most, grade=Grade.ROUGH)
    for _ in d.graph.node(d.values[-1].node).types[1:]:
        d.values.pop()


def resize(d: Drawn) -> None:
    value = image(d)
    if value is not None and 0 not in numbers(d, value):
        op = d.choose.of(("ResizeNearestNeighbor", "ResizeBilinear", "ResizeBicubic", "ResizeArea"))
        attrs = d.choose.of(({}, {"half_pixel_centers": True}, {"align_corners": True})) if op in ("ResizeBilinear",) else {}
        sizes = d.ints(d.choose.integer(1, 6), d.choose.integer(1, 6))
        k = d.known[value]
        d.add(op, (value, sizes), attrs, low=-2 * k.largest, high=2 * k.largest,
              grade=k.grade if op == "ResizeNearestNeighbor" else Grade.ROUGH)  # fmt: skip


def space(d: Drawn) -> None:
    """Three dimensions of space."""
    value = image(d)
    if value is None:
        return
    height, _, channels = numbers(d, value)
    cube = d.add("ExpandDims", (value, d.scalar(1)), hidden=True, **kept(d, value))
    padding, most = d.choose.of(("SAME", "VALID")), d.known[value].largest
    kind = d.choose.integer(0, 2)
    tall = min(2, height)
    if kind == 0:
        most = most * tall * channels + 1
        d.add("Conv3D", (cube, d.weight(1, tall, 1, channels, 2)), {"strides": (1, 1, 1, 1, 1), "padding": padding},
              low=-most, high=most, grade=Grade.ROUGH)  # fmt: skip
    else:
        op = "MaxPool3D" if kind == 1 else "AvgPool3D"
        d.add(op, (cube,), {"ksize": (1, 1, tall, 1, 1), "strides": (1, 1, 2, 1, 1), "padding": padding},
              grade=Grade.ROUGH)  # fmt: skip


def local_response(d: Drawn) -> None:
    value = image(d)
    if value is not None:
        d.add("LRN", (value,), {"depth_radius": 1}, grade=Grade.ROUGH)


def half_conv(d: Drawn) -> None:
    """A convolution in another element type; oneDNN pads bfloat16 with its neighbours times zero, which spreads NaN."""
    value = image(d)
    if value is None:
        return
    dtype = d.choose.of(("float64", "bfloat16", "float16"))
    value = d.add("Cast", (d.cleaned(d.tame(value, 10.0)),), {"DstT": DType(dtype)}, hidden=True, grade=d.known[value].grade)
    _, _, channels = numbers(d, value)
    d.add("Conv2D", (value, d.weight(1, 1, channels, 2, dtype=dtype)), {"strides": (1, 1, 1, 1), "padding": "VALID"},
          low=-10.0 * channels - 1, high=10.0 * channels + 1, grade=Grade.ROUGH)  # fmt: skip


STEPS: tuple[tuple[int, Step], ...] = (
    (5, conv),
    (2, depthwise),
    (1, transposed_conv),
    (1, filter_gradient),
    (3, pool),
    (2, batch_norm),
    (1, resize),
    (1, space),
    (1, local_response),
    (1, half_conv),
)
