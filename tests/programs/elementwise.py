"""Steps of one element at a time: arithmetic, functions, comparisons, casts, selections, their gradients."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from compiler.ir.graph import Value
from compiler.ir.types import DType
from tests.programs.drawn import FLOATS, INFINITE, INTEGERS, Drawn, Grade, Known, Step, broadcast_fits

WIDE = ("float32", "float64")
SIGNED = ("int8", "int16", "int32", "int64")
SMOOTH = ("Neg", "Abs", "Square", "Relu", "Relu6", "LeakyRelu", "Identity", "StopGradient", "PreventGradient", "Snapshot", "ZerosLike",
          "OnesLike")  # fmt: skip
"""The same bits wherever they are computed, and a small change of the operand is a small change of the result."""
DECIDING = ("Sign", "Floor", "Ceil", "Round", "Rint")
DOMAINS: Mapping[str, tuple[float, float, float]] = {
    # op: lowest operand, highest operand, largest result in between
    "Tanh": (-INFINITE, INFINITE, 1), "Sigmoid": (-INFINITE, INFINITE, 1), "Softsign": (-INFINITE, INFINITE, 1),
    "Erf": (-INFINITE, INFINITE, 1), "Erfc": (-INFINITE, INFINITE, 2), "Atan": (-INFINITE, INFINITE, 2), "Sin": (-50, 50, 1),
    "Cos": (-50, 50, 1), "Softplus": (-30, 30, 31), "Elu": (-30, 30, 30), "Selu": (-30, 30, 33), "Exp": (-6, 6, 410),
    "Expm1": (-6, 6, 410), "Sinh": (-6, 6, 210), "Cosh": (-6, 6, 210), "Asinh": (-1e4, 1e4, 11), "Tan": (-1, 1, 1.6),
    "Log": (0.1, INFINITE, 10), "Log1p": (-0.5, INFINITE, 10), "Sqrt": (0.0, INFINITE, 110), "Rsqrt": (0.1, INFINITE, 4),
    "Reciprocal": (0.1, INFINITE, 10), "Inv": (0.1, INFINITE, 10), "Asin": (-0.9, 0.9, 1.6), "Acos": (-0.9, 0.9, 3.2),
    "Atanh": (-0.9, 0.9, 1.6), "Acosh": (1.5, INFINITE, 11), "Erfinv": (-0.9, 0.9, 1.3), "Ndtri": (0.05, 0.95, 1.8),
    "Lgamma": (0.1, 50, 200), "Digamma": (0.5, 50, 5),
}  # fmt: skip
NO_HALF = ("Erfinv", "Ndtri", "Asin", "Acos", "Atan", "Sinh", "Cosh", "Asinh", "Acosh", "Atanh", "Tan", "Lgamma", "Digamma", "Inv")
NOT_DOUBLE_ONLY = ("Relu", "Relu6", "LeakyRelu", "Elu", "Selu", "Softplus", "Softsign")
BINARY = ("AddV2", "Sub", "Mul", "Maximum", "Minimum", "SquaredDifference", "Add", "RealDiv", "Div", "DivNoNan", "MulNoNan", "FloorDiv",
          "FloorMod", "Mod", "TruncateMod", "Pow", "Atan2", "Xdivy", "Xlogy", "Xlog1py", "NextAfter")  # fmt: skip
BOTH_HALVES = ("AddV2", "Sub", "Mul", "Maximum", "Minimum", "RealDiv", "SquaredDifference")
INTEGER_BINARY = ("AddV2", "Sub", "Mul", "Maximum", "Minimum", "Add", "SquaredDifference")
COMPARE = ("Less", "LessEqual", "Greater", "GreaterEqual", "Equal", "NotEqual")
GRADIENTS = ("Relu6Grad", "LeakyReluGrad", "EluGrad", "SeluGrad", "SoftplusGrad", "SoftsignGrad", "SigmoidGrad", "TanhGrad", "ReluGrad")
INVERSE_GRADIENTS = ("SqrtGrad", "RsqrtGrad", "ReciprocalGrad", "InvGrad")


def smooth(d: Drawn) -> None:
    value = d.pick(*FLOATS)
    if value is not None:
        op = d.choose.of(SMOOTH)
        value = d.tame(value) if op == "Square" else value
        k = d.known[value]
        signless = op in ("Relu", "Relu6")
        attrs = {"alpha": 0.25} if op == "LeakyRelu" and d.choose.flag() else {}
        low, high = {"Abs": (0.0, k.largest), "Square": (0.0, k.largest**2), "Relu": (0.0, max(k.high, 0.0)), "Relu6": (0.0, 6.0),
                     "ZerosLike": (0.0, 0.0), "OnesLike": (1.0, 1.0)}.get(op, (-k.largest, k.largest))  # fmt: skip
        grade = min(k.grade, Grade.SIGNLESS) if signless else k.grade
        constant = op in ("ZerosLike", "OnesLike")
        d.add(op, (value,), attrs, low=low, high=high, grade=Grade.EXACT if constant else grade, clean=constant or k.clean)


def deciding(d: Drawn) -> None:
    value = d.pick(*WIDE, where=lambda k: k.grade >= Grade.SIGNLESS)
    if value is not None:
        k = d.known[value]
        d.add(d.choose.of(DECIDING), (value,), low=-k.largest - 1, high=k.largest + 1)


def function(d: Drawn) -> None:
    op = d.choose.of(tuple(DOMAINS))
    value = d.pick(*(WIDE if op in NO_HALF else FLOATS))
    if value is not None:
        low, high, most = DOMAINS[op]
        value = d.within(d.tame(value), low, high)
        d.add(op, (value,), low=-most, high=most, grade=Grade.ROUGH)


def partner(d: Drawn, left: Value, *, exact: bool = False) -> Value:
    """Something of the same element type that broadcasts with it: another value, or a constant of some rank."""
    shape, dtype = d.shape(left), d.known[left].type.dtype

    def fit(k: Known) -> bool:
        return k.type.dtype == dtype and broadcast_fits(shape, k.shape) and (not exact or k.grade >= Grade.SIGNLESS)

    others = d.fits(fit)
    if others and d.choose.integer(0, 2) == 0:
        return d.choose.of(others[::-1])
    tail = [n if isinstance(n, int) else 1 for n in shape]
    keep = d.choose.integer(0, len(tail))
    sizes = [1 if d.choose.chance(4) else n for n in tail[len(tail) - keep :]]
    return d.weight(*sizes, dtype=dtype) if dtype in FLOATS else d.random_ints(0 if dtype == "uint8" else -3, 7, *sizes, dtype=dtype)


def ordered(d: Drawn, left: Value, right: Value) -> tuple[Value, Value]:
    return (right, left) if d.choose.chance(3) else (left, right)


def binary(d: Drawn) -> None:
    op = d.choose.of(BINARY)
    dtypes = FLOATS if op in BOTH_HALVES else WIDE
    exact = op in ("FloorDiv", "FloorMod", "Mod", "TruncateMod", "Atan2", "NextAfter", "DivNoNan", "MulNoNan", "Xdivy", "Xlogy", "Xlog1py")
    least = Grade.EXACT if op in ("Atan2", "NextAfter") else Grade.SIGNLESS if exact else Grade.ROUGH
    value = d.pick(*dtypes, where=lambda k: k.grade >= least)
    if value is None:
        return
    left, right = ordered(d, d.tame(value), d.tame(partner(d, value, exact=exact)))
    if op in ("Atan2", "NextAfter") and d.known[right].grade + d.known[left].grade < 2 * Grade.EXACT:
        return
    if op in ("RealDiv", "Div", "FloorDiv", "FloorMod", "Mod", "TruncateMod", "Xdivy", "DivNoNan", "Xlogy", "Xlog1py"):
        right = d.away_from_zero(right)
    if op == "Pow":
        left, right = d.away_from_zero(d.within(left, -3, 3)), d.within(right, -3, 3)
    a, b = d.known[left], d.known[right]
    most = a.largest + b.largest
    product = a.largest * max(b.largest, 1 / b.low if b.low > 0 else 1)
    if op in ("Mul", "MulNoNan", "RealDiv", "Div", "DivNoNan", "FloorDiv", "Xdivy", "Xlogy", "Xlog1py"):
        most = product * (12 if op.startswith("Xlog") else 1) + 1
    most = 4096.0 if op == "Pow" else 4.0 if op == "Atan2" else most * most if op == "SquaredDifference" else most
    grade = min(a.grade, b.grade)
    if op in ("Maximum", "Minimum", "FloorMod", "Mod"):
        grade = min(grade, Grade.SIGNLESS)
    if op in ("Pow", "Atan2", "Xlogy", "Xlog1py", "Xdivy", "RealDiv", "Div", "DivNoNan", "FloorDiv"):
        grade = Grade.ROUGH
    d.add(op, (left, right), low=-most, high=most, grade=grade)


def integers(d: Drawn) -> None:
    value = d.pick(*INTEGERS)
    if value is None:
        return
    k = d.known[value]
    other = partner(d, value)
    kind = d.choose.integer(0, 4)
    if kind == 0:
        op = d.choose.of(("Neg", "Abs", "Sign", "Square", "Invert", "Identity") if k.type.dtype in ("int32", "int64") else ("Invert",))
        d.add(op, (value,), low=-INFINITE, high=INFINITE)
    elif kind == 1:
        divisor = d.scalar(d.choose.integer(1, 5), k.type.dtype)
        d.add(d.choose.of(("FloorDiv", "FloorMod", "TruncateDiv", "TruncateMod") if k.type.dtype in ("int32", "int64") else ("FloorDiv",)),
              (value, divisor), low=-INFINITE, high=INFINITE)  # fmt: skip
    elif kind == 2:
        d.add(d.choose.of(("BitwiseAnd", "BitwiseOr", "BitwiseXor")), ordered(d, value, other), low=-INFINITE, high=INFINITE)
    elif kind == 3:
        d.add(d.choose.of(("LeftShift", "RightShift")), (value, d.scalar(d.choose.integer(0, 4), k.type.dtype)),
              low=-INFINITE, high=INFINITE)  # fmt: skip
    else:
        ops = INTEGER_BINARY if k.type.dtype in ("int32", "int64") else INTEGER_BINARY[:3]
        d.add(d.choose.of(ops), ordered(d, value, other), low=-INFINITE, high=INFINITE)


def compare(d: Drawn) -> None:
    value = d.pick("float32", "float64", "int32", "int64", where=lambda k: k.grade >= Grade.SIGNLESS)
    if value is not None:
        other = partner(d, value, exact=True)
        if d.known[other].grade >= Grade.SIGNLESS:
            close = d.known[value].type == d.known[other].type and d.known[value].type.dtype in WIDE
            op = d.choose.of((*COMPARE, "ApproximateEqual") if close else COMPARE)
            d.add(op, ordered(d, value, other), low=0.0, high=1.0, grade=Grade.EXACT, clean=True)


def special(d: Drawn) -> None:
    value = d.pick(*WIDE)
    if value is not None:
        d.add(d.choose.of(("IsNan", "IsInf", "IsFinite")), (value,), low=0.0, high=1.0, grade=Grade.EXACT, clean=True)


def logic(d: Drawn) -> None:
    value = d.pick("bool")
    if value is None:
        compare(d)
        return
    shape = d.shape(value)
    others = d.fits(lambda k: k.type.dtype == "bool" and broadcast_fits(shape, k.shape))
    if d.choose.flag():
        d.add("LogicalNot", (value,))
    else:
        d.add(d.choose.of(("LogicalAnd", "LogicalOr")), (value, d.choose.of(others)))


def select(d: Drawn) -> None:
    condition = d.pick("bool")
    if condition is None:
        return
    shape = d.shape(condition)
    left = d.pick(where=lambda k: k.type.dtype in (*WIDE, "int32", "string", "bool") and broadcast_fits(shape, k.shape))
    if left is None:
        return
    a = d.known[left]
    same = d.fits(lambda k: k.type == a.type and k.shape == a.shape)
    right = d.choose.of(same)
    b = d.known[right]
    old = a.shape == shape or (len(a.shape) >= 1 and shape == a.shape[:1])
    d.add("Select" if old and d.choose.flag() else "SelectV2", (condition, left, right),
          low=min(a.low, b.low), high=max(a.high, b.high), clean=a.clean and b.clean, grade=min(a.grade, b.grade))  # fmt: skip


def cast(d: Drawn) -> None:
    value = d.pick(*FLOATS, "bool", *INTEGERS, "complex64")
    if value is None:
        return
    k = d.known[value]
    source = str(k.type.dtype)
    if source == "complex64":
        parts(d, value)
        return
    options = [t for t in ("float32", "float64", "bfloat16", "float16", "int32", "int64", "int8", "uint8", "int16", "bool") if t != source]
    if source in FLOATS and k.grade < Grade.SIGNLESS:
        options = options[:4]
    target = d.choose.of([t for t in options if t != source])
    if source in FLOATS and target not in FLOATS:
        value = d.tame(d.cleaned(value), 100.0)
        value = d.add("Abs", (value,), low=0.0, high=100.0, grade=Grade.EXACT) if target == "uint8" else value
    if source in INTEGERS and target in FLOATS:
        value = d.add("BitwiseAnd", (value, d.scalar(15, source)), low=0.0, high=15.0)
    if target in FLOATS:
        value = d.tame(value, 30.0) if target == "float16" else value
    k = d.known[value]
    if k.grade < Grade.SIGNLESS and target in ("bool",):
        return
    d.add("Cast", (value,), {"DstT": DType(target)}, low=min(k.low, 0.0), high=max(k.high, 1.0))


def parts(d: Drawn, value: Value | None = None) -> None:
    value = value if value is not None else d.pick("complex64")
    if value is None:
        real = d.pick("float32")
        if real is not None:
            real = d.tame(d.cleaned(real) if d.choose.flag() else real)
            d.add("Complex", ordered(d, real, partner(d, real)))
        return
    op = d.choose.of(("Real", "Imag", "ComplexAbs", "Conj", "Angle", "AddV2", "Mul"))
    k = d.known[value]
    if op in ("AddV2", "Mul"):
        if k.largest < 100 and (k.clean or op == "AddV2"):  # (inf + inf j)^2 is infinite or NaN, by position in the vector
            d.add(op, (value, value), low=-2 * k.largest**2, high=2 * k.largest**2, grade=Grade.ROUGH if op == "Mul" else k.grade)
    elif op != "Angle" or k.grade == Grade.EXACT:
        most = math.pi if op == "Angle" else 2 * k.largest
        d.add(op, (value,), low=-most, high=most, grade=Grade.ROUGH if op in ("ComplexAbs", "Angle") else k.grade)


def bias(d: Drawn) -> None:
    value = d.pick("float32", "float64", least=2, where=lambda k: isinstance(k.shape[-1], int))
    if value is not None:
        k = d.known[value]
        width = d.static(value, -1)
        assert width is not None
        d.add(d.choose.of(("BiasAdd", "BiasAdd", "BiasAddV1")), (d.tame(value), d.weight(width, dtype=k.type.dtype)),
              low=-k.largest - 1, high=k.largest + 1)  # fmt: skip


def sum_of_many(d: Drawn) -> None:
    value = d.pick(*WIDE, "int32")
    if value is not None:
        k = d.known[value]
        same = d.fits(lambda o: o.type == k.type and o.shape == k.shape)
        terms = [d.tame(d.choose.of(same)) for _ in range(d.choose.integer(1, 4))]
        grade = min(d.known[t].grade for t in terms) if len(terms) < 3 else Grade.ROUGH
        most = sum(d.known[t].largest for t in terms)
        d.add("AddN", terms, low=-most, high=most, grade=Grade.EXACT if k.type.dtype == "int32" else grade)


def gradient(d: Drawn) -> None:
    op = d.choose.of((*GRADIENTS, *INVERSE_GRADIENTS))
    least = Grade.SIGNLESS if op in GRADIENTS and op not in ("SigmoidGrad", "TanhGrad", "SoftplusGrad", "SoftsignGrad") else Grade.ROUGH
    value = d.pick("float32", where=lambda k: k.grade >= least)
    if value is None:
        return
    k = d.known[value]
    same = d.choose.of(d.fits(lambda o: o.type == k.type and o.shape == k.shape))
    value, other = d.within(d.tame(value), -10, 10), d.within(d.tame(same), -10, 10)
    if op in INVERSE_GRADIENTS:
        value = d.away_from_zero(value)
    operands = (value, other) if op in ("SigmoidGrad", "TanhGrad", *INVERSE_GRADIENTS) else (other, value)
    if d.known[operands[1] if op not in ("SigmoidGrad", "TanhGrad", *INVERSE_GRADIENTS) else value].grade < least:
        return
    d.add(op, operands, low=-1.2e4, high=1.2e4, grade=Grade.ROUGH)


def clip(d: Drawn) -> None:
    value = d.pick("float32")
    if value is not None:
        k = d.known[value]
        d.add("ClipByValue", (value, d.scalar(-1.5, "float32"), d.scalar(np.float32(2.5), "float32")), low=-1.5, high=2.5,
              grade=min(k.grade, Grade.SIGNLESS))  # fmt: skip


STEPS: tuple[tuple[int, Step], ...] = (
    (4, smooth),
    (4, binary),
    (4, function),
    (2, integers),
    (1, deciding),
    (2, compare),
    (1, special),
    (1, logic),
    (2, select),
    (3, cast),
    (2, parts),
    (2, bias),
    (1, sum_of_many),
    (1, gradient),
    (1, clip),
)
