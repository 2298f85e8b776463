"""What the installed TensorFlow can run: ops without a kernel are refused when a model is read, not when it first runs."""

from __future__ import annotations

from functools import cache

from tensorflow.python.framework import kernels

from compiler.ir.errors import CleaveError

_REWRITTEN = ("AccumulateNV2",)
"""Replaced by TensorFlow itself before it places anything."""


def refuse_without_kernel(op: str, where: str) -> None:
    """CleaveError for a registered op that no device of this installation has a kernel for."""
    if not _has_kernel(op) and op not in _REWRITTEN and not op.startswith("Xla"):  # XLA has its own kernels
        raise CleaveError(f"{where}: op {op!r} has no kernel in the installed TensorFlow, expected one that some device here can run")


@cache
def _has_kernel(op: str) -> bool:
    return bool(kernels.get_registered_kernels_for_op(op).kernel)
