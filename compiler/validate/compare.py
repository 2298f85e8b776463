"""Comparing two arrays as results of one function: type, shape, where it is NaN, infinite, and by how much it differs.

    exact          equal bytes; NaN positions equal, zeros with their sign
    reassociate    |candidate - truth| <= max(2 * |original - truth|, 4 * spread of the original, ulps of the result)   in the largest norm

The truth is a float64 run where there is one, else the original.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from compiler.execution import Array

OWN_ERROR_FACTOR = 2.0
SPREAD_FACTOR = 4.0
RESULT_ULPS = 4.0
"""What any re-ordered sum may lose in its last rounding, as units in the last place of the largest result."""


@dataclass(frozen=True)
class Difference:
    """One output of one draw: largest errors in the output's own unit; `fault` says what is wrong beyond size, "" if nothing."""

    output: str
    draw: str
    error: float = 0.0
    own_error: float = 0.0
    spread: float = 0.0
    floor: float = 0.0
    fault: str = ""
    note: str = ""

    @property
    def bound(self) -> float:
        return max(OWN_ERROR_FACTOR * self.own_error, SPREAD_FACTOR * self.spread, self.floor)

    @property
    def passes(self) -> bool:
        return not self.fault and self.error <= self.bound

    def __str__(self) -> str:
        if self.fault:
            return f"{self.output} ({self.draw}): {self.fault}"
        verdict = "within" if self.passes else "ABOVE"
        return (
            f"{self.output} ({self.draw}): error {self.error:.2e} {verdict} {self.bound:.2e} "
            f"(the original's own error {self.own_error:.2e}, spread {self.spread:.2e}){self.note and '; ' + self.note}"
        )


def structure_fault(original: Array, candidate: Array) -> str:
    """dtype and shape, "" where they agree."""
    if original.dtype != candidate.dtype:
        return f"dtype is {candidate.dtype}, expected {original.dtype}"
    return f"shape is {candidate.shape}, expected {original.shape}" if original.shape != candidate.shape else ""


def exact_fault(original: Array, candidate: Array) -> str:
    """ "" where every element is bit for bit the same (NaN payloads aside)."""
    fault = structure_fault(original, candidate)
    if fault or original.size == 0:
        return fault
    if original.dtype.kind == "c":
        same = _same_bits(original.real, candidate.real) & _same_bits(original.imag, candidate.imag)
    else:
        same = _same_bits(original, candidate) if is_float(original) else original == candidate
    return "" if np.all(same) else f"{int(np.sum(~same))} of {original.size} elements differ, first {_first(~same, original, candidate)}"


def _same_bits(original: Array, candidate: Array) -> Array:
    left, right = _wide(original), _wide(candidate)
    same: Array = ((left == right) & (np.signbit(left) == np.signbit(right))) | (np.isnan(left) & np.isnan(right))
    return same


def is_float(array: Array) -> bool:
    """Floating, the extended types (bfloat16, ...) included."""
    return array.dtype.kind == "f" or (array.dtype.kind == "V" and array.dtype.name.startswith(("bfloat", "float")))


def special_fault(original: Array, candidate: Array, others: Sequence[Array] = ()) -> str:
    """NaN where NaN is, infinities with their sign; or where one of `others`, the original under other settings, has them.

    oneDNN's softmax of [NaN, 1, 2] is [NaN, 0, 0], Eigen's is NaN throughout: then either will do.
    """
    found, wanted = _specials(candidate), _specials(original)
    excused = np.zeros(original.shape, bool)
    for other in others:
        if other.shape == original.shape:
            excused |= found == _specials(other)
    wrong = np.asarray((found != wanted) & ~excused)
    for what, kind in (("NaN", 2), ("+inf", 1), ("-inf", -1)):
        apart = wrong & ((found == kind) | (wanted == kind))
        if np.any(apart):
            count, first = int(np.sum(apart)), _first(apart, original, candidate)
            return f"{count} of {original.size} elements are {what} in one of the two only, first {first}"
    return ""


def _specials(array: Array) -> Array:
    """0 where finite, 1 and -1 where infinite, 2 where NaN."""
    wide = _wide(array)
    if array.dtype.kind == "c":
        return np.isnan(wide) * 2 + np.isinf(wide)
    return np.select([np.isnan(wide), wide == np.inf, wide == -np.inf], [2, 1, -1], 0)


def distance(left: Array, right: Array) -> float:
    """The largest difference over elements finite in both."""
    a, b = _wide(left), _wide(right)
    finite = np.isfinite(a) & np.isfinite(b)
    return float(np.max(np.abs(a[finite] - b[finite]))) if np.any(finite) else 0.0


def result_floor(original: Array) -> float:
    """`RESULT_ULPS` units in the last place of the largest finite element."""
    wide = np.abs(_wide(original))
    finite = wide[np.isfinite(wide)]
    largest = float(finite.max()) if finite.size else 0.0
    return RESULT_ULPS * largest * _epsilon(original)


def _epsilon(array: Array) -> float:
    if array.dtype.kind in "fc":
        return float(np.finfo(array.dtype).eps)
    return 2.0**-7 if array.dtype.name == "bfloat16" else 2.0**-2


def _wide(array: Array) -> Array:
    return array if array.dtype.kind == "c" else array.astype(np.float64)


def _first(where: Array, original: Array, candidate: Array) -> str:
    index = tuple(int(i) for i in np.argwhere(where)[0]) if where.ndim else ()
    return f"at {list(index)}: {candidate[index]}, expected {original[index]}"
