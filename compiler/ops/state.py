"""Variables, tables and effects: reads, assignments, optimiser updates, asserts and prints.

A rule's dimensions of a handle are those of what it holds.  An update of a variable, its slots and its gradient divides along any axis,
alike for all of them (ZeRO).
"""

from __future__ import annotations

from compiler.ir.dims import KnownDim, mul
from compiler.ir.types import DType, Shape, TensorType
from compiler.ops.rules import ValueFactors, dim_factors, factor, plain
from compiler.ops.shapes import dtype_attr, shape_attr
from compiler.ops.spec import Content, DimFactors, Factor, Kind, Operation, OpSpec, ShardingRule, Trait


def held_shape(operation: Operation, slot: int) -> Shape:
    """The shape of what a handle holds."""
    handle = operation.operands[slot].handle
    return None if handle is None else handle.shape


def nothing(operation: Operation) -> tuple[TensorType, ...]:
    """No result."""
    return ()


# ---- reads and assignments


def _read_type(operation: Operation) -> tuple[TensorType, ...]:
    """The variable's type; without one on the handle, only the dtype attribute."""
    handle = operation.operands[0].handle
    if handle is not None:
        return (TensorType(handle.dtype, handle.shape),)
    return (TensorType(dtype_attr(operation, "dtype"), None),)


def _read_rule(operation: Operation) -> ShardingRule | None:
    shape = held_shape(operation, 0)
    if shape is None:
        return None
    return ShardingRule(dim_factors(shape), (plain(shape),), (plain(shape),))


def _update_rule(operation: Operation) -> ShardingRule | None:
    """All handles and tensors of the first handle's shape divide alike; scalars do not; anything else forbids it."""
    shape = held_shape(operation, 0)
    if shape is None:
        return None
    values: list[ValueFactors] = []
    for slot, operand in enumerate(operation.operands):
        found = held_shape(operation, slot) if operand.dtype == "resource" else operand.shape
        if found is None or (found != shape and found != ()) or None in found:
            return None
        values.append(plain(shape) if found else None)
    return ShardingRule(dim_factors(shape), tuple(values), ())


def _handle_type(operation: Operation) -> tuple[TensorType, ...]:
    held = TensorType(dtype_attr(operation, "dtype"), shape_attr(operation, "shape"))
    return (TensorType(DType("resource"), (), handle=held),)


def _opaque_handle_type(operation: Operation) -> tuple[TensorType, ...]:
    return (TensorType(DType("resource"), ()),)


def _flag_type(operation: Operation) -> tuple[TensorType, ...]:
    return (TensorType(DType("bool"), ()),)


def _variable_shape_type(operation: Operation) -> tuple[TensorType, ...]:
    shape = held_shape(operation, 0)
    return (TensorType(dtype_attr(operation, "out_type"), (None if shape is None else len(shape),)),)


def _variable_shape_content(operation: Operation) -> Content:
    return held_shape(operation, 0)


def _gather_type(operation: Operation) -> tuple[TensorType, ...]:
    """(handle, indices) -> rows of the variable."""
    dtype, shape, indices = dtype_attr(operation, "dtype"), held_shape(operation, 0), operation.operands[1].shape
    batch = operation.int_attr("batch_dims")
    if shape is None or indices is None:
        return (TensorType(dtype, None),)
    return (TensorType(dtype, (*indices, *shape[batch + 1 :])),)


def _gather_rule(operation: Operation) -> ShardingRule | None:
    """Indices and hidden dimensions are parallel, the rows whole."""
    shape, indices = held_shape(operation, 0), operation.operands[1].shape
    if not shape or indices is None or operation.int_attr("batch_dims"):
        return None
    factors = (*dim_factors(shape, (0,)), *(factor(f"i{i}", d) for i, d in enumerate(indices)))
    rows: tuple[DimFactors, ...] = plain(indices, "i")
    return ShardingRule(factors, (plain(shape), rows), ((*rows, *plain(shape)[1:]),))


def _scatter_rule(operation: Operation) -> ShardingRule | None:
    """(handle, indices, updates): hidden dimensions only."""
    shape, indices, updates = held_shape(operation, 0), operation.operands[1].shape, operation.operands[2].shape
    if not shape or indices is None or updates is None or updates != (*indices, *shape[1:]):
        return None
    factors = (*dim_factors(shape, (0,)), *(Factor(f"i{i}", d, Kind.WHOLE) for i, d in enumerate(indices)))
    rows = plain(indices, "i")
    return ShardingRule(factors, (plain(shape), rows, (*rows, *plain(shape)[1:])), ())


# ---- tables


def _find_type(operation: Operation) -> tuple[TensorType, ...]:
    """(table, keys, default) -> one value a key, each of the default's shape."""
    keys, default = operation.operands[1].shape, operation.operands[2]
    shape = None if keys is None or default.shape is None else (*keys, *default.shape)
    return (TensorType(default.dtype, shape),)


def _update_flops(per_element: int, operation: Operation) -> KnownDim | None:
    handle = operation.operands[0].handle
    elements = None if handle is None else handle.elements
    return None if elements is None else mul(per_element, elements)


READ = frozenset({Trait.STATE_READ})
WRITE = frozenset({Trait.STATE_WRITE})
HANDLE = frozenset({Trait.HANDLE})
EFFECT = frozenset({Trait.EFFECT})
FILE = frozenset({Trait.EFFECT, Trait.FILE})


def _optimiser(name: str, flops: int) -> OpSpec:
    """Dense update in place: (variable, slots, hyper-parameters, gradient)."""
    return OpSpec(name, nothing, _update_rule, WRITE, flops=lambda o: _update_flops(flops, o))


def _scatter(name: str) -> OpSpec:
    return OpSpec(name, nothing, _scatter_rule, WRITE, flops=lambda o: o.operands[2].elements)


SPECS: tuple[OpSpec, ...] = (
    OpSpec("VarHandleOp", _handle_type, traits=HANDLE),
    OpSpec("ReadVariableOp", _read_type, _read_rule, READ, flops=lambda o: 0),
    OpSpec("AssignVariableOp", nothing, _update_rule, WRITE, flops=lambda o: 0),
    OpSpec("AssignAddVariableOp", nothing, _update_rule, WRITE, flops=lambda o: _update_flops(1, o)),
    OpSpec("AssignSubVariableOp", nothing, _update_rule, WRITE, flops=lambda o: _update_flops(1, o)),
    OpSpec("VarIsInitializedOp", _flag_type, traits=READ, flops=lambda o: 0),
    OpSpec("DestroyResourceOp", nothing, traits=WRITE, flops=lambda o: 0),
    OpSpec("DisableCopyOnRead", nothing, traits=EFFECT, flops=lambda o: 0),
    OpSpec("VariableShape", _variable_shape_type, None, frozenset({Trait.SHAPE, Trait.STATE_READ}), _variable_shape_content),
    OpSpec("ResourceGather", _gather_type, _gather_rule, READ, flops=lambda o: 0),
    _scatter("ResourceScatterAdd"),
    _scatter("ResourceScatterSub"),
    _scatter("ResourceScatterUpdate"),
    _optimiser("ResourceApplyGradientDescent", 2),
    _optimiser("ResourceApplyMomentum", 4),
    _optimiser("ResourceApplyKerasMomentum", 4),
    _optimiser("ResourceApplyAdagrad", 8),
    _optimiser("ResourceApplyAdagradV2", 9),
    _optimiser("ResourceApplyRMSProp", 12),
    _optimiser("ResourceApplyAdam", 14),
    _optimiser("ResourceApplyAdamWithAmsgrad", 16),
    OpSpec("HashTableV2", _opaque_handle_type, traits=HANDLE),
    OpSpec("MutableHashTableV2", _opaque_handle_type, traits=HANDLE),
    OpSpec("LookupTableFindV2", _find_type, traits=READ, flops=lambda o: 0),
    OpSpec("LookupTableSizeV2", lambda o: (TensorType(DType("int64"), ()),), traits=READ, flops=lambda o: 0),
    OpSpec("LookupTableImportV2", nothing, traits=WRITE, flops=lambda o: 0),
    OpSpec("LookupTableInsertV2", nothing, traits=WRITE, flops=lambda o: 0),
    OpSpec("InitializeTableV2", nothing, traits=WRITE, flops=lambda o: 0),
    OpSpec("InitializeTableFromTextFileV2", nothing, traits=WRITE | {Trait.FILE}, flops=lambda o: 0),
    OpSpec("NoOp", nothing, flops=lambda o: 0),
    OpSpec("ControlTrigger", nothing, flops=lambda o: 0),
    OpSpec("Assert", nothing, traits=EFFECT, flops=lambda o: 0),
    OpSpec("Print", lambda o: o.operands[:1], traits=EFFECT, flops=lambda o: 0),
    OpSpec("PrintV2", nothing, traits=EFFECT, flops=lambda o: 0),
    OpSpec("ScalarSummary", lambda o: (TensorType(DType("string"), ()),), flops=lambda o: 0),
    OpSpec("HistogramSummary", lambda o: (TensorType(DType("string"), ()),), flops=lambda o: 0),
    OpSpec("ReadFile", lambda o: (TensorType(DType("string"), ()),), traits=FILE, flops=lambda o: 0),
    OpSpec("WriteFile", nothing, traits=FILE, flops=lambda o: 0),
    OpSpec("SaveV2", nothing, traits=FILE, flops=lambda o: 0),
    OpSpec("MergeV2Checkpoints", nothing, traits=FILE, flops=lambda o: 0),
    OpSpec("RestoreV2", lambda o: _restored(o), traits=FILE, flops=lambda o: 0),
)


def _restored(operation: Operation) -> tuple[TensorType, ...]:
    """One tensor for each dtype listed; only the file knows their shapes."""
    dtypes = operation.attr("dtypes")
    return tuple(TensorType(DType(str(d))) for d in dtypes) if isinstance(dtypes, tuple) else ()
