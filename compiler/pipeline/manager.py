"""Runs passes on a module: facts checked before, updated after, instruments told.  Knows no pass and no instrument by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

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


@dataclass(frozen=True)
class Limited:
    """Steps that together may make the first `most` of their rewrites; text: `limit{most=3}(a,b)`."""

    steps: tuple[Step, ...]
    most: int


@dataclass(frozen=True)
class Watched:
    """Steps that one more instrument is told of, by the name it has where the pipeline runs; text: `validate-each(a,b)`."""

    steps: tuple[Step, ...]
    watcher: str


Step: TypeAlias = "Pass | Repeat | Limited | Watched"
Watchers: TypeAlias = Mapping[str, Callable[[Module], Instrument]]
"""What `Watched` steps may name: makes the instrument, from the module as it is before them."""


def passes_of(steps: Iterable[Step]) -> Iterator[Pass]:
    """The passes in the order of the text, each once for each time it is written."""
    for step in steps:
        if isinstance(step, Pass):
            yield step
        else:
            yield from step.passes if isinstance(step, Repeat) else passes_of(step.steps)


def run_pipeline(
    module: Module, steps: Sequence[Step], context: Context, instruments: Sequence[Instrument] = (), watchers: Watchers | None = None
) -> None:
    """Run the steps in order."""
    _Runner(module, context, tuple(instruments), watchers or {}).steps(steps)


@dataclass
class _Runner:
    module: Module
    context: Context
    instruments: tuple[Instrument, ...]
    watchers: Watchers = field(default_factory=dict)
    position: int = 0

    def steps(self, steps: Sequence[Step]) -> None:
        for step in steps:
            match step:
                case Repeat():
                    self.repeat(step)
                case Limited():
                    self.limited(step)
                case Watched():
                    self.watched(step)
                case _:
                    self.run(step)

    def repeat(self, step: Repeat) -> None:
        for _ in range(step.most):
            version = self.module.version
            for inner in step.passes:
                self.run(inner)
            if self.module.version == version:
                return

    def limited(self, step: Limited) -> None:
        outer, own = self.context.fuel, self.context.spent + step.most
        self.context.fuel = own if outer is None else min(outer, own)
        self.steps(step.steps)
        self.context.fuel = outer

    def watched(self, step: Watched) -> None:
        if step.watcher not in self.watchers:
            known = ", ".join(sorted(self.watchers)) or "none"
            raise CleaveError(f"the pipeline asks for {step.watcher!r}, which does not exist here, expected one of {known}")
        outer = self.instruments
        self.instruments = (*outer, self.watchers[step.watcher](self.module))
        self.steps(step.steps)
        self.instruments = outer

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
