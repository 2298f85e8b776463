"""Which kernels the installed TensorFlow has, by op, kind of device and element types.

has_kernel("MatMul", {"T": float32}, "GPU") => True       has_kernel("StringJoin", {}, "GPU") => False

The registry is a table in the library: asking it starts no device, and a library built for GPUs knows their kernels where there is none.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import tensorflow as tf
from tensorflow.python.framework import kernels

from compiler.ir.graph import Attr
from compiler.ir.types import DType

_ANYWHERE = "DEFAULT"
"""Kernels for every kind of device that has none of its own; their tensors are on the host."""
Constraints = tuple[tuple[str, frozenset[str]], ...]


def has_kernel(op: str, attrs: Mapping[str, Attr], kind: str) -> bool:
    """Is there a kernel for devices of this kind whose constraints these attributes meet?"""
    return any(where in (kind, _ANYWHERE) and _meets(attrs, constraints) for where, constraints in _registered(op))


def _meets(attrs: Mapping[str, Attr], constraints: Constraints) -> bool:
    for name, allowed in constraints:
        given = attrs.get(name)
        types = given if isinstance(given, tuple) else (given,)
        if any(isinstance(type_, DType) and type_.removesuffix("_ref") not in allowed for type_ in types):
            return False
    return True


@cache
def _registered(op: str) -> tuple[tuple[str, Constraints], ...]:
    return tuple(
        (kernel.device_type, tuple((c.name, frozenset(tf.as_dtype(t).name for t in c.allowed_values.list.type)) for c in kernel.constraint))
        for kernel in kernels.get_registered_kernels_for_op(op).kernel
    )
