"""A failure, filed: the wrong rewrite named, the case made small, `<seed>-<order>.ir` and beside it `.txt` with how it came about."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from compiler.ir.text import print_module, write_module
from compiler.pipeline.bisect import Culprit, bisect
from compiler.pipeline.reduce import Reduction, reduce
from compiler.pipeline.text import parse_pipeline, print_pipeline
from passes import PASSES
from tests.fuzz.explore import Explorer, Failure
from tests.programs import program

MOST_TRIES = 400


@dataclass(frozen=True)
class Filed:
    """Where a failure lies, and what it is in a line; failures of one `kind` are likely one fault."""

    seed: int
    file: Path
    kind: str
    line: str


def file_failure(explorer: Explorer, failure: Failure, directory: Path) -> Filed:
    """What cannot be bisected or reduced (a law about two runs, say) is filed as the program it was."""
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / f"{failure.seed}-{failure.trial.order}.ir"
    module, steps, probe = program(failure.seed), parse_pipeline(failure.trial.pipeline, PASSES), explorer.probe(failure)
    culprit: Culprit | None = None
    small: Reduction | None = None
    trouble = ""
    try:
        culprit = bisect(module, steps, probe)
        if culprit is not None:
            small = reduce(culprit.before, parse_pipeline(culprit.pipeline, PASSES), probe, MOST_TRIES)
    except Exception as error:  # a failure must be filed, whatever its hunting comes upon
        trouble = f"{type(error).__name__}: {error}"
    if small is not None:
        write_module(small.module, file, pipeline=small.pipeline)
    elif culprit is not None:
        write_module(culprit.before, file, pipeline=culprit.pipeline)
    else:
        write_module(module, file, pipeline=print_pipeline(steps))
    kind = failure.text.partition(":")[0] if culprit is None else f"{culprit.pass_name} ({culprit.fault.kind})"
    file.with_suffix(".txt").write_text(_story(failure, culprit, small, trouble), encoding="utf-8")
    nodes = "" if small is None else f", {small.nodes[1]} nodes of {small.nodes[0]}"
    return Filed(failure.seed, file, kind, f"{kind}{nodes}: {failure.text.splitlines()[0][:200]}")


def _story(failure: Failure, culprit: Culprit | None, small: Reduction | None, trouble: str) -> str:
    lines = [f"seed {failure.seed}, {failure.trial}", f"order: {failure.trial.pipeline}", "", failure.text, ""]
    if culprit is not None:
        lines += [f"wrong pass: {culprit.pass_name}, {culprit.position} of {culprit.passes}", f"  {culprit.fault.words}"]
        if culprit.rewrite is not None:
            lines.append(f"wrong rewrite: {culprit.rewrite.number} of {culprit.rewrite.total}, by {culprit.rewrite.pass_name}")
            lines += [f"  {note.where}: {note.what}" for note in culprit.rewrite.notes]
            lines += [f"  {change}" for change in culprit.rewrite.changes]
    if small is not None:
        lines += ["", f"reduced to {small.nodes[1]} nodes of {small.nodes[0]} in {small.tries} runs: {small.fault.words}"]
        lines += ["", print_module(small.module)]
    return "\n".join([*lines, *([f"hunting it failed: {trouble}"] if trouble else [])]) + "\n"
