"""A case: a function as a user writes it, what it is called with, and the answer, to the dtype, the shape, the NaN and the sign of zero.

All cases of all kinds are signatures of one SavedModel (`suite.py`): one compile for a cluster, one process for a way of running it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

Arrays = dict[str, np.ndarray]
NAN, INF = float("nan"), float("inf")


@dataclass(frozen=True)
class Call:
    """One call: `expected` has the answers known beforehand, every other output is the original's; `fails`: part of the error's text."""

    inputs: Arrays
    expected: Mapping[str, Any]
    fails: str = ""


@dataclass(frozen=True)
class Case:
    """`state` makes what the function is given as its first argument: variables, tables, generators.

    `close`: how far floats may be from the answer, relative and absolute; 0 means bit for bit. `drawn`: outputs that no run repeats.
    `check` is asked about the results of the calls in order, where the answer is no constant.
    """

    function: Callable[..., Mapping[str, Any]]
    specs: tuple[tf.TensorSpec, ...]
    calls: tuple[Call, ...]
    state: Callable[[], Any] | None = None
    close: float = 0.0
    drawn: tuple[str, ...] = ()
    check: Callable[[Sequence[Mapping[str, np.ndarray]]], None] | None = None


def f32(*shape: int | None, name: str = "x") -> tf.TensorSpec:
    return tf.TensorSpec(shape, tf.float32, name)


def spec(dtype: str, *shape: int | None, name: str = "x") -> tf.TensorSpec:
    return tf.TensorSpec(shape, dtype, name)


def call(expected: Mapping[str, Any] | None = None, fails: str = "", **inputs: Any) -> Call:
    return Call({name: np.asarray(value) for name, value in inputs.items()}, dict(expected or {}), fails)


def typed(case: Case, given: Call) -> Arrays:
    """The call's inputs in the types that the function declares."""
    types = {s.name: object if s.dtype == tf.string else s.dtype.as_numpy_dtype for s in case.specs}
    return {name: array.astype(types[name]) for name, array in given.inputs.items()}


def assert_same(name: str, found: np.ndarray, expected: Any, close: float = 0.0) -> None:
    """Same shape, NaN in the same places, the same sign of infinity and zero; an expected array also tells the dtype."""
    if isinstance(expected, np.ndarray):
        assert found.dtype == expected.dtype, f"{name}: {found.dtype}, expected {expected.dtype}"
    wanted = np.asarray(expected, found.dtype)
    assert found.shape == wanted.shape, f"{name}: {found.shape}, expected {wanted.shape}"
    if found.dtype.kind not in "fcV":
        np.testing.assert_array_equal(found, wanted, err_msg=name)
        return
    if found.dtype.kind == "V":  # bfloat16 and its kin, of which numpy does not compare NaN
        found, wanted = found.astype(np.float32), wanted.astype(np.float32)
    if close:
        np.testing.assert_allclose(found, wanted, rtol=close, atol=close, err_msg=name)
    else:
        np.testing.assert_array_equal(found, wanted, err_msg=name)
        zeros = wanted == 0
        np.testing.assert_array_equal(np.signbit(found.real[zeros]), np.signbit(wanted.real[zeros]), err_msg=f"{name}: signs of zero")
