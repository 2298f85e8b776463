"""A loaded model's variables after each call, large ones only when the call has changed them: a model may hold more than can be sent.

{counter: 8 bytes, kernel: 1 GiB}  =>  read() gives {counter: array}, and says that kernel is as it was when the run began
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np

from compiler.execution import Array

if TYPE_CHECKING:
    from compiler.backend.loaded import Loaded

MODEL_BYTES = 64 << 20
"""Models that hold less send everything."""
LARGE_BYTES = 1 << 20


class StateView:
    """One run's view; what cannot be written is not read, and what can is known by its digest."""

    def __init__(self, loaded: Loaded) -> None:
        self._loaded = loaded
        sizes = loaded.variable_bytes()
        self._large = tuple(sorted(n for n, size in sizes.items() if size > LARGE_BYTES)) if sum(sizes.values()) > MODEL_BYTES else ()
        self._digests = {name: _digest(self._value(name)) for name in self._large} if loaded.stateful else {}

    def read(self) -> tuple[dict[str, Array], list[str]]:
        """(values, names of the large variables that are as they were)"""
        values = self._loaded.variables([name for name in self._loaded.variable_bytes() if name not in self._large])
        unchanged = []
        for name in self._large:
            if name in self._digests and _digest(found := self._value(name)) != self._digests[name]:
                values[name] = found
            else:
                unchanged.append(name)
        return values, unchanged

    def _value(self, name: str) -> Array:
        return self._loaded.variables([name])[name]


def _digest(array: Array) -> bytes:
    return hashlib.blake2b(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data, digest_size=16).digest()
