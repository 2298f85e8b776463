"""State is compared after every call: writes that are lost, variables that are gone, and what a refused call leaves behind."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from compiler.execution import Array, Arrays, GraphDefArtefact, RunError, RunResult
from compiler.ir.dims import symbol
from compiler.ir.text import parse_module
from compiler.ir.types import DType, TensorType
from compiler.validate import Subject, Validator, Verdict, subject
from compiler.validate.double import to_double

Step = Callable[[Array, dict[str, Array]], dict[str, Array]]


class Stateful:
    """An executor that gives each run fresh variables and calls a step function for each request, in order."""

    def __init__(self, steps: Mapping[str, Step], variables: Sequence[str]) -> None:
        self.steps, self.variables = steps, variables

    def run(self, artefact: GraphDefArtefact, requests: Sequence[Arrays], **options: Any) -> list[RunResult]:
        state = {name: np.zeros((), np.float32) for name in self.variables}
        return [self._call(self.steps[str(artefact.graph_def)], request["x"], state) for request in requests]

    def _call(self, step: Step, x: Array, state: dict[str, Array]) -> RunResult:
        try:
            outputs = step(x, state)
        except ValueError as error:
            return RunResult(error=RunError("run", str(error)))
        return RunResult(outputs, dict(state))


def counts(x: Array, state: dict[str, Array]) -> dict[str, Array]:
    state["n"] = state["n"] + np.float32(1)
    return {"y": x + x}


def verdict(original: Step, candidate: Step, *, random: bool = False, numerics: str = "reassociate") -> Verdict:
    executor = Stateful({"original": original, "candidate": candidate}, ("n",))
    original_subject = Subject(GraphDefArtefact("original", {}, {}), {"x": TensorType(DType("float32"), (symbol("b"), 4))}, random=random)
    return Validator(executor, None, numerics).check(original_subject, GraphDefArtefact("candidate", {}, {}))  # type: ignore[arg-type]


def forgets(x: Array, state: dict[str, Array]) -> dict[str, Array]:
    return {"y": x + x}


def counts_twice(x: Array, state: dict[str, Array]) -> dict[str, Array]:
    return counts(x, state) | counts(x, state)


def becomes_nan(x: Array, state: dict[str, Array]) -> dict[str, Array]:
    state["n"] = np.asarray(np.nan, np.float32)
    return {"y": x + x}


def loses_the_variable(x: Array, state: dict[str, Array]) -> dict[str, Array]:
    state.clear()
    return {"y": x + x}


@pytest.mark.parametrize("numerics", ["exact", "reassociate"])
@pytest.mark.parametrize("candidate", [forgets, counts_twice, becomes_nan, loses_the_variable])
def test_a_write_that_is_lost_or_wrong_is_not_valid(candidate: Step, numerics: str) -> None:
    found = verdict(counts, candidate, numerics=numerics)
    assert not found.passed and "variable n" in str(found)
    assert verdict(counts, counts, numerics=numerics).passed


def test_of_namesakes_the_written_one_is_found_when_the_other_became_a_constant() -> None:
    """The loader tells namesakes apart by path, and only while there are several."""

    def original(x: Array, state: dict[str, Array]) -> dict[str, Array]:
        count = state.pop("n", state.get("n@counter", np.zeros((), np.float32)))
        state["n@counter"], state["n@weight"] = count + np.float32(1), np.ones((2, 2), np.float32)
        return {"y": x + x}

    assert verdict(original, counts).passed
    assert not verdict(original, forgets).passed
    assert not verdict(original, loses_the_variable).passed


def test_a_variable_nobody_writes_may_be_gone() -> None:
    assert verdict(forgets, loses_the_variable).passed


def test_what_a_refused_call_leaves_behind_is_no_difference() -> None:
    def counts_then_fails(x: Array, state: dict[str, Array]) -> dict[str, Array]:
        found = counts(x, state)
        if not np.all(np.isfinite(x)):
            raise ValueError("not finite")
        return found

    assert verdict(counts_then_fails, counts_then_fails).passed
    accepts = verdict(counts_then_fails, counts)
    assert not accepts.passed and "the original refuses this input (run: not finite), the candidate does not" in str(accepts)


def test_drawn_floats_in_a_variable_are_not_compared() -> None:
    rng = np.random.default_rng(0)

    def draws(x: Array, state: dict[str, Array]) -> dict[str, Array]:
        state["n"] = np.asarray(rng.random(), np.float32)
        return {"y": x}

    assert verdict(draws, draws, random=True).passed
    assert not verdict(draws, draws).passed


TWO = """module "m" facts(typed)

entry @draws(%x: f32[b,4]) -> (y = %c) {
  %c = Call(%x) {f=@noise} : f32[b,4] from(c)
}
entry @plain(%x: f32[b,4]) -> (y = %y) {
  %y = AddV2(%x, %x) : f32[b,4] from(y)
}
function @noise(%x: f32[b,4]) -> (y = %y) {
  %s = Shape(%x) : i32[2] from(s)
  %r = RandomUniform(%s) {dtype=f32} : f32[b,4] from(r)
  %y = NoSuchOp(%x, %r) : f32[b,4] from(y)
}
"""


def test_what_only_other_entries_do_does_not_count() -> None:
    module, artefact = parse_module(TWO), GraphDefArtefact("original", {}, {})
    draws, plain = (subject(artefact, module, entry) for entry in ("draws", "plain"))
    assert draws.random and not plain.random
    assert plain.module is not None and not plain.module.functions
    assert isinstance(to_double(module), str) and not isinstance(to_double(plain.module), str)
