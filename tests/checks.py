"""A pass test is two texts: `assert_rewrites(before, after, "cse")`; a refusal is a text and a reason."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from compiler.execution import ModuleExecutor, RunResult
from compiler.ir.module import Module
from compiler.ir.text import parse_module, print_module
from compiler.ir.verify import STRUCTURE, verify
from compiler.ops.invariants import OPERATIONS
from compiler.pipeline.base import Context
from compiler.pipeline.manager import run_pipeline
from compiler.pipeline.text import parse_pipeline
from cost_model.cluster import Cluster
from passes import PASSES

RunModule = Callable[..., list[RunResult]]


def run(text: str, pipeline: str, executor: ModuleExecutor | None = None, fuel: int | None = None) -> tuple[Module, Context]:
    """The module after the pipeline, verified."""
    module = parse_module(text)
    context = Context(executor=executor, services={Cluster: Cluster.parse("cpu:2")}, fuel=fuel)
    run_pipeline(module, parse_pipeline(pipeline, PASSES), context)
    verify(module, (*STRUCTURE, *OPERATIONS))
    return module, context


def assert_rewrites(before: str, after: str, pipeline: str, executor: ModuleExecutor | None = None) -> None:
    """`before` becomes `after`, as whole texts; again changes nothing; without fuel nothing changes."""
    module, context = run(before, pipeline, executor)
    expected = print_module(parse_module(after))
    found = print_module(module)
    assert _body(found) == _body(expected), f"\n{found}\nexpected\n{expected}"
    assert any(note.kind == "change" for note in context.notes)
    again, second = run(found, pipeline, executor)
    assert _body(print_module(again)) == _body(found), "the pass is not idempotent"
    assert not any(note.kind == "change" for note in second.notes)
    still, _ = run(before, pipeline, executor, fuel=0)
    assert _body(print_module(still)) == _body(print_module(parse_module(before))), "something changed without fuel"


def assert_refuses(before: str, pipeline: str, reason: str, executor: ModuleExecutor | None = None) -> None:
    """Nothing changes, and the reason is given (`""`: a place that is none of the pass's business)."""
    module, context = run(before, pipeline, executor)
    assert _body(print_module(module)) == _body(print_module(parse_module(before)))
    if reason:
        assert any(reason in note.what for note in context.notes if note.kind == "refusal"), [n.what for n in context.notes]


def assert_same_function(before: str, after: Module, run_module: RunModule, *, exact: bool = True) -> None:
    """Both sides compute the same on drawn inputs, bit for bit or to a few ulps, NaN and zero signs included."""
    whole = parse_module(before)
    for seed, special in ((0, False), (1, False), (2, True)):
        request = _inputs(whole, seed, special)
        (expected,), (found,) = run_module(whole, [request]), run_module(after, [request])
        assert expected.error is None and found.error is None, (expected.error, found.error)
        assert expected.outputs.keys() == found.outputs.keys()
        for name, array in expected.outputs.items():
            other = found.outputs[name]
            assert other.dtype == array.dtype and other.shape == array.shape
            if exact or array.dtype.kind != "f":
                np.testing.assert_array_equal(other, array)
                if array.dtype.kind == "f":
                    np.testing.assert_array_equal(np.signbit(other), np.signbit(array))
            else:
                np.testing.assert_allclose(other, array, rtol=2e-5, atol=2e-5, equal_nan=True)


def _inputs(module: Module, seed: int, special: bool) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    (graph,) = module.entries.values()
    found = {}
    for name in graph.inputs:
        type_ = graph.node(name).type
        shape = [d if isinstance(d, int) else 3 for d in type_.shape or ()]
        array = rng.standard_normal(shape).astype(type_.dtype.numpy) if type_.dtype.is_floating else rng.integers(0, 3, shape)
        if special and type_.dtype.is_floating and array.size:
            places = rng.permutation(array.size)[:5]
            array.reshape(-1)[places] = np.array([np.nan, np.inf, -np.inf, -0.0, 0.0])[: len(places)]
        found[name] = array.astype(type_.dtype.numpy)
    return found


def _body(text: str) -> str:
    """The text without its facts: they are the manager's business."""
    return "\n".join(line for line in text.splitlines() if not line.startswith("module "))
