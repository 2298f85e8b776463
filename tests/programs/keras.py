"""Steps as Keras writes them, several nodes each: layer norm, gelu, attention, batch norm by parts, hard sigmoid, dropout in inference."""

from __future__ import annotations

import math

from compiler.ir.graph import Value
from tests.programs.drawn import Drawn, Grade, Step
from tests.programs.layout import after_batch, numbers

ROUGH = {"grade": Grade.ROUGH}


def layer_norm(d: Drawn) -> None:
    value = d.pick("float32", least=2, where=lambda k: after_batch(k) and k.shape[-1] != 1)
    if value is None:
        return
    value = d.tame(value, 100.0)
    width, axes = numbers(d, value)[-1], d.ints(-1) if d.choose.flag() else d.ints(len(d.shape(value)) - 1)
    most = 2 * d.known[value].largest
    hide = d.choose.integer(0, 3) > 0
    mean = d.add("Mean", (value, axes), {"keep_dims": True}, hidden=True, **ROUGH)
    stopped = d.add("StopGradient", (mean,), hidden=True)
    apart = d.add("SquaredDifference", (value, stopped), hidden=True, low=0.0, high=most * most, **ROUGH)
    variance = d.add("Mean", (apart, axes), {"keep_dims": True}, hidden=hide, low=0.0, high=most * most, **ROUGH)
    epsilon = d.scalar(0.001, "float32")
    root = d.add("Rsqrt", (d.add("AddV2", (variance, epsilon), hidden=True),), hidden=True, low=0.0, high=32.0, **ROUGH)
    scale = d.add("Mul", (root, d.weight(width)), hidden=True, low=-32.0, high=32.0, **ROUGH)
    left = d.add("Mul", (value, scale), hidden=True, low=-32 * most, high=32 * most, **ROUGH)
    right = d.add("Sub", (d.weight(width), d.add("Mul", (mean, scale), hidden=True)), hidden=True, low=-32 * most, high=32 * most, **ROUGH)
    d.add("AddV2", (left, right), low=-32 * most, high=32 * most, **ROUGH)


def gelu(d: Drawn) -> None:
    value = d.pick("float32", least=1)
    if value is None:
        return
    value = d.tame(value, 20.0)
    k = d.known[value]
    bounds = {"low": -k.largest - 1, "high": k.largest + 1, **ROUGH}
    half = d.add("Mul", (d.scalar(0.5, "float32"), value), hidden=True)
    kind = d.choose.integer(0, 2)
    if kind == 0:
        inner = d.add("Erf", (d.add("RealDiv", (value, d.scalar(math.sqrt(2), "float32")), hidden=True),), hidden=True, low=-1.0, high=1.0)
        gate = d.add("AddV2", (inner, d.scalar(1, "float32")), hidden=d.choose.flag(), low=0.0, high=2.0, **ROUGH)
    elif kind == 1:
        negative = d.add("Neg", (value,), hidden=True)
        gate = d.add(
            "Erfc", (d.add("Mul", (negative, d.scalar(math.sqrt(0.5), "float32")), hidden=True),), hidden=True, low=0.0, high=2.0, **ROUGH
        )
    else:
        cube = d.add("Pow", (value, d.scalar(3, "float32")), hidden=True, low=-8e3, high=8e3, **ROUGH)
        inner = d.add("AddV2", (value, d.add("Mul", (d.scalar(0.044715, "float32"), cube), hidden=True)), hidden=True, **ROUGH)
        scaled = d.add("Mul", (d.scalar(math.sqrt(2 / math.pi), "float32"), inner), hidden=True)
        gate = d.add("AddV2", (d.scalar(1, "float32"), d.add("Tanh", (scaled,), hidden=True)), hidden=True, low=0.0, high=2.0, **ROUGH)
    d.add("Mul", (half, gate) if d.choose.flag() else (gate, half), **bounds)


def attention(d: Drawn) -> None:
    """softmax(q k' * scale + mask) v, the heads in the second dimension or none."""
    value = d.pick("float32", rank=3, where=after_batch)
    if value is None:
        return
    value = d.tame(value, 10.0)
    batch_rows, width = numbers(d, value)
    query, key, values = (_projected(d, value, width) for _ in range(3))
    most = width * d.known[query].largest * d.known[key].largest
    scores = d.add("BatchMatMulV2", (query, key), {"adj_y": True}, hidden=True, low=-most, high=most, **ROUGH)
    if d.choose.flag():
        scores = d.add("Mul", (scores, d.scalar(1 / math.sqrt(width), "float32")), hidden=True)
    if d.choose.flag():
        scores = d.add("AddV2", (scores, d.weight(batch_rows, batch_rows)), hidden=True)
    weights = d.add("Softmax", (scores,), hidden=d.choose.flag(), low=0.0, high=1.0, **ROUGH)
    largest = d.known[values].largest
    d.add("BatchMatMulV2", (weights, values), {}, low=-largest - 1, high=largest + 1, **ROUGH)


def _projected(d: Drawn, value: Value, width: int) -> Value:
    if d.choose.flag():
        return value
    most = width * d.known[value].largest + 1
    return d.add("Einsum", (value, d.weight(width, width)), {"equation": "abc,cd->abd"}, hidden=True, low=-most, high=most, **ROUGH)


def norm_by_parts(d: Drawn) -> None:
    """Inference batch-norm as arithmetic: x * (gamma * rsqrt(variance + e)) + (beta - mean * same)"""
    value = d.pick("float32", least=2, where=after_batch)
    if value is None:
        return
    value = d.tame(value)
    width, most = numbers(d, value)[-1], d.known[value].largest
    shifted = d.add("AddV2", (d.weight(width, low=0.1), d.scalar(0.01, "float32")), hidden=True)
    root = d.add("Rsqrt", (shifted,), hidden=True, low=0.0, high=10.0, **ROUGH)
    scale = d.add("Mul", (root, d.weight(width)), hidden=True, low=-10.0, high=10.0)
    left = d.add("Mul", (value, scale), hidden=True, low=-10 * most, high=10 * most, **ROUGH)
    right = d.add("Sub", (d.weight(width), d.add("Mul", (d.weight(width), scale), hidden=True)), hidden=True, low=-11.0, high=11.0)
    d.add("AddV2", (left, right), low=-10 * most - 11, high=10 * most + 11, **ROUGH)


def gated(d: Drawn) -> None:
    """swish, hard sigmoid, hard swish, or a value times its own sigmoid twice"""
    value = d.pick("float32")
    if value is None:
        return
    value = d.tame(value)
    k = d.known[value]
    if d.choose.flag():
        gate = d.add("Sigmoid", (value,), hidden=d.choose.flag(), low=0.0, high=1.0, **ROUGH)
    else:
        six = d.add("Relu6", (d.add("AddV2", (value, d.scalar(3, "float32")), hidden=True),), hidden=True, low=0.0, high=6.0,
                    grade=min(k.grade, Grade.SIGNLESS))  # fmt: skip
        gate = d.add("Mul", (six, d.scalar(1 / 6, "float32")), hidden=True, low=0.0, high=1.0)
    d.add("Mul", (value, gate), low=-k.largest, high=k.largest)


def softmax_by_parts(d: Drawn) -> None:
    value = d.pick("float32", least=2, where=after_batch)
    if value is None:
        return
    value = d.tame(value, 30.0)
    axis = d.choose.integer(1, len(d.shape(value)) - 1)
    top = d.add("Max", (value, d.ints(axis)), {"keep_dims": True}, hidden=True, grade=min(d.known[value].grade, Grade.SIGNLESS))
    powers = d.add("Exp", (d.add("Sub", (value, top), hidden=True),), hidden=True, low=0.0, high=1.0, **ROUGH)
    total = d.add("Sum", (powers, d.ints(axis)), {"keep_dims": True}, hidden=True, low=1.0, high=99.0, **ROUGH)
    d.add("RealDiv", (powers, total), low=0.0, high=1.0, **ROUGH)


def identities(d: Drawn) -> None:
    """What looks like nothing and is not at NaN, infinity or -0.0: x + 0, 0 - x, x * 1, x * 0, x - x, x / x, --x, 1 / (1 / x)."""
    value = d.pick("float32", "float64", where=lambda k: k.grade == Grade.EXACT)
    if value is None:
        return
    k = d.known[value]
    dtype = str(k.type.dtype)
    zero, one = d.scalar(0, dtype), d.scalar(1, dtype)
    pairs = (("AddV2", value, zero), ("Sub", zero, value), ("Sub", value, zero), ("Mul", value, one), ("Mul", value, zero),
             ("Sub", value, value), ("RealDiv", value, one), ("RealDiv", value, value), ("Maximum", value, value), ("Pow", value, one),
             ("MulNoNan", value, zero), ("AddV2", value, d.scalar(-0.0, dtype)))  # fmt: skip
    op, left, right = d.choose.of(pairs)
    grade = Grade.SIGNLESS if op == "Maximum" else Grade.EXACT if op in ("AddV2", "Sub", "Mul") else Grade.ROUGH
    made = d.add(op, (left, right), low=-k.largest - 1, high=k.largest + 1, clean=k.clean and op != "RealDiv", grade=grade)
    if grade == Grade.EXACT and d.choose.flag():
        inverse = d.add("Reciprocal", (made,), hidden=True, clean=False, low=-1e4, high=1e4)
        d.add("Sign", (inverse,), low=-1.0, high=1.0)


STEPS: tuple[tuple[int, Step], ...] = (
    (2, layer_norm),
    (2, gelu),
    (2, attention),
    (2, norm_by_parts),
    (2, gated),
    (1, softmax_by_parts),
    (2, identities),
)
