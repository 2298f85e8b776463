"""What validation found, in words and as data."""

from __future__ import annotations

from dataclasses import dataclass, field

from compiler.validate.compare import Difference


@dataclass(frozen=True)
class Verdict:
    """`passed` is the answer; the rest is how it was reached."""

    numerics: str
    differences: tuple[Difference, ...] = ()
    faults: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    draws: int = 0
    seconds: float = 0.0
    compared: dict[str, int] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        return not self.faults and all(d.passes for d in self.differences) and self.draws > 0

    def worst(self) -> dict[str, Difference]:
        """For each output, the difference nearest to (or past) its bound."""
        found: dict[str, Difference] = {}
        for difference in self.differences:
            held = found.get(difference.output)
            if held is None or _pressure(difference) > _pressure(held):
                found[difference.output] = difference
        return found

    def __str__(self) -> str:
        head = "VALID" if self.passed else "NOT VALID"
        lines = [f"{head} under numerics {self.numerics!r}: {self.draws} inputs, {len(self.worst())} outputs"]
        lines += [f"  {d}" for d in self.worst().values()]
        lines += [f"  fault: {f}" for f in self.faults]
        lines += [f"  note: {n}" for n in self.notes]
        return "\n".join(lines)


def _pressure(difference: Difference) -> float:
    if difference.fault:
        return float("inf")
    return difference.error / difference.bound if difference.bound else difference.error
