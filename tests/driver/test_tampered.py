"""Validation through TensorFlow: a model that was tampered with is found out, one that only looks different is not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import compiler
from compiler.backend.executor import GraphExecutor
from compiler.backend.pool import Pool
from compiler.driver.original import with_original
from compiler.frontend.source import SourceModel
from compiler.validate import Validator, subject

pytestmark = [pytest.mark.tf, pytest.mark.timeout(300)]

TEXT = """module "m" facts(typed)

variable @v : f32[4] = tensor(f32[4], [1.0, 2.0, 3.0, 4.0])

entry @f(%x: f32[b,4]) -> (up = %up, down = %down, which = %which) {
  %h = Variable() {ref="v"} : resource<f32[4]>[] from(h)
  %r = ReadVariableOp(%h) {dtype=f32} : f32[4] from(r)
  %axis = Const() {value=tensor(i32[], 0)} : i32[] from(axis)
  %half = Const() {value=tensor(f32[], 0.5)} : f32[] from(half)
  %top = Max(%x, %axis) : f32[4] from(top)
  %new = Mul(%r, %half) : f32[4] from(new)
  %w = AssignVariableOp(%h, %new) {dtype=f32} : () from(w) after(%r)
  %up = AddV2(%x, %r) : f32[b,4] from(up)
  %down = Sub(%x, %r) : f32[b,4] from(down)
  %one = Const() {value=tensor(i32[], 1)} : i32[] from(one)
  %which = ArgMax(%x, %one) : i64[b] from(which)
}
"""

WRONG = {
    "a thousandth off": ("[1.0, 2.0, 3.0, 4.0]", "[1.001, 2.0, 3.0, 4.0]"),
    "outputs swapped": ("up = %up, down = %down", "up = %down, down = %up"),
    "operands swapped": ("Sub(%x, %r)", "Sub(%r, %x)"),
    "a wrong element type": ("ArgMax(%x, %one) : i64[b]", "ArgMax(%x, %one) {output_type=i32} : i32[b]"),
    "a write dropped": ("  %w = AssignVariableOp(%h, %new) {dtype=f32} : () from(w) after(%r)\n", ""),
    "a write before the read": (
        "%r = ReadVariableOp(%h) {dtype=f32} : f32[4] from(r)\n",
        "%z = ReadVariableOp(%h) {dtype=f32} : f32[4] from(z)\n",
    ),
    "an output gone": (", which = %which", ""),
}


def text_of(case: str) -> str:
    old, new = WRONG[case]
    assert old in TEXT
    if case != "a write before the read":
        return TEXT.replace(old, new)
    late = "  %r = ReadVariableOp(%h) {dtype=f32} : f32[4] from(r) after(%w)\n"
    return TEXT.replace(old, new).replace("Mul(%r, %half)", "Mul(%z, %half)").replace("after(%r)\n", "after(%z)\n" + late)


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    with Pool(max_children=8) as made:  # one for each setting under which the spread is measured
        yield made


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> SourceModel:
    return source(TEXT, tmp_path_factory.mktemp("original"), "original")


def source(text: str, directory: Path, name: str) -> SourceModel:
    path = directory / f"{name}.ir"
    path.write_text(text, encoding="utf-8")
    return with_original(compiler.load(str(path)))


def verdict(left: SourceModel, text: str, directory: Path, pool: Pool, numerics: str = "reassociate") -> compiler.Verdict:
    right = source(text, directory, "candidate")
    validator = Validator(pool, GraphExecutor(pool), numerics)
    return validator.check(subject(left.artefact_of("f"), left.module, "f"), right.artefact_of("f"))


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_not_valid(case: str, original: SourceModel, tmp_path: Path, pool: Pool) -> None:
    found = verdict(original, text_of(case), tmp_path, pool)
    assert not found.passed, str(found)


@pytest.mark.parametrize("numerics", ["exact", "reassociate"])
def test_what_only_looks_different_is_valid(numerics: str, original: SourceModel, tmp_path: Path, pool: Pool) -> None:
    other = TEXT.replace("%half", "%a_half").replace("AddV2(%x, %r)", "AddV2(%r, %x)")
    found = verdict(original, other, tmp_path, pool, numerics)
    assert found.passed, str(found)
