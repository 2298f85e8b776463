"""What watches a pipeline: times, dumps, verification after each pass, a reproducer when one fails."""

from __future__ import annotations

import shlex
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar

from compiler.ir.diff import diff
from compiler.ir.errors import CleaveError
from compiler.ir.module import Module
from compiler.ir.text import write_module
from compiler.ir.verify import STRUCTURE, verify
from compiler.ir.weights import Stores
from compiler.ops.invariants import OPERATIONS
from compiler.pipeline.base import Context, Pass
from compiler.pipeline.manager import Silent
from compiler.pipeline.text import print_pipeline


@dataclass
class Timing(Silent):
    """Seconds of each pass, instruments left out, and the nodes there are after it."""

    rows: list[tuple[str, float, int]] = field(default_factory=list)
    _started: float = 0.0

    def before_pass(self, position: int, step: Pass, module: Module) -> None:
        self._started = time.perf_counter()

    def after_pass(self, position: int, step: Pass, module: Module) -> None:
        seconds = time.perf_counter() - self._started
        self.rows.append((step.name, seconds, sum(len(g) for g in module.graphs.values())))


@dataclass
class ShowPass(Silent):
    """Says which pass runs."""

    say: Callable[[str], None]

    def before_pass(self, position: int, step: Pass, module: Module) -> None:
        self.say(step.name)


class VerifyEach(Silent):
    """Every invariant after every pass that changed something; the error names the pass."""

    def __init__(self) -> None:
        self._version = -1

    def after_pass(self, position: int, step: Pass, module: Module) -> None:
        if module.version == self._version and not step.establishes:
            return
        self._version = module.version
        try:
            verify(module, (*STRUCTURE, *OPERATIONS))
        except CleaveError as error:
            raise CleaveError(f"after pass {step.name!r}: {error}") from None


@dataclass
class ValidateEach(Silent):
    """A check of the module's meaning after each pass: `check` returns a fault in words, "" if there is none."""

    check: Callable[[Module], str]

    def after_pass(self, position: int, step: Pass, module: Module) -> None:
        fault = self.check(module)
        if fault:
            raise CleaveError(f"pass {step.name!r} changed what the module computes: {fault}")


@dataclass
class Limit(Silent):
    """No more than `most` rewrites in all; `rows` holds (pass, rewrites so far), which names the pass of any rewrite by its number."""

    context: Context
    most: int
    rows: list[tuple[str, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.context.fuel = self.most

    def after_pass(self, position: int, step: Pass, module: Module) -> None:
        self.rows.append((step.name, self.context.spent))

    def pass_of(self, number: int) -> str:
        """The pass that made rewrite `number`, counted from 1; "" if none did."""
        return next((name for name, spent in self.rows if number <= spent), "")


@dataclass
class Dump(Silent):
    """`01-infer-types.ir`, `01-infer-types.diff`, ...: the module after each pass, and what the pass changed in words.

    Constants that passes computed are in `constants.weights` beside them, once; the model's own weights stay where they are.
    """

    directory: Path
    _before: Module | None = None
    _CONSTANTS: ClassVar[str] = "constants.weights"

    def before_pass(self, position: int, step: Pass, module: Module) -> None:
        if position == 1:
            self._make()
            self._write(module, "00-imported")
        self._before = module.copy()

    def after_pass(self, position: int, step: Pass, module: Module) -> None:
        stem = f"{position:02d}-{step.name}"
        self._write(module, stem)
        assert self._before is not None, "before_pass comes first"
        text = "".join(f"{line}\n" for line in diff(self._before, module))
        (self.directory / f"{stem}.diff").write_text(text, encoding="utf-8")

    def _write(self, module: Module, stem: str) -> None:
        write_module(replace(module, stores=self._kept(module.stores)), self.directory / f"{stem}.ir", pack="nothing")

    def _kept(self, stores: Stores) -> Stores:
        """The stores, the scratch file as a copy: it goes with the process.  It only grows, so only its new end is copied."""
        if stores.scratch is None:
            return stores
        kept = self.directory / self._CONSTANTS
        with stores.files[stores.scratch].open("rb") as source, kept.open("ab") as target:
            source.seek(target.tell())
            shutil.copyfileobj(source, target)
        return Stores({**stores.files, stores.scratch: kept})

    def _make(self) -> None:
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            (self.directory / self._CONSTANTS).unlink(missing_ok=True)
        except OSError as error:
            raise CleaveError(f"cannot write dumps to {self.directory}: {error.strerror}") from None


@dataclass
class Reproducer(Silent):
    """When a pass fails: the module before it and the pass, as `reproducer.ir`, ready for `cleave opt`."""

    directory: Path
    _before: Module | None = None

    def before_pass(self, position: int, step: Pass, module: Module) -> None:
        self._before = module.copy()

    def failed(self, position: int, step: Pass, module: Module, error: Exception) -> None:
        assert self._before is not None, "before_pass comes first"
        file, text = self.directory / "reproducer.ir", print_pipeline([step])
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            write_module(self._before, file, pipeline=text, pack="scratch")
        except (OSError, CleaveError) as fault:
            raise CleaveError(f"pass {step.name!r} failed: {error}; no reproducer: cannot write {file}: {fault}") from error
        command = shlex.join(["cleave", "opt", str(file), "--pipeline", text])
        raise CleaveError(f"pass {step.name!r} failed: {error}; reproduce with: {command}") from error
