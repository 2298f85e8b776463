"""The first wrong pass of a pipeline, and the first wrong rewrite in it.

    after pass     0      1      2      3      4           the module after each pass, repeats unrolled
                   right  right  right  wrong  wrong       => pass 3, given a module that is right
    with fuel      0      1      2      3                  that pass, allowed so many rewrites
                   right  right  wrong  wrong              => its rewrite 2

Both searches halve, keeping a right one on the left and a wrong one on the right, so what is found is always a step from right to wrong,
and the first of them where nothing wrong becomes right again.  A pass that is wrong without a single rewrite carries out what passes
before it decided: the rewrites of all of them are halved instead.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from compiler.ir.diff import diff
from compiler.ir.errors import CleaveError
from compiler.ir.module import Module
from compiler.pipeline.base import Note
from compiler.pipeline.manager import Limited, Step, Watched, passes_of
from compiler.pipeline.probe import CRASH, MEANING, Fault, Probe, Tried
from compiler.pipeline.text import VALIDATE_EACH, print_pipeline

MOST_CHANGES = 12


@dataclass(frozen=True)
class Rewrite:
    """Rewrite `number` of `total`: the pass that made it, what it told of it, and what it did to the module."""

    pass_name: str
    number: int
    total: int
    notes: tuple[Note, ...]
    changes: tuple[str, ...]


@dataclass(frozen=True)
class Culprit:
    """Pass `position` of `passes`, and its wrong rewrite (None: it is wrong without one).

    The rewrite is another pass's, counted from the first pass on, where the wrong pass carries out what that one decided.
    `before` is the module and `pipeline` the text that give the fault again.
    """

    fault: Fault
    pass_name: str
    position: int
    passes: int
    rewrite: Rewrite | None
    before: Module
    pipeline: str


def bisect(module: Module, steps: Sequence[Step], probe: Probe, say: Callable[[str], None] = lambda _: None) -> Culprit | None:
    """What makes the module wrong, None where nothing does.  CleaveError where it is wrong before any pass."""
    return _Hunt(module, probe, say).run(steps)


@dataclass
class _Hunt:
    module: Module
    probe: Probe
    say: Callable[[str], None]
    tries: int = field(default=0)

    def run(self, steps: Sequence[Step]) -> Culprit | None:
        untouched = self._try(self.module, ())
        if untouched.fault is not None:
            raise CleaveError(f"the module is wrong before any pass runs: {untouched.fault.words}")
        whole = self._try(self.module, steps)
        if whole.fault is None:
            return None
        good, position, fault = self._pass(whole.ran, whole.fault)
        wrong = whole.ran[position - 1]
        (step,) = passes_of([wrong])
        found = self._rewrite(good, (wrong,)) or self._rewrite(self.module, whole.ran[:position])
        before, pipeline, fault = self._again(found, good, wrong, fault)
        rewrite = None if found is None else found.told()
        return Culprit(fault, step.name, position, len(whole.ran), rewrite, before, pipeline)

    def _try(self, module: Module, steps: Sequence[Step], original: Module | None = None) -> Tried:
        self.tries += 1
        self.say(f"run {self.tries}")
        return self.probe.run(module, steps, self.module if original is None else original)

    def _pass(self, ran: Sequence[Step], fault: Fault) -> tuple[Module, int, Fault]:
        """(the module before the first wrong pass, its number from 1, what is wrong after it)"""
        good, low, high = self.module, 0, len(ran)
        while high - low > 1:
            middle = (low + high) // 2
            tried = self._try(good, ran[low:middle])
            if tried.fault is None:
                good, low = tried.module, middle
            else:
                high, fault = low + len(tried.ran), tried.fault
        return good, high, fault

    def _rewrite(self, good: Module, steps: Sequence[Step]) -> _Halved | None:
        """The first wrong rewrite of the steps, which are wrong; None where they are wrong without one."""
        bad = self._try(good, steps)
        right = self._try(good, [Limited(tuple(steps), 0)])
        if bad.fault is None:
            raise CleaveError(f"{print_pipeline(steps)} is wrong in one run and right in the next: it is not deterministic")
        if right.fault is not None or not bad.rewrites:
            return None
        low, high, total = 0, bad.rewrites, bad.rewrites
        while high - low > 1:
            middle = (low + high) // 2
            tried = self._try(good, [Limited(tuple(steps), middle)])
            if tried.fault is None:
                low, right = middle, tried
            else:
                high, bad = middle, tried
        return _Halved(tuple(steps), high, total, bad, right)

    def _again(self, found: _Halved | None, good: Module, wrong: Step, fault: Fault) -> tuple[Module, str, Fault]:
        """The nearest module and pipeline that give the fault again: one rewrite, else one pass so limited, else all of them."""
        nearest: list[tuple[Module, Step]] = []
        if found is not None and len(found.steps) == 1:
            nearest = [(found.right.module, Limited(found.steps, 1)), (good, Limited(found.steps, found.number))]
        elif found is not None:
            decided = self._try(self.module, [Limited(found.steps[:-1], found.number)])
            nearest = [(decided.module, wrong), (self.module, Limited(found.steps, found.number))]
        for before, step in (*nearest, (good, wrong)):
            try:
                tried = self._try(before, (step,), before)
            except CleaveError:  # the module that one rewrite led to need not have the facts that the pass asks for
                continue
            if tried.fault is not None and tried.fault.kind == fault.kind:
                return before, print_pipeline([Watched((step,), VALIDATE_EACH) if fault.kind == MEANING else step]), tried.fault
        return self.module, print_pipeline([wrong]), fault


@dataclass(frozen=True)
class _Halved:
    """Rewrite `number` of `total` of the steps; the runs with it and without it."""

    steps: tuple[Step, ...]
    number: int
    total: int
    bad: Tried
    right: Tried

    def told(self) -> Rewrite:
        return Rewrite(self.bad.trail.pass_of(self.number), self.number, self.total, self._notes(), self._changes())

    def _notes(self) -> tuple[Note, ...]:
        """What the passes told of the one run and not of the other."""
        told = Counter(self.right.changes)
        new = []
        for note in self.bad.changes:
            told[note] -= 1
            if told[note] < 0:
                new.append(note)
        return tuple(new)

    def _changes(self) -> tuple[str, ...]:
        """What it did to the module, in words."""
        if self.bad.fault is not None and self.bad.fault.kind == CRASH:
            return ()
        return tuple(diff(self.right.module, self.bad.module))[:MOST_CHANGES]
