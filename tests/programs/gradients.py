"""Steps as a training graph has them: the gradients of convolutions, pools, norms, slices, segments and shapes; and optimizers' slots."""

from __future__ import annotations

import numpy as np

from compiler.ir.dims import Expr
from compiler.ir.graph import Value
from tests.programs.drawn import Drawn, Grade, Step
from tests.programs.layout import NO_MASK, after_batch, kept, numbers, packed_shape
from tests.programs.windows import image

ROUGH = {"grade": Grade.ROUGH, "low": -1e6, "high": 1e6}


def norm_gradient(d: Drawn) -> None:
    """FusedBatchNorm in training, and its gradient from what it saved."""
    value = image(d, 10.0)
    if value is None:
        return
    channels = numbers(d, value)[-1]
    version = d.choose.of(("", "V2", "V3"))
    nothing, scale = d.weight(0), d.weight(channels, low=0.5)
    norm = d.add(f"FusedBatchNorm{version}", (value, scale, d.weight(channels), nothing, nothing), {"epsilon": 0.125}, hidden=True, **ROUGH)
    saved = [Value(norm.node, port) for port in ((3, 4, 5) if version == "V3" else (3, 4))]
    made = d.add(f"FusedBatchNormGrad{version}", (value, value, scale, *saved), {"epsilon": 0.125}, hidden=True, clean=False, **ROUGH)
    for port in range(3):
        d.values.append(Value(made.node, port))


def response_gradient(d: Drawn) -> None:
    value = image(d, 10.0)
    if value is not None:
        made = d.add("LRN", (value,), {"depth_radius": 1}, hidden=True, **ROUGH)
        d.add("LRNGrad", (value, value, made), {"depth_radius": 1}, **ROUGH)


def resize_gradient(d: Drawn) -> None:
    value = image(d, 10.0)
    if value is not None:
        height, width, _ = numbers(d, value)
        made = d.add("ResizeBilinear", (value, d.ints(height + 1, width * 2)), {}, hidden=True, **ROUGH)
        d.add("ResizeBilinearGrad", (made, value), {}, **ROUGH)


def depthwise_gradient(d: Drawn) -> None:
    value = image(d, 10.0)
    if value is None or not isinstance(d.shape(value)[0], Expr):
        return
    height, width, channels = numbers(d, value)
    sizes = packed_shape(d, value, [height, width, channels])
    attrs = {"strides": (1, 1, 1, 1), "padding": "SAME"}
    d.add("DepthwiseConv2dNativeBackpropInput", (sizes, d.weight(2, 2, channels, 1), value), attrs, **ROUGH)


def space_gradient(d: Drawn) -> None:
    """Gradients in three dimensions of space."""
    value = image(d, 10.0)
    if value is None or not isinstance(d.shape(value)[0], Expr):
        return
    height, width, channels = numbers(d, value)
    cube = d.add("ExpandDims", (value, d.scalar(1)), hidden=True, **kept(d, value))
    sizes = packed_shape(d, value, [1, height, width, channels])
    attrs = {"strides": (1, 1, 1, 1, 1), "padding": "SAME"}
    kind = d.choose.integer(0, 3)
    if kind == 0:
        d.add("Conv3DBackpropInputV2", (sizes, d.weight(1, 2, 1, channels, channels), cube), attrs, **ROUGH)
    elif kind == 1:
        d.add("Conv3DBackpropFilterV2", (cube, d.ints(1, 2, 1, channels, channels), cube), attrs, **ROUGH)
    elif kind == 2:
        d.add("AvgPool3DGrad", (sizes, cube), {**attrs, "ksize": (1, 1, 2, 1, 1)}, **ROUGH)
    elif d.known[value].grade >= Grade.SIGNLESS:
        cube = d.cleaned(cube)
        top = d.add("MaxPool3D", (cube,), {**attrs, "ksize": (1, 1, 2, 1, 1)}, hidden=True, **ROUGH)
        d.add("MaxPool3DGrad", (cube, top, cube), {**attrs, "ksize": (1, 1, 2, 1, 1)}, **ROUGH)


def slice_gradient(d: Drawn) -> None:
    value = d.pick("float32", rank=2, where=after_batch)
    if value is not None and isinstance(d.shape(value)[0], Expr):
        (width,) = numbers(d, value)
        masks = {**NO_MASK, "begin_mask": 1, "end_mask": 1}
        shape = packed_shape(d, value, [width + 3])
        begin = d.choose.integer(0, 3)
        d.add("StridedSliceGrad", (shape, d.ints(0, begin), d.ints(0, begin + width), d.ints(1, 1), value),
              {k: v for k, v in masks.items() if v}, low=-1e4, high=1e4)  # fmt: skip


def segment(d: Drawn) -> None:
    """Sums over sorted rows of a constant, and of rows picked from one."""
    width = d.choose.integer(1, 4)
    rows, labels = d.weight(4, width), d.ints(0, 0, 2, 2)
    if d.choose.flag():
        d.add(d.choose.of(("SegmentSum", "SegmentMean", "SegmentMax", "SegmentMin", "SegmentProd")), (rows, labels), **ROUGH)
    else:
        op = d.choose.of(("SparseSegmentSum", "SparseSegmentMean", "SparseSegmentSqrtN"))
        d.add(op, (rows, d.random_ints(0, 3, 4), labels), **ROUGH)


def shape_gradient(d: Drawn) -> None:
    """The axes that a broadcast's gradient sums over: BroadcastGradientArgs of two shapes."""
    left = d.pick("float32", rank=2, where=after_batch)
    if left is not None:
        shape = d.add("Shape", (left,), hidden=True)
        d.add("BroadcastGradientArgs", (shape, d.ints(1, numbers(d, left)[0])), grade=2, clean=True, low=0.0, high=9.0)
        d.add("InvertPermutation", (d.ints(2, 0, 1),), grade=2, low=0.0, high=9.0)


def finite(d: Drawn) -> None:
    value = d.pick("float32", "float64", where=lambda k: k.clean)
    if value is not None:
        d.add(d.choose.of(("CheckNumerics", "CheckNumericsV2")), (value,), {"message": "not finite"})


def within_top(d: Drawn) -> None:
    value = d.pick("float32", rank=2, where=lambda k: after_batch(k) and k.clean and k.grade >= Grade.SIGNLESS)
    if value is None:
        return
    batch, (classes,) = d.shape(value)[0], numbers(d, value)
    targets = d.fits(lambda k: k.type.dtype == "int32" and k.shape == (batch,))
    if targets:
        at = d.add("FloorMod", (d.choose.of(targets), d.scalar(classes)), hidden=True)
        d.add("InTopKV2", (value, at, d.scalar(1)), grade=2, clean=True, low=0.0, high=1.0)
        d.add("InTopK", (value, at), {"k": 2}, grade=2, clean=True, low=0.0, high=1.0)


def bins(d: Drawn) -> None:
    value = d.pick("int32", rank=1)
    if value is not None:
        at = d.add("FloorMod", (value, d.scalar(4)), hidden=True)
        d.add("Bincount", (at, d.scalar(4), d.constant(np.zeros(0, np.float32))), grade=2, low=0.0, high=99.0)


STEPS: tuple[tuple[int, Step], ...] = (
    (2, norm_gradient),
    (1, response_gradient),
    (1, resize_gradient),
    (1, depthwise_gradient),
    (2, space_gradient),
    (2, slice_gradient),
    (1, segment),
    (1, shape_gradient),
    (1, finite),
    (1, within_top),
    (1, bins),
)
