"""Collectives: members of one group meet, so none is moved, merged or dropped, and only the order on each device is theirs to keep."""

from __future__ import annotations

from collections.abc import Callable

from compiler.ir.types import TensorType
from compiler.ops.elementwise import unary_type
from compiler.ops.spec import Operation, OpSpec, Trait

COLLECTIVE = frozenset({Trait.COLLECTIVE, Trait.EFFECT})


def _unknown_shape(operation: Operation) -> tuple[TensorType, ...]:
    """The group's size is known at run time."""
    operand = operation.operands[0]
    return (TensorType(operand.dtype, None if operand.shape is None else (None, *operand.shape[1:])),)


def _collective(name: str, infer: Callable[[Operation], tuple[TensorType, ...]]) -> OpSpec:
    return OpSpec(name, infer, traits=COLLECTIVE)


SPECS: tuple[OpSpec, ...] = (
    _collective("CollectiveReduce", unary_type),
    _collective("CollectiveReduceV2", unary_type),
    _collective("CollectiveReduceV3", unary_type),
    _collective("CollectiveGather", _unknown_shape),
    _collective("CollectiveGatherV2", _unknown_shape),
    _collective("CollectiveBcastSend", unary_type),
    _collective("CollectiveBcastSendV2", unary_type),
)
