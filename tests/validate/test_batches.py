"""A kernel that rounds a row by its neighbours' number is found out; a model whose rows look at each other lends nothing to the bound."""

from collections.abc import Callable, Sequence

import numpy as np

from compiler.execution import Array, RunResult
from compiler.ir.dims import symbol
from compiler.ir.types import DType, TensorType
from compiler.validate.batches import LABELS, batched, other_batches
from compiler.validate.draw import Draw

FLOAT = DType("float32")
B = symbol("b")


def answers(function: Callable[[Array], dict[str, Array]]) -> Callable[[Sequence[Draw]], list[RunResult]]:
    return lambda draws: [RunResult(outputs=function(draw.inputs["x"])) for draw in draws]


def by_batch(x: Array) -> dict[str, Array]:
    """Rounds differently alone and among more than three."""
    ulps = {1: 1, 3: 0}.get(len(x), 2)
    return {"y": x * np.float32(1 + ulps * 2**-23), "argmax": np.argmax(x, 1)}


def centred(x: Array) -> dict[str, Array]:
    return {"y": x - x.mean(axis=0)}


DRAW = Draw("batch 3", {"x": np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)})


def measured(function: Callable[[Array], dict[str, Array]], label: str) -> dict[str, Array]:
    truth = answers(function)([DRAW])[0]
    (result,) = other_batches(label, ("x",), [(DRAW, truth)], answers(function))
    return result.outputs


def test_rounding_by_batch_is_measured() -> None:
    for label, ulps in zip(LABELS, (2, 1), strict=True):
        found = measured(by_batch, label)
        assert list(found) == ["y"], "decisions are no evidence"
        np.testing.assert_array_equal(found["y"], DRAW.inputs["x"] * np.float32(1 + ulps * 2**-23))


def test_rows_that_look_at_each_other_are_no_evidence() -> None:
    assert [measured(centred, label) for label in LABELS] == [{}, {}]


def test_one_batch_symbol_only() -> None:
    x, y = TensorType(FLOAT, (B, 4)), TensorType(FLOAT, (symbol("c"), 4))
    assert batched({"x": x, "k": TensorType(FLOAT, (4,))}) == ("x",)
    assert batched({"x": x, "z": x}) == ("x", "z")
    assert batched({"x": x, "y": y}) == ()
    assert batched({"x": TensorType(FLOAT, (B, B))}) == ()
    assert batched({"x": TensorType(FLOAT, (4,))}) == ()
