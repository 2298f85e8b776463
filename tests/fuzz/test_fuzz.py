"""The explorer explored: a wrong pass among the orders is found, filed small and named; a process that dies is told of."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from compiler.ir.text import read_document
from passes.pipelines import PIPELINES
from tests.fuzz import explore, filing
from tests.fuzz.explore import Explorer, Outcome, trials
from tests.fuzz.filing import file_failure
from tests.fuzz.report import Totals, lines
from tests.fuzz.workers import Lost, _Worker, explore_all
from tests.pipeline.wrong import TABLE

pytestmark = pytest.mark.tf


@pytest.fixture(scope="module")
def explorer() -> Iterator[Explorer]:
    with pytest.MonkeyPatch.context() as patch:
        for module in (explore, filing):
            patch.setattr(module, "PASSES", TABLE)
        patch.setattr(explore, "PIPELINES", {**PIPELINES, "wrong": "simplify,cse,swaps-operands,dce", "right": "simplify,cse,dce"})
        made = Explorer(["wrong", "right"])
        yield made
        made.close()


def test_a_wrong_pass_is_found_and_filed_small(explorer: Explorer, tmp_path: Path) -> None:
    failures = [f for seed in range(12) for f in explorer.explore(seed).failures]
    assert failures and {f.trial.order for f in failures} == {"wrong"}
    filed = file_failure(explorer, failures[0], tmp_path)
    assert filed.kind == "swaps-operands (meaning)"
    pipeline, module = read_document(filed.file)
    assert pipeline is not None and "swaps-operands" in pipeline
    assert 2 <= sum(len(g) for g in module.graphs.values()) <= 5
    story = filed.file.with_suffix(".txt").read_text()
    assert "wrong pass: swaps-operands, 3 of 4" in story and "Sub: operands swapped" in story


def test_what_passes_see_and_change_is_counted(explorer: Explorer) -> None:
    totals = Totals()
    for seed in range(3):
        totals.add((explorer.explore(seed), []))
    assert totals.trials == 6
    assert {name for name, _ in totals.seen} == {"simplify", "cse", "swaps-operands", "dce"}
    assert {op for name, op in totals.changed if name == "swaps-operands"} <= {"AddV2", "Mul", "Sub"}
    assert totals.changed.keys() <= totals.seen.keys() | {(name, op) for name, op in totals.changed if op not in ("Input",)}
    text = "\n".join(lines(totals, 2.0, 1.0))
    assert "3 programs (seeds 0 to 2) through 6 orders in 2.0 s: 1.50 programs a second" in text


def test_orders_differ_in_devices_and_objectives() -> None:
    found = {(t.order, t.devices, t.objective) for seed in range(9) for t in trials(seed, ["default", "random"])}
    assert len(found) == 18


@pytest.mark.system
def test_a_process_that_dies_is_replaced_and_its_seed_told(tmp_path: Path) -> None:
    worker = _Worker(["default"], tmp_path)
    try:
        worker.begin(7)
        os.kill(worker._process.pid, 9)
        assert worker.answer() == Lost(7, "its process ended with status -9")
        worker.begin(8)
        answer = worker.answer()
        assert isinstance(answer, tuple) and isinstance(answer[0], Outcome) and answer[0].seed == 8
    finally:
        worker.end()


@pytest.mark.system
def test_seeds_are_shared_between_processes_until_the_deadline(tmp_path: Path) -> None:
    answers = list(explore_all(iter(range(6)), 2, ["default", "random"], tmp_path, None))
    assert sorted(a.seed if isinstance(a, Lost) else a[0].seed for a in answers) == list(range(6))
    assert not any(isinstance(a, Lost) or a[1] for a in answers), answers
    assert not list(explore_all(iter(range(6)), 1, ["default"], tmp_path, 0.0))
