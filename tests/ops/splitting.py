"""Runs an op whole and in shards through TensorFlow's own kernels: what a sharding rule claims, checked.

A `Case` is an op with concrete operands.  `whole(case)` runs it; `joined(case, factor, parts)` slices the operands as the rule says, runs
each shard as `localize` says, and joins the results by concatenation or by the factor's combine.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import tensorflow as tf
from tensorflow.python.eager import context, execute

from compiler.ir.dims import Dim, KnownDim, evaluate, symbol
from compiler.ir.graph import Attr, ShapeAttr
from compiler.ir.sharding import MeshAxis, extent
from compiler.ir.types import DType, TensorType
from compiler.ir.weights import Tensor
from compiler.ops import opdefs, queries
from compiler.ops.attributes import complete
from compiler.ops.spec import Content, DimFactors, Factor, Kind, Localized, Operation, Shard, ShardingRule, Size, Step

Arrays = tuple[np.ndarray, ...]


@dataclass(frozen=True)
class Case:
    """`constant` are the slots whose values the compiler may see; `tolerance` is relative, 0 means bit for bit."""

    op: str
    operands: Arrays
    attrs: Mapping[str, Attr] = field(default_factory=dict)
    constant: tuple[int, ...] = ()
    tolerance: float = 0.0

    def __str__(self) -> str:
        shapes = ",".join(str(a.shape).replace(" ", "") for a in self.operands)
        attrs = ",".join(f"{k}={v}" for k, v in sorted(self.attrs.items()) if isinstance(v, int | str | tuple))
        return f"{self.op}({shapes}){{{attrs}}}"


def dtype_of(array: np.ndarray) -> DType:
    return DType("string" if array.dtype == object else str(array.dtype))


def run(op: str, operands: Arrays, attrs: Mapping[str, Attr]) -> Arrays:
    """The op's results from its kernel, eagerly; attributes left out take the OpDef's defaults."""
    whole_attrs = complete(op, attrs, [dtype_of(a) for a in operands])
    flat = [item for name, value in sorted(whole_attrs.items()) for item in (name, _plain(value))]
    count = opdefs.output_arity(op, whole_attrs)
    found = execute.execute(op.encode(), count, [tf.constant(a) for a in operands], tuple(flat), context.context())
    return tuple(t.numpy() for t in found)


def _plain(value: Attr) -> object:
    """An attribute as the eager runtime takes it."""
    if isinstance(value, DType):
        return tf.dtypes.as_dtype(str(value)).as_datatype_enum
    if isinstance(value, ShapeAttr):
        return tf.TensorShape(value.shape)
    return [_plain(v) for v in value] if isinstance(value, tuple) else value


def operation(case: Case, results: Arrays | None = None, symbolic: Mapping[int, str] | None = None) -> Operation:
    """The case as its spec sees it; sizes in `symbolic`, also where a constant spells them, become symbols."""
    names = symbolic or {}
    types = tuple(TensorType(dtype_of(a), tuple(_dim(d, names) for d in a.shape)) for a in case.operands)
    attrs = complete(case.op, case.attrs, [t.dtype for t in types])

    def constant(slot: int) -> np.ndarray | None:
        slot %= len(case.operands)
        return case.operands[slot] if slot in case.constant else None

    contents = tuple(_content(a, names) if names and s in case.constant else None for s, a in enumerate(case.operands))
    op = Operation(case.op.lower(), case.op, attrs, types, (), constant, contents)
    if results is None:
        return op
    recorded = queries.infer(op) if names else tuple(TensorType(dtype_of(a), a.shape) for a in results)
    return replace(op, results=recorded)


def _content(array: np.ndarray, names: Mapping[int, str]) -> Content:
    if array.ndim > 1 or array.dtype.kind != "i":
        return None
    return _dim(int(array), names) if array.ndim == 0 else tuple(_dim(int(v), names) for v in array)


def _dim(size: int, symbolic: Mapping[int, str]) -> Dim:
    return symbol(symbolic[size]) if size in symbolic else size


def whole(case: Case) -> Arrays:
    return run(case.op, case.operands, case.attrs)


SIZES = {"b": 7}
SYMBOLS = {7: "b"}


def value(dim: Dim) -> int:
    assert dim is not None
    return evaluate(dim, SIZES)


def joined(case: Case, op: Operation, name: str, parts: int) -> Arrays:
    """The whole's results, out of `parts` shards of factor `name`."""
    rule = queries.rule(op)
    assert rule is not None
    factor = rule.factor(name)
    assert factor.size is not None
    shards = [_shard(op, case, rule, factor, i, parts, *extent(factor.size, MeshAxis("x", parts), i)) for i in range(parts)]
    return tuple(_join(dims, factor, [s[0][port] for s in shards], shards[0][1]) for port, dims in enumerate(rule.results))


def _shard(
    op: Operation, case: Case, rule: ShardingRule, factor: Factor, index: int, parts: int, start: KnownDim, size: KnownDim
) -> tuple[Arrays, Localized]:
    shard = Shard({factor.name: index}, {factor.name: parts}, {factor.name: start}, {factor.name: size})
    local = [_slice(array, dims, rule, factor, value(start), value(size)) for array, dims in zip(case.operands, rule.operands, strict=True)]
    localized = queries.localize(op, shard, tuple(TensorType(dtype_of(a), a.shape) for a in local))
    if localized.steps:
        return _run_steps(localized.steps, local), localized
    for slot, content in localized.contents.items():
        spelled = [value(c) for c in content] if isinstance(content, tuple) else value(content)
        local[slot] = np.array(spelled, case.operands[slot].dtype)
    found = run(localized.op, tuple(local), localized.attrs)
    _check_inferred(Case(localized.op, tuple(local), localized.attrs, case.constant), found)
    return found, localized


def _run_steps(steps: tuple[Step, ...], operands: list[np.ndarray]) -> Arrays:
    """Several ops that are one shard."""
    made: dict[str, Arrays] = {}
    for step in steps:
        values = []
        for what in step.operands:
            if isinstance(what, Size):
                spelled = [value(c) for c in what.content] if isinstance(what.content, tuple) else value(what.content)
                values.append(np.array(spelled, what.dtype.numpy))
            else:
                values.append(what.array if isinstance(what, Tensor) else made[what][0] if isinstance(what, str) else operands[what])
        made[step.name] = run(step.op, tuple(values), step.attrs)
    return made[steps[-1].name]


def _check_inferred(case: Case, found: Arrays) -> None:
    inferred = queries.infer(operation(case))
    for type_, array in zip(inferred, found, strict=True):
        assert type_.dtype == dtype_of(array), (case.op, type_, array.dtype)
        assert type_.shape is None or len(type_.shape) == array.ndim, (case.op, type_, array.shape)
        assert all(d is None or d == n for d, n in zip(type_.shape or (), array.shape, strict=False)), (case.op, type_, array.shape)


def check_inferred(case: Case, found: Arrays) -> None:
    """`infer` agrees with the results: wholly with static operands, and at b = 7 where every 7 is the symbol b."""
    _check_inferred(case, found)
    for type_, array in zip(queries.infer(operation(case, symbolic=SYMBOLS)), found, strict=True):
        for dim, size in zip(type_.shape or (), array.shape, strict=False):
            assert dim is None or evaluate(dim, SIZES) == size, (case.op, str(type_), array.shape)


def _slice(array: np.ndarray, dims: tuple[DimFactors, ...] | None, rule: ShardingRule, factor: Factor, start: int, size: int) -> np.ndarray:
    for axis, names in enumerate(dims or ()):
        if factor.name not in names:
            continue
        minor = int(np.prod([value(rule.factor(n).size) for n in names[1:]], dtype=np.int64))
        low, high = start * minor, (start + size) * minor
        if factor.kind is Kind.HALO:
            before, after, stride = factor.halo
            low, high = max(0, start * stride - before), min(array.shape[axis], (start + size - 1) * stride + 1 + after)
        array = np.take(array, range(low, high), axis)
    return array


COMBINES = {
    "sum": tf.raw_ops.AddV2, "prod": tf.raw_ops.Mul, "max": tf.raw_ops.Maximum, "min": tf.raw_ops.Minimum,
    "any": tf.raw_ops.LogicalOr, "all": tf.raw_ops.LogicalAnd,
}  # fmt: skip


def _join(dims: tuple[DimFactors, ...] | None, factor: Factor, parts: list[np.ndarray], localized: Localized) -> np.ndarray:
    axes = [axis for axis, names in enumerate(dims or ()) if factor.name in names]
    if axes:
        return np.concatenate(parts, axes[0])
    if factor.kind is not Kind.REDUCTION or dims is None:
        for part in parts[1:]:
            np.testing.assert_array_equal(part, parts[0])
        return parts[0]
    total = parts[0]
    for part in parts[1:]:
        total = COMBINES[factor.combine](x=total, y=part).numpy()
    for finish in localized.finish:
        total = getattr(tf.raw_ops, finish.op)(x=total, y=np.array(value(finish.content), total.dtype)).numpy()
    return total


def assert_same(found: Arrays, expected: Arrays, tolerance: float) -> None:
    for a, b in zip(found, expected, strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape, (a.dtype, a.shape, b.dtype, b.shape)
        if not tolerance or a.dtype.kind not in "fc":
            np.testing.assert_array_equal(a, b)
            if a.dtype.kind == "f":
                np.testing.assert_array_equal(np.signbit(a[~np.isnan(a)]), np.signbit(b[~np.isnan(b)]))
        else:
            np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * _scale(b))


def _scale(array: np.ndarray) -> float:
    finite = np.abs(array[np.isfinite(array)])
    return float(finite.max()) * 0.1 if finite.size else 0.0


def drawn(seed: int, *shape: int, low: int = -4, high: int = 5, dtype: str = "float32") -> np.ndarray:
    """Small integers: their sums and products are exact in float32, so any order of addition gives the same bits."""
    return np.random.default_rng(seed).integers(low, high, shape).astype(dtype)


def reals(seed: int, *shape: int, dtype: str = "float32") -> np.ndarray:
    return np.random.default_rng(seed).uniform(0.1, 0.9, shape).astype(dtype)


def all_splits(op: Operation) -> Iterator[tuple[Factor, int]]:
    """Every factor that may be divided, into 2 and 3 shards."""
    rule = queries.rule(op)
    for factor in () if rule is None else rule.splits():
        yield from ((factor, parts) for parts in (2, 3) if factor.divides_into(parts))
