"""Runs passes on a module: facts checked before, updated after, instruments told.  Knows no pass and no instrument by name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from compiler.ir.errors import CleaveError
from compiler.ir.module import Module
from compiler.pipeline.base import Context, Pass

MOST_REPEATS = 8
"""A repeat stops after this many rounds, still or not, unless it is told another number."""


class Instrument(Protocol):
    """Is told about every pass: with `position`, its running number from 1."""

    def before_pass(self, position: int, step: Pass, module: Module) -> None: ...
    def after_pass(self, position: int, step: Pass, module: Module) -> None: ...
    def failed(self, position: int, step: Pass, module: Module, error: Exception) -> None: ...


class Silent:
    """An instrument that does nothing: what others override a part of."""

    def before_pass(self, position: int, step: Pass, module: Module) -> None:
        return

    def after_pass(self, position: int, step: Pass, module: Module) -> None:
        return

    def failed(self, position: int, step: Pass, module: Module, error: Exception) -> None:
        return


@dataclass(frozen=True)
class Repeat:
    """Passes repeated until the module stands still, at most `most` times; text: `repeat(a,b)`, or `repeat{most=3}(a,b)`."""

    passes: tuple[Pass, ...]
    most: int = MOST_REPEATS


Step = Pass | Repeat


def run_pipeline(module: Module, steps: Sequence[Step], context: Context, instruments: Sequence[Instrument] = ()) -> None:
    """Run the steps in order."""
    runner = _Runner(module, context, instruments)
    for step in steps:
        if isinstance(step, Pass):
            runner.run(step)
        else:
            runner.repeat(step)


@dataclass
class _Runner:
    module: Module
    context: Context
    instruments: Sequence[Instrument]
    position: int = 0

    def repeat(self, step: Repeat) -> None:
        for _ in range(step.most):
            version = self.module.version
            for inner in step.passes:
                self.run(inner)
            if self.module.version == version:
                return

    def run(self, step: Pass) -> None:
        missing = step.requires - self.module.facts
        if missing:
            raise CleaveError(
                f"pass {step.name!r} needs a module that is {', '.join(sorted(missing))}; put the pass that makes it so before"
            )
        self.position += 1
        self.context.pass_name = step.name
        for instrument in self.instruments:
            instrument.before_pass(self.position, step, self.module)
        try:
            step.run(self.module, self.context)
            self.module.facts = (self.module.facts - step.breaks) | step.establishes
            for instrument in self.instruments:
                instrument.after_pass(self.position, step, self.module)
        except Exception as error:
            for instrument in self.instruments:
                instrument.failed(self.position, step, self.module, error)
            raise
