"""Where a program's choices come from: Hypothesis, which shrinks them, or a seed, which is fast."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from hypothesis import strategies as st

T = TypeVar("T")


class Source(Protocol):
    """Answers questions; the first of a sequence, the lowest number and `False` are the simplest answers."""

    def integer(self, low: int, high: int) -> int: ...


@dataclass(frozen=True)
class Hypothesis:
    draw: st.DrawFn

    def integer(self, low: int, high: int) -> int:
        return self.draw(st.integers(low, high))


class Seeded:
    """The same seed gives the same program, on every machine."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def integer(self, low: int, high: int) -> int:
        return self._random.randint(low, high)


@dataclass(frozen=True)
class Choices:
    """Questions a program asks, all told as integers."""

    source: Source

    def integer(self, low: int, high: int) -> int:
        return self.source.integer(low, high) if low < high else low

    def of(self, options: Sequence[T]) -> T:
        return options[self.integer(0, len(options) - 1)]

    def chance(self, one_in: int) -> bool:
        """True once in `one_in`; False is simpler."""
        return self.integer(0, one_in - 1) == one_in - 1

    def flag(self) -> bool:
        return self.chance(2)
