"""Sharding rules that families share.

A factor whose division cannot be proven harmless is WHOLE: of unknown size, or met by a dimension that may or may not be broadcast.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from compiler.ir.dims import Dim, KnownDim, exact_div, mul
from compiler.ir.errors import IrError
from compiler.ir.types import DType, Shape, TensorType
from compiler.ir.weights import Tensor
from compiler.ops.spec import DimFactors, Factor, Kind, Operation, Shard, ShardingRule

ValueFactors = tuple[DimFactors, ...] | None


def factor(
    name: str, size: Dim, kind: Kind = Kind.PARALLEL, combine: str = "", halo: tuple[int, int, int] = (0, 0, 1), least: int = 0
) -> Factor:
    """A factor; WHOLE where its size is unknown, for then no shard could say where it starts."""
    if size is None or kind is Kind.WHOLE:
        return Factor(name, size, Kind.WHOLE)
    return Factor(name, size, kind, combine, halo, least)


def names(shape: Sequence[Dim], prefix: str = "d") -> tuple[str, ...]:
    return tuple(f"{prefix}{i}" for i in range(len(shape)))


def plain(shape: Sequence[Dim], prefix: str = "d") -> tuple[DimFactors, ...]:
    """One factor for each dimension."""
    return tuple((name,) for name in names(shape, prefix))


def dim_factors(shape: Sequence[Dim], whole: Collection[int] = (), prefix: str = "d") -> tuple[Factor, ...]:
    """The factors of `plain`: parallel, but WHOLE for the dimensions in `whole`."""
    return tuple(factor(f"{prefix}{i}", size, Kind.WHOLE if i in whole else Kind.PARALLEL) for i, size in enumerate(shape))


def broadcast_rule(operation: Operation) -> ShardingRule | None:
    """Elementwise with broadcasting: every result dimension is a factor; operands have it, or have size 1 there."""
    if not operation.results:
        return None
    return aligned_rule(operation.results[0].shape, operation.operands, len(operation.results))


def aligned_rule(result: Shape, operands: Iterable[TensorType], results: int = 1) -> ShardingRule | None:
    """Operands are aligned to the result's last dimensions.  A dimension that may be broadcast or not makes its factor WHOLE."""
    if result is None:
        return None
    whole: set[int] = set()
    values: list[ValueFactors] = []
    for operand in operands:
        if operand.shape is None or len(operand.shape) > len(result):
            return None
        start = len(result) - len(operand.shape)
        dims: list[DimFactors] = []
        for i, size in enumerate(operand.shape, start):
            dims.append(() if size == 1 else (f"d{i}",))
            if size != 1 and (size is None or size != result[i]):
                whole.add(i)
        values.append(tuple(dims))
    return ShardingRule(dim_factors(result, whole), tuple(values), (plain(result),) * results)


def same_shape_rule(operation: Operation, whole: Collection[int] = (), slots: Collection[int] = (0,)) -> ShardingRule | None:
    """Operands `slots` and every result have the shape of operand 0, dimension by dimension; `whole` are never divided."""
    shape = operation.operands[0].shape
    if shape is None:
        return None
    for value in (*(operation.operands[s] for s in slots), *operation.results):
        if value.shape is None or len(value.shape) != len(shape):
            return None
    operands = tuple(plain(shape) if slot in slots else None for slot in range(len(operation.operands)))
    return ShardingRule(dim_factors(shape, whole), operands, (plain(shape),) * len(operation.results))


Regrouped = tuple[tuple[Factor, ...], tuple[DimFactors, ...], tuple[DimFactors, ...]]


def regrouped(before: Sequence[Dim], after: Sequence[Dim]) -> Regrouped:
    """Factors common to two shapes of equal size, major to minor: `[b,s,h] => [b*s,h]` is `b, s, h` with the result `(b s), h`."""
    left: list[list[str]] = [[] for _ in before]
    right: list[list[str]] = [[] for _ in after]
    factors: list[Factor] = []
    for size, i, j in _common_parts(before, after):
        name = f"r{len(factors)}"
        factors.append(factor(name, size, Kind.WHOLE if i is None or j is None else Kind.PARALLEL))
        if i is not None:
            left[i].append(name)
        if j is not None:
            right[j].append(name)
    return tuple(factors), tuple(map(tuple, left)), tuple(map(tuple, right))


def _common_parts(before: Sequence[Dim], after: Sequence[Dim]) -> Iterator[tuple[Dim, int | None, int | None]]:
    """(size, dimension of `before`, dimension of `after`), major to minor; what has no counterpart belongs to one side only.

    Walks both shapes at once and takes off the part they share; where neither size divides the other, the rest is left over.
    """
    i = j = 0
    lefts, rights = list(before), list(after)
    while i < len(before) and j < len(after):
        a, b = lefts[i], rights[j]
        if a == 1 or b == 1:
            i, j = i + (a == 1), j + (a != 1)
            continue
        shared = _shared(a, b)
        if shared is None:
            break
        yield shared[0], i, j
        lefts[i], rights[j] = shared[1], shared[2]
    yield from ((size, k, None) for k, size in enumerate(lefts[i:], i) if size != 1)
    yield from ((size, None, k) for k, size in enumerate(rights[j:], j) if size != 1)


def _shared(a: Dim, b: Dim) -> tuple[KnownDim, KnownDim, KnownDim] | None:
    """(the smaller of two sizes, what is left of each), where one divides the other."""
    if a is None or b is None or a == 0 or b == 0:
        return None
    if (rest := exact_div(a, b)) is not None:
        return b, rest, 1
    rest = exact_div(b, a)
    return None if rest is None else (a, 1, rest)


def local_shape(operation: Operation, rule: ShardingRule | None, shard: Shard, result: int = 0) -> tuple[KnownDim, ...]:
    """The shard's result shape: each dimension is the product of its factors' local sizes."""
    dims = rule.results[result] if rule is not None else None
    if rule is None or dims is None:
        raise IrError(f"{operation.op} {operation.name!r} has no sharding rule here, so no shard of it can be sized")
    return tuple(_local_size(operation, rule, shard, dim) for dim in dims)


def _local_size(operation: Operation, rule: ShardingRule, shard: Shard, dim: DimFactors) -> KnownDim:
    total: KnownDim = 1
    for name in dim:
        size = shard.size.get(name, rule.factor(name).size)
        if size is None:
            raise IrError(f"{operation.op} {operation.name!r}: factor {name!r} has no known size, expected one to size a shard")
        total = mul(total, size)
    return total


def sums_pass(rule: Callable[[Operation], ShardingRule | None], *slots: int) -> Callable[[Operation], ShardingRule | None]:
    """The same rule; partial sums in operands `slots`, or in all of them, pass through as partial sums."""

    def passing(operation: Operation) -> ShardingRule | None:
        found = rule(operation)
        return None if found is None else replace(found, linear=slots or tuple(range(len(operation.operands))))

    return passing


def int32(value: int | Sequence[int]) -> Tensor:
    """A constant of an expansion: an axis, or axes."""
    return Tensor(DType("int32"), np.array(value, np.int32))
