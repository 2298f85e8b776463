"""The ops at their edges: no rows and one row, other element types, work that grows with size."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
import tensorflow as tf

from compiler.ir.dims import evaluate
from compiler.ir.types import DType
from compiler.ops.queries import work
from compiler.ops.registry import SPECS
from tests.ops import samples
from tests.ops.splitting import SYMBOLS, Case, all_splits, assert_same, check_inferred, joined, operation, whole

pytestmark = pytest.mark.tf
CASES = samples.every()
WRONG_WHEN_EMPTY = {"Conv2D", "Conv3D", "DepthwiseConv2dNative"}
"""oneDNN gives an empty batch its operand's shape (TensorFlow 2.21)."""
REFUSES_EMPTY = {"MaxPoolWithArgmax", "ArgMax", "ArgMin", "MirrorPad"}
"""Their kernels want a row; positions, where the empty axis is the one that is searched."""
OTHER_TYPES = ("float64", "float16", "bfloat16")
ROUNDING = {"float64": 1e-6, "float16": 4e-3, "bfloat16": 4e-2}
"""Of float32 approximations in float64 kernels there are none, but Mean and the like may divide before they add."""


def resized(case: Case, size: int) -> Case:
    """Every 7 becomes `size`: in shapes, and in constants that spell one."""

    def operand(slot: int, array: np.ndarray) -> np.ndarray:
        if slot in case.constant:
            return np.where(array == 7, size, array).astype(array.dtype) if array.dtype.kind == "i" else array
        for axis, n in enumerate(array.shape):
            if n == 7:
                array = np.take(array, [i % 7 for i in range(size)], axis)
        return array

    return replace(case, operands=tuple(operand(i, a) for i, a in enumerate(case.operands)))


def spells_a_product(case: Case) -> bool:
    """Does a constant spell a multiple of 7, or a row of those 7?  Then it means one size only."""
    numbers = [int(n) for slot in case.constant for n in np.ravel(case.operands[slot]) if case.operands[slot].dtype.kind == "i"]
    spelled = any(n % 7 == 0 and abs(n) > 7 for n in numbers) or 84 in case.operands[0].shape
    return spelled or bool(case.attrs.get("shrink_axis_mask") == 1)


@pytest.mark.parametrize("size", [0, 1])
def test_no_rows_and_one_row(size: int) -> None:
    """`infer` is the kernel's shape; the kernels that are wrong, or refuse, are the ones listed."""
    wrong, refuses = set(), set()
    for case in (resized(c, size) for c in CASES if not spells_a_product(c)):
        try:
            results = whole(case)
        except (tf.errors.InvalidArgumentError, tf.errors.InternalError):
            refuses.add(case.op)
            continue
        try:
            check_inferred(case, results)
        except AssertionError:
            wrong.add(case.op)
    assert wrong == (WRONG_WHEN_EMPTY if size == 0 else set())
    assert refuses == (REFUSES_EMPTY if size == 0 else set())


def in_other_types() -> Iterator[Case]:
    """The cases on float32 operands, on half and double; those with no kernel for the type are passed over."""
    for case in CASES:
        floats = [a for a in case.operands if a.dtype == np.float32]
        if not floats or case.op not in SPECS:
            continue
        for name in OTHER_TYPES:
            if any(isinstance(v, DType) and v == "float32" for v in case.attrs.values()):
                continue
            operands = tuple(a.astype(DType(name).numpy) if a.dtype == np.float32 else a for a in case.operands)
            yield replace(case, operands=operands, tolerance=ROUNDING[name])


def test_other_element_types() -> None:
    """Types are those of the kernels that there are."""
    tried: dict[str, set[str]] = {}
    for case in in_other_types():
        try:
            results = whole(case)
        except (tf.errors.NotFoundError, tf.errors.InvalidArgumentError, tf.errors.UnimplementedError, TypeError):
            continue
        check_inferred(case, results)
        tried.setdefault(str(case.operands[0].dtype), set()).add(case.op)
    assert len(tried["float64"]) > 100 and len(tried["float16"]) > 60 and len(tried["bfloat16"]) > 60


@pytest.mark.system
def test_other_element_types_divide_right() -> None:
    found = 0
    for case in in_other_types():
        try:
            results = whole(case)
        except (tf.errors.NotFoundError, tf.errors.InvalidArgumentError, tf.errors.UnimplementedError, TypeError):
            continue
        if any(r.dtype.kind == "V" for r in results):
            results = tuple(r.astype(np.float32) if r.dtype.kind == "V" else r for r in results)
        op = operation(case, whole(case))
        for factor, parts in all_splits(op):
            parts_ = tuple(r.astype(np.float32) if r.dtype.kind == "V" else r for r in joined(case, op, factor.name, parts))
            assert_same(parts_, results, case.tolerance)
            found += 1
    assert found > 1000


@pytest.mark.parametrize("case", CASES, ids=str)
def test_work_grows_with_size(case: Case) -> None:
    """FLOPs are a number at least 0, the same by symbols as by numbers, and no fewer for more rows."""
    results = whole(case)
    static = work(operation(case, results))
    symbolic = work(operation(case, results, SYMBOLS))
    assert static is None or (isinstance(static, int) and static >= 0)
    if symbolic is None:
        return
    few, many = evaluate(symbolic, {"b": 7}), evaluate(symbolic, {"b": 14})
    assert few == static and many >= few
