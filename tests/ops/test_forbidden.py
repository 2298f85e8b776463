"""The reverse of the splits: what the rules forbid is wrong however the parts are joined, or it is listed here as conservative.

A dimension whose factor is whole is cut all the same; the op runs on each part as it stands, and the results are concatenated along each
dimension and combined by each operator.  One that gives the whole's result could have been offered, as far as the case shows.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from compiler.ops import queries
from compiler.ops.spec import DimFactors, Factor, Kind
from tests.ops import samples
from tests.ops.splitting import COMBINES, Arrays, Case, assert_same, operation, run, whole

pytestmark = [pytest.mark.tf, pytest.mark.system]

CONSERVATIVE: dict[str, tuple[str, ...]] = {
    "DepthToSpace": ("d1", "d2"),  # rows and columns of blocks are independent; the result's have a factor of their own
    "FusedBatchNormGrad": ("d0", "d1", "d2"),  # in inference, where the statistics are given
    "FusedBatchNormGradV2": ("d0", "d1", "d2"),
    "FusedBatchNormGradV3": ("d0", "d1", "d2"),
    "Mean": ("d0",),  # of integers, and only because the parts' sums happen not to round
    "SpaceToDepth": ("d1",),  # where every part is whole blocks
    "StridedSlice": ("d2",),  # the parts that are cut away
}
"""Op -> the factors that could be divided, with a shape or an attribute of the shard's own, or where the case is a special one."""


def cut(array: np.ndarray, dims: tuple[DimFactors, ...] | None, name: str, parts: int) -> list[np.ndarray]:
    """The operand's part for each shard: all of it where the factor is not a dimension of its own."""
    axes = [axis for axis, names in enumerate(dims or ()) if names == (name,)]
    return [np.array_split(array, parts, axes[0])[i] for i in range(parts)] if axes else [array] * parts


def joins(parts: list[np.ndarray]) -> Iterator[np.ndarray]:
    first = parts[0]
    yield first
    for axis in range(first.ndim):
        rest = [p.shape[:axis] + p.shape[axis + 1 :] for p in parts]
        if rest[0] == rest[1] and all(p.ndim == first.ndim for p in parts):
            yield np.concatenate(parts, axis)
    if parts[0].shape == parts[1].shape:
        for name, combine in COMBINES.items():
            if (first.dtype == bool) == (name in ("any", "all")):
                yield combine(x=parts[0], y=parts[1]).numpy()


def same(found: np.ndarray, expected: np.ndarray, tolerance: float) -> bool:
    try:
        assert_same((found,), (expected,), tolerance)
    except AssertionError:
        return False
    return True


def divides_all_the_same(case: Case, results: Arrays, factor: Factor) -> bool:
    rule = queries.rule(operation(case, results))
    assert rule is not None
    columns = [cut(a, dims, factor.name, 2) for a, dims in zip(case.operands, rule.operands, strict=True)]
    if all(column[0] is column[1] for column in columns):
        return False
    try:
        shards = [run(case.op, tuple(c[k] for c in columns), case.attrs) for k in range(2)]
        return all(
            any(same(joined, whole_, case.tolerance) for joined in joins([s[port] for s in shards])) for port, whole_ in enumerate(results)
        )
    except Exception:
        return False  # the kernel refuses a part


def forbidden(case: Case, results: Arrays) -> Iterator[Factor]:
    rule = queries.rule(operation(case, results))
    for factor in rule.factors if rule is not None else ():
        if factor.kind is Kind.WHOLE and isinstance(factor.size, int) and factor.size > 1:
            yield factor


def test_what_is_forbidden_is_wrong_or_listed() -> None:
    found: dict[str, set[str]] = {}
    tried = 0
    for case in samples.every():
        results = whole(case)
        for factor in forbidden(case, results):
            tried += 1
            if divides_all_the_same(case, results, factor):
                found.setdefault(case.op, set()).add(factor.name)
    assert tried > 150
    assert {op: tuple(sorted(names)) for op, names in sorted(found.items())} == CONSERVATIVE
