"""Contractions: MatMul, batched MatMul, Einsum.  `m k, k n -> m n` at 2·m·n·k FLOPs; any batch, m or n is parallel, k sums."""

from __future__ import annotations

from dataclasses import replace

from compiler.ir.dims import Dim, KnownDim, mul
from compiler.ir.types import DType, TensorType
from compiler.ops.rules import factor
from compiler.ops.shapes import agree, broadcast, dtype_attr, misfit, product, with_rank
from compiler.ops.spec import DimFactors, Kind, Operation, OpSpec, ShardingRule, Trait, einsum_rule


def _flag(operation: Operation, *names: str) -> bool:
    return any(operation.attrs.get(name) is True for name in names)


def _transposed(dims: tuple[Dim, Dim], swap: bool) -> tuple[Dim, Dim]:
    return (dims[1], dims[0]) if swap else dims


# ---- MatMul


def _matmul_sizes(operation: Operation) -> dict[str, Dim]:
    left, right = with_rank(operation, 0, 2), with_rank(operation, 1, 2)
    m, k = _transposed((left[0], left[1]), _flag(operation, "transpose_a"))
    inner, n = _transposed((right[0], right[1]), _flag(operation, "transpose_b"))
    return {"m": m, "n": n, "k": agree(operation, k, inner, "inner dimensions")}


def _matmul_type(operation: Operation) -> tuple[TensorType, ...]:
    sizes = _matmul_sizes(operation)
    return (TensorType(_result_dtype(operation), (sizes["m"], sizes["n"])),)


def _result_dtype(operation: Operation) -> DType:
    return dtype_attr(operation, "Tout") if "Tout" in operation.attrs else operation.operands[0].dtype


def _matmul_rule(operation: Operation) -> ShardingRule | None:
    if any(t.shape is None for t in operation.operands):
        return None
    left = "k m" if _flag(operation, "transpose_a") else "m k"
    right = "n k" if _flag(operation, "transpose_b") else "k n"
    return einsum_rule(f"{left}, {right} -> m n", _matmul_sizes(operation))


# ---- BatchMatMul


def _batch_sizes(operation: Operation) -> tuple[tuple[Dim, ...], dict[str, Dim]] | None:
    """(broadcast batch shape, sizes of m, n, k), None where a rank is unknown."""
    left, right = (t.shape for t in operation.operands)
    if left is None or right is None:
        return None
    if len(left) < 2 or len(right) < 2:
        raise misfit(operation, "expected operands of rank 2 or more")
    m, k = _transposed((left[-2], left[-1]), _flag(operation, "adj_x"))
    inner, n = _transposed((right[-2], right[-1]), _flag(operation, "adj_y"))
    batch = broadcast(operation, left[:-2], right[:-2]) or ()
    return batch, {"m": m, "n": n, "k": agree(operation, k, inner, "inner dimensions")}


def _batch_type(operation: Operation) -> tuple[TensorType, ...]:
    found = _batch_sizes(operation)
    if found is None:
        return (TensorType(_result_dtype(operation), None),)
    return (TensorType(_result_dtype(operation), (*found[0], found[1]["m"], found[1]["n"])),)


def _batch_rule(operation: Operation) -> ShardingRule | None:
    """Batch dimensions are aligned at their end and may broadcast."""
    found = _batch_sizes(operation)
    if found is None:
        return None
    batch, sizes = found
    whole: set[int] = set()
    left, right = (_batch_dims(t.shape or (), batch, whole) for t in operation.operands)
    left_matrix: tuple[DimFactors, ...] = (("k",), ("m",)) if _flag(operation, "adj_x") else (("m",), ("k",))
    right_matrix: tuple[DimFactors, ...] = (("n",), ("k",)) if _flag(operation, "adj_y") else (("k",), ("n",))
    shared = {name for dim in left for name in dim} & {name for dim in right for name in dim}
    factors = [
        factor(f"b{i}", size, Kind.WHOLE if i in whole else Kind.PARALLEL, least=_least(i, f"b{i}" in shared))
        for i, size in enumerate(batch)
    ]
    factors += [factor("m", sizes["m"]), factor("n", sizes["n"]), factor("k", sizes["k"], Kind.REDUCTION, "sum")]
    result = (*((f"b{i}",) for i in range(len(batch))), ("m",), ("n",))
    return ShardingRule(tuple(factors), ((*left, *left_matrix), (*right, *right_matrix)), (result,))


def _least(position: int, shared: bool) -> int:
    """oneDNN's kernel writes past its buffer for [n, 1, m, k] x [k, n] (TensorFlow 2.21): a broadcast inner batch keeps two rows."""
    return 0 if shared or position == 0 else 2


def _batch_dims(shape: tuple[Dim, ...], batch: tuple[Dim, ...], whole: set[int]) -> tuple[DimFactors, ...]:
    dims: list[DimFactors] = []
    for i, size in enumerate(shape[:-2], len(batch) - len(shape) + 2):
        dims.append(() if size == 1 else (f"b{i}",))
        if size != 1 and (size is None or size != batch[i]):
            whole.add(i)
    return tuple(dims)


# ---- Einsum


def _terms(operation: Operation) -> tuple[list[str], str] | None:
    """One label a dimension for each operand and for the result; an ellipsis becomes capital labels, None where a rank is unknown.

    Labels of the equation itself are told from those by a prefix, so they may be capitals too.
    """
    left, arrow, right = operation.str_attr("equation").replace(" ", "").partition("->")
    texts = left.split(",")
    if not arrow or len(texts) != len(operation.operands):
        raise misfit(operation, f"equation {operation.str_attr('equation')!r}, expected one term for each operand and '->'")
    if any(t.shape is None for t in operation.operands):
        return None
    hidden = [len(t.shape or ()) - len(text.replace("...", "")) for t, text in zip(operation.operands, texts, strict=True)]
    if any(count < 0 or (count > 0 and "..." not in text) for count, text in zip(hidden, texts, strict=True)):
        raise misfit(operation, f"equation {operation.str_attr('equation')!r} does not fit the operands' ranks")
    widest = max((count for count, text in zip(hidden, texts, strict=True) if "..." in text), default=0)
    operands = [_expanded(text, count) for text, count in zip(texts, hidden, strict=True)]
    return operands, _expanded(right, widest)


def _expanded(text: str, count: int) -> str:
    """`b...k` with two hidden dimensions => `b` `e1` `e0` `k`, joined by blanks: hidden ones are numbered from their end."""
    before, dots, after = text.partition("...")
    hidden = [f"e{i}" for i in reversed(range(count))] if dots else []
    return " ".join([*(f"l{c}" for c in before), *hidden, *(f"l{c}" for c in after)])


def _einsum_sizes(operation: Operation, operands: list[str]) -> dict[str, Dim]:
    sizes: dict[str, Dim] = {}
    for term, operand in zip(operands, operation.operands, strict=True):
        for label, size in zip(term.split(), operand.shape or (), strict=True):
            if label not in sizes or sizes[label] == 1:
                sizes[label] = size
            elif size != 1:
                sizes[label] = agree(operation, sizes[label], size, f"dimension {label[1:]!r}")
    return sizes


def _einsum_type(operation: Operation) -> tuple[TensorType, ...]:
    terms = _terms(operation)
    if terms is None:
        return (TensorType(operation.operands[0].dtype, None),)
    sizes = _einsum_sizes(operation, terms[0])
    return (TensorType(operation.operands[0].dtype, tuple(sizes.get(label) for label in terms[1].split())),)


def _einsum_rule(operation: Operation) -> ShardingRule | None:
    """Labels are factors: those the result lacks sum.  A label that meets dimensions of 1 and n, or twice in one term, is not divided."""
    terms = _terms(operation)
    if terms is None or any(len(set(t.split())) != len(t.split()) for t in (*terms[0], terms[1])):
        return None
    sizes = _einsum_sizes(operation, terms[0])
    whole = tuple(label for label in sizes if _mixed(operation, terms[0], label))
    rule = einsum_rule(f"{', '.join(terms[0])} -> {terms[1]}", sizes, whole=whole)
    inner = {label for label in terms[1].split()[1:] if label.startswith("e")}
    shared = set.intersection(*(set(t.split()) for t in terms[0]))
    return replace(rule, factors=tuple(replace(f, least=_least(f.name in inner, f.name in shared)) for f in rule.factors))


def _mixed(operation: Operation, operands: list[str], label: str) -> bool:
    """Do the dimensions with this label differ, so that one may be broadcast?"""
    found: set[Dim] = set()
    for term, operand in zip(operands, operation.operands, strict=True):
        found.update(size for name, size in zip(term.split(), operand.shape or (), strict=True) if name == label)
    return len(found) > 1


def _einsum_flops(operation: Operation) -> KnownDim | None:
    """2 FLOPs a point where two operands are multiplied and summed, 1 where one is only summed."""
    terms = _terms(operation)
    if terms is None:
        return None
    points = product(*_einsum_sizes(operation, terms[0]).values())
    return None if points is None else mul(2 if len(operation.operands) > 1 else 1, points)


LINEAR = frozenset({Trait.LINEAR})

SPECS: tuple[OpSpec, ...] = (
    OpSpec("MatMul", _matmul_type, _matmul_rule, LINEAR, point_flops=2),
    OpSpec("BatchMatMul", _batch_type, _batch_rule, LINEAR, point_flops=2),
    OpSpec("BatchMatMulV2", _batch_type, _batch_rule, LINEAR, point_flops=2),
    OpSpec("BatchMatMulV3", _batch_type, _batch_rule, LINEAR, point_flops=2),
    OpSpec("Einsum", _einsum_type, _einsum_rule, LINEAR, flops=_einsum_flops),
)
