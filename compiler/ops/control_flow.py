"""Calls, If, While, Case, the five ops of v1 loops, and the lists and arrays that loops carry.

A body's types are in its own symbols: the symbols of its inputs are bound to the operands' dimensions, what remains unbound is unknown.
"""

from __future__ import annotations

from compiler.ir.dims import Dim, Expr, substitute, symbols
from compiler.ir.graph import FunctionRef
from compiler.ir.types import DType, Shape, TensorType
from compiler.ops.shapes import (
    agree,
    dtype_attr,
    join_types,
    misfit,
    shape_attr,
    vector_content,
    with_rank,
)
from compiler.ops.spec import Operation, OpSpec, Signature, Trait

# ---- functional: bodies by name


def applied(operation: Operation, body: Signature, operands: tuple[TensorType, ...]) -> tuple[TensorType, ...]:
    """The body's output types for these operands."""
    if len(operands) != len(body.inputs):
        raise misfit(operation, f"{len(operands)} operands for a body of {len(body.inputs)} inputs")
    bound: dict[str, Dim] = {}
    for given, wanted in zip(operands, body.inputs, strict=True):
        if given.dtype != wanted.dtype:
            raise misfit(operation, f"an operand is {given}, expected {wanted}")
        for i, dim in enumerate(wanted.shape or ()):
            name = _bare(dim)
            if name is not None:
                here = given.shape[i] if given.shape is not None and len(given.shape) == len(wanted.shape or ()) else None
                bound[name] = agree(operation, bound.get(name), here, f"dimension {name!r}")
    return tuple(_bound_type(t, bound) for t in body.outputs)


def _bare(dim: Dim) -> str | None:
    """The name of a dimension that is one symbol."""
    if not isinstance(dim, Expr) or len(dim.terms) != 1:
        return None
    monomial, coefficient = dim.terms[0]
    return monomial[0].name if coefficient == 1 and len(monomial) == 1 and monomial[0].op == "symbol" else None


def _bound_type(type_: TensorType, bound: dict[str, Dim]) -> TensorType:
    handle = None if type_.handle is None else _bound_type(type_.handle, bound)
    if type_.shape is None:
        return TensorType(type_.dtype, None, handle=handle)
    free = {name: None for dim in type_.shape for name in symbols(dim)}
    return TensorType(type_.dtype, tuple(substitute(d, {**free, **bound}) for d in type_.shape), handle=handle)


def _ref(operation: Operation, name: str) -> str:
    value = operation.attr(name)
    if isinstance(value, FunctionRef):
        return value.name
    raise misfit(operation, f"attribute {name!r} is {value!r}, expected a function")


def _call_type(operation: Operation) -> tuple[TensorType, ...]:
    return applied(operation, operation.body(_ref(operation, "f")), operation.operands)


def _if_type(operation: Operation) -> tuple[TensorType, ...]:
    """(condition, operands...): what both branches give."""
    names = [_ref(operation, "then_branch"), _ref(operation, "else_branch")]
    return _joined(operation, [applied(operation, operation.body(n), operation.operands[1:]) for n in names])


def _case_type(operation: Operation) -> tuple[TensorType, ...]:
    branches = operation.attr("branches")
    refs = [b.name for b in branches if isinstance(b, FunctionRef)] if isinstance(branches, tuple) else []
    if not refs:
        raise misfit(operation, "attribute 'branches' is empty, expected at least one function")
    return _joined(operation, [applied(operation, operation.body(n), operation.operands[1:]) for n in refs])


def _joined(operation: Operation, results: list[tuple[TensorType, ...]]) -> tuple[TensorType, ...]:
    joined = results[0]
    for other in results[1:]:
        if [t.dtype for t in joined] != [t.dtype for t in other]:
            raise misfit(operation, "branches give different element types")
        joined = tuple(join_types(a, b) for a, b in zip(joined, other, strict=True))
    return joined


def _while_type(operation: Operation) -> tuple[TensorType, ...]:
    """Operands if it never runs, else what the body gives; a symbol that the loop may change is unknown."""
    body = operation.body(_ref(operation, "body"))
    return _joined(operation, [operation.operands, applied(operation, body, operation.operands)])


# ---- v1 loops


def _switch_type(operation: Operation) -> tuple[TensorType, ...]:
    operand = operation.operands[0]
    return (TensorType(operand.dtype, operand.shape, handle=operand.handle),) * 2


def _merge_type(operation: Operation) -> tuple[TensorType, ...]:
    """One of its operands, and which."""
    value = operation.operands[0]
    for other in operation.operands[1:]:
        value = join_types(value, other)
    return value, TensorType(DType("int32"), ())


def _pass_type(operation: Operation) -> tuple[TensorType, ...]:
    operand = operation.operands[0]
    return (TensorType(operand.dtype, operand.shape, handle=operand.handle),)


def _scalar(dtype: str, operation: Operation) -> tuple[TensorType, ...]:
    return (TensorType(DType(dtype), ()),)


# ---- lists: values, not state


def _list_type(operation: Operation) -> tuple[TensorType, ...]:
    return (TensorType(DType("variant"), ()),)


def _element_shape(operation: Operation, slot: int) -> Shape:
    """The shape of an element: -1 is unknown, a scalar -1 an unknown rank."""
    content = operation.content(slot)
    if not isinstance(content, tuple):
        content = vector_content(operation, slot)
    return None if content is None else tuple(None if d == -1 else d for d in content)


def _stacked_type(operation: Operation) -> tuple[TensorType, ...]:
    """(list, element_shape) -> the elements along a new first dimension."""
    shape, count = _element_shape(operation, 1), operation.int_attr("num_elements")
    first = None if count == -1 else count
    return (TensorType(dtype_attr(operation, "element_dtype"), None if shape is None else (first, *shape)),)


def _item_type(slot: int, operation: Operation) -> tuple[TensorType, ...]:
    return (TensorType(dtype_attr(operation, "element_dtype"), _element_shape(operation, slot)),)


def _popped_type(operation: Operation) -> tuple[TensorType, ...]:
    return (*_list_type(operation), *_item_type(1, operation))


def _gathered_type(operation: Operation) -> tuple[TensorType, ...]:
    """(list, indices, element_shape) -> the picked elements."""
    shape = _element_shape(operation, 2)
    count = with_rank(operation, 1, 1)[0]
    return (TensorType(dtype_attr(operation, "element_dtype"), None if shape is None else (count, *shape)),)


def _shape_of_element_type(operation: Operation) -> tuple[TensorType, ...]:
    return (TensorType(dtype_attr(operation, "shape_type"), None),)


# ---- arrays: state of one run


def _array_type(operation: Operation) -> tuple[TensorType, ...]:
    return TensorType(DType("resource"), (2,)), TensorType(DType("float32"), ())


def _flow_type(operation: Operation) -> tuple[TensorType, ...]:
    return (TensorType(DType("float32"), ()),)


def _array_item_type(operation: Operation) -> tuple[TensorType, ...]:
    return (TensorType(dtype_attr(operation, "dtype"), None),)


def _array_gather_type(operation: Operation) -> tuple[TensorType, ...]:
    """(array, indices, flow) -> elements of `element_shape`, one for each index."""
    shape = shape_attr(operation, "element_shape")
    count = with_rank(operation, 1, 1)[0]
    return (TensorType(dtype_attr(operation, "dtype"), None if shape is None else (count, *shape)),)


CALL = frozenset({Trait.CALL})
BRANCH = frozenset({Trait.CONTROL_FLOW})
LOOP = frozenset({Trait.LOOP})
LIST = frozenset({Trait.MOVEMENT})
ARRAY = frozenset({Trait.HANDLE, Trait.OWN_STATE})
READ = frozenset({Trait.STATE_READ})
WRITE = frozenset({Trait.STATE_WRITE})

SPECS: tuple[OpSpec, ...] = (
    OpSpec("Call", _call_type, traits=CALL),
    OpSpec("If", _if_type, traits=BRANCH),
    OpSpec("StatelessIf", _if_type, traits=BRANCH),
    OpSpec("Case", _case_type, traits=BRANCH),
    OpSpec("StatelessCase", _case_type, traits=BRANCH),
    OpSpec("While", _while_type, traits=BRANCH),
    OpSpec("StatelessWhile", _while_type, traits=BRANCH),
    OpSpec("Switch", _switch_type, traits=LOOP, flops=lambda o: 0),
    OpSpec("Merge", _merge_type, traits=LOOP, flops=lambda o: 0),
    OpSpec("Enter", _pass_type, traits=LOOP, flops=lambda o: 0),
    OpSpec("Exit", _pass_type, traits=LOOP, flops=lambda o: 0),
    OpSpec("NextIteration", _pass_type, traits=LOOP, flops=lambda o: 0),
    OpSpec("LoopCond", lambda o: _scalar("bool", o), traits=LOOP, flops=lambda o: 0),
    OpSpec("EmptyTensorList", _list_type, traits=LIST),
    OpSpec("TensorListReserve", _list_type, traits=LIST),
    OpSpec("TensorListFromTensor", _list_type, traits=LIST),
    OpSpec("TensorListPushBack", _list_type, traits=LIST),
    OpSpec("TensorListPopBack", _popped_type, traits=LIST),
    OpSpec("TensorListSetItem", _list_type, traits=LIST),
    OpSpec("TensorListGetItem", lambda o: _item_type(2, o), traits=LIST),
    OpSpec("TensorListStack", _stacked_type, traits=LIST),
    OpSpec("TensorListGather", _gathered_type, traits=LIST),
    OpSpec("TensorListScatterV2", _list_type, traits=LIST),
    OpSpec("TensorListConcatLists", _list_type, traits=LIST),
    OpSpec("TensorListResize", _list_type, traits=LIST),
    OpSpec("TensorListLength", lambda o: _scalar("int32", o), traits=LIST),
    OpSpec("TensorListElementShape", _shape_of_element_type, traits=LIST),
    OpSpec("TensorArrayV3", _array_type, traits=ARRAY),
    OpSpec("TensorArrayReadV3", _array_item_type, traits=READ, flops=lambda o: 0),
    OpSpec("TensorArrayGatherV3", _array_gather_type, traits=READ, flops=lambda o: 0),
    OpSpec("TensorArraySizeV3", lambda o: _scalar("int32", o), traits=READ, flops=lambda o: 0),
    OpSpec("TensorArrayWriteV3", _flow_type, traits=WRITE, flops=lambda o: 0),
    OpSpec("TensorArrayScatterV3", _flow_type, traits=WRITE, flops=lambda o: 0),
    OpSpec("TensorArraySplitV3", _flow_type, traits=WRITE, flops=lambda o: 0),
    OpSpec("TensorArrayCloseV3", lambda o: (), traits=WRITE, flops=lambda o: 0),
)
