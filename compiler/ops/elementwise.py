"""result[i] = f(operand[i], ...), after broadcasting: maths, comparison, selection, casts, activations and their gradients.

Splits along any dimension that is not broadcast.  FLOPs for an element: 1 for an add, a comparison or a select, 4 for a division or a
root, 10 for a transcendental function (what an AVX2 kernel spends, to one digit).
"""

from __future__ import annotations

from collections.abc import Callable

from compiler.ir.dims import Expr, KnownDim, add, exact_div, floor_div, max_dim, min_dim, mul
from compiler.ir.types import DType, Shape, TensorType
from compiler.ops.rules import aligned_rule, broadcast_rule, dim_factors, plain, sums_pass
from compiler.ops.shapes import agree, agree_shapes, broadcast, dtype_attr, misfit
from compiler.ops.spec import Content, Operation, OpSpec, ShardingRule, Trait

CHEAP, ROOT, TRANSCENDENTAL = 1, 4, 10


# ---- shapes


def unary_type(operation: Operation) -> tuple[TensorType, ...]:
    """f[s] => f[s]."""
    return (TensorType(operation.operands[0].dtype, operation.operands[0].shape),)


def _predicate_type(operation: Operation) -> tuple[TensorType, ...]:
    return (TensorType(DType("bool"), operation.operands[0].shape),)


def _part_type(operation: Operation) -> tuple[TensorType, ...]:
    return (TensorType(dtype_attr(operation, "Tout"), operation.operands[0].shape),)


def _cast_type(operation: Operation) -> tuple[TensorType, ...]:
    return (TensorType(dtype_attr(operation, "DstT"), operation.operands[0].shape),)


def binary_type(operation: Operation) -> tuple[TensorType, ...]:
    """T[s], T[t] => T[broadcast(s, t)]."""
    return (TensorType(operation.operands[0].dtype, broadcast(operation, *(t.shape for t in operation.operands))),)


def _compare_type(operation: Operation) -> tuple[TensorType, ...]:
    return (TensorType(DType("bool"), broadcast(operation, *(t.shape for t in operation.operands))),)


def _equal_type(operation: Operation) -> tuple[TensorType, ...]:
    """Shapes that do not broadcast are an error, unless `incompatible_shape_error` is off: then the result is a scalar."""
    if operation.attrs.get("incompatible_shape_error", True) is False:
        return (TensorType(DType("bool"), None),)
    return _compare_type(operation)


def same_type(operation: Operation) -> tuple[TensorType, ...]:
    """All operands and the result have one shape."""
    shape: Shape = None
    for operand in operation.operands:
        shape = agree_shapes(operation, shape, operand.shape)
    return (TensorType(operation.operands[0].dtype, shape),)


def _select_type(operation: Operation) -> tuple[TensorType, ...]:
    """Select: both branches have the result's shape; the condition too, or it is a scalar or a vector over dimension 0."""
    condition, yes, no = operation.operands
    shape = agree_shapes(operation, yes.shape, no.shape)
    if shape is not None and condition.shape is not None and len(condition.shape) == len(shape):
        shape = agree_shapes(operation, shape, condition.shape)
    return (TensorType(yes.dtype, shape),)


def _select_v2_type(operation: Operation) -> tuple[TensorType, ...]:
    return (TensorType(operation.operands[1].dtype, broadcast(operation, *(t.shape for t in operation.operands))),)


def _bias_type(operation: Operation) -> tuple[TensorType, ...]:
    """x[..., c] + bias[c]; the channel is dimension 1 for NCHW (never for a matrix, whose channel is its last either way)."""
    value, bias = operation.operands
    if value.shape is None or bias.shape is None:
        return (TensorType(value.dtype, value.shape),)
    if len(bias.shape) != 1 or len(value.shape) < 2:
        raise misfit(operation, "expected a value of rank 2 or more and a vector")
    channel = _channel(operation, len(value.shape))
    dims = list(value.shape)
    dims[channel] = agree(operation, dims[channel], bias.shape[0], "channels")
    return (TensorType(value.dtype, tuple(dims)),)


def _channel(operation: Operation, rank: int) -> int:
    return 1 if operation.attrs.get("data_format") == "NCHW" else rank - 1


# ---- sharding rules


def _unary_rule(operation: Operation) -> ShardingRule | None:
    return broadcast_rule(operation)


def _equal_rule(operation: Operation) -> ShardingRule | None:
    return None if operation.attrs.get("incompatible_shape_error", True) is False else broadcast_rule(operation)


def _same_rule(operation: Operation) -> ShardingRule | None:
    """No broadcasting: a dimension of 1 is a dimension all operands have."""
    shape = operation.results[0].shape if operation.results else None
    if shape is None or any(t.shape is None or len(t.shape) != len(shape) for t in operation.operands):
        return None
    whole = {i for i, d in enumerate(shape) if any(t.shape is not None and t.shape[i] != d for t in operation.operands)}
    return ShardingRule(dim_factors(shape, whole), (plain(shape),) * len(operation.operands), (plain(shape),))


def _select_rule(operation: Operation) -> ShardingRule | None:
    condition = operation.operands[0].shape
    shape = operation.results[0].shape if operation.results else None
    if shape is None or condition is None:
        return None
    if len(condition) in (0, len(shape)):
        return aligned_rule(shape, operation.operands)
    branches = aligned_rule(shape, operation.operands[1:])
    if branches is None or len(condition) != 1 or condition[0] is None or condition[0] != shape[0]:
        return None
    return ShardingRule(branches.factors, ((("d0",),), *branches.operands), branches.results)


def _bias_rule(operation: Operation) -> ShardingRule | None:
    value, bias = operation.operands
    if value.shape is None or bias.shape is None or not operation.results or operation.results[0].shape is None:
        return None
    channel = _channel(operation, len(value.shape))
    whole = () if bias.shape[0] == value.shape[channel] else (channel,)
    dims = plain(value.shape)
    return ShardingRule(dim_factors(value.shape, whole), (dims, (dims[channel],)), (dims,))


# ---- contents: integer arithmetic on shapes


def _elementwise(operation: Operation, apply: Callable[[KnownDim, KnownDim], KnownDim | None]) -> Content:
    """The function on two scalars or vectors, a scalar against each element; None unless the result is a small integer tensor."""
    left, right = operation.content(0), operation.content(1)
    if left is None or right is None or not operation.operands[0].dtype.is_integer:
        return None
    if not isinstance(left, tuple) and not isinstance(right, tuple):
        return apply(left, right)
    length = max(len(left) if isinstance(left, tuple) else 1, len(right) if isinstance(right, tuple) else 1)
    lefts, rights = _stretched(left, length), _stretched(right, length)
    if len(lefts) != len(rights):
        return None
    return tuple(None if a is None or b is None else apply(a, b) for a, b in zip(lefts, rights, strict=True))


def _stretched(content: KnownDim | tuple[KnownDim | None, ...], length: int) -> tuple[KnownDim | None, ...]:
    if not isinstance(content, tuple):
        return (content,) * length
    return content * length if len(content) == 1 else content


def _quotient(left: KnownDim, right: KnownDim) -> KnownDim | None:
    """floor(left / right), for a positive divisor or one that goes in exactly."""
    if isinstance(right, int):
        return floor_div(left, right) if right > 0 else None
    return exact_div(left, right)


def _truncated(left: KnownDim, right: KnownDim) -> KnownDim | None:
    """Div rounds toward zero: equal to floor where the dividend is no negative number."""
    if isinstance(left, int) and left < 0:
        return None
    if isinstance(left, Expr) and any(c < 0 for _, c in left.terms):
        return exact_div(left, right) if isinstance(right, int) and right > 0 else None
    return _quotient(left, right)


def _remainder(left: KnownDim, right: KnownDim) -> KnownDim | None:
    if not isinstance(right, int) or right <= 0:
        return None
    return add(left, mul(-right, floor_div(left, right)))


def _add(operation: Operation) -> Content:
    return _elementwise(operation, add)


def _subtract(operation: Operation) -> Content:
    return _elementwise(operation, lambda a, b: add(a, mul(-1, b)))


def _multiply(operation: Operation) -> Content:
    return _elementwise(operation, mul)


def _floor_divide(operation: Operation) -> Content:
    return _elementwise(operation, _quotient)


def _truncate_divide(operation: Operation) -> Content:
    return _elementwise(operation, _truncated)


def _floor_mod(operation: Operation) -> Content:
    return _elementwise(operation, _remainder)


def _maximum(operation: Operation) -> Content:
    return _elementwise(operation, max_dim)


def _minimum(operation: Operation) -> Content:
    return _elementwise(operation, min_dim)


def _negate(operation: Operation) -> Content:
    content = operation.content(0)
    if content is None or not operation.operands[0].dtype.is_integer:
        return None
    if not isinstance(content, tuple):
        return mul(-1, content)
    return tuple(None if c is None else mul(-1, c) for c in content)


def _cast_content(operation: Operation) -> Content:
    """Between integer types of at least 32 bits a size keeps its value."""
    wide = ("int32", "int64", "uint32", "uint64")
    keeps = operation.operands[0].dtype in wide and dtype_attr(operation, "DstT") in wide
    return operation.content(0) if keeps else None


def _add_n_content(operation: Operation) -> Content:
    return operation.content(0) if len(operation.operands) == 1 else None


# ---- entries

LINEAR = frozenset({Trait.ELEMENTWISE, Trait.LINEAR})
COMMUTATIVE = frozenset({Trait.ELEMENTWISE, Trait.COMMUTATIVE})
PLAIN = frozenset({Trait.ELEMENTWISE})


def _unary(name: str, flops: int = CHEAP, traits: frozenset[Trait] = PLAIN) -> OpSpec:
    return OpSpec(name, unary_type, _unary_rule, traits, point_flops=flops)


def _binary(
    name: str, flops: int = CHEAP, traits: frozenset[Trait] = PLAIN, content: Callable[[Operation], Content] | None = None
) -> OpSpec:
    return OpSpec(name, binary_type, broadcast_rule, traits, content, point_flops=flops)


def _comparison(name: str, traits: frozenset[Trait] = PLAIN) -> OpSpec:
    return OpSpec(name, _compare_type, broadcast_rule, traits)


def _gradient(name: str, flops: int = CHEAP) -> OpSpec:
    """Gradients of activations take two tensors of one shape and do not broadcast."""
    return OpSpec(name, same_type, _same_rule, PLAIN, point_flops=flops)


SPECS: tuple[OpSpec, ...] = (
    # unary
    OpSpec("Neg", unary_type, sums_pass(_unary_rule), LINEAR, _negate),
    _unary("Abs"),
    _unary("Sign"),
    _unary("Square"),
    _unary("Floor"),
    _unary("Ceil"),
    _unary("Round"),
    _unary("Rint"),
    _unary("Invert"),
    _unary("LogicalNot"),
    _unary("Sqrt", ROOT),
    _unary("Rsqrt", ROOT),
    _unary("Reciprocal", ROOT),
    _unary("Inv", ROOT),
    _unary("Exp", TRANSCENDENTAL),
    _unary("Expm1", TRANSCENDENTAL),
    _unary("Log", TRANSCENDENTAL),
    _unary("Log1p", TRANSCENDENTAL),
    _unary("Sin", TRANSCENDENTAL),
    _unary("Cos", TRANSCENDENTAL),
    _unary("Tan", TRANSCENDENTAL),
    _unary("Asin", TRANSCENDENTAL),
    _unary("Acos", TRANSCENDENTAL),
    _unary("Atan", TRANSCENDENTAL),
    _unary("Sinh", TRANSCENDENTAL),
    _unary("Cosh", TRANSCENDENTAL),
    _unary("Asinh", TRANSCENDENTAL),
    _unary("Acosh", TRANSCENDENTAL),
    _unary("Atanh", TRANSCENDENTAL),
    _unary("Tanh", TRANSCENDENTAL),
    _unary("Sigmoid", TRANSCENDENTAL),
    _unary("Erf", TRANSCENDENTAL),
    _unary("Erfc", TRANSCENDENTAL),
    _unary("Erfinv", TRANSCENDENTAL),
    _unary("Ndtri", TRANSCENDENTAL),
    _unary("Lgamma", TRANSCENDENTAL),
    _unary("Digamma", TRANSCENDENTAL),
    _unary("Softplus", TRANSCENDENTAL),
    _unary("Softsign", ROOT),
    _unary("Relu"),
    _unary("Relu6"),
    _unary("LeakyRelu"),
    _unary("Elu", TRANSCENDENTAL),
    _unary("Selu", TRANSCENDENTAL),
    _unary("Conj", traits=LINEAR),
    OpSpec("IsNan", _predicate_type, _unary_rule, PLAIN),
    OpSpec("IsInf", _predicate_type, _unary_rule, PLAIN),
    OpSpec("IsFinite", _predicate_type, _unary_rule, PLAIN),
    OpSpec("Real", _part_type, _unary_rule, LINEAR),
    OpSpec("Imag", _part_type, _unary_rule, LINEAR),
    OpSpec("ComplexAbs", _part_type, _unary_rule, PLAIN, point_flops=ROOT),
    OpSpec("Angle", _part_type, _unary_rule, PLAIN, point_flops=TRANSCENDENTAL),
    OpSpec("Cast", _cast_type, _unary_rule, PLAIN, _cast_content),
    # binary, with broadcasting
    OpSpec("Add", binary_type, sums_pass(broadcast_rule), COMMUTATIVE, _add),
    OpSpec("AddV2", binary_type, sums_pass(broadcast_rule), COMMUTATIVE, _add),
    OpSpec("Sub", binary_type, sums_pass(broadcast_rule), PLAIN, _subtract),
    _binary("Mul", traits=COMMUTATIVE | LINEAR, content=_multiply),
    _binary("Div", ROOT, content=_truncate_divide),
    _binary("RealDiv", ROOT, LINEAR),
    _binary("DivNoNan", ROOT, LINEAR),
    _binary("MulNoNan"),
    _binary("Xdivy", ROOT),
    _binary("Xlogy", TRANSCENDENTAL),
    _binary("Xlog1py", TRANSCENDENTAL),
    _binary("FloorDiv", ROOT, content=_floor_divide),
    _binary("FloorMod", ROOT, content=_floor_mod),
    _binary("TruncateDiv", ROOT, content=_truncate_divide),
    _binary("TruncateMod", ROOT),
    _binary("Mod", ROOT),
    _binary("Pow", TRANSCENDENTAL),
    _binary("Atan2", TRANSCENDENTAL),
    _binary("SquaredDifference", 2, COMMUTATIVE),
    _binary("Maximum", traits=COMMUTATIVE, content=_maximum),
    _binary("Minimum", traits=COMMUTATIVE, content=_minimum),
    _binary("BitwiseAnd", traits=COMMUTATIVE),
    _binary("BitwiseOr", traits=COMMUTATIVE),
    _binary("BitwiseXor", traits=COMMUTATIVE),
    _binary("LeftShift"),
    _binary("RightShift"),
    _binary("LogicalAnd", traits=COMMUTATIVE),
    _binary("LogicalOr", traits=COMMUTATIVE),
    _binary("NextAfter"),
    OpSpec("Complex", lambda o: (TensorType(dtype_attr(o, "Tout"), broadcast(o, *(t.shape for t in o.operands))),), broadcast_rule, PLAIN),
    OpSpec("Equal", _equal_type, _equal_rule, COMMUTATIVE),
    OpSpec("NotEqual", _equal_type, _equal_rule, COMMUTATIVE),
    _comparison("Less"),
    _comparison("LessEqual"),
    _comparison("Greater"),
    _comparison("GreaterEqual"),
    OpSpec("ApproximateEqual", lambda o: (TensorType(DType("bool"), same_type(o)[0].shape),), _same_rule, COMMUTATIVE),
    # several operands
    OpSpec("AddN", same_type, sums_pass(_same_rule), COMMUTATIVE, _add_n_content, flops=lambda o: _add_n_flops(o)),
    OpSpec("AccumulateNV2", same_type, None, COMMUTATIVE, flops=lambda o: _add_n_flops(o)),
    OpSpec("ClipByValue", unary_type, None, PLAIN, point_flops=2),
    OpSpec("Select", _select_type, _select_rule, PLAIN),
    OpSpec("SelectV2", _select_v2_type, broadcast_rule, PLAIN),
    OpSpec("BiasAdd", _bias_type, _bias_rule, PLAIN),
    OpSpec("BiasAddV1", _bias_type, _bias_rule, PLAIN),
    # gradients: (the activation's value or its input, the incoming gradient)
    _gradient("ReluGrad"),
    _gradient("Relu6Grad"),
    _gradient("LeakyReluGrad"),
    _gradient("EluGrad", 2),
    _gradient("SeluGrad", 2),
    _gradient("SoftplusGrad", TRANSCENDENTAL),
    _gradient("SoftsignGrad", ROOT),
    _gradient("SigmoidGrad", 3),
    _gradient("TanhGrad", 3),
    _gradient("SqrtGrad", ROOT),
    _gradient("RsqrtGrad", 3),
    _gradient("ReciprocalGrad", 3),
    _gradient("InvGrad", 3),
)


def _add_n_flops(operation: Operation) -> KnownDim | None:
    """n - 1 additions for each element."""
    elements = operation.operands[0].elements
    return None if elements is None else mul(len(operation.operands) - 1, elements)
