"""What an exploration came to: rate, failures by kind, and which pass saw and changed which op."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from compiler.ops.registry import FAMILIES
from passes import PASSES
from tests.fuzz.explore import Outcome
from tests.fuzz.filing import Filed
from tests.fuzz.workers import Answer, Lost

NEVER_IN_A_GRAPH = ("Input", "Variable", "Resource")


@dataclass
class Totals:
    """Sums over outcomes."""

    programs: int = 0
    trials: int = 0
    thorough: int = 0
    longest: tuple[float, int] = (0.0, -1)
    seeds: list[int] = field(default_factory=list)
    unrunnable: list[tuple[int, str]] = field(default_factory=list)
    filed: list[Filed] = field(default_factory=list)
    lost: list[Lost] = field(default_factory=list)
    seen: Counter[tuple[str, str]] = field(default_factory=Counter)
    changed: Counter[tuple[str, str]] = field(default_factory=Counter)

    def add(self, answer: Answer) -> None:
        self.programs += 1
        if isinstance(answer, Lost):
            self.lost.append(answer)
            self.seeds.append(answer.seed)
            return
        outcome, filed = answer
        self._add(outcome)
        self.filed += filed

    def _add(self, outcome: Outcome) -> None:
        self.seeds.append(outcome.seed)
        self.trials += outcome.trials
        self.thorough += outcome.thorough
        self.longest = max(self.longest, (outcome.seconds, outcome.seed))
        self.unrunnable += [(outcome.seed, outcome.original)] if outcome.original else []
        self.seen.update(outcome.seen)
        self.changed.update(outcome.changed)

    @property
    def failed(self) -> bool:
        return bool(self.filed or self.lost)


def lines(totals: Totals, seconds: float, processor_seconds: float) -> Iterator[str]:
    """For a person."""
    rate = totals.programs / seconds if seconds else 0.0
    seeds = f"seeds {min(totals.seeds, default=0)} to {max(totals.seeds, default=0)}"
    yield f"{totals.programs} programs ({seeds}) through {totals.trials} orders in {seconds:.1f} s: {rate:.2f} programs a second"
    each = 1000 * processor_seconds / max(1, totals.programs)
    yield f"{processor_seconds:.1f} s of processor time in all, {each:.0f} ms a program, starting and filing included"
    yield f"{totals.thorough} needed a float64 run; the longest took {totals.longest[0]:.1f} s (seed {totals.longest[1]})"
    if totals.unrunnable:
        seed, why = totals.unrunnable[0]
        yield f"{len(totals.unrunnable)} programs fail themselves on every input, e.g. seed {seed}: {why[:120]}"
    yield ""
    yield from _coverage(totals)
    yield ""
    for lost in totals.lost:
        yield f"LOST seed {lost.seed}: {lost.what}"
    for kind, count in Counter(f.kind for f in totals.filed).most_common():
        first = next(f for f in totals.filed if f.kind == kind)
        yield f"FAILED {count} x {kind}, first {first.file}"
        yield f"  {first.line}"
    yield (
        "no wrong answer, no crash, no hang" if not totals.failed else f"{len(totals.filed)} failures filed, {len(totals.lost)} seeds lost"
    )


def _coverage(totals: Totals) -> Iterator[str]:
    """A row for each pass, and the ops that no program had."""
    yield f"{'pass':<24} {'ops seen':>8} {'ops changed':>11}"
    for name in PASSES:
        seen, changed = (sum(1 for row in table if row[0] == name) for table in (totals.seen, totals.changed))
        yield f"{name:<24} {seen:>8} {changed:>11}"
    entries = {s.name for specs in FAMILIES.values() for s in specs} - set(NEVER_IN_A_GRAPH)
    drawn = {op for _, op in totals.seen}
    missing = sorted(entries - drawn)
    yield f"{len(entries & drawn)} of {len(entries)} ops with an entry were drawn; never: {', '.join(missing) or 'none'}"
    yield f"{len(totals.seen)} pairs of pass and op seen, {len(totals.changed)} changed"


def write_json(totals: Totals, seconds: float, file: Path) -> None:
    """The whole table."""
    table = {
        name: {op: [count, totals.changed[name, op]] for (pass_, op), count in sorted(totals.seen.items()) if pass_ == name}
        for name in PASSES
    }
    data = {
        "programs": totals.programs,
        "orders": totals.trials,
        "seconds": seconds,
        "seeds": [min(totals.seeds, default=0), max(totals.seeds, default=0)],
        "failures": [{"seed": f.seed, "file": str(f.file), "kind": f.kind, "line": f.line} for f in totals.filed],
        "lost": [vars(lost) for lost in totals.lost],
        "passes": table,
    }
    file.write_text(json.dumps(data, indent=1, sort_keys=True) + "\n", encoding="utf-8")
