"""Steps that sum: products, einsums, convolutions, pools, normalisations, reductions, and running sums."""

from __future__ import annotations

import numpy as np

from compiler.ir.dims import Expr
from compiler.ir.graph import Value
from compiler.ir.types import DType
from tests.programs.drawn import FLOATS, Drawn, Grade, Known, Step
from tests.programs.layout import after_batch, kept, numbers, packed_shape

EINSUMS = (
    # (equation, rank of x, shape of the weight by letters: n is x's last size, m the one before, k drawn)
    ("abc,cd->abd", 3, "nk"),
    ("abc,cde->abde", 3, "nkk"),
    ("ab,bc->ac", 2, "nk"),
    ("ab,bc->ca", 2, "nk"),
    ("abc,bc->ab", 3, "mn"),
    ("abc,b->ac", 3, "m"),
    ("...ij,jk->...ik", 3, "nk"),
    ("abcd,cde->abe", 4, "mnk"),
)


def width() -> tuple[int, ...]:
    return (1, 2, 3, 4, 5, 6, 8)


def drawn_width(d: Drawn) -> int:
    return 0 if d.choose.integer(0, 39) == 39 else d.choose.of(width())


def matmul(d: Drawn) -> None:
    value = d.pick(*FLOATS, "int32", "complex64", rank=2, where=after_batch)
    if value is None:
        return
    value = d.tame(value)
    k, (inner,) = d.known[value], numbers(d, value)
    columns, turned = drawn_width(d), d.choose.flag()
    shape = (columns, inner) if turned else (inner, columns)
    dtype = str(k.type.dtype)
    weight = d.random_ints(-3, 3, *shape) if dtype == "int32" else d.weight(*shape, dtype=dtype)
    most = inner * k.largest * max(d.known[weight].largest, 0.01) + 1
    grade = Grade.EXACT if dtype == "int32" else Grade.ROUGH
    attrs = {"transpose_b": True} if turned else {}
    if d.choose.chance(5) and isinstance(k.shape[0], Expr) and dtype in ("float32", "float64"):
        gram(d, value)
        return
    d.add("MatMul", (value, weight), attrs, low=-most, high=most, grade=grade)


def gram(d: Drawn, value: Value) -> None:
    """x' x: the batch is summed over."""
    k = d.known[value]
    others = d.fits(lambda o: o.type.dtype == k.type.dtype and len(o.shape) == 2 and o.shape[0] == k.shape[0])
    other = d.tame(d.choose.of(others))
    most = 8 * k.largest * d.known[other].largest + 1
    d.add("MatMul", (value, other), {"transpose_a": True}, low=-most, high=most, grade=Grade.ROUGH)


def batch_matmul(d: Drawn) -> None:
    value = d.pick("float32", "float64", "float16", "bfloat16", "complex64", least=3, where=lambda k: after_batch(k) and len(k.shape) < 5)
    if value is None:
        return
    value = d.tame(value)
    k, sizes = d.known[value], numbers(d, value)
    dtype, adj_x, adj_y = str(k.type.dtype), d.choose.flag(), d.choose.flag()
    inner = sizes[-2] if adj_x else sizes[-1]

    def fit(o: Known) -> bool:
        batch = len(o.shape) == len(k.shape) and o.shape[:-2] == k.shape[:-2]
        return o.type.dtype == dtype and batch and o.shape[-1 if adj_y else -2] == inner

    others = d.fits(fit)
    if others and d.choose.flag():
        other = d.tame(d.choose.of(others))
    else:
        columns = d.choose.of(width())
        tail = (columns, inner) if adj_y else (inner, columns)
        other = d.weight(*((sizes[0],) if len(sizes) == 3 and d.choose.flag() else ()), *tail, dtype=dtype)
    attrs = {**({"adj_x": True} if adj_x else {}), **({"adj_y": True} if adj_y else {})}
    most = 2 * inner * k.largest * max(d.known[other].largest, 1.0) + 1
    same = d.shape(other)[:-2] == k.shape[:-2]
    options = ("BatchMatMulV2", "BatchMatMulV2", *(("BatchMatMul",) if same else ()), *(("BatchMatMulV3",) if dtype == "float32" else ()))
    op = d.choose.of(options)
    d.add(op, (value, other), {**attrs, **({"Tout": DType(dtype)} if op == "BatchMatMulV3" else {})},
          low=-most, high=most, grade=Grade.ROUGH)  # fmt: skip


def einsum(d: Drawn) -> None:
    equation, rank, letters = d.choose.of(EINSUMS)
    value = d.pick("float32", "float64", rank=rank, where=after_batch)
    if value is None:
        return
    value = d.tame(value)
    k, sizes = d.known[value], numbers(d, value)
    named = {"n": sizes[-1], "m": sizes[-2] if len(sizes) > 1 else 1}
    shape = [named[c] if c in named else d.choose.of(width()) for c in letters]
    most = k.largest * float(np.prod(sizes)) + 1
    d.add("Einsum", (value, d.weight(*shape, dtype=k.type.dtype)), {"equation": equation}, low=-most, high=most, grade=Grade.ROUGH)


REDUCED = ("Sum", "Mean", "Max", "Min", "Prod", "EuclideanNorm")


def reduction(d: Drawn) -> None:
    value = d.pick("float32", "float64", "int32", "bfloat16", "float16", least=1)
    if value is None:
        return
    op = d.choose.of(REDUCED)
    k = d.known[value]
    dtype = str(k.type.dtype)
    if (op == "EuclideanNorm" and dtype not in ("float32", "float64")) or (dtype == "int32" and op in ("Mean", "EuclideanNorm")):
        op = "Sum"
    value = d.tame(value, 2.0 if op == "Prod" else None)
    k = d.known[value]
    axes, count = drawn_axes(d, value)
    attrs = {"keep_dims": True} if d.choose.flag() else {}
    if op in ("Max", "Min"):
        d.add(op, (value, axes), attrs, grade=min(k.grade, Grade.SIGNLESS), low=k.low, high=k.high,
              clean=k.clean and 0 not in k.shape and isinstance(k.shape[0], int))  # fmt: skip
        return
    most = k.largest if op == "Mean" else 2.0 ** min(count, 12) * max(k.largest, 1.0) if op == "Prod" else k.largest * count + 1
    clean = k.clean and (op != "Mean" or (0 not in k.shape and isinstance(k.shape[0], int)))
    d.add(op, (value, axes), attrs, low=-most, high=most, clean=clean, grade=Grade.EXACT if dtype == "int32" else Grade.ROUGH)


def drawn_axes(d: Drawn, value: Value) -> tuple[Value, int]:
    """(axes, at most how many elements are reduced to one): a scalar or a list, negative ones too, none at all once in a while."""
    shape = d.shape(value)
    rank = len(shape)
    chosen = sorted({d.choose.integer(0, rank - 1) for _ in range(d.choose.integer(1, 2))})
    if d.choose.chance(12):
        chosen = []
    count = int(np.prod([n if isinstance(n := shape[a], int) else 8 for a in chosen])) if chosen else 1
    given = [a - rank if d.choose.chance(3) else a for a in chosen]
    if len(given) == 1 and d.choose.flag():
        return d.scalar(given[0]), count
    return d.ints(*given, dtype=d.choose.of(("int32", "int64"))), count


def boolean_reduction(d: Drawn) -> None:
    value = d.pick("bool", least=1)
    if value is not None:
        axes, _ = drawn_axes(d, value)
        d.add(d.choose.of(("Any", "All")), (value, axes), {"keep_dims": True} if d.choose.flag() else {})


def arg_reduction(d: Drawn) -> None:
    value = d.pick("float32", "float64", "int32", least=2, where=lambda k: k.grade >= Grade.SIGNLESS and after_batch(k))
    if value is not None:
        axis = d.choose.integer(1, len(d.shape(value)) - 1)
        out = d.choose.of(("int64", "int32"))
        at = d.scalar(axis - len(d.shape(value)) if d.choose.flag() else axis)
        d.add(d.choose.of(("ArgMax", "ArgMin")), (value, at), {"output_type": DType(out)} if out != "int64" else {},
              grade=Grade.EXACT, clean=True, low=0.0, high=64.0)  # fmt: skip


def running(d: Drawn) -> None:
    op = d.choose.of(("Cumsum", "Cumprod", "CumulativeLogsumexp"))  # the last never exclusive: that starts at the lowest float
    value = d.pick("float32", "float64", "int32" if op != "CumulativeLogsumexp" else "float32", least=1, where=after_batch)
    if value is not None:
        value = d.tame(value, 1.5 if op == "Cumprod" else 100.0)
        k = d.known[value]
        axis = d.choose.integer(-len(k.shape), len(k.shape) - 1)
        if op == "Cumprod" and axis in (0, -len(k.shape)) and len(k.shape) > 1:
            axis = 1
        attrs = {
            **({"exclusive": True} if d.choose.flag() and op != "CumulativeLogsumexp" else {}),
            **({"reverse": True} if d.choose.flag() else {}),
        }
        most = 1e3 if op == "Cumprod" else 32 * k.largest + 10
        d.add(op, (value, d.scalar(axis)), attrs, low=-most, high=most,
              grade=Grade.EXACT if k.type.dtype == "int32" else Grade.ROUGH)  # fmt: skip


def softmax(d: Drawn) -> None:
    value = d.pick(*FLOATS, least=1, where=lambda k: isinstance(k.shape[-1], int) and k.shape[-1] > 0)
    if value is not None:
        op = d.choose.of(("Softmax", "LogSoftmax"))
        value = d.tame(value, 30.0)
        d.add(op, (value,), low=-70.0 if op == "LogSoftmax" else 0.0, high=1.0, grade=Grade.ROUGH)


def cross_entropy(d: Drawn) -> None:
    value = d.pick("float32", rank=2, where=after_batch)
    if value is None:
        return
    value = d.tame(value, 30.0)
    batch, (classes,) = d.shape(value)[0], numbers(d, value)
    labels = d.fits(lambda k: k.type.dtype in ("int32", "int64") and k.shape == (batch,))
    if labels:
        label = d.choose.of(labels)
        dtype = str(d.known[label].type.dtype)
        label = d.add("FloorMod", (label, d.scalar(classes, dtype)), low=0.0, high=float(classes))
        d.add("SparseSoftmaxCrossEntropyWithLogits", (value, label), low=-100.0, high=100.0, grade=Grade.ROUGH)
    else:
        target = d.add("Softmax", (value,), low=0.0, high=1.0, grade=Grade.ROUGH)
        d.add("SoftmaxCrossEntropyWithLogits", (value, target), low=-100.0, high=100.0, grade=Grade.ROUGH)


def squares(d: Drawn) -> None:
    value = d.pick("float32", least=1)
    if value is not None:
        value = d.tame(value, 100.0)
        if d.choose.flag() and len(d.shape(value)) >= 2:
            d.add("BiasAddGrad", (value,), low=-1e5, high=1e5, grade=Grade.ROUGH)
        else:
            d.add("L2Loss", (value,), low=0.0, high=1e7, grade=Grade.ROUGH)


def flatten(d: Drawn) -> None:
    """Keras's Dense on more than two dimensions: Reshape, MatMul, Reshape, by the shape's own arithmetic."""
    value = d.pick("float32", rank=3, where=lambda k: after_batch(k) and isinstance(k.shape[0], Expr))
    if value is not None:
        value = d.tame(value)
        k, (rows, inner) = d.known[value], numbers(d, value)
        columns = d.choose.of(width())
        flat = d.add("Reshape", (value, d.ints(-1, inner)), hidden=True, **kept(d, value))
        most = inner * k.largest + 1
        product = d.add("MatMul", (flat, d.weight(inner, columns)), hidden=True, low=-most, high=most, grade=Grade.ROUGH)
        target = packed_shape(d, value, [rows, columns])
        d.add("Reshape", (product, target), **kept(d, product))


STEPS: tuple[tuple[int, Step], ...] = (
    (6, matmul),
    (3, batch_matmul),
    (2, einsum),
    (4, reduction),
    (1, boolean_reduction),
    (2, arg_reduction),
    (1, running),
    (2, softmax),
    (1, cross_entropy),
    (1, squares),
    (2, flatten),
)
