"""Random draws: stateful ones advance a hidden stream (never merged, never dropped), stateless ones are functions of their seed.

None is divided: a shard would have to start its counter where the whole is by then.
"""

from __future__ import annotations

from collections.abc import Callable

from compiler.ir.dims import KnownDim, mul
from compiler.ir.types import DType, TensorType
from compiler.ops.elementwise import unary_type
from compiler.ops.shapes import scalar_content, shape_from, with_rank
from compiler.ops.spec import Operation, OpSpec, Trait

DRAW_FLOPS = 20
"""Philox takes about ten rounds of two multiplications for four draws, then the distribution's own maths."""


def _drawn(dtype: str | None, shape: int = 0, like: int | None = None) -> Callable[[Operation], tuple[TensorType, ...]]:
    """dtype from the attribute `dtype`, or of operand `like`; shape from operand `shape`."""

    def infer(operation: Operation) -> tuple[TensorType, ...]:
        found = str(operation.attr(dtype)) if dtype is not None else operation.operands[like or 0].dtype
        return (TensorType(DType(found), shape_from(operation, shape)),)

    return infer


def _multinomial_type(operation: Operation) -> tuple[TensorType, ...]:
    """(logits [b, c], n) -> classes [b, n]."""
    return (TensorType(DType(str(operation.attr("output_dtype"))), (with_rank(operation, 0, 2)[0], scalar_content(operation, 1))),)


def _key_counter_type(operation: Operation) -> tuple[TensorType, ...]:
    """Philox: one word of key, two of counter."""
    return TensorType(DType("uint64"), (1,)), TensorType(DType("uint64"), (2,))


def _key_counter_alg_type(operation: Operation) -> tuple[TensorType, ...]:
    return (*_key_counter_type(operation), TensorType(DType("int32"), ()))


def _flops(operation: Operation) -> KnownDim | None:
    elements = operation.results[0].elements if operation.results else None
    return None if elements is None else mul(DRAW_FLOPS, elements)


STATEFUL = frozenset({Trait.RANDOM})


def _stateful(name: str, infer: Callable[[Operation], tuple[TensorType, ...]]) -> OpSpec:
    return OpSpec(name, infer, None, STATEFUL, flops=_flops)


def _stateless(name: str, infer: Callable[[Operation], tuple[TensorType, ...]]) -> OpSpec:
    return OpSpec(name, infer, flops=_flops)


SPECS: tuple[OpSpec, ...] = (
    _stateful("RandomUniform", _drawn("dtype")),
    _stateful("RandomStandardNormal", _drawn("dtype")),
    _stateful("TruncatedNormal", _drawn("dtype")),
    _stateful("RandomUniformInt", _drawn(None, like=1)),
    _stateful("RandomShuffle", unary_type),
    _stateful("Multinomial", _multinomial_type),
    _stateless("StatelessRandomUniform", _drawn("dtype")),
    _stateless("StatelessRandomNormal", _drawn("dtype")),
    _stateless("StatelessTruncatedNormal", _drawn("dtype")),
    _stateless("StatelessRandomUniformInt", _drawn(None, like=2)),
    _stateless("StatelessRandomUniformFullInt", _drawn("dtype")),
    _stateless("StatelessRandomUniformV2", _drawn("dtype")),
    _stateless("StatelessRandomNormalV2", _drawn("dtype")),
    _stateless("StatelessTruncatedNormalV2", _drawn("dtype")),
    _stateless("StatelessRandomUniformIntV2", _drawn(None, like=4)),
    _stateless("StatelessRandomUniformFullIntV2", _drawn("dtype")),
    OpSpec("StatelessRandomGetKeyCounter", _key_counter_type, flops=lambda o: DRAW_FLOPS),
    OpSpec("StatelessRandomGetKeyCounterAlg", _key_counter_alg_type, flops=lambda o: DRAW_FLOPS),
    OpSpec("StatelessRandomGetAlg", lambda o: (TensorType(DType("int32"), ()),), flops=lambda o: 0),
)
