"""What watches a pipeline: times, dumps, verification after each pass, a reproducer when one fails."""

from __future__ import annotations

import shlex
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar

from compiler.ir.diff import diff
from compiler.ir.errors import CleaveError, IrError
from compiler.ir.module import Module
from compiler.ir.text import write_module
from compiler.ir.verify import STRUCTURE, verify
from compiler.ir.weights import Stores
from compiler.ops.invariants import OPERATIONS
from compiler.pipeline.base import Context, Pass
from compiler.pipeline.manager import Limited, Silent, Step, Watched, run_pipeline
from compiler.pipeline.text import VALIDATE_EACH, print_pipeline


class PassFault(CleaveError):
    """A pass did something that no pass may do; the message names it."""


class BrokenRule(PassFault):
    """It left a module that breaks a rule of the verifier's."""


class ChangedMeaning(PassFault):
    """It left a module that computes something else."""


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
            raise BrokenRule(f"after pass {step.name!r}: {error}") from None


@dataclass
class ValidateEach(Silent):
    """A check of the module's meaning after each pass that changed something: `check` gives the fault in words, "" if there is none."""

    check: Callable[[Module], str]
    _version: int = -1

    def after_pass(self, position: int, step: Pass, module: Module) -> None:
        if module.version == self._version:
            return
        self._version = module.version
        fault = self.check(module)
        if fault:
            raise ChangedMeaning(f"pass {step.name!r} changed what the module computes: {fault}")


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
class Trail(Silent):
    """What has run, pass by pass, repeats unrolled, each limited to its share of the rewrites where they were limited: run on the module
    there was at first, it gives the module there is."""

    context: Context
    ran: list[Step] = field(default_factory=list)
    failing: Step | None = None
    spent: list[tuple[str, int]] = field(default_factory=list)
    """Rewrites that each pass made, one that failed included."""
    _before: int = 0

    def before_pass(self, position: int, step: Pass, module: Module) -> None:
        self._before = self.context.spent

    def after_pass(self, position: int, step: Pass, module: Module) -> None:
        self.spent.append((step.name, self.context.spent - self._before))
        self.ran.append(self._limited(step, self.context.spent - self._before))

    def failed(self, position: int, step: Pass, module: Module, error: Exception) -> None:
        del self.ran[position - 1 :], self.spent[position - 1 :]  # an instrument that comes later may be what failed
        self.spent.append((step.name, self.context.spent - self._before))
        self.failing = self._limited(step, (self.context.fuel or 0) - self._before)

    def pass_of(self, number: int) -> str:
        """The pass that made rewrite `number`, counted from 1; "" if none did."""
        for name, count in self.spent:
            if number <= count:
                return name
            number -= count
        return ""

    def _limited(self, step: Pass, most: int) -> Step:
        return step if self.context.fuel is None else Limited((step,), max(0, most))


@dataclass
class Reproducer(Trail):
    """When a pass fails: the module before it and the pass, as `reproducer.ir`, ready for `cleave opt`.

    Kept is the first module only: the passes that led from it to the one that failed are run again when one does.  Without a directory it
    makes one, and leaves a request that cannot be met (a cluster too small) as it is: that is no fault of a pass.
    """

    directory: Path | None = None
    _first: Module | None = None

    def before_pass(self, position: int, step: Pass, module: Module) -> None:
        self._first = module.copy() if self._first is None else self._first
        super().before_pass(position, step, module)

    def failed(self, position: int, step: Pass, module: Module, error: Exception) -> None:
        super().failed(position, step, module, error)
        if self.directory is None and isinstance(error, CleaveError) and not isinstance(error, IrError | PassFault):
            return
        assert self._first is not None and self.failing is not None, "before_pass and Trail.failed come first"
        what = str(error) if isinstance(error, PassFault) else f"pass {step.name!r} failed: {_one_line(error)}"
        text = print_pipeline([Watched((self.failing,), VALIDATE_EACH) if isinstance(error, ChangedMeaning) else self.failing])
        file = Path("reproducer.ir")
        try:
            file = self._made() / file
            run_pipeline(self._first, self.ran, replace(self.context, notes=[], fuel=None, spent=0))
            write_module(self._first, file, pipeline=text, pack="scratch")
        except (OSError, CleaveError) as fault:
            raise CleaveError(f"{what}; no reproducer: cannot write {file}: {fault}") from error
        command = shlex.join(["cleave", "opt", str(file), "--pipeline", text])
        raise CleaveError(f"{what}; reproduce with: {command}") from error

    def _made(self) -> Path:
        if self.directory is None:
            return Path(tempfile.mkdtemp(prefix="cleave-failed-"))
        self.directory.mkdir(parents=True, exist_ok=True)
        return self.directory


def _one_line(error: Exception) -> str:
    """What went wrong; of an exception that is not ours its kind too."""
    return str(error) if isinstance(error, CleaveError) else f"{type(error).__name__}: {error}"
