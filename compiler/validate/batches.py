"""The original on other batches of the same rows: a longer one, and each row alone.  A kernel may round a row differently among others.

f(x[3]) is compared to f([x[0], x[1], x[2], x[2], ...])[:3] and to [f(x[0:1]), f(x[1:2]), f(x[2:3])]

That is only the original's own rounding where rows do not look at each other, which nothing here knows.  So an output that moves by more
than rounding does is no evidence, and is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from compiler.execution import Array, RunResult
from compiler.ir.dims import Expr, symbol, symbols
from compiler.ir.types import TensorType
from compiler.validate import compare
from compiler.validate.draw import Draw

LABELS = ("a longer batch", "each row alone")
ROUNDING = 16
"""Times the floor of a result: 64 ulps of its largest element."""

Run = Callable[[Sequence[Draw]], list[RunResult]]


def batched(inputs: Mapping[str, TensorType]) -> tuple[str, ...]:
    """The inputs that share one unknown first dimension, () where they have more than one between them."""
    leading = {name: type_.shape[0] for name, type_ in inputs.items() if type_.shape and not isinstance(type_.shape[0], int)}
    names = {text for dim in leading.values() for text in symbols(dim)}
    alone = len(names) == 1 and all(isinstance(dim, Expr) and dim == symbol(next(iter(names))) for dim in leading.values())
    inner = {text for type_ in inputs.values() for dim in (type_.shape or ())[1:] for text in symbols(dim)}
    return tuple(sorted(leading)) if alone and not names & inner else ()


def other_batches(label: str, names: Sequence[str], accepted: Sequence[tuple[Draw, RunResult]], run: Run) -> list[RunResult]:
    """What the original answers to each accepted draw's rows in another batch, float outputs only and those by rounding only."""
    found = []
    for draw, truth in accepted:
        size = draw.inputs[names[0]].shape[0]
        if label == LABELS[0]:
            outputs = _head(run([_taken(draw, names, [*range(size), *[size - 1] * (size + 1)])])[0], size)
        else:
            outputs = _stacked(run([_taken(draw, names, [row]) for row in range(size)]) if size > 1 else [])
        kept = {name: array for name, array in outputs.items() if name in truth.outputs and _is_rounding(truth.outputs[name], array)}
        found.append(RunResult(outputs=kept))
    return found


def _taken(draw: Draw, names: Sequence[str], rows: Sequence[int]) -> Draw:
    return replace(draw, inputs={**draw.inputs, **{name: draw.inputs[name][list(rows)] for name in names}})


def _head(result: RunResult, size: int) -> dict[str, Array]:
    long = 2 * size + 1
    return {name: array[:size] for name, array in result.outputs.items() if array.ndim and array.shape[0] == long}


def _stacked(results: Sequence[RunResult]) -> dict[str, Array]:
    if not results or any(result.error is not None for result in results):
        return {}
    single = [name for name in results[0].outputs if all(r.outputs[name].ndim and r.outputs[name].shape[0] == 1 for r in results)]
    return {name: np.concatenate([result.outputs[name] for result in results]) for name in single}


def _is_rounding(truth: Array, other: Array) -> bool:
    if not compare.is_float(truth) or truth.shape != other.shape or compare.special_fault(truth, other):
        return False
    return compare.distance(truth, other) <= ROUNDING * compare.result_floor(truth)
