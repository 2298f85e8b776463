"""Types, contents and work by hand: symbolic sizes stay exact, what is not known stays unknown, what does not fit is refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from compiler.ir.dims import Dim, parse_dim
from compiler.ir.errors import IrError
from compiler.ir.graph import Attr
from compiler.ir.types import DType, TensorType
from compiler.ops import queries
from compiler.ops.attributes import complete, stored
from compiler.ops.registry import SPECS, coverage_table
from compiler.ops.spec import Content, Operation


def typed(text: str) -> TensorType:
    """`f32[b,3]` as a type; `f32[*]` has no rank."""
    dtype, _, dims = text.rstrip("]").partition("[")
    return TensorType(DType(dtype), None if dims == "*" else tuple(parse_dim(d) for d in dims.split(",") if d))


def op(
    name: str,
    *operands: str,
    attrs: Mapping[str, Attr] | None = None,
    constants: Mapping[int, object] | None = None,
    contents: Sequence[Content] = (),
) -> Operation:
    types = tuple(map(typed, operands))
    arrays = {slot: np.asarray(value, np.int32) for slot, value in (constants or {}).items()}
    bare = Operation(name, name, complete(name, attrs or {}, [t.dtype for t in types]), types, (), arrays.get, tuple(contents))
    return Operation(bare.name, bare.op, bare.attrs, types, queries.infer(bare), arrays.get, tuple(contents))


def shape(operation: Operation, port: int = 0) -> str:
    return str(operation.results[port])


def dim(text: str) -> Dim:
    return parse_dim(text)


ONE = {"strides": (1, 1, 1, 1)}
CONV = {"strides": (1, 2, 2, 1), "padding": "SAME"}
SLICE = {"begin_mask": 0, "end_mask": 0, "ellipsis_mask": 0, "new_axis_mask": 0, "shrink_axis_mask": 0}


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        (op("AddV2", "f32[b,3]", "f32[b,3]"), "f32[b,3]"),
        (op("AddV2", "f32[b,1]", "f32[3]"), "f32[b,3]"),
        (op("AddV2", "f32[b,3]", "f32[s,3]"), "f32[?,3]"),
        (op("AddV2", "f32[b,3]", "f32[4,3]"), "f32[4,3]"),
        (op("AddV2", "f32[?,3]", "f32[?,3]"), "f32[?,3]"),
        (op("AddV2", "f32[b,3]", "f32[*]"), "f32[*]"),
        (op("Less", "f32[b]", "f32[]"), "bool[b]"),
        (op("MatMul", "f32[b,3]", "f32[3,5]"), "f32[b,5]"),
        (op("MatMul", "f32[b,3]", "f32[5,b]", attrs={"transpose_a": True, "transpose_b": True}), "f32[3,5]"),
        (op("BatchMatMulV2", "f32[b,h,s,d]", "f32[b,h,d,s]"), "f32[b,h,s,s]"),
        (op("Einsum", "f32[b,s,3]", "f32[3,h,d]", attrs={"equation": "abc,cde->abde"}), "f32[b,s,h,d]"),
        (op("Einsum", "f32[b,2,s,3]", "f32[3,d]", attrs={"equation": "...ij,jk->...ik"}), "f32[b,2,s,d]"),
        (op("Conv2D", "f32[b,h,28,1]", "f32[3,3,1,32]", attrs=CONV), "f32[b,ceil(h/2),14,32]"),
        (op("Conv2D", "f32[b,h,28,1]", "f32[3,3,1,32]", attrs={**CONV, "padding": "VALID"}), "f32[b,ceil(h/2)-1,13,32]"),
        (op("Conv2D", "f32[b,1,28,28]", "f32[3,3,1,8]", attrs={**ONE, "padding": "VALID", "data_format": "NCHW"}), "f32[b,8,26,26]"),
        (op("MaxPool", "f32[b,26,h,32]", attrs={**CONV, "ksize": (1, 2, 2, 1), "padding": "VALID"}), "f32[b,13,ceil((h+1)/2)-1,32]"),
        (op("Sum", "f32[b,3,5]", "i32[2]", constants={1: [0, -1]}), "f32[3]"),
        (op("Sum", "f32[b,3,5]", "i32[2]", constants={1: [0, -1]}, attrs={"keep_dims": True}), "f32[1,3,1]"),
        (op("Sum", "f32[b,3,5]", "i32[1]"), "f32[*]"),
        (op("ArgMax", "f32[b,3]", "i32[]", constants={1: -1}), "i64[b]"),
        (op("Reshape", "f32[b,26,26,32]", "i32[2]", constants={1: [-1, 21632]}), "f32[b,21632]"),
        (op("Reshape", "f32[b,s,h]", "i32[2]", contents=(None, (-1, dim("h")))), "f32[b*s,h]"),
        (op("Reshape", "f32[b,s,h]", "i32[2]", contents=(None, (None, dim("h")))), "f32[b*s,h]"),
        (op("Reshape", "f32[b,3]", "i32[2]"), "f32[?,?]"),
        (op("Transpose", "f32[b,s,h,d]", "i32[4]", constants={1: [0, 2, 1, 3]}), "f32[b,h,s,d]"),
        (op("Squeeze", "f32[b,1]"), "f32[*]"),
        (op("Squeeze", "f32[b,1]", attrs={"squeeze_dims": (-1,)}), "f32[b]"),
        (op("ConcatV2", "f32[b,3]", "f32[b,s]", "i32[]", constants={2: 1}), "f32[b,s+3]"),
        (op("Pack", "f32[b]", "f32[b]", attrs={"axis": -1}), "f32[b,2]"),
        (op("Split", "i32[]", "f32[b,6]", constants={0: 1}, attrs={"num_split": 3}), "f32[b,2]"),
        (op("StridedSlice", "f32[b,s,h]", "i32[2]", "i32[2]", "i32[2]", constants={1: [0, 0], 2: [0, 1], 3: [1, 1]},
            attrs={**SLICE, "begin_mask": 1, "end_mask": 1, "shrink_axis_mask": 2}), "f32[b,h]"),
        (op("StridedSlice", "f32[b]", "i32[1]", "i32[1]", "i32[1]", constants={1: [0], 2: [0], 3: [2]},
            attrs={**SLICE, "begin_mask": 1, "end_mask": 1}), "f32[ceil(b/2)]"),
        (op("Pad", "f32[b,s]", "i32[2,2]", constants={1: [[0, 0], [1, 2]]}), "f32[b,s+3]"),
        (op("GatherV2", "f32[100,h]", "i32[b,s]", "i32[]", constants={2: 0}), "f32[b,s,h]"),
        (op("OneHot", "i32[b]", "i32[]", "f32[]", "f32[]", constants={1: 10}), "f32[b,10]"),
        (op("Where", "bool[b,3]"), "i64[?,2]"),
        (op("Fill", "i32[2]", "f32[]", contents=((dim("b"), 4),)), "f32[b,4]"),
        (op("Range", "i32[]", "i32[]", "i32[]", contents=(0, dim("s"), 1)), "i32[s]"),
        (op("Tile", "f32[1,3]", "i32[2]", contents=(None, (dim("b"), 1))), "f32[b,3]"),
        (op("Cast", "f32[b]", attrs={"DstT": DType("bool")}), "bool[b]"),
        (op("TensorListStack", "variant[]", "i32[2]", contents=(None, (-1, 8)), attrs={"element_dtype": DType("float32")}), "f32[?,?,8]"),
    ],
    ids=lambda value: value.op if isinstance(value, Operation) else value,
)  # fmt: skip
def test_result_types(operation: Operation, expected: str) -> None:
    assert shape(operation) == expected


@pytest.mark.parametrize(
    "make",
    [
        lambda: op("AddV2", "f32[2,3]", "f32[4]"),
        lambda: op("MatMul", "f32[2,3]", "f32[4,5]"),
        lambda: op("Conv2D", "f32[1,9,9,3]", "f32[3,3,2,8]", attrs=CONV),
        lambda: op("Reshape", "f32[2,3]", "i32[1]", constants={1: [5]}),
        lambda: op("Squeeze", "f32[2,3]", attrs={"squeeze_dims": (0,)}),
        lambda: op("ConcatV2", "f32[2,3]", "f32[3,3]", "i32[]", constants={2: 1}),
        lambda: op("Transpose", "f32[2,3]", "i32[2]", constants={1: [0, 0]}),
        lambda: op("Sum", "f32[2,3]", "i32[]", constants={1: 2}),
    ],
)
def test_operands_that_do_not_fit_are_refused(make: object) -> None:
    with pytest.raises(IrError):
        make()  # type: ignore[operator]


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        (op("MatMul", "f32[7,3]", "f32[3,5]"), 2 * 7 * 3 * 5),
        (op("MatMul", "f32[b,3]", "f32[3,5]"), dim("30*b")),
        (op("BatchMatMulV2", "f32[2,4,3]", "f32[2,3,5]"), 2 * 2 * 4 * 3 * 5),
        (op("Einsum", "f32[2,4,3]", "f32[3,5]", attrs={"equation": "abc,cd->abd"}), 2 * 2 * 4 * 3 * 5),
        (op("Conv2D", "f32[2,28,28,3]", "f32[3,3,3,8]", attrs=CONV), 2 * 2 * 14 * 14 * 8 * 3 * 3 * 3),
        (op("Conv2D", "f32[2,28,28,6]", "f32[3,3,3,8]", attrs=CONV), 2 * 2 * 14 * 14 * 8 * 3 * 3 * 3),
        (op("DepthwiseConv2dNative", "f32[2,28,28,6]", "f32[3,3,6,2]", attrs=CONV), 2 * 2 * 14 * 14 * 12 * 3 * 3),
        (op("AddV2", "f32[7,1]", "f32[3]"), 21),
        (op("Reshape", "f32[7,3]", "i32[1]", constants={1: [21]}), 0),
        (op("Sum", "f32[7,3]", "i32[]", constants={1: 0}), 21),
        (op("MaxPool", "f32[1,4,4,2]", attrs={"ksize": (1, 2, 2, 1), "strides": (1, 2, 2, 1), "padding": "VALID"}), 2 * 2 * 2 * 4),
        (op("AddN", "f32[7]", "f32[7]", "f32[7]"), 14),
        (op("AddV2", "f32[?]", "f32[3]"), 3),
        (op("AddV2", "f32[?]", "f32[?]"), None),
    ],
    ids=lambda value: value.op if isinstance(value, Operation) else str(value),
)
def test_work(operation: Operation, expected: Dim) -> None:
    assert queries.work(operation) == expected


VECTOR: tuple[Dim, ...] = (dim("b"), 28, dim("s"))


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        (op("Shape", "f32[b,28]"), ((dim("b"), 28),)),
        (op("Shape", "f32[*]"), (None,)),
        (op("ShapeN", "f32[b]", "f32[3]"), ((dim("b"),), (3,))),
        (op("Size", "f32[b,3]"), (dim("3*b"),)),
        (op("Rank", "f32[b,3]"), (2,)),
        (op("StridedSlice", "i32[3]", "i32[1]", "i32[1]", "i32[1]", contents=(VECTOR,), constants={1: [0], 2: [1], 3: [1]},
            attrs={**SLICE, "shrink_axis_mask": 1}), (dim("b"),)),
        (op("StridedSlice", "i32[3]", "i32[1]", "i32[1]", "i32[1]", contents=(VECTOR,), constants={1: [1], 2: [0], 3: [1]},
            attrs={**SLICE, "end_mask": 1}), ((28, dim("s")),)),
        (op("Pack", "i32[]", "i32[]", contents=(dim("b"), -1)), ((dim("b"), -1),)),
        (op("Pack", "i32[]", "i32[]", contents=(dim("b"), None)), ((dim("b"), None),)),
        (op("ConcatV2", "i32[1]", "i32[2]", "i32[]", contents=((dim("b"),), (3, 4)), constants={2: 0}), ((dim("b"), 3, 4),)),
        (op("Mul", "i32[]", "i32[]", contents=(dim("b"), 3)), (dim("3*b"),)),
        (op("AddV2", "i32[2]", "i32[]", contents=((dim("b"), 1), 3)), ((dim("b+3"), 4),)),
        (op("FloorDiv", "i32[]", "i32[]", contents=(dim("b"), 2)), (dim("floor(b/2)"),)),
        (op("FloorDiv", "i32[]", "i32[]", contents=(dim("b"), -2)), (None,)),
        (op("FloorDiv", "i32[]", "i32[]", contents=(-7, 2)), (-4,)),
        (op("FloorMod", "i32[]", "i32[]", contents=(-7, 3)), (2,)),
        (op("Maximum", "i32[]", "i32[]", contents=(dim("b"), 3)), (dim("max(3, b)"),)),
        (op("Prod", "i32[3]", "i32[1]", contents=(VECTOR,), constants={1: [0]}), (dim("28*b*s"),)),
        (op("GatherV2", "i32[3]", "i32[2]", "i32[]", contents=(VECTOR,), constants={1: [2, 0], 2: 0}), ((dim("s"), dim("b")),)),
        (op("Unpack", "i32[3]", attrs={"num": 3}, contents=(VECTOR,)), VECTOR),
        (op("Cast", "i32[]", attrs={"DstT": DType("int64")}, contents=(dim("b"),)), (dim("b"),)),
        (op("Cast", "i32[]", attrs={"DstT": DType("float32")}, contents=(dim("b"),)), (None,)),
        (op("Cast", "i32[]", attrs={"DstT": DType("uint8")}, contents=(300,)), (None,)),
        (op("Mul", "f32[]", "f32[]", contents=(None, None)), (None,)),
    ],
    ids=lambda value: value.op if isinstance(value, Operation) else str(value),
)  # fmt: skip
def test_contents(operation: Operation, expected: tuple[Content, ...]) -> None:
    assert queries.contents_of(operation) == expected


def test_attributes_are_completed_and_stored_again() -> None:
    f32 = DType("float32")
    whole = complete("MatMul", {"transpose_b": True}, [f32, f32])
    assert whole["T"] == f32 and whole["transpose_a"] is False
    assert stored("MatMul", whole, [f32, f32]) == {"transpose_b": True}
    assert complete("ConcatV2", {}, [f32, f32, DType("int32")])["N"] == 2
    assert complete("IdentityN", {}, [f32, DType("bool")])["T"] == (f32, DType("bool"))
    with pytest.raises(IrError, match="3 operands do not fit"):
        complete("MatMul", {}, [f32] * 3)


def test_opaque_ops_have_the_declared_dtypes_and_no_shape() -> None:
    found = op("StringSplit", "string[b]", "string[]")
    assert list(map(str, found.results)) == ["i64[*]", "string[*]", "i64[*]"]
    assert queries.rule(found) is None and queries.work(found) is None


def test_the_table_lists_every_op_once() -> None:
    rows = coverage_table()
    assert len(rows) == len(SPECS) == len({row[0] for row in rows}) >= 150


@pytest.mark.parametrize("operation", [op("BatchMatMulV2", "f32[7,4,5,6]", "f32[6,3]"), op("BatchMatMulV2", "f32[7,4,5,6]", "f32[1,6,3]")])
def test_a_broadcast_inner_batch_keeps_two_rows_a_shard(operation: Operation) -> None:
    """[n, 1, m, k] x [k, n] writes past a buffer in TensorFlow 2.21 with oneDNN."""
    rule = queries.rule(operation)
    assert rule is not None
    assert rule.factor("b0").divides_into(7)
    assert rule.factor("b1").divides_into(2) and not rule.factor("b1").divides_into(3)


@pytest.mark.parametrize("operation", [op("Conv2D", "f32[b,9,9,2]", "f32[3,3,2,4]", attrs=CONV)])
def test_filters_and_rows_under_a_window_are_never_empty(operation: Operation) -> None:
    rule = queries.rule(operation)
    assert rule is not None
    assert [f.name for f in rule.splits() if f.divides_into(3)] == ["n", "s0", "s1", "co"]


def test_compound_dimensions_divide_evenly_or_not_at_all() -> None:
    rule = queries.rule(op("Reshape", "f32[7,2,6]", "i32[2]", constants={1: [14, 6]}))
    assert rule is not None
    assert [rule.divides_evenly("r0", parts) for parts in (2, 7)] == [False, True]
    assert rule.divides_evenly("r2", 4)
