"""Steps that look things up: gathers, scatters, one-hots, segments, top-k, sizes known only when they run; random draws, strings."""

from __future__ import annotations

import numpy as np

from compiler.ir.graph import Value
from compiler.ir.types import DType, TensorType
from tests.programs.drawn import Drawn, Grade, Step
from tests.programs.layout import after_batch, kept, numbers, packed_shape

INDEX = ("int32", "int64")


def indices(d: Drawn, below: int, rank: int | None = None) -> Value | None:
    """Integers in 0..below-1, of a value by FloorMod or a constant."""
    value = d.pick(*INDEX, rank=rank)
    if value is None or d.choose.chance(4):
        shape = [d.choose.integer(1, 4) for _ in range(rank if rank is not None else 1)]
        return d.random_ints(0, below - 1, *shape) if below else None
    dtype = str(d.known[value].type.dtype)
    return d.add("FloorMod", (value, d.scalar(below, dtype)), hidden=True, low=0.0, high=float(below))


def gather(d: Drawn) -> None:
    rows, columns = d.choose.integer(1, 5), d.choose.integer(1, 4)
    at = indices(d, rows)
    if at is None or len(d.shape(at)) > 3:
        return
    table = d.weight(rows, columns)
    if d.choose.flag():
        d.add("GatherV2", (table, at, d.scalar(0)), **kept(d, table))
    else:
        d.add("Gather", (table, at), **kept(d, table))


def gather_axis(d: Drawn) -> None:
    value = d.pick("float32", "int32", "string", least=2, where=after_batch)
    if value is None:
        return
    sizes = numbers(d, value)
    axis = d.choose.integer(1, len(sizes))
    batch = d.shape(value)[0]
    same = [v for v in d.fits(lambda k: k.type.dtype in INDEX and len(k.shape) >= 1 and k.shape[0] == batch) if len(d.shape(v)) < 3]
    if same and d.choose.flag():
        at = d.choose.of(same)
        dtype = str(d.known[at].type.dtype)
        at = d.add("FloorMod", (at, d.scalar(sizes[axis - 1], dtype)), hidden=True, low=0.0, high=64.0)
        d.add("GatherV2", (value, at, d.scalar(axis)), {"batch_dims": 1}, **kept(d, value))
        return
    at = d.random_ints(0, sizes[axis - 1] - 1, d.choose.integer(1, 3))
    d.add("GatherV2", (value, at, d.scalar(axis - len(sizes) - 1)), **kept(d, value))


def gather_nd(d: Drawn) -> None:
    value = d.pick("float32", least=2, where=after_batch)
    if value is not None:
        size = numbers(d, value)[0]
        pairs = np.array([[0, size - 1], [0, 0]], np.int32)
        if isinstance(d.shape(value)[0], int):
            d.add("GatherNd", (value, d.constant(pairs)), **kept(d, value))


def one_hot(d: Drawn) -> None:
    value = d.pick(*INDEX, where=lambda k: len(k.shape) < 4)
    if value is not None:
        depth = d.choose.integer(1, 4)
        dtype = d.choose.of(("float32", "int32", "bool"))
        on, off = (d.constant(np.array(v, DType(dtype).numpy)) for v in (1, 0))
        axis = d.choose.integer(-1, len(d.shape(value)))
        d.add("OneHot", (value, d.scalar(depth), on, off), {"axis": axis} if axis != -1 else {}, low=0.0, high=1.0)


def top(d: Drawn) -> None:
    value = d.pick(
        "float32", "int32", least=1, where=lambda k: k.grade >= Grade.SIGNLESS and after_batch(k) and isinstance(k.shape[-1], int)
    )
    if value is not None:
        value = d.cleaned(value)
        last = d.shape(value)[-1]
        assert isinstance(last, int)
        count = d.choose.integer(1, last) if last else 0
        name = d.add("TopKV2", (value, d.scalar(count)), **kept(d, value)).node
        at = Value(name, 1)
        d.known[at] = d.known[at].__class__(d.known[at].type, Grade.EXACT, 0.0, float(max(last, 1)))
        if d.choose.flag():
            d.values.remove(Value(name))  # only the second output is read


def segments(d: Drawn) -> None:
    value = d.pick("float32", rank=2, where=after_batch)
    if value is None:
        return
    batch = d.shape(value)[0]
    labels = d.fits(lambda k: k.type.dtype in INDEX and k.shape == (batch,))
    if not labels:
        return
    value = d.tame(value, 3.0)
    label = d.choose.of(labels)
    label = d.add("FloorMod", (label, d.scalar(3, str(d.known[label].type.dtype))), hidden=True, low=0.0, high=3.0)
    op = d.choose.of(("UnsortedSegmentSum", "UnsortedSegmentProd", "UnsortedSegmentMax", "UnsortedSegmentMin"))
    made = d.add(op, (value, label, d.scalar(3)), low=-1e3, high=1e3, grade=Grade.ROUGH, hidden=op[-3:] in ("Max", "Min"), clean=False)
    if op[-3:] in ("Max", "Min"):  # an empty segment has the lowest or the highest float
        d.tame(d.add("Maximum", (made, d.scalar(-9.0, "float32")), low=-9.0, high=1e9, grade=Grade.ROUGH))


def scatter(d: Drawn) -> None:
    value = d.pick("float32", rank=2, where=lambda k: after_batch(k) and k.shape[0] is not None)
    if value is None:
        return
    k, (columns,) = d.known[value], numbers(d, value)
    at = d.constant(np.array([[0]], np.int32))
    op = d.choose.of(("TensorScatterUpdate", "TensorScatterAdd", "TensorScatterSub", "TensorScatterMax", "TensorScatterMin"))
    base = d.weight(3, columns)
    update = d.weight(1, columns)
    d.add(op, (base, at, update), low=-2.0, high=2.0)
    d.add("ScatterNd", (d.constant(np.array([[1], [3]], np.int32)), d.weight(2, columns), d.ints(5, columns)), low=-1.0, high=1.0)
    if d.choose.flag():
        d.add("UnsortedSegmentSum", (d.tame(base), d.ints(0, 2, 0), d.scalar(3)), low=-3.0, high=3.0, grade=Grade.ROUGH)
    del k


def sized_when_run(d: Drawn) -> None:
    """Where, Unique: the result's size depends on the values."""
    if d.choose.flag():
        value = d.pick("bool", least=1)
        if value is not None:
            d.add("Where", (value,), clean=True, low=0.0, high=9.0)
        return
    value = d.pick(*INDEX, rank=1)
    if value is not None:
        name = d.add(d.choose.of(("Unique", "UniqueWithCounts")), (value,)).node
        d.known[Value(name)] = d.known[Value(name)].__class__(d.known[Value(name)].type, Grade.EXACT, *(-1e9, 1e9))


def counts(d: Drawn) -> None:
    value = d.pick("int32", least=1, where=lambda k: len(k.shape) < 3)
    if value is not None:
        value = d.add("FloorMod", (value, d.scalar(4)), hidden=True, low=0.0, high=4.0)
        nothing = d.weight(0)
        d.add("DenseBincount", (value, d.scalar(4), nothing), grade=2, low=0.0, high=99.0)


def band(d: Drawn) -> None:
    value = d.pick("float32", least=2, where=after_batch)
    if value is not None:
        most = min(2, *numbers(d, value)[-2:])
        low, high = d.scalar(d.choose.integer(-1, most), "int64"), d.scalar(d.choose.integer(-1, most), "int64")
        k = d.known[value]
        if len(k.shape) > 2:
            d.add("MatrixBandPart", (value, low, high), low=min(k.low, 0.0), high=max(k.high, 0.0), grade=k.grade)


def random(d: Drawn) -> None:
    """Stateful draws have seeds, so that two runs of one program draw the same; each has its own stream."""
    kind = d.choose.integer(0, 7)
    shape = d.ints(*(d.choose.integer(1, 4) for _ in range(2)))
    value = d.pick("float32", rank=2, where=after_batch)
    if value is not None and d.choose.flag():
        shape = packed_shape(d, value, numbers(d, value))
    seeds = {"seed": d.choose.integer(1, 3), "seed2": d.choose.integer(1, 3)}
    float32 = {"dtype": DType("float32")}
    if kind == 0:
        d.add(d.choose.of(("RandomUniform", "RandomStandardNormal", "TruncatedNormal")), (shape,), {**seeds, **float32},
              low=-6.0, high=6.0, clean=True, grade=2)  # fmt: skip
    elif kind == 1:
        d.add("RandomUniformInt", (shape, d.scalar(0), d.scalar(9)), seeds, low=0.0, high=9.0, clean=True, grade=2)
    elif kind == 2:
        op = d.choose.of(("StatelessRandomUniform", "StatelessRandomNormal", "StatelessTruncatedNormal"))
        d.add(op, (shape, d.ints(1, d.choose.integer(1, 3))), {}, low=-6.0, high=6.0, clean=True, grade=2)
    elif kind == 3:
        key = d.add("StatelessRandomGetKeyCounter", (d.ints(7, d.choose.integer(1, 3)),), hidden=True)
        d.add(d.choose.of(("StatelessRandomUniformV2", "StatelessRandomNormalV2")), (shape, key, Value(key.node, 1), d.scalar(1)), {},
              low=-6.0, high=6.0, clean=True, grade=2)  # fmt: skip
    elif kind == 4:
        constant = d.weight(4, 2)
        d.add("RandomShuffle", (constant,), seeds, **kept(d, constant))
        d.add("Multinomial", (constant, d.scalar(3)), seeds, low=0.0, high=2.0, clean=True, grade=2)
    elif kind == 5:
        d.add("StatelessRandomUniformInt", (shape, d.ints(3, 4), d.scalar(0), d.scalar(5)), {}, low=0.0, high=5.0, clean=True, grade=2)
    elif kind == 6:
        counted(d, shape)
    else:
        free = d.add("RandomUniform", (shape,), float32, hidden=True, low=0.0, high=1.0, clean=True)  # no seed: its values are nobody's
        d.add("Less", (free, d.scalar(2, "float32")), low=0.0, high=1.0, clean=True, grade=2)


def counted(d: Drawn, shape: Value) -> None:
    """The stateless draws by key and counter, and their keys."""
    known = {"clean": True, "grade": 2, "low": -6.0, "high": 9.0}
    op = d.choose.of(("StatelessRandomGetKeyCounter", "StatelessRandomGetKeyCounterAlg"))
    key = d.add(op, (d.ints(7, d.choose.integer(1, 3)),), hidden=True)
    algorithm = d.add("StatelessRandomGetAlg", (), {}, hidden=True)
    source = (shape, key, Value(key.node, 1), Value(key.node, 2) if op.endswith("Alg") else algorithm)
    kind = d.choose.integer(0, 3)
    if kind == 0:
        d.add("StatelessRandomUniformIntV2", (*source, d.scalar(0), d.scalar(9)), {}, **known)
    elif kind == 1:
        d.add("StatelessTruncatedNormalV2", source, {}, **known)
    elif kind == 2:
        d.add("StatelessRandomUniformFullIntV2", source, {"dtype": DType("int32")}, **{**known, "low": -3e9, "high": 3e9})
    else:
        d.add("StatelessRandomUniformFullInt", (shape, d.ints(1, 2)), {"dtype": DType("int32")}, **{**known, "low": -3e9, "high": 3e9})


def strings(d: Drawn) -> None:
    """Ops without an entry: whatever they are, they are left alone."""
    value = d.pick("string")
    if value is None:
        number = d.pick("int32", "int64", "bool")
        if number is not None:
            d.add("AsString", (number,), {}, true=(TensorType(DType("string"), d.shape(number)),))
        return
    shape = d.shape(value)
    text, whole = (TensorType(DType("string"), shape),), (TensorType(DType("int64"), shape),)
    kind = d.choose.integer(0, 3)
    if kind == 0:
        others = d.fits(lambda k: k.type.dtype == "string" and k.shape == shape)
        d.add("StringJoin", (value, d.choose.of(others)), {"separator": "-"}, true=text)
    elif kind == 1:
        d.add("StringLength", (value,), {}, true=(TensorType(DType("int32"), shape),), low=0.0, high=99.0, clean=True)
    elif kind == 2:
        d.add("StringToHashBucketFast", (value,), {"num_buckets": 7}, true=whole, low=0.0, high=7.0, clean=True)
    else:
        d.add(d.choose.of(("StringUpper", "StringLower", "StringStrip")), (value,), {}, true=text)


def opaque(d: Drawn) -> None:
    """Numeric ops without an entry."""
    value = d.pick("float32", least=1, where=after_batch)
    if value is not None:
        k = d.known[value]
        d.add("Roll", (value, d.ints(1), d.ints(len(k.shape) - 1)), {}, true=(k.type,), **kept(d, value))


STEPS: tuple[tuple[int, Step], ...] = (
    (2, gather),
    (2, gather_axis),
    (1, gather_nd),
    (2, one_hot),
    (2, top),
    (1, segments),
    (1, scatter),
    (1, sized_when_run),
    (1, counts),
    (1, band),
    (2, random),
    (2, strings),
    (1, opaque),
)
