"""Running steps on a copy of a module, and saying what is wrong with what comes out: what `bisect` and `reduce` ask again and again.

crash     a pass raised
rule      a pass left a module that breaks a rule of the verifier's
meaning   what came out computes something else than the original
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from compiler.ir.errors import CleaveError
from compiler.ir.module import Module
from compiler.pipeline.base import Context, Note
from compiler.pipeline.instruments import BrokenRule, Trail, VerifyEach
from compiler.pipeline.manager import Instrument, Limited, Step, Watched, passes_of, run_pipeline

CRASH, RULE, MEANING = "crash", "rule", "meaning"
KINDS = (CRASH, RULE, MEANING)

Differs: TypeAlias = Callable[[Module, Module], str]
"""(original, candidate) -> what the candidate computes otherwise, "" where nothing.  CleaveError where the original cannot be run."""


@dataclass(frozen=True)
class Fault:
    """What is wrong; `pass_name` is the pass that raised or broke a rule, "" where only the end was looked at.

    `sort` is the rule that was broken, or what was raised and by which function.
    """

    kind: str
    words: str
    pass_name: str = ""
    sort: str = ""

    def resembles(self, other: Fault) -> bool:
        """The same fault, as far as can be told without its words, which change as a module shrinks."""
        return (self.kind, self.pass_name, self.sort) == (other.kind, other.pass_name, other.sort)


@dataclass(frozen=True)
class Tried:
    """One run: the module, what ran (the step that failed included), the changes told of, and how many rewrites each pass made."""

    module: Module
    fault: Fault | None
    ran: tuple[Step, ...]
    changes: tuple[Note, ...]
    trail: Trail

    @property
    def rewrites(self) -> int:
        return sum(count for _, count in self.trail.spent)


@dataclass(frozen=True)
class Probe:
    """`kinds` of faults that count; a context is made anew for each run, as services may remember."""

    context: Callable[[], Context]
    differs: Differs
    kinds: tuple[str, ...] = KINDS

    def run(self, module: Module, steps: Sequence[Step], original: Module | None = None) -> Tried:
        """The steps on a copy of the module, compared with `original` (None: with the module)."""
        context, copy = self.context(), module.copy()
        trail = Trail(context)
        instruments: list[Instrument] = [*([VerifyEach()] if RULE in self.kinds else []), trail]
        fault: Fault | None = None
        try:
            run_pipeline(copy, tuple(unwatched(steps)), context, instruments)
        except Exception as error:  # whatever a pass raises is what is looked for
            if trail.failing is None:
                raise
            fault = self._raised(error, trail.failing)
        if fault is None and MEANING in self.kinds:
            words = self.differs(module if original is None else original, copy)
            fault = Fault(MEANING, words) if words else None
        ran = (*trail.ran, *(() if trail.failing is None else (trail.failing,)))
        return Tried(copy, fault, ran, tuple(n for n in context.notes if n.kind == "change"), trail)

    def _raised(self, error: Exception, failing: Step) -> Fault:
        kind = RULE if isinstance(error, BrokenRule) else CRASH
        if kind not in self.kinds:
            raise error
        words = str(error) if isinstance(error, CleaveError) else f"{type(error).__name__}: {error}"
        return Fault(kind, words, next(p.name for p in passes_of([failing])), _sort(error))


def _sort(error: Exception) -> str:
    rule = re.search(r"breaks the rule '([^']*)'", str(error)) if isinstance(error, BrokenRule) else None
    frames = traceback.extract_tb(error.__traceback__)
    return rule[1] if rule is not None else f"{type(error).__name__} in {frames[-1].name if frames else '?'}"


def unwatched(steps: Iterable[Step]) -> Iterator[Step]:
    """The steps without the checks they were to run under: a probe makes its own."""
    for step in steps:
        if isinstance(step, Watched):
            yield from unwatched(step.steps)
        else:
            yield Limited(tuple(unwatched(step.steps)), step.most) if isinstance(step, Limited) else step
