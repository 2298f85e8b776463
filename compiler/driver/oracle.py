"""What one module computes otherwise than another, under the declared numerics: both are run as they stand, in children, Grappler off.

differs(original, candidate)  =>  "" or the values that differ, an output a line

Modules go to the children as graphs; those that only a SavedModel can hold (tables, assets) are saved first.  What the original answers is
remembered as long as the same one is asked about: bisection compares many modules with one.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from compiler.backend.executor import GraphExecutor, artefact_of
from compiler.backend.graphdef import emit_flat
from compiler.backend.pool import Pool
from compiler.backend.profiles import PROFILES
from compiler.backend.saved_model import Original, save
from compiler.execution import Array, Arrays, Artefact, RunResult, RuntimeConfig, SavedModelArtefact
from compiler.ir.errors import CleaveError
from compiler.ir.module import Module
from compiler.pipeline.instruments import ValidateEach
from compiler.validate import Validator, Verdict, subject
from compiler.validate.run import SPREAD_CONFIGS

FEW_SPREADS = tuple(row for row in SPREAD_CONFIGS if row[0] in ("1 thread", "oneDNN off"))
"""For hundreds of questions: each further setting is a process."""


class CannotCheck(CleaveError):
    """The original itself fails, whatever it is given."""


@dataclass
class Oracle:
    """`saved` is where tables and assets are; `spreads` are the settings under which the original's own movement is measured."""

    pool: Pool
    numerics: str = "reassociate"
    devices: int = 1
    saved: Original | None = None
    spreads: tuple[tuple[str, Mapping[str, int]], ...] = SPREAD_CONFIGS
    _held: _Runs | None = None

    def differs(self, original: Module, candidate: Module) -> str:
        """What differs, a line each; CannotCheck where the original has no answer."""
        runs = self._runs(original)
        lines: list[str] = []
        for entry in original.entries:
            if entry not in candidate.entries:
                lines.append(f"entry @{entry} is gone")
                continue
            verdict = self._verdict(runs, candidate, entry)
            if not verdict.draws:
                raise CannotCheck(f"entry @{entry} cannot be checked: {'; '.join(verdict.faults)}")
            lines += [f"@{entry}: {d}" for d in verdict.worst().values() if not d.passes]
            lines += [f"@{entry}: {fault}" for fault in verdict.faults]
        return "\n".join(lines)

    def watch(self, module: Module) -> ValidateEach:
        """An instrument that holds what passes make of the module against what it is now."""
        original = module.copy()
        return ValidateEach(lambda candidate: self.differs(original, candidate))

    def _verdict(self, runs: _Runs, candidate: Module, entry: str) -> Verdict:
        validator = Validator(
            runs, GraphExecutor(self.pool), self.numerics, self.devices, grappler=(False,), spreads=self.spreads
        )  # fmt: skip
        with tempfile.TemporaryDirectory(prefix="cleave-oracle-") as directory:
            return validator.check(subject(runs.original(entry), runs.module, entry), runs.emitted(candidate, entry, Path(directory)))

    def _runs(self, original: Module) -> _Runs:
        held = self._held
        if held is None or held.module is not original or held.version != original.version:
            held = self._held = _Runs(self.pool, original, original.version, self.saved)
        return held


@dataclass
class _Runs:
    """An Executor: runs what it emitted, names state as the module does, and remembers what the original answered."""

    pool: Pool
    module: Module
    version: int
    saved: Original | None
    _originals: dict[str, Artefact] = field(default_factory=dict)
    _handles: list[tuple[Artefact, Mapping[str, str]]] = field(default_factory=list)
    _answers: dict[str, list[RunResult]] = field(default_factory=dict)
    _directory: tempfile.TemporaryDirectory[str] = field(default_factory=lambda: tempfile.TemporaryDirectory(prefix="cleave-oracle-"))

    def original(self, entry: str) -> Artefact:
        if entry not in self._originals:
            place = Path(self._directory.name) / str(len(self._originals))
            place.mkdir()
            self._originals[entry] = self.emitted(self.module, entry, place)
        return self._originals[entry]

    def emitted(self, module: Module, entry: str, directory: Path) -> Artefact:
        if self.module.resources:
            return SavedModelArtefact(save(module, directory / "model", original=self.saved).path, entry)
        emission = emit_flat(module, entry, PROFILES["native"])
        artefact = artefact_of(emission, module.stores, directory)
        self._handles = [*self._handles[-8:], (artefact, emission.handles)]
        return artefact

    def run(
        self,
        artefact: Artefact,
        requests: Sequence[Arrays],
        *,
        config: RuntimeConfig = RuntimeConfig(),  # noqa: B008 - frozen
        timeout_seconds: float = 120.0,
        want_variables: bool = False,
        repeat: int = 0,
        trace: bool = False,
        keep_state: bool = False,
    ) -> list[RunResult]:
        entry = next((name for name, known in self._originals.items() if known is artefact), None)
        key = "" if entry is None else repr((entry, config, want_variables, [_digest(request) for request in requests]))
        if key in self._answers:
            return self._answers[key]
        results = self.pool.run(
            artefact, requests, config=config, timeout_seconds=timeout_seconds, want_variables=want_variables, repeat=repeat, trace=trace,
            keep_state=keep_state,
        )  # fmt: skip
        handles = next((handles for known, handles in self._handles if known is artefact), {})
        found = [_by_reference(result, handles) for result in results]
        if key:
            self._answers[key] = found
        return found


def _by_reference(result: RunResult, handles: Mapping[str, str]) -> RunResult:
    """State under the module's names for it."""
    if result.variables is None:
        return result
    named = {handles.get(name, name): value for name, value in result.variables.items()}
    return replace(result, variables=named, unchanged=tuple(handles.get(name, name) for name in result.unchanged))


def _digest(request: Arrays) -> str:
    digest = hashlib.sha256()
    for name, array in sorted(request.items()):
        digest.update(repr((name, str(array.dtype), array.shape)).encode())
        digest.update(_bytes(array))
    return digest.hexdigest()


def _bytes(array: Array) -> bytes:
    return repr(array.tolist()).encode() if array.dtype == object else array.tobytes()
