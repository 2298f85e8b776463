"""Every golden: the text that comes out, twice the same as once, nothing without fuel, and the same values bit for bit."""

from pathlib import Path

import numpy as np
import pytest

from compiler.execution import RuntimeConfig
from compiler.ir.text import print_document, print_module
from tests.passes.goldens import CASES, after_path, golden_text, load, run

IDS = [f"{case.parent.name}/{case.stem}" for case in CASES]


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_what_comes_out(case: Path) -> None:
    assert golden_text(case) == after_path(case).read_text(encoding="utf-8")


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_twice_is_once(case: Path) -> None:
    once, context = run(case)
    assert any(note.kind == "change" for note in context.notes)
    _, pass_, _, again = load(case)
    before = print_document(None, once)
    pass_.run(once, again)
    assert print_document(None, once) == before and not any(note.kind == "change" for note in again.notes)


@pytest.mark.parametrize("case", [c for c in CASES if c.parent.name != "place"], ids=[i for i in IDS if not i.startswith("place")])
def test_nothing_without_fuel(case: Path) -> None:
    _, pass_, module, context = load(case)
    context.fuel, before = 0, print_module(module)
    pass_.run(module, context)
    assert print_module(module) == before


@pytest.mark.tf
@pytest.mark.parametrize(
    "case", [c for c in CASES if c.stem not in ("host", "variables")], ids=[i for i in IDS if "host" not in i and "var" not in i]
)
def test_the_values_are_the_same(case: Path) -> None:
    from compiler.backend.executor import GraphExecutor
    from compiler.backend.pool import Pool

    (_, _, before, _), (after, _) = load(case), run(case)
    shape = before.entries["main"].node("x").type.shape or ()
    request = {"x": np.random.default_rng(0).standard_normal([d for d in shape if isinstance(d, int)]).astype(np.float32)}
    with Pool() as pool:
        results = [
            GraphExecutor(pool).run_module(m, "main", [request], config=RuntimeConfig(devices=2, intra_threads=1)) for m in (before, after)
        ]
    (whole,), (changed,) = results
    assert whole.error is None and changed.error is None, (whole.error, changed.error)
    assert whole.outputs.keys() == changed.outputs.keys()
    for name, array in whole.outputs.items():
        assert array.tobytes() == changed.outputs[name].tobytes()
