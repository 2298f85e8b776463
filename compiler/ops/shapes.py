"""Arithmetic of shapes that families share: broadcasting, axes, dimensions that must agree, shapes given by an operand's content.

Nothing here guesses: an unknown dimension stays None, and two symbols that differ are not assumed equal.
"""

from __future__ import annotations

from compiler.ir.dims import Dim, Expr, KnownDim, ceil_div, exact_div, floor_div, mul
from compiler.ir.errors import IrError
from compiler.ir.graph import ShapeAttr
from compiler.ir.types import DType, Shape, TensorType, size_of
from compiler.ops.spec import Operation


def misfit(operation: Operation, what: str) -> IrError:
    """The error to raise: which op, its operands' types, and what was expected."""
    operands = ", ".join(map(str, operation.operands))
    return IrError(f"{operation.op} {operation.name!r}({operands}): {what}")


def dtype_attr(operation: Operation, name: str) -> DType:
    value = operation.attr(name)
    if isinstance(value, DType):
        return value
    raise misfit(operation, f"attribute {name!r} is {value!r}, expected an element type")


def shape_attr(operation: Operation, name: str) -> Shape:
    value = operation.attr(name)
    if isinstance(value, ShapeAttr):
        return value.shape
    raise misfit(operation, f"attribute {name!r} is {value!r}, expected a shape")


def with_rank(operation: Operation, slot: int, rank: int) -> tuple[Dim, ...]:
    """The operand's dimensions, unknown ones where its rank is; IrError where it has another rank."""
    shape = operation.operands[slot].shape
    if shape is None:
        return (None,) * rank
    if len(shape) != rank:
        raise misfit(operation, f"operand {slot} has rank {len(shape)}, expected {rank}")
    return shape


def agree(operation: Operation, left: Dim, right: Dim, what: str) -> Dim:
    """The more precise of two dimensions that must be equal."""
    if isinstance(left, int) and isinstance(right, int) and left != right:
        raise misfit(operation, f"{what}: {left} and {right} differ, expected equal dimensions")
    if left is None or isinstance(right, int):
        return right
    return left


def agree_shapes(operation: Operation, left: Shape, right: Shape) -> Shape:
    """The more precise of two shapes that must be equal."""
    if left is None or right is None:
        return right if left is None else left
    if len(left) != len(right):
        raise misfit(operation, f"shapes of rank {len(left)} and {len(right)}, expected equal ranks")
    return tuple(agree(operation, a, b, f"dimension {i}") for i, (a, b) in enumerate(zip(left, right, strict=True)))


def join_dim(left: Dim, right: Dim) -> Dim:
    """What is known of a dimension that is either `left` or `right`."""
    return left if left == right else None


def join_types(left: TensorType, right: TensorType) -> TensorType:
    """What is known of a value that has either type; dtypes must be equal."""
    shape: Shape = None
    if left.shape is not None and right.shape is not None and len(left.shape) == len(right.shape):
        shape = tuple(join_dim(a, b) for a, b in zip(left.shape, right.shape, strict=True))
    return TensorType(left.dtype, shape, handle=left.handle if left.handle == right.handle else None)


def broadcast_dim(operation: Operation, left: Dim, right: Dim) -> Dim:
    """NumPy's rule: equal stays, 1 gives way, a static size other than 1 wins over what is not known; two other unknowns are unknown."""
    if left == 1:
        return right
    if right == 1 or (left == right and left is not None):
        return left
    if isinstance(left, int) and isinstance(right, int):
        raise misfit(operation, f"dimensions {left} and {right} do not broadcast")
    if isinstance(left, int):
        return left
    return right if isinstance(right, int) else None


def broadcast(operation: Operation, *shapes: Shape) -> Shape:
    """The broadcast shape; None where a rank is unknown."""
    result: tuple[Dim, ...] = ()
    for shape in shapes:
        if shape is None:
            return None
        rank = max(len(result), len(shape))
        pairs = zip((1,) * (rank - len(result)) + result, (1,) * (rank - len(shape)) + shape, strict=True)
        result = tuple(broadcast_dim(operation, a, b) for a, b in pairs)
    return result


def axis_in(operation: Operation, axis: int, rank: int) -> int:
    """A non-negative axis; IrError where it is out of range."""
    if not -rank <= axis < rank:
        raise misfit(operation, f"axis {axis} is out of range for rank {rank}")
    return axis % rank


def constant_ints(operation: Operation, slot: int) -> tuple[int, ...] | None:
    """The operand's elements where all are static integers (a scalar counts as one element), else None."""
    content = operation.content(slot)
    items = (content,) if isinstance(content, int | Expr) else content
    if items is None:
        return None
    static = tuple(i for i in items if isinstance(i, int))
    return static if len(static) == len(items) else None


def constant_int(operation: Operation, slot: int) -> int | None:
    """The operand's only element where it is a static integer."""
    found = constant_ints(operation, slot)
    return found[0] if found is not None and len(found) == 1 else None


def constant_axes(operation: Operation, slot: int, rank: int) -> tuple[int, ...] | None:
    """Sorted non-negative axes from an operand, None where it is not constant."""
    found = constant_ints(operation, slot)
    return None if found is None else tuple(sorted({axis_in(operation, a, rank) for a in found}))


def vector_content(operation: Operation, slot: int) -> tuple[KnownDim | None, ...] | None:
    """The elements of a one-dimensional operand as far as they are known; unknown elements where only their number is."""
    content = operation.content(slot)
    if isinstance(content, tuple):
        return content
    shape = operation.operands[slot].shape
    if shape is not None and len(shape) == 1 and isinstance(shape[0], int) and shape[0] <= 64:
        return (None,) * shape[0]
    return None


def scalar_content(operation: Operation, slot: int) -> KnownDim | None:
    """The only element of an operand, where it is known."""
    content = operation.content(slot)
    if isinstance(content, tuple):
        return content[0] if len(content) == 1 else None
    return content


def shape_from(operation: Operation, slot: int) -> Shape:
    """The shape that an operand's elements spell (no -1 allowed; see `reshaped`)."""
    content = vector_content(operation, slot)
    if content is None:
        return None
    for item in content:
        if isinstance(item, int) and item < 0:
            raise misfit(operation, f"operand {slot} spells the shape {content}, expected no negative dimension")
    return content


def reshaped(operation: Operation, elements: KnownDim | None, content: tuple[KnownDim | None, ...] | None) -> Shape:
    """The result shape of a Reshape of `elements` elements: one -1, or one unknown, is what the others leave."""
    if content is None:
        return None
    free = [i for i, d in enumerate(content) if d is None or d == -1]
    if any(isinstance(d, int) and d < -1 for d in content) or sum(d == -1 for d in content) > 1:
        raise misfit(operation, f"new shape {content}, expected at most one -1 and no other negative dimension")
    given = size_of(d for d in content if d is not None and d != -1)
    if not free and isinstance(elements, int) and isinstance(given, int) and elements != given:
        raise misfit(operation, f"cannot reshape {elements} elements to {content}")
    rest = quotient(elements, given) if len(free) == 1 else None
    return tuple(rest if i in free else d for i, d in enumerate(content))


def quotient(elements: KnownDim | None, given: KnownDim | None) -> KnownDim | None:
    """elements / given, known to be whole."""
    if elements is None or given is None or given == 0:
        return None
    exact = exact_div(elements, given)
    if exact is not None:
        return exact
    return floor_div(elements, given) if isinstance(given, int) else None


def window_size(operation: Operation, size: Dim, window: Dim, stride: int, dilation: int, padding: str, explicit: tuple[int, int]) -> Dim:
    """How often a window fits: SAME ceil(n/s); VALID ceil((n - (k-1)·d)/s); EXPLICIT the same over the padded size."""
    if padding == "SAME":
        return None if size is None else ceil_div(size, stride)
    if size is None or not isinstance(window, int):
        return None
    before, after = explicit if padding == "EXPLICIT" else (0, 0)
    room = size + before + after - (window - 1) * dilation
    if isinstance(room, int) and room <= 0:
        if room == 1 - (window - 1) * dilation - 1 and size == 0:
            return 0
        raise misfit(operation, f"a window of {window} (dilation {dilation}) does not fit in {size} rows")
    return ceil_div(room, stride)


def same_padding(size: int, window: int, stride: int, dilation: int) -> tuple[int, int]:
    """(before, after) of SAME: the odd row goes after."""
    reach = (window - 1) * dilation + 1
    total = max((-(-size // stride) - 1) * stride + reach - size, 0)
    return total // 2, total - total // 2


def product(*dims: Dim) -> KnownDim | None:
    """The product of dimensions, None where one is unknown."""
    total: KnownDim = 1
    for dim in dims:
        if dim is None:
            return None
        total = mul(total, dim)
    return total
