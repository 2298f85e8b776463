"""Steps that move elements: reshape, transpose, concatenate, cut, pad, gather; and shape arithmetic as Keras writes it."""

from __future__ import annotations

import numpy as np

from compiler.ir.dims import Dim, Expr
from compiler.ir.graph import ShapeAttr, Value
from compiler.ir.types import DType, TensorType
from tests.programs.drawn import FLOATS, INTEGERS, Drawn, Known, Step

MOVED = (*FLOATS, *INTEGERS, "bool", "string", "complex64")
PLAIN = ("float32", "float64", "int32", "int64", "bool", "float16")
NO_MASK = {"begin_mask": 0, "end_mask": 0, "ellipsis_mask": 0, "new_axis_mask": 0, "shrink_axis_mask": 0}


def after_batch(k: Known) -> bool:
    """Every size but the first is a number above zero."""
    return all(isinstance(n, int) and n > 0 for n in k.shape[1:])


def numbers(d: Drawn, value: Value) -> list[int]:
    return [n for n in d.shape(value)[1:] if isinstance(n, int)]


def grouped(d: Drawn, sizes: list[int]) -> list[int]:
    """The same elements under another shape: neighbours merged, or divided in two."""
    found: list[int] = []
    for size in sizes:
        if found and d.choose.flag():
            found[-1] *= size
        else:
            found.append(size)
    last = found.pop() if found else 1
    divisors = [n for n in range(1, last + 1) if last % n == 0]
    first = d.choose.of(divisors)
    return [*found, last] if first == 1 else [*found, first, last // first]


def reshape(d: Drawn) -> None:
    value = d.pick(*MOVED, least=1, where=lambda k: after_batch(k) and k.shape[0] is not None)
    if value is None:
        return
    batch, rest = d.shape(value)[0], numbers(d, value)
    into = grouped(d, rest)
    kind = d.choose.integer(0, 3)
    if kind == 0 and isinstance(batch, int) and batch:
        into = grouped(d, [batch, *rest])
        target = d.ints(*into)
        true: tuple[Dim, ...] = tuple(into)
    elif kind == 1 and len(rest) and not isinstance(batch, int):
        flat = d.choose.of([n for n in range(1, rest[0] + 1) if rest[0] % n == 0])
        target = d.ints(-1, *rest[1:], flat) if flat == rest[0] else d.ints(-1, flat, *rest[1:])
        true = (batch, *rest[1:], flat) if flat == rest[0] else (batch * (rest[0] // flat), flat, *rest[1:])
        if flat == rest[0]:
            true = (batch, *rest[1:], flat)
    elif kind == 2:
        target = packed_shape(d, value, into)
        true = (batch, *into)
    else:
        target, true = d.ints(-1, *into), (batch, *into)
    dtype = d.known[value].type.dtype
    d.add("Reshape", (value, target), true=(TensorType(dtype, true),), **kept(d, value))


def kept(d: Drawn, value: Value) -> dict[str, object]:
    """What a move of elements keeps, whatever the operands that say where to."""
    k = d.known[value]
    return {"grade": k.grade, "low": k.low, "high": k.high, "clean": k.clean}


def batch_of(d: Drawn, value: Value) -> Value:
    """Shape, then StridedSlice: the first size as a scalar."""
    shape = d.add("Shape", (value,), hidden=True)
    first = {"shrink_axis_mask": 1}
    return d.add("StridedSlice", (shape, d.ints(0), d.ints(1), d.ints(1)), first, hidden=d.choose.flag(), low=0.0, high=9.0)


def packed_shape(d: Drawn, value: Value, rest: list[int]) -> Value:
    """Pack(batch, rest...)"""
    sizes = [d.scalar(n) for n in rest]
    return d.add("Pack", (batch_of(d, value), *sizes), {}, hidden=True)


def transpose(d: Drawn) -> None:
    value = d.pick(*MOVED, least=2)
    if value is not None:
        rank = len(d.shape(value))
        order = list(range(rank))
        for i in range(rank - 1, 0, -1):
            j = d.choose.integer(0, i)
            order[i], order[j] = order[j], order[i]
        op = "ConjugateTranspose" if d.known[value].type.dtype == "complex64" else "Transpose"
        d.add(op, (value, d.ints(*order, dtype=d.choose.of(("int32", "int64")))), **kept(d, value))


def expand(d: Drawn) -> None:
    value = d.pick(*MOVED)
    if value is None:
        return
    shape = d.shape(value)
    ones = [i for i, n in enumerate(shape) if n == 1]
    if ones and d.choose.flag():
        axes = () if d.choose.chance(3) and all(isinstance(n, int) for n in shape) else (d.choose.of(ones),)
        d.add("Squeeze", (value,), {"squeeze_dims": axes} if axes else {}, **kept(d, value))
    elif len(shape) < 5:
        d.add("ExpandDims", (value, d.scalar(d.choose.integer(-len(shape) - 1, len(shape)))), **kept(d, value))


def concat(d: Drawn) -> None:
    value = d.pick(*MOVED, least=1)
    if value is None:
        return
    k = d.known[value]
    axis = d.choose.integer(0, len(k.shape) - 1)

    def fit(o: Known) -> bool:
        same = len(o.shape) == len(k.shape) and all(i == axis or a == b for i, (a, b) in enumerate(zip(o.shape, k.shape, strict=True)))
        return o.type.dtype == k.type.dtype and same and None not in o.shape

    if None in k.shape:
        return
    parts = [d.choose.of(d.fits(fit)) for _ in range(d.choose.integer(2, 3))]
    at = d.scalar(axis - len(k.shape) if d.choose.flag() else axis)
    best = {"grade": min(d.known[p].grade for p in parts), "clean": all(d.known[p].clean for p in parts)}
    best |= {"low": min(d.known[p].low for p in parts), "high": max(d.known[p].high for p in parts)}
    if d.choose.chance(5) and axis == axis % len(k.shape):
        d.add("Concat", (d.scalar(axis), *parts), {}, **best)
    else:
        d.add("ConcatV2", (*parts, at), {}, **best)


def pack(d: Drawn) -> None:
    value = d.pick(*MOVED, where=lambda k: len(k.shape) < 4 and None not in k.shape)
    if value is None:
        return
    k = d.known[value]
    if d.choose.flag() or not k.shape:
        parts = [d.choose.of(d.fits(lambda o: o.type == k.type)) for _ in range(d.choose.integer(1, 3))]
        axis = d.choose.integer(-len(k.shape) - 1, len(k.shape))
        best = {"grade": min(d.known[p].grade for p in parts), "clean": all(d.known[p].clean for p in parts)}
        d.add("Pack", parts, {"axis": axis} if axis else {}, **best, low=min(d.known[p].low for p in parts),
              high=max(d.known[p].high for p in parts))  # fmt: skip
        return
    axes = [i for i, n in enumerate(k.shape) if isinstance(n, int) and 0 < n < 5]
    if axes:
        axis = d.choose.of(axes)
        size = k.shape[axis]
        assert isinstance(size, int)
        d.add("Unpack", (value,), {"num": size, **({"axis": axis - len(k.shape) if d.choose.flag() else axis} if axis else {})},
              **kept(d, value))  # fmt: skip


def split(d: Drawn) -> None:
    value = d.pick(*MOVED, least=1, where=lambda k: any(isinstance(n, int) and n > 0 for n in k.shape))
    if value is None:
        return
    shape = d.shape(value)
    axis = d.choose.of([i for i, n in enumerate(shape) if isinstance(n, int) and n > 0])
    size = shape[axis]
    assert isinstance(size, int)
    if d.choose.flag():
        parts = d.choose.of([n for n in range(1, size + 1) if size % n == 0 and n < 5])
        d.add("Split", (d.scalar(axis), value), {"num_split": parts}, **kept(d, value))
        return
    cuts = sorted(d.choose.integer(0, size) for _ in range(d.choose.integer(1, 2)))
    sizes = [b - a for a, b in zip([0, *cuts], [*cuts, size], strict=True)]
    given = [-1 if i == 0 and d.choose.flag() else n for i, n in enumerate(sizes)]
    at = axis - len(shape) if d.choose.flag() else axis
    d.add("SplitV", (value, d.ints(*given), d.scalar(at)), {"num_split": len(sizes)}, **kept(d, value))


def strided_slice(d: Drawn) -> None:
    value = d.pick(*MOVED, least=1, where=lambda k: all(isinstance(n, Expr) or (isinstance(n, int) and n > 0) for n in k.shape))
    if value is None:
        return
    masks = dict(NO_MASK)
    begin, end, strides = [], [], []
    axis = 0
    shape = d.shape(value)
    while axis < len(shape) and len(begin) < 5:
        bit = 1 << len(begin)
        size = shape[axis]
        kind = d.choose.integer(0, 5)
        if kind == 1 and not masks["ellipsis_mask"]:
            masks["ellipsis_mask"] |= bit
            begin.append(0), end.append(0), strides.append(1)
            break
        if kind == 2:
            masks["new_axis_mask"] |= bit
            begin.append(0), end.append(0), strides.append(1)
            if len(shape) + len(begin) > 5:
                break
            continue
        if kind == 3 and isinstance(size, int):
            masks["shrink_axis_mask"] |= bit
            begin.append(d.choose.integer(-size, size - 1)), end.append(0), strides.append(1)
        elif isinstance(size, int) and kind > 3:
            begin.append(d.choose.integer(-size - 1, size)), end.append(d.choose.integer(-size - 1, size + 1))
            strides.append(d.choose.of((1, 1, 2, -1, -2)))
            masks["begin_mask"] |= bit * d.choose.integer(0, 1)
            masks["end_mask"] |= bit * d.choose.integer(0, 1)
        else:
            masks["begin_mask"] |= bit
            masks["end_mask"] |= bit
            begin.append(0), end.append(0), strides.append(d.choose.of((1, 1, 1, -1)))
        axis += 1
    d.add("StridedSlice", (value, d.ints(*begin), d.ints(*end), d.ints(*strides)),
          {k: v for k, v in masks.items() if v}, **kept(d, value))  # fmt: skip


def slice_(d: Drawn) -> None:
    value = d.pick(*PLAIN, least=1, where=after_batch)
    if value is not None:
        sizes = numbers(d, value)
        starts = [d.choose.integer(0, n) for n in sizes]
        lengths = [-1 if d.choose.flag() else d.choose.integer(0, n - s) for n, s in zip(sizes, starts, strict=True)]
        d.add("Slice", (value, d.ints(0, *starts), d.ints(-1, *lengths)), **kept(d, value))


def pad(d: Drawn) -> None:
    value = d.pick("float32", "int32", "float64", "float16", least=1, where=lambda k: after_batch(k) and len(k.shape) < 5)
    if value is None:
        return
    sizes, k = numbers(d, value), d.known[value]
    edges = [[0, 0], *([d.choose.integer(0, 2), d.choose.integer(0, 2)] for _ in sizes)]
    kind = d.choose.integer(0, 2)
    if kind == 1:
        fill = d.scalar(3, k.type.dtype)
        d.add("PadV2", (value, d.constant(np.array(edges, np.int32)), fill), low=min(k.low, 3.0), high=max(k.high, 3.0))
    elif kind == 2 and k.type.dtype in ("float32", "int32"):
        mode = d.choose.of(("SYMMETRIC", "REFLECT"))
        edges = [[min(e, max(0, n - (mode == "REFLECT"))) for e in edge] for edge, n in zip(edges, [1, *sizes], strict=True)]
        edges[0] = [0, 0]
        d.add("MirrorPad", (value, d.constant(np.array(edges, np.int32))), {"mode": mode}, **kept(d, value))
    else:
        d.add("Pad", (value, d.constant(np.array(edges, np.int32))), low=min(k.low, 0.0), high=max(k.high, 0.0), grade=k.grade,
              clean=k.clean)  # fmt: skip


def repeat(d: Drawn) -> None:
    value = d.pick(*PLAIN, least=1, where=lambda k: len(k.shape) < 5)
    if value is None:
        return
    shape = d.shape(value)
    kind = d.choose.integer(0, 2)
    if kind == 0:
        counts = [1, *(d.choose.integer(1, 2) for _ in shape[1:])]
        d.add("Tile", (value, d.ints(*counts)), **kept(d, value))
    elif kind == 1:
        axes = sorted({d.choose.integer(0, len(shape) - 1) for _ in range(2)})
        d.add("ReverseV2", (value, d.ints(*axes)), **kept(d, value))
    elif all(isinstance(n, int) for n in shape):
        to = [d.choose.integer(1, 3) if n == 1 else n for n in shape]
        d.add("BroadcastTo", (value, d.ints(2, *(n for n in to if isinstance(n, int)))), **kept(d, value))


def shape_facts(d: Drawn) -> None:
    """Sizes as values: integers that depend on shapes only."""
    value = d.pick(*MOVED)
    if value is None:
        return
    kind = d.choose.integer(0, 4)
    if kind == 0:
        out = d.choose.of(("int32", "int64"))
        d.add("Shape", (value,), {"out_type": DType(out)} if out != "int32" else {}, grade=2, clean=True, low=0.0, high=99.0)
    elif kind == 1:
        d.add(d.choose.of(("Size", "Rank")), (value,), grade=2, clean=True, low=0.0, high=9999.0)
    elif kind == 2 and d.shape(value) and isinstance(d.shape(value)[0], Expr):
        count = d.add("Range", (d.scalar(0), batch_of(d, value), d.scalar(1)), grade=2, clean=True, low=0.0, high=9.0)
        d.add("Cast", (count,), {"DstT": DType("float32")})
    elif kind == 3 and d.shape(value) and isinstance(d.shape(value)[0], Expr):
        d.add(
            "Fill", (packed_shape(d, value, [d.choose.integer(1, 4)]), d.scalar(0.75, "float32")), low=0.75, high=0.75, grade=2, clean=True
        )
    else:
        d.add(
            "ShapeN",
            (value, d.choose.of(d.fits(lambda k: k.type.dtype == d.known[value].type.dtype))),
            grade=2,
            clean=True,
            low=0.0,
            high=99.0,
        )


def dynamic_broadcast(d: Drawn) -> None:
    """BroadcastTo(weight, BroadcastArgs(Shape(x), [1, n]))"""
    value = d.pick("float32", rank=2, where=after_batch)
    if value is not None:
        width = numbers(d, value)[0]
        shape = d.add("BroadcastArgs", (d.add("Shape", (value,), hidden=True), d.ints(1, width)), hidden=True)
        weight = d.weight(1, width)
        d.add("BroadcastTo", (weight, shape), true=(TensorType(DType("float32"), d.shape(value)),), **kept(d, weight))


def many(d: Drawn) -> None:
    values = [v for v in (d.pick(*MOVED), d.pick(*MOVED)) if v is not None]
    if values:
        d.add("IdentityN", values, grade=min(d.known[v].grade for v in values))


def ensure(d: Drawn) -> None:
    value = d.pick(*PLAIN, least=1)
    if value is not None:
        shape = ShapeAttr(tuple(n if isinstance(n, int) else None for n in d.shape(value)))
        d.add("EnsureShape", (value,), {"shape": shape}, true=(d.known[value].type,))


def blocks(d: Drawn) -> None:
    value = d.pick("float32", rank=4, where=after_batch)
    if value is None:
        return
    height, width, channels = numbers(d, value)
    kind = d.choose.integer(0, 2)
    if kind == 0 and height % 2 == 0 and width % 2 == 0:
        d.add("SpaceToDepth", (value,), {"block_size": 2}, **kept(d, value))
    elif kind == 1 and channels % 4 == 0:
        d.add("DepthToSpace", (value,), {"block_size": 2}, **kept(d, value))
    else:
        edges = np.array([[0, height % 2], [width % 2, 0]], np.int32)
        there = d.add("SpaceToBatchND", (value, d.ints(2, 2), d.constant(edges)), **kept(d, value))
        d.add("BatchToSpaceND", (there, d.ints(2, 2), d.constant(edges)), true=(d.known[value].type,), **kept(d, value))


STEPS: tuple[tuple[int, Step], ...] = (
    (4, reshape),
    (3, transpose),
    (3, expand),
    (3, concat),
    (2, pack),
    (2, split),
    (3, strided_slice),
    (1, slice_),
    (2, pad),
    (2, repeat),
    (2, shape_facts),
    (1, dynamic_broadcast),
    (1, many),
    (1, ensure),
    (1, blocks),
)
