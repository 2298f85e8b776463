"""Inputs to compare two models on: two batch sizes, ties, signs, and the special values; the same seed draws the same bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from compiler.execution import Array
from compiler.ir.dims import Expr, KnownDim, evaluate, symbols
from compiler.ir.types import TensorType

BATCHES = (1, 3)
"""Leading sizes tried: one, and one that no usual device count divides."""
LENGTHS = (5, 16, 64, 1000)
"""Sizes tried, in order, for other unknown dimensions, until the original accepts one."""
SPECIALS = (np.nan, np.inf, -np.inf, -0.0, 0.0, 1e-40, -1e-40, 1.0, -1.0)
_WORDS = (b"", b"a", b"the", b"def f(x): return x", b"\xc3\xa9t\xc3\xa9", b"12 34")


@dataclass(frozen=True)
class Draw:
    """One request: what it is called in a verdict, and its arrays."""

    label: str
    inputs: Mapping[str, Array]
    special: bool = False


def draws(inputs: Mapping[str, TensorType], length: int, seed: int = 0, batches: Sequence[int] = BATCHES) -> list[Draw]:
    """Ordinary values at each batch size (only one where nothing is unknown), then special values at the last."""
    leading = _leading_symbols(inputs)
    sizes = list(batches) if leading else [1]
    found = []
    for count, batch in enumerate(sizes):
        rng = np.random.default_rng([seed, count])
        found.append(Draw(f"batch {batch}" if leading else "ordinary values", _arrays(inputs, leading, batch, length, rng)))
    rng = np.random.default_rng([seed, len(sizes)])
    arrays = _arrays(inputs, leading, sizes[-1], length, rng)
    special = {name: _with_specials(array, rng) for name, array in arrays.items()}
    if any(special[name] is not array for name, array in arrays.items()):
        found.append(Draw("special values", special, special=True))
    return found


def _leading_symbols(inputs: Mapping[str, TensorType]) -> frozenset[str]:
    """What the first dimensions depend on: the batch."""
    return frozenset().union(*(symbols(t.shape[0]) for t in inputs.values() if t.shape))


def has_lengths(inputs: Mapping[str, TensorType]) -> bool:
    """Is any dimension but the first unknown?"""
    return any(not isinstance(d, int) for t in inputs.values() for d in (t.shape or ())[1:])


def _arrays(
    inputs: Mapping[str, TensorType], leading: frozenset[str], batch: int, length: int, rng: np.random.Generator
) -> dict[str, Array]:
    return {name: _array(type_, _shape(type_, leading, batch, length), rng) for name, type_ in inputs.items()}


def _shape(type_: TensorType, leading: frozenset[str], batch: int, length: int) -> tuple[int, ...]:
    if type_.shape is None:
        return (batch,)
    return tuple(_size(dim, index, leading, batch, length) for index, dim in enumerate(type_.shape))


def _size(dim: KnownDim | None, index: int, leading: frozenset[str], batch: int, length: int) -> int:
    if isinstance(dim, int):
        return dim
    if isinstance(dim, Expr):
        return evaluate(dim, {name: batch if name in leading else length for name in symbols(dim)})
    return batch if index == 0 else length


def _array(type_: TensorType, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    dtype = type_.dtype
    if dtype == "string":
        return np.array([_WORDS[i] for i in rng.integers(0, len(_WORDS), int(np.prod(shape)))], object).reshape(shape)
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if dtype.is_floating:
        return rng.standard_normal(shape).astype(dtype.numpy)
    if dtype.is_complex:
        return (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(dtype.numpy)
    return rng.integers(0, 2, shape).astype(dtype.numpy)


def _with_specials(array: Array, rng: np.random.Generator) -> Array:
    """About one element in seven becomes special; ties come from rounding the rest to quarters."""
    if array.dtype.kind != "f" or array.size == 0:
        return array
    flat = (np.round(array.astype(np.float64) * 4) / 4).ravel()
    places = rng.permutation(flat.size)[: max(1, min(flat.size // 7, 64))]
    flat[places] = [SPECIALS[i % len(SPECIALS)] for i in range(len(places))]
    return flat.reshape(array.shape).astype(array.dtype)
