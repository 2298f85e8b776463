"""Inputs to compare two models on: two batch sizes, ties, signs, and the special values; the same seed draws the same bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from compiler.execution import Array
from compiler.ir.dims import Expr, KnownDim, evaluate, symbols
from compiler.ir.types import TensorType
from compiler.validate.composites import composites
from compiler.validate.texts import WORDS, Texts

BATCHES = (1, 3)
"""Leading sizes tried: one, and one that no usual device count divides."""
SPECIALS = (np.nan, np.inf, -np.inf, -0.0, 0.0, 1e-40, -1e-40, 1.0, -1.0)


@dataclass(frozen=True)
class Scheme:
    """How open sizes are filled: `length` for unknown dimensions but the first (None: the batch size too), a shape for unknown ranks.

    `positive`: no value is 0 or less, for models that assert it.  `texts`: what strings are drawn from.  `composite`: what looks like the
    parts of a sparse or ragged tensor is one.
    """

    length: int | None
    scalars: bool = False
    positive: bool = False
    texts: Texts = WORDS
    composite: bool = False


SCHEMES = (Scheme(5), Scheme(None), Scheme(16), Scheme(64), Scheme(None, scalars=True), Scheme(5, scalars=True), Scheme(1000))
"""Tried in order until the original accepts one."""


@dataclass(frozen=True)
class Draw:
    """One request: what it is called in a verdict, and its arrays."""

    label: str
    inputs: Mapping[str, Array]
    special: bool = False


def draws(inputs: Mapping[str, TensorType], scheme: Scheme, seed: int = 0, batches: Sequence[int] = BATCHES) -> list[Draw]:
    """Ordinary values at each batch size (only one where nothing is unknown), then special values at the last."""
    leading = _leading_symbols(inputs)
    sizes = list(batches) if leading else [1]
    found = []
    for count, batch in enumerate(sizes):
        rng = np.random.default_rng([seed, count])
        found.append(Draw(f"batch {batch}" if leading else "ordinary values", _arrays(inputs, leading, batch, scheme, rng)))
    rng = np.random.default_rng([seed, len(sizes)])
    arrays = _arrays(inputs, leading, sizes[-1], scheme, rng)
    special = {name: _with_specials(array, rng) for name, array in arrays.items()}
    if any(special[name] is not array for name, array in arrays.items()):
        found.append(Draw("special values", special, special=True))
    return found


def _leading_symbols(inputs: Mapping[str, TensorType]) -> frozenset[str]:
    """What the first dimensions depend on: the batch."""
    return frozenset().union(*(symbols(t.shape[0]) for t in inputs.values() if t.shape))


def schemes(inputs: Mapping[str, TensorType], texts: Sequence[Texts] = (WORDS,)) -> tuple[Scheme, ...]:
    """The schemes that differ for these inputs, each with each kind of text, again with positive values, and with composite tensors."""
    kinds = texts if any(type_.dtype == "string" for type_ in inputs.values()) else (WORDS,)
    found = [replace(scheme, texts=kind) for kind in kinds for scheme in _open_sizes(inputs)]
    parts = [replace(scheme, composite=True) for scheme in SCHEMES if not scheme.scalars] if composites(inputs) else []
    return (*found, *(replace(scheme, positive=True) for scheme in found), *parts)


def _open_sizes(inputs: Mapping[str, TensorType]) -> tuple[Scheme, ...]:
    unknown_ranks = any(t.shape is None for t in inputs.values())
    lengths = any(not isinstance(d, int) for t in inputs.values() for d in (t.shape or ())[1:])
    if not lengths:
        return (SCHEMES[0], Scheme(5, scalars=True)) if unknown_ranks else SCHEMES[:1]
    return tuple(s for s in SCHEMES if unknown_ranks or not s.scalars)


def _arrays(
    inputs: Mapping[str, TensorType], leading: frozenset[str], batch: int, scheme: Scheme, rng: np.random.Generator
) -> dict[str, Array]:
    arrays = {name: _array(type_, _shape(type_, leading, batch, scheme), scheme.texts, rng) for name, type_ in inputs.items()}
    if scheme.composite:
        for parts in composites(inputs):
            arrays |= parts.arrays(inputs, batch, batch if scheme.length is None else scheme.length)
    return {name: _positive(array) for name, array in arrays.items()} if scheme.positive else arrays


def _positive(array: Array) -> Array:
    if array.dtype.kind in "iu":
        return array + np.ones((), array.dtype)
    return np.abs(array) + np.asarray(2.0**-10, array.dtype) if array.dtype.kind == "f" else array


def _shape(type_: TensorType, leading: frozenset[str], batch: int, scheme: Scheme) -> tuple[int, ...]:
    if type_.shape is None:
        return () if scheme.scalars else (batch,)
    length = batch if scheme.length is None else scheme.length
    return tuple(_size(dim, index, leading, batch, length) for index, dim in enumerate(type_.shape))


def _size(dim: KnownDim | None, index: int, leading: frozenset[str], batch: int, length: int) -> int:
    if isinstance(dim, int):
        return dim
    if isinstance(dim, Expr):
        return evaluate(dim, {name: batch if name in leading else length for name in symbols(dim)})
    return batch if index == 0 else length


def _array(type_: TensorType, shape: tuple[int, ...], texts: Texts, rng: np.random.Generator) -> Array:
    dtype = type_.dtype
    if dtype == "string":
        return np.array([texts[i] for i in rng.integers(0, len(texts), int(np.prod(shape)))], object).reshape(shape)
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
