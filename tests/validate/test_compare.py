"""Inputs that are drawn, arrays that are compared, verdicts on tampered models."""

from dataclasses import replace

import numpy as np
import pytest

from compiler.execution import GraphDefArtefact, RunResult
from compiler.ir.dims import symbol
from compiler.ir.text import parse_module
from compiler.ir.types import DType, TensorType
from compiler.validate import Subject, Validator, compare
from compiler.validate.double import to_double
from compiler.validate.draw import SCHEMES, draws, schemes

IMAGE = {"x": TensorType(DType("float32"), (symbol("b"), 4)), "n": TensorType(DType("int32"), (symbol("b1"),))}


def test_the_same_seed_draws_the_same_bytes() -> None:
    for left, right in zip(draws(IMAGE, SCHEMES[0]), draws(IMAGE, SCHEMES[0]), strict=True):
        assert left.label == right.label
        assert all(left.inputs[k].tobytes() == right.inputs[k].tobytes() for k in IMAGE)


def test_two_batches_and_special_values_are_drawn() -> None:
    found = draws(IMAGE, SCHEMES[0])
    assert [d.label for d in found] == ["batch 1", "batch 3", "special values"]
    assert [d.inputs["x"].shape for d in found] == [(1, 4), (3, 4), (3, 4)]
    special = found[-1].inputs["x"]
    assert not np.all(np.isfinite(special)) or np.any(np.isnan(special))


def test_open_lengths_and_ranks_are_tried_in_several_ways() -> None:
    assert schemes(IMAGE) == (SCHEMES[0], replace(SCHEMES[0], positive=True))
    sequence = {"x": TensorType(DType("float32"), (symbol("b"), symbol("n")))}
    shapes = {draws(sequence, s)[1].inputs["x"].shape for s in schemes(sequence)}
    assert {(3, 5), (3, 3), (3, 16)} <= shapes
    unknown = {"x": TensorType(DType("float32"), None)}
    assert {draws(unknown, s)[0].inputs["x"].ndim for s in schemes(unknown)} == {0, 1}


def test_a_model_that_asserts_positive_values_gets_some() -> None:
    ordinary = draws(IMAGE, schemes(IMAGE)[-1])[:2]
    assert all(np.all(array > 0) for draw in ordinary for array in draw.inputs.values())
    assert [draw.inputs["n"].dtype for draw in ordinary] == [np.int32, np.int32]


@pytest.mark.parametrize(
    ("left", "right", "fault"),
    [
        (np.float32([1, 2]), np.float32([1, 2]), ""),
        (np.float32([0.0]), np.float32([-0.0]), "1 of 1 elements differ"),
        (np.float32([np.nan]), np.float32([np.nan]), ""),
        (np.float32([1]), np.float64([1]), "dtype is float64, expected float32"),
        (np.float32([1]), np.float32([[1]]), "shape is (1, 1), expected (1,)"),
        (np.array([b"a", b"b"], object), np.array([b"a", b"c"], object), "first at [1]: b'c', expected b'b'"),
        (np.int64([2**53 + 1]), np.int64([2**53]), "1 of 1 elements differ"),
    ],
)
def test_exact_faults(left: np.ndarray, right: np.ndarray, fault: str) -> None:
    assert fault in compare.exact_fault(left, right)
    assert bool(compare.exact_fault(left, right)) == bool(fault)


def test_special_values_must_be_where_they_were() -> None:
    assert "NaN in one of the two only" in compare.special_fault(np.float32([np.nan, 1]), np.float32([1, 1]))
    assert "+inf in one" in compare.special_fault(np.float32([np.inf]), np.float32([-np.inf]))
    assert compare.special_fault(np.float32([np.inf, np.nan]), np.float32([np.inf, np.nan])) == ""


class Canned:
    """An executor that answers from a table: artefact -> a function of the inputs."""

    def __init__(self, **functions):  # type: ignore[no-untyped-def]
        self.functions = functions
        self.calls = 0

    def run(self, artefact, requests, **options):  # type: ignore[no-untyped-def]
        self.calls += 1
        return [RunResult(outputs={k: np.asarray(v) for k, v in self.functions[artefact.graph_def](**r).items()}) for r in requests]


def artefact(name: str) -> GraphDefArtefact:
    return GraphDefArtefact(name, {}, {})


def verdict(candidate, numerics: str = "reassociate"):  # type: ignore[no-untyped-def]
    def original(x, n):  # type: ignore[no-untyped-def]
        return {"y": x * np.float32(2), "i": n + 1}

    executor = Canned(original=original, candidate=candidate)
    subject = Subject(artefact("original"), IMAGE)
    return Validator(executor, None, numerics).check(subject, artefact("candidate"))


@pytest.mark.parametrize(
    ("candidate", "passes"),
    [
        (lambda x, n: {"y": x + x, "i": n + 1}, True),
        (lambda x, n: {"y": x * np.float32(2.002), "i": n + 1}, False),
        (lambda x, n: {"y": x * np.float32(2), "i": n}, False),
        (lambda x, n: {"y": x * np.float64(2), "i": n + 1}, False),
        (lambda x, n: {"y": np.nan_to_num(x) * np.float32(2), "i": n + 1}, False),
        (lambda x, n: {"y": x * np.float32(2)}, False),
        (lambda x, n: {"y": x[:1] * np.float32(2), "i": n + 1}, False),
    ],
    ids=["same", "1e-3 off", "integer off", "wrong dtype", "NaN lost", "output lost", "rows lost"],
)
def test_verdicts(candidate, passes: bool) -> None:  # type: ignore[no-untyped-def]
    found = verdict(candidate)
    assert found.passed is passes, str(found)
    assert ("NOT VALID" in str(found)) is not passes


def test_exact_numerics_want_every_bit() -> None:
    def last_bit(x, n):  # type: ignore[no-untyped-def]
        return {"y": np.nextafter(x * np.float32(2), np.float32(np.inf)), "i": n + 1}

    assert verdict(last_bit).passed
    assert not verdict(last_bit, "exact").passed


def test_an_original_that_accepts_nothing_is_not_valid() -> None:
    class Failing(Canned):
        def run(self, artefact, requests, **options):  # type: ignore[no-untyped-def]
            from compiler.execution import RunError

            return [RunResult(error=RunError("run", "no")) for _ in requests]

    found = Validator(Failing()).check(Subject(artefact("original"), IMAGE), artefact("candidate"))
    assert not found.passed and "fails on every input" in str(found)


DOUBLE = """module "m" facts(typed)

variable @w : f32[2] = tensor(f32[2], [1.0, 2.0])

entry @f(%x: f32[b,2], %i: i32[b]) -> (y = %y) {
  %h = Variable() {ref="w"} : resource<f32[2]>[] from(h)
  %r = ReadVariableOp(%h) {dtype=f32} : f32[2] from(r)
  %c = Cast(%i) {DstT=f32} : f32[b] from(c)
  %s = Const() {value=splat(f32[2], 0.5)} : f32[2] from(s)
  %m = Mul(%x, %r) : f32[b,2] from(m)
  %y = Mul(%m, %s) : f32[b,2] from(y)
}
"""


def test_the_float64_twin_has_no_float32_left() -> None:
    twin = to_double(parse_module(DOUBLE))
    assert not isinstance(twin, str)
    types = [t for node in twin.entries["f"] for t in node.types]
    assert not [t for t in types if t.dtype == "float32" or (t.handle is not None and t.handle.dtype == "float32")]
    assert twin.variables["w"].initial is not None and twin.variables["w"].initial.dtype == "float64"
    assert twin.entries["f"].node("c").attrs["DstT"] == "float64"


def test_an_opaque_op_has_no_float64_twin() -> None:
    assert to_double(parse_module(DOUBLE.replace("Mul(%m, %s)", "NoSuchOp(%m, %s)"))) == "NoSuchOp is opaque"


def test_special_values_may_be_where_the_original_has_them_under_other_settings() -> None:
    nan, inf = np.nan, np.inf
    original, other = np.float32([nan, 0, 0, inf]), np.float32([nan, nan, 0, inf])
    assert compare.special_fault(original, np.float32([nan, nan, 1, inf])) == (
        "1 of 4 elements are NaN in one of the two only, first at [1]: nan, expected 0.0"
    )
    assert compare.special_fault(original, np.float32([nan, nan, 1, inf]), [other]) == ""
    assert "first at [2]: nan" in compare.special_fault(original, np.float32([nan, nan, nan, inf]), [other])
    assert "are +inf" in compare.special_fault(original, np.float32([nan, 0, 0, -inf]), [other])
    assert "are -inf" in compare.special_fault(np.float32([-inf]), np.float32([0]), [np.float32([inf])])


def test_complex_numbers_are_compared_by_their_parts() -> None:
    whole = np.array([complex(np.nan, 1), complex(np.nan, np.nan), complex(0.0, -0.0), 1 + 2j], np.complex64)
    assert compare.exact_fault(whole, whole.copy()) == ""
    assert "1 of 4 elements differ, first at [2]" in compare.exact_fault(whole, whole + 0)
    other = whole.copy()
    other[0] = complex(np.nan, 2)
    assert "first at [0]" in compare.exact_fault(whole, other)
