"""`validate(a, b)`: are two models the same function?  And running one model on given arrays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from compiler.backend.executor import GraphExecutor
from compiler.backend.pool import Pool
from compiler.driver.compile import Compiled, Progress
from compiler.driver.original import with_original
from compiler.execution import Array, Artefact, RunResult, RuntimeConfig, SavedModelArtefact
from compiler.frontend.source import SourceModel, load
from compiler.ir.errors import CleaveError
from compiler.validate import Validator, Verdict, subject


@dataclass(frozen=True)
class Side:
    """One model to compare or run: what the pool runs, and the importer's view of it."""

    source: SourceModel
    compiled: Path | None = None

    def artefact(self, entry: str) -> Artefact:
        return SavedModelArtefact(self.compiled, entry) if self.compiled is not None else self.source.artefact_of(entry)

    def runnable(self) -> Side:
        """The same, an `.ir` file's module included."""
        return self if self.compiled is not None else Side(with_original(self.source))


def side_of(model: Any, allow_files: bool = False) -> Side:
    if isinstance(model, Compiled):
        return Side(model.source, model.artefact)
    return Side(model if isinstance(model, SourceModel) else load(model, allow_files=allow_files))


def validate(
    a: Any,
    b: Any,
    *,
    signature: str | None = None,
    numerics: str = "reassociate",
    devices: int = 1,
    allow_files: bool = False,
    progress: Progress = lambda _: None,
) -> Verdict:
    """The verdict on `b` as a replacement of `a`: the same inputs through both, `a` with Grappler off."""
    progress("loading")
    left, right = side_of(a, allow_files).runnable(), side_of(b, allow_files).runnable()
    entry = chosen_entry(left.source, signature)
    if entry not in right.source.module.entries:
        raise CleaveError(f"{right.source.path} has no signature {entry!r}, expected it as in {left.source.path}")
    with Pool() as pool:
        validator = Validator(pool, GraphExecutor(pool), numerics, devices, progress=progress)
        return validator.check(subject(left.artefact(entry), left.source.module, entry), right.artefact(entry))


def run_model(model: Any, inputs: Mapping[str, Array], *, signature: str | None = None, allow_files: bool = False) -> RunResult:
    """One call of a model in a child process; its error comes as a CleaveError."""
    side = side_of(model, allow_files).runnable()
    entry = chosen_entry(side.source, signature)
    wanted = side.source.module.entries[entry].inputs
    if set(wanted) != set(inputs):
        raise CleaveError(f"signature {entry!r} takes inputs {sorted(wanted)}, {sorted(inputs)} were given")
    with Pool() as pool:
        (result,) = pool.run(side.artefact(entry), [dict(inputs)], config=RuntimeConfig(grappler=True))
    if result.error is not None:
        raise CleaveError(f"{side.source.path}: {result.error.message}")
    return result


def chosen_entry(source: SourceModel, signature: str | None) -> str:
    entries = list(source.module.entries)
    if signature is None:
        signature = "serving_default" if "serving_default" in entries else entries[0]
    if signature not in entries:
        raise CleaveError(f"{source.path} has no signature {signature!r}, expected one of {sorted(entries)}")
    return signature
