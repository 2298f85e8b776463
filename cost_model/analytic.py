"""Roofline: `seconds = max(flops / (share * peak), bytes / memory_bandwidth) + overhead` of an operator, or of one shard of it.

    views (Reshape, Identity, a variable's read) share their operand's buffer     overhead only
    constants, inputs, handles                                                    nothing: they are there before the call
    data movement reads and writes each element of its results once               bytes = 2 * results
    everything else reads its operands and writes its results                     bytes = operands + results
    an operator without a spec is opaque                                          bytes only

Source of the form: Williams, Waterman, Patterson, "Roofline" (CACM 2009); overhead per operator as in meta-pytorch/autoparallel.
A dimension without a known size counts as `UNKNOWN_SIZE`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from compiler.ir.dims import Dim, Expr, evaluate, symbols
from compiler.ir.errors import IrError
from compiler.ir.sharding import Mesh, Sharding
from compiler.ir.types import DType, TensorType
from compiler.ops.spec import Kind, Operation, OpSpec, ShardingRule, Trait
from cost_model.devices import Device

UNKNOWN_SIZE = 8
"""What a dimension nobody knows, or a symbol without a representative size, counts as."""

FREE = frozenset({Trait.CONSTANT, Trait.HANDLE})
_NO_DATA = ("resource", "variant", "string")


@dataclass(frozen=True)
class Work:
    """What an operator does, apart from any device.  `free`: it is not executed at all."""

    flops: float
    bytes: float
    dtype: DType
    op_class: str
    free: bool = False

    def scaled(self, fraction: float) -> Work:
        return Work(self.flops * fraction, self.bytes * fraction, self.dtype, self.op_class, self.free)


def size_of_dim(dim: Dim, sizes: Mapping[str, int]) -> int:
    """The number a dimension stands for in costs, at least 0."""
    if isinstance(dim, int):
        return dim
    if dim is None:
        return UNKNOWN_SIZE
    missing = {name: UNKNOWN_SIZE for name in symbols(dim) if name not in sizes}
    return max(0, evaluate(dim, {**sizes, **missing} if missing else sizes))


def local_size(dim: Dim, axes: Iterable[str], mesh: Mesh, sizes: Mapping[str, int]) -> float:
    """Rows of the largest shard of a dimension divided over `axes`."""
    size = size_of_dim(dim, sizes)
    for name in axes:
        axis = mesh.axis(name)
        size = math.ceil(size * max(axis.shares) / sum(axis.shares)) if axis.shares else -(-size // axis.size)
    return size


def type_bytes(type_: TensorType, sizes: Mapping[str, int], mesh: Mesh | None = None) -> int:
    """Bytes of a value; of its largest shard where it has a sharding and `mesh` is given.  An unknown rank is one unknown dimension."""
    shape = (None,) if type_.shape is None else type_.shape
    if mesh is not None and type_.sharding is not None:
        elements = math.prod(local_size(d, axes, mesh, sizes) for d, axes in zip(shape, type_.sharding.dims, strict=True))
    else:
        elements = math.prod(size_of_dim(d, sizes) for d in shape)
    return math.ceil(elements * type_.dtype.bits / 8)


def local_type(type_: TensorType, sharding: Sharding | None, mesh: Mesh, sizes: Mapping[str, int]) -> TensorType:
    """The static type of the largest shard of a value: what `op_seconds` takes as a local operand or result."""
    if type_.shape is None:
        return TensorType(type_.dtype, None, None, type_.handle)
    dims = sharding.dims if sharding is not None else ((),) * len(type_.shape)
    shape = tuple(int(local_size(d, axes, mesh, sizes)) for d, axes in zip(type_.shape, dims, strict=True))
    return TensorType(type_.dtype, shape, None, type_.handle)


def work_of(
    spec: OpSpec | None,
    operation: Operation,
    sizes: Mapping[str, int],
    *,
    fraction: float = 1.0,
    local: tuple[Sequence[TensorType], Sequence[TensorType]] | None = None,
) -> Work:
    """The work of an operation, or of the shard that has `fraction` of its points and `local` (operand, result) types."""
    operands, results = local or (operation.operands, operation.results)
    dtype = _dtype_of(operation)
    if spec is None:
        return Work(0.0, _bytes(operands, sizes) + _bytes(results, sizes), dtype, "other")
    if spec.traits & FREE:
        return Work(0.0, 0.0, dtype, "other", free=True)
    if is_view(spec, operation):
        return Work(0.0, 0.0, dtype, "other")
    if spec.has(Trait.MOVEMENT):
        return Work(0.0, 2 * _bytes(results, sizes), dtype, "other")
    flops = spec.work(operation)
    count = 0.0 if flops is None else float(size_of_dim(flops, sizes))
    return Work(count * fraction, _bytes(operands, sizes) + _bytes(results, sizes), dtype, op_class(spec, operation))


def is_view(spec: OpSpec, operation: Operation) -> bool:
    """Does result 0 share the buffer of operand 0 (or of the variable behind it), so that nothing is copied?"""
    if spec.traits & {Trait.IDENTITY, Trait.VIEW, Trait.SHAPE}:
        return True
    if not spec.has(Trait.STATE_READ) or not operation.operands or not operation.results:
        return False
    handle = operation.operands[0].handle
    return handle is not None and handle.shape == operation.results[0].shape


def _bytes(types: Iterable[TensorType], sizes: Mapping[str, int]) -> float:
    """Dense bytes; a resource counts as what it holds."""
    return float(sum(type_bytes(t.handle if t.handle is not None else t, sizes) for t in types))


def _dtype_of(operation: Operation) -> DType:
    """The element type the arithmetic is done in: the first floating operand's, else the first result's."""
    known = [*operation.operands, *operation.results]
    for type_ in known:
        if type_.dtype.is_floating or type_.dtype.is_complex:
            return type_.dtype
    return known[0].dtype if known and known[0].dtype not in _NO_DATA else DType("float32")


def op_class(spec: OpSpec, operation: Operation) -> str:
    """The class whose efficiency applies, read off the sharding rule: what is contracted between two operands, what has a halo."""
    if spec.has(Trait.ELEMENTWISE):
        return "elementwise"
    rule = _rule(spec, operation)
    if rule is None:
        return "other"
    contracted = any(_operands_with(rule, f.name) > 1 for f in rule.factors if f.kind is Kind.REDUCTION)
    if any(f.kind is Kind.HALO for f in rule.factors):
        return "conv" if contracted else "window"
    if contracted:
        return "matmul"
    return "reduction" if any(f.kind is Kind.REDUCTION for f in rule.factors) else "other"


def _rule(spec: OpSpec, operation: Operation) -> ShardingRule | None:
    try:
        return spec.rule(operation) if spec.rule is not None else None
    except IrError:
        return None


def _operands_with(rule: ShardingRule, factor: str) -> int:
    return sum(value is not None and any(factor in dim for dim in value) for value in rule.operands)


def seconds_of(work: Work, device: Device) -> float:
    """The roofline."""
    if work.free:
        return 0.0
    if not work.flops:
        return work.bytes / device.memory_bandwidth + device.overhead_seconds
    compute = work.flops / (device.share_of_peak(work.op_class, work.flops) * device.peak(work.dtype))
    return max(compute, work.bytes / device.memory_bandwidth) + device.overhead_seconds


def op_seconds(
    spec: OpSpec | None,
    operation: Operation,
    device: Device,
    sizes: Mapping[str, int],
    *,
    fraction: float = 1.0,
    local: tuple[Sequence[TensorType], Sequence[TensorType]] | None = None,
) -> float:
    """Seconds of an operation on a device; of a shard where `fraction` (of the points) and `local` (operand, result) types are given."""
    return seconds_of(work_of(spec, operation, sizes, fraction=fraction, local=local), device)


def dim_is_known(dim: Dim, sizes: Mapping[str, int]) -> bool:
    """Does the dimension have a size of its own, rather than `UNKNOWN_SIZE`?"""
    return isinstance(dim, int) or (isinstance(dim, Expr) and symbols(dim) <= sizes.keys())
