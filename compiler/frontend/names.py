"""Names of imported functions: TensorFlow's process-wide counters go, so that the same model gives the same text each time.

    __inference_serve_1234  =>  serve      gru_1_while_body_5423  =>  gru_1_while_body      f, f_1  =>  f, f_1

Names that were not generated are kept.  Where two would meet, the later one asked for gets a number.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_GENERATED = (
    re.compile(r"__(?:inference|forward|backward)_(?P<stem>.+?)_\d+(?:_\d+)?"),
    re.compile(r"(?P<stem>(?:.+_)?(?:while_body|while_cond|branch\d+|true|false))_\d+(?:_(?:rewritten|const_\d+))*"),
)


def stem_of(name: str) -> str | None:
    """What a generated name was generated from; None for a name that somebody chose."""
    for pattern in _GENERATED:
        found = pattern.fullmatch(name)
        if found:
            return found["stem"]
    return None


class Names:
    """original name -> the IR's, unique among functions and none of the `reserved` (names of entries)."""

    def __init__(self, functions: Iterable[str], reserved: Iterable[str] = ()) -> None:
        self._reserved = frozenset(reserved)
        self._given: dict[str, str] = {}
        self._taken = {name for name in functions if stem_of(name) is None} | self._reserved
        self._counts: dict[str, int] = {}

    def of(self, function: str) -> str:
        """The same answer each time for one function."""
        if function not in self._given:
            stem = stem_of(function)
            kept = stem is None and function not in self._reserved
            self._given[function] = function if kept else self._fresh(stem or function)
        return self._given[function]

    def _fresh(self, stem: str) -> str:
        name = stem
        while name in self._taken:
            self._counts[stem] = self._counts.get(stem, 0) + 1
            name = f"{stem}_{self._counts[stem]}"
        self._taken.add(name)
        return name
