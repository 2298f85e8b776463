"""What a compilation did: passes with their times, what changed, what was refused and why, and whether it is still the same function."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from compiler.pipeline.base import Note
from compiler.validate import Verdict


@dataclass(frozen=True)
class PassRun:
    """One pass as it ran: seconds, and nodes in all graphs after it."""

    name: str
    seconds: float
    nodes: int


@dataclass(frozen=True)
class Report:
    """`verdicts` has one verdict for each validated signature; `kept` and `dropped` are signatures and methods not compiled."""

    source: str
    passes: tuple[PassRun, ...]
    notes: tuple[Note, ...]
    verdicts: Mapping[str, Verdict] = field(default_factory=dict)
    kept: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    measured_seconds: Mapping[str, float] = field(default_factory=dict)
    absent: str = ""
    """The tasks of the cluster that did not answer, so that nothing was run there."""

    @property
    def valid(self) -> bool | None:
        """Did every signature pass?  None where nothing was validated."""
        return all(v.passed for v in self.verdicts.values()) if self.verdicts else None

    @property
    def changes(self) -> tuple[Note, ...]:
        return tuple(n for n in self.notes if n.kind == "change")

    @property
    def refusals(self) -> tuple[Note, ...]:
        return tuple(n for n in self.notes if n.kind == "refusal")

    def refusal_counts(self) -> list[tuple[str, str, int]]:
        """(pass, reason, how often), most frequent first."""
        found = Counter((n.pass_name, n.what) for n in self.refusals)
        return [(name, what, count) for (name, what), count in sorted(found.items(), key=lambda item: (-item[1], item[0]))]

    def to_json(self) -> str:
        """The report as data."""
        return json.dumps(
            {
                "source": self.source,
                "passes": [vars(p) for p in self.passes],
                "changes": [vars(n) for n in self.changes],
                "refusals": [vars(n) for n in self.refusals],
                "verdicts": {key: {"passed": v.passed, "text": str(v)} for key, v in self.verdicts.items()},
                "kept": self.kept,
                "dropped": self.dropped,
                "absent": self.absent,
                "measured_seconds": dict(self.measured_seconds),
            },
            indent=1,
            sort_keys=True,
        )

    def __str__(self) -> str:
        lines = [f"{self.source}: {len(self.passes)} passes in {sum(p.seconds for p in self.passes):.2f} s"]
        lines += [f"  {p.name:<24} {p.seconds:8.3f} s  {p.nodes:6d} nodes" for p in self.passes]
        lines += [f"  {name}: refused {count}x: {what}" for name, what, count in self.refusal_counts()[:20]]
        lines += [f"{key}: {verdict}" for key, verdict in self.verdicts.items()]
        return "\n".join(lines)
