"""Shapes and splits are TensorFlow's: `infer` gives its kernels' shapes, and every split of every rule, joined, equals the whole op."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compiler.ir.sharding import COMBINES
from compiler.ops.registry import SPECS
from compiler.ops.spec import Kind, Trait
from tests.ops import samples
from tests.ops.splitting import SYMBOLS, Case, all_splits, assert_same, check_inferred, joined, operation, whole

pytestmark = pytest.mark.tf

CASES = samples.every()
STATE = frozenset({Trait.STATE_READ, Trait.STATE_WRITE})


def check(case: Case) -> int:
    """All laws on one case; how many splits it has with symbolic sizes."""
    results = whole(case)
    check_inferred(case, results)
    found = 0
    for symbolic in (None, SYMBOLS):
        op = operation(case, results, symbolic)
        found = 0
        for factor, parts in all_splits(op):
            assert_same(joined(case, op, factor.name, parts), results, case.tolerance)
            found += 1
    return found


@pytest.mark.parametrize("case", CASES, ids=str)
def test_shapes_and_splits(case: Case) -> None:
    check(case)


def test_every_op_that_divides_is_tried() -> None:
    tried = {case.op for case in CASES if any(all_splits(operation(case, whole(case))))}
    divides = {name for name, spec in SPECS.items() if spec.rule is not None and not spec.traits & STATE and name != "Const"}
    assert sorted(divides - tried) == []


SPECIAL = np.array(
    [[np.nan, 1, -0.0, np.inf, -1, 3], [0.0, np.nan, -0.0, -np.inf, 2, 3], [-0.0, 0.0, 0.0, np.inf, np.nan, 3]] * 3, np.float32
)[:7]
BY_POSITION = ("Relu", "Relu6", "Maximum", "Minimum", "Max", "Min", "Reciprocal")
"""Kernels whose vector body and tail differ: in the sign of zero at a tie, or in the last bit.  NaN and Inf must still agree."""
REDUCTIONS = ("Sum", "Mean", "Max", "Min", "Prod", "ArgMax")
UNARY = ("Relu", "Relu6", "Neg", "Abs", "Sign", "Floor", "Identity", "Square", "Reciprocal", "LeakyRelu")
BINARY = ("AddV2", "Sub", "Mul", "Maximum", "Minimum", "RealDiv", "DivNoNan", "SquaredDifference", "Equal", "Less")


def tolerance(op: str) -> float:
    return samples.ULPS if op in BY_POSITION else 0.0


@pytest.mark.parametrize("op", UNARY)
def test_special_values_survive_unary_splits(op: str) -> None:
    check(Case(op, (SPECIAL,), tolerance=tolerance(op)))


@pytest.mark.parametrize("op", BINARY)
def test_special_values_survive_binary_splits(op: str) -> None:
    check(Case(op, (SPECIAL, SPECIAL[::-1].copy()), tolerance=tolerance(op)))
    check(Case(op, (SPECIAL, SPECIAL[1].copy()), tolerance=tolerance(op)))


@pytest.mark.parametrize("op", REDUCTIONS)
@pytest.mark.parametrize("axis", [0, 1])
def test_special_values_survive_reductions(op: str, axis: int) -> None:
    check(Case(op, (SPECIAL, np.array(axis, np.int32)), {}, (1,), tolerance(op)))


def test_every_combine_is_a_combine() -> None:
    for case in CASES:
        for factor, _ in all_splits(operation(case, whole(case))):
            assert (factor.kind is Kind.REDUCTION) == (factor.combine in COMBINES), (str(case), factor)


# ---- drawn cases of the rules with the most arithmetic


@st.composite
def reshapes(draw: st.DrawFn) -> Case:
    """Two groupings of the same small factors, 7 at most once, ones anywhere."""
    parts = draw(st.permutations([*draw(st.lists(st.sampled_from((2, 3, 4)), max_size=3)), 7]))

    def grouped() -> list[int]:
        shape = [1]
        for part in parts:
            shape.append(part) if draw(st.booleans()) else shape.append(shape.pop() * part)
        return shape[draw(st.integers(0, shape[0] == 1)) :]

    before, after = grouped(), grouped()
    value = np.arange(np.prod(before), dtype=np.float32).reshape(before)
    return Case("Reshape", (value, np.array(after, np.int32)), {}, (1,))


@given(reshapes())
def test_reshapes_divide_right(case: Case) -> None:
    check(case)


@st.composite
def slices(draw: st.DrawFn) -> Case:
    """Python slices, indices and new axes of a [7, 2, 5]; at most one ellipsis."""
    value = np.arange(70, dtype=np.float32).reshape(7, 2, 5)
    begins, ends, strides = [], [], []
    masks = dict.fromkeys(("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask"), 0)
    taken = 0
    for i in range(draw(st.integers(1, 4))):
        kind = draw(st.sampled_from(("range", "range", "range", "index", "new_axis", "ellipsis")))
        if (kind == "ellipsis" and masks["ellipsis_mask"]) or (kind in ("range", "index") and taken == 3):
            kind = "new_axis"
        taken += kind in ("range", "index")
        begins.append(draw(st.integers(0, 1)) if kind == "index" else draw(st.integers(-9, 9)))
        ends.append(draw(st.integers(-9, 9)))
        strides.append(1 if kind == "index" else draw(st.sampled_from((1, 1, 2, -1, -3))))
        if kind == "range":
            masks["begin_mask"] |= draw(st.booleans()) << i
            masks["end_mask"] |= draw(st.booleans()) << i
        else:
            masks["shrink_axis_mask" if kind == "index" else f"{kind}_mask"] |= 1 << i
    spec = tuple(np.array(v, np.int32) for v in (begins, ends, strides))
    return Case("StridedSlice", (value, *spec), masks, (1, 2, 3))


@given(slices())
def test_slices_divide_right(case: Case) -> None:
    check(case)


@given(st.lists(st.sampled_from((1, 2, 7)), max_size=3), st.lists(st.sampled_from((1, 2, 7)), max_size=3))
def test_broadcasts_divide_right(left: list[int], right: list[int]) -> None:
    rank = max(len(left), len(right))
    for i in range(1, rank + 1):  # make them fit: where both are present and differ, the right one becomes 1
        if i <= len(left) and i <= len(right) and left[-i] != right[-i] and left[-i] != 1:
            right[-i] = 1
    values = tuple(np.arange(np.prod(shape), dtype=np.float32).reshape(shape) - 3 for shape in (left, right))
    check(Case("Sub", values))
