"""One operation or more for every op that a rule divides: what the laws of shapes and splits are tried on.

Sizes are 7 (which neither 2 nor 3 divides), 6, and 2 (of which three shards leave one empty); 7 never means two different things in one
case, so that it can become the symbol b.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from compiler.ir.graph import ShapeAttr
from compiler.ir.types import DType
from tests.ops.splitting import Case, drawn, reals

F32 = DType("float32")
EXACT_UNARY = ("Neg", "Abs", "Sign", "Square", "Floor", "Ceil", "Round", "Rint", "Relu", "Relu6", "LeakyRelu", "IsNan", "IsInf", "IsFinite",
               "ZerosLike", "OnesLike", "Identity", "StopGradient", "PreventGradient", "Snapshot")  # fmt: skip
REAL_UNARY = ("Sqrt", "Rsqrt", "Reciprocal", "Inv", "Exp", "Expm1", "Log", "Log1p", "Sin", "Cos", "Tan", "Asin", "Acos", "Atan", "Sinh",
              "Cosh", "Asinh", "Atanh", "Tanh", "Sigmoid", "Erf", "Erfc", "Erfinv", "Ndtri", "Lgamma", "Digamma", "Softplus", "Softsign",
              "Elu", "Selu")  # fmt: skip
EXACT_BINARY = ("Add", "AddV2", "Sub", "Mul", "SquaredDifference", "Maximum", "Minimum", "MulNoNan", "Less", "LessEqual", "Greater",
                "GreaterEqual", "Equal", "NotEqual")  # fmt: skip
REAL_BINARY = ("Div", "RealDiv", "DivNoNan", "Xdivy", "Xlogy", "Xlog1py", "FloorDiv", "FloorMod", "Mod", "TruncateMod", "Pow", "Atan2",
               "NextAfter")  # fmt: skip
INTEGER_BINARY = ("FloorDiv", "FloorMod", "TruncateDiv", "TruncateMod", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "LeftShift", "RightShift")
GRADIENTS = ("ReluGrad", "Relu6Grad", "LeakyReluGrad", "EluGrad", "SeluGrad", "SoftplusGrad", "SoftsignGrad", "SigmoidGrad", "TanhGrad",
             "SqrtGrad", "RsqrtGrad", "ReciprocalGrad", "InvGrad")  # fmt: skip
ULPS = 1e-6


def ints(*values: int, dtype: str = "int32") -> np.ndarray:
    return np.array(values, dtype)


def scalar(value: int, dtype: str = "int32") -> np.ndarray:
    return np.array(value, dtype)


def elementwise() -> Iterator[Case]:
    for op in EXACT_UNARY:
        yield Case(op, (drawn(1, 7, 2, 6),))
    for op in REAL_UNARY:
        yield Case(op, (reals(1, 7, 6),), tolerance=ULPS)
    yield Case("Acosh", (reals(1, 7, 6) + 1,), tolerance=ULPS)
    yield Case("Invert", (drawn(1, 7, 6, dtype="int32"),))
    yield Case("LogicalNot", (drawn(1, 7, 6) > 0,))
    yield Case("Cast", (drawn(1, 7, 6),), {"DstT": DType("int64")})
    for op in EXACT_BINARY:
        yield Case(op, (drawn(2, 7, 1, 6), drawn(3, 2, 6)))
        yield Case(op, (drawn(2, 7, 6), drawn(3, 7, 6)))
        yield Case(op, (drawn(2), drawn(3, 7, 6)))
    for op in REAL_BINARY:
        yield Case(op, (reals(2, 7, 1), reals(3, 7, 6)), tolerance=ULPS)
    for op in INTEGER_BINARY:
        yield Case(op, (drawn(2, 7, 6, dtype="int32"), drawn(3, 6, low=1, dtype="int32")))
    for op in ("LogicalAnd", "LogicalOr"):
        yield Case(op, (drawn(2, 7, 6) > 0, drawn(3, 6) > 0))
    for op in GRADIENTS:
        yield Case(op, (reals(2, 7, 6), reals(3, 7, 6)), tolerance=ULPS)
    complex_ = (reals(1, 7, 6) + 1j * reals(2, 7, 6)).astype("complex64")
    yield from (Case(op, (complex_,), tolerance=ULPS) for op in ("Real", "Imag", "ComplexAbs", "Angle", "Conj"))
    yield Case("Complex", (reals(1, 7, 6), reals(2, 6)))
    yield Case("ApproximateEqual", (drawn(1, 7, 6), drawn(2, 7, 6)))
    yield Case("AddN", (drawn(1, 7, 6), drawn(2, 7, 6), drawn(3, 7, 6)))
    yield Case("Select", (drawn(1, 7) > 0, drawn(2, 7, 6), drawn(3, 7, 6)))
    yield Case("Select", (drawn(1, 7, 6) > 0, drawn(2, 7, 6), drawn(3, 7, 6)))
    yield Case("Select", (np.array(True), drawn(2, 7, 6), drawn(3, 7, 6)))
    yield Case("SelectV2", (drawn(1, 7, 1) > 0, drawn(2, 6), drawn(3, 7, 6)))
    yield Case("BiasAdd", (drawn(1, 7, 2, 6), drawn(2, 6)))
    yield Case("BiasAdd", (drawn(1, 7, 6, 2, 2), drawn(2, 6)), {"data_format": "NCHW"})
    yield Case("BiasAddV1", (drawn(1, 7, 6), drawn(2, 6)))


def matmul() -> Iterator[Case]:
    yield Case("MatMul", (drawn(1, 7, 6), drawn(2, 6, 5)))
    yield Case("MatMul", (drawn(1, 6, 7), drawn(2, 5, 6)), {"transpose_a": True, "transpose_b": True})
    yield Case("MatMul", (drawn(1, 5, 2), drawn(2, 2, 5)))
    yield Case("BatchMatMul", (drawn(1, 7, 2, 6), drawn(2, 7, 6, 5)))
    yield Case("BatchMatMulV2", (drawn(1, 7, 1, 4, 6), drawn(2, 2, 6, 5)))
    yield Case("BatchMatMulV2", (drawn(1, 7, 2, 6, 4), drawn(2, 7, 2, 5, 6)), {"adj_x": True, "adj_y": True})
    yield Case("BatchMatMulV3", (drawn(1, 7, 4, 6), drawn(2, 7, 6, 5)), {"Tout": F32})
    for equation, left, right in (
        ("abc,cde->abde", (7, 5, 6), (6, 2, 4)),
        ("aecd,abcd->acbe", (7, 5, 2, 3), (7, 4, 2, 3)),
        ("...ij,jk->...ik", (7, 2, 5, 6), (6, 4)),
        ("b...,b->...", (7, 5), (7,)),
        ("ij,kl->ijkl", (7, 2), (3, 2)),
    ):
        yield Case("Einsum", (drawn(1, *left), drawn(2, *right)), {"equation": equation})
    yield Case("Einsum", (drawn(1, 7, 6, 5),), {"equation": "abc->ca"})


def conv() -> Iterator[Case]:
    for padding in ("SAME", "VALID"):
        for stride in (1, 2):
            attrs = {"strides": (1, stride, stride, 1), "padding": padding}
            yield Case("Conv2D", (drawn(1, 7, 9, 8, 6), drawn(2, 3, 3, 6, 4)), attrs)
            yield Case("DepthwiseConv2dNative", (drawn(1, 7, 9, 8, 6), drawn(2, 3, 3, 6, 2)), attrs)
            yield Case("Conv3D", (drawn(1, 7, 5, 6, 4, 2), drawn(2, 3, 2, 3, 2, 4)), {**attrs, "strides": (1, stride, stride, stride, 1)})
    ones = {"strides": (1, 1, 1, 1), "padding": "SAME"}
    yield Case("Conv2D", (drawn(1, 7, 11, 8, 2), drawn(2, 3, 3, 2, 4)), {**ones, "dilations": (1, 2, 2, 1)})
    yield Case("Conv2D", (drawn(1, 7, 5, 5, 6), drawn(2, 3, 3, 2, 9)), ones)
    yield Case("Conv2D", (drawn(1, 7, 9, 8, 2), drawn(2, 1, 1, 2, 4)), ones)
    explicit = {"strides": (1, 2, 1, 1), "padding": "EXPLICIT", "explicit_paddings": (0, 0, 2, 1, 0, 3, 0, 0)}
    yield Case("Conv2D", (drawn(1, 7, 9, 8, 2), drawn(2, 3, 3, 2, 4)), explicit)
    yield Case("DepthwiseConv2dNative", (drawn(1, 7, 9, 8, 2), drawn(2, 3, 3, 2, 1)), ones)
    yield Case("DepthwiseConv2dNative", (drawn(1, 7, 9, 8, 2), drawn(2, 3, 3, 2, 1)), {**ones, "dilations": (1, 2, 2, 1)})
    image, filters, gradient = drawn(1, 7, 8, 9, 6), drawn(2, 3, 3, 6, 5), drawn(3, 7, 8, 9, 5)
    yield Case("Conv2DBackpropInput", (ints(7, 8, 9, 6), filters, gradient), ones, (0,))
    yield Case("Conv2DBackpropFilter", (image, ints(3, 3, 6, 5), gradient), ones, (1,))
    strided = {"strides": (1, 2, 2, 1), "padding": "SAME"}
    yield Case("Conv2DBackpropInput", (ints(7, 8, 10, 6), filters, drawn(3, 7, 4, 5, 5)), strided, (0,))
    space, volume = (1,) * 5, drawn(1, 7, 4, 5, 3, 6)
    yield Case("Conv3DBackpropInputV2", (ints(7, 4, 5, 3, 6), drawn(2, 2, 3, 3, 6, 5), drawn(3, 7, 4, 5, 3, 5)),
               {"strides": space, "padding": "SAME"}, (0,))  # fmt: skip
    yield Case(
        "Conv3DBackpropFilterV2", (volume, ints(2, 3, 3, 6, 5), drawn(3, 7, 4, 5, 3, 5)), {"strides": space, "padding": "SAME"}, (1,)
    )
    depthwise = drawn(2, 3, 3, 6, 2)
    yield Case("DepthwiseConv2dNativeBackpropInput", (ints(7, 8, 9, 6), depthwise, drawn(3, 7, 8, 9, 12)), ones, (0,))
    yield Case("DepthwiseConv2dNativeBackpropFilter", (image, ints(3, 3, 6, 2), drawn(3, 7, 8, 9, 12)), ones, (1,))


def pool() -> Iterator[Case]:
    for padding in ("SAME", "VALID"):
        for op in ("MaxPool", "AvgPool"):
            attrs = {"ksize": (1, 3, 2, 1), "strides": (1, 2, 1, 1), "padding": padding}
            yield Case(op, (drawn(1, 7, 9, 8, 6),), attrs, tolerance=ULPS)
            cube = {"ksize": (1, 2, 2, 2, 1), "strides": (1, 1, 2, 2, 1), "padding": padding}
            yield Case(f"{op}3D", (drawn(1, 7, 5, 4, 6, 2),), cube, tolerance=ULPS)
    halves = {"ksize": (1, 2, 2, 1), "strides": (1, 2, 2, 1), "padding": "SAME"}
    yield Case("AvgPool", (drawn(1, 7, 12, 8, 6),), halves, tolerance=ULPS)
    yield Case("MaxPoolWithArgmax", (drawn(1, 7, 8, 8, 6),), {**halves, "Targmax": DType("int64")})
    image, pooled, gradient = drawn(1, 7, 8, 6, 5), drawn(1, 7, 4, 3, 5), drawn(2, 7, 4, 3, 5)
    pooled = image.reshape(7, 4, 2, 3, 2, 5).max((2, 4))
    yield Case("MaxPoolGrad", (image, pooled, gradient), halves)
    yield Case("AvgPoolGrad", (ints(7, 8, 6, 5), gradient), halves, (0,))
    cube = {"ksize": (1, 2, 2, 2, 1), "strides": (1, 2, 2, 2, 1), "padding": "VALID"}
    volume = drawn(1, 7, 4, 6, 2, 5)
    yield Case("MaxPool3DGrad", (volume, volume.reshape(7, 2, 2, 3, 2, 1, 2, 5).max((2, 4, 6)), drawn(2, 7, 2, 3, 1, 5)), cube)
    yield Case("AvgPool3DGrad", (ints(7, 4, 6, 2, 5), drawn(2, 7, 2, 3, 1, 5)), cube, (0,))


def reduction() -> Iterator[Case]:
    for op in ("Sum", "Prod", "Max", "Min", "Mean", "EuclideanNorm"):
        tolerance = ULPS if op in ("Mean", "EuclideanNorm") else 0.0
        value = drawn(1, 7, 2, 6, low=1, high=3) * np.float32(1 if op == "Prod" else 3)
        for axes in (ints(0, 2), ints(-1), ints(1), ints()):
            yield Case(op, (value, axes), {}, (1,), tolerance)
        yield Case(op, (value, scalar(1)), {"keep_dims": True}, (1,), tolerance)
    yield Case("Mean", (drawn(1, 7, 6, dtype="int32"), ints(0)), {}, (1,))
    for op in ("Any", "All"):
        yield Case(op, (drawn(1, 7, 2, 6) > -3, ints(0, 2)), {}, (1,))
    for op in ("ArgMax", "ArgMin"):
        yield Case(op, (drawn(1, 7, 2, 6), scalar(2)), {}, (1,))
        yield Case(op, (drawn(1, 7, 2, 6), scalar(-3)), {"output_type": DType("int32")}, (1,))
    yield Case("L2Loss", (drawn(1, 7, 6),))
    yield Case("BiasAddGrad", (drawn(1, 7, 2, 6),))
    yield Case("BiasAddGrad", (drawn(1, 7, 6, 2, 2),), {"data_format": "NCHW"})
    for op in ("Cumsum", "Cumprod", "CumulativeLogsumexp"):
        yield Case(op, (drawn(1, 7, 2, 6, low=1, high=3), scalar(1)), {"reverse": True}, (1,), ULPS)


def norm() -> Iterator[Case]:
    for op in ("Softmax", "LogSoftmax"):
        yield Case(op, (drawn(1, 7, 2, 6),), tolerance=ULPS)
    image = drawn(1, 7, 3, 4, 6)
    vectors = (drawn(2, 6), drawn(3, 6), drawn(4, 6), drawn(5, 6, low=1))
    for op in ("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3"):
        yield Case(op, (image, *vectors), {"is_training": False}, tolerance=ULPS)
    empty = np.zeros(0, np.float32)
    yield Case("FusedBatchNormV3", (image, *vectors[:2], empty, empty), {"is_training": True}, tolerance=ULPS * 10)
    yield Case("SparseSoftmaxCrossEntropyWithLogits", (drawn(1, 7, 6), drawn(2, 7, low=0, dtype="int32")), tolerance=ULPS)
    yield Case("SoftmaxCrossEntropyWithLogits", (drawn(1, 7, 6), reals(2, 7, 6)), tolerance=ULPS)
    gradient = (drawn(6, 7, 3, 4, 6), image, vectors[0], reals(7, 6), reals(8, 6))
    for training in (True, False):
        for op in ("FusedBatchNormGrad", "FusedBatchNormGradV2"):
            yield Case(op, gradient, {"is_training": training}, tolerance=ULPS * 10)
        yield Case("FusedBatchNormGradV3", (*gradient, empty), {"is_training": training}, tolerance=ULPS * 10)
    yield Case("LRNGrad", (drawn(1, 7, 3, 2, 6), drawn(2, 7, 3, 2, 6), drawn(3, 7, 3, 2, 6)), tolerance=ULPS)
    yield Case("LRN", (drawn(1, 7, 3, 2, 6),), tolerance=ULPS)


def layout() -> Iterator[Case]:
    yield Case("IdentityN", (drawn(1, 7, 6), drawn(2, 2, 3)))
    for shape in ((7, 12), (14, 6), (84,), (7, 4, 3), (7, 2, 2, 3), (2, 7, 6), (1, 7, 12, 1), (21, 4)):
        yield Case("Reshape", (drawn(1, 7, 2, 6), ints(*shape)), {}, (1,))
    yield Case("Reshape", (drawn(1, 7, 2, 6), ints(-1, 12)), {}, (1,))
    yield Case("Reshape", (drawn(1, 84), ints(7, -1)), {}, (1,))
    for axis in (0, 1, -1):
        yield Case("ExpandDims", (drawn(1, 7, 6), scalar(axis)), {}, (1,))
    yield Case("Squeeze", (drawn(1, 7, 1, 2, 1),))
    yield Case("Squeeze", (drawn(1, 7, 1, 2, 1),), {"squeeze_dims": (-1,)})
    yield Case("Transpose", (drawn(1, 7, 2, 6), ints(2, 0, 1)), {}, (1,))
    yield Case("ConjugateTranspose", ((drawn(1, 7, 6) + 1j * drawn(2, 7, 6)).astype("complex64"), ints(1, 0)), {}, (1,))
    yield Case("BroadcastTo", (drawn(1, 7, 1), ints(2, 7, 6)), {}, (1,))
    yield Case("Tile", (drawn(1, 7, 1, 2), ints(1, 6, 3)), {}, (1,))
    yield Case("ReverseV2", (drawn(1, 7, 2, 6), ints(1, -1)), {}, (1,))
    yield Case("CheckNumerics", (drawn(1, 7, 6),), {"message": "m"})
    yield Case("CheckNumericsV2", (drawn(1, 7, 6),), {"message": "m"})


def slicing() -> Iterator[Case]:
    value = drawn(1, 7, 5, 6)
    yield Case("Slice", (value, ints(0, 1, 0), ints(7, 3, -1)), {}, (1, 2))
    yield Case("Slice", (value, ints(0, 0, 0), ints(-1, 5, 2)), {}, (1, 2))
    yield Case("Split", (scalar(2), value), {"num_split": 3}, (0,))
    yield Case("SplitV", (value, ints(2, -1, 1), scalar(1)), {"num_split": 3}, (1, 2))
    yield Case("Concat", (scalar(1), value, drawn(2, 7, 2, 6)), {}, (0,))
    yield Case("ConcatV2", (value, drawn(2, 7, 2, 6), drawn(3, 7, 1, 6), scalar(-2)), {}, (3,))
    yield Case("Pack", (value, drawn(2, 7, 5, 6)), {"axis": 1})
    yield Case("Pack", (scalar(3), scalar(4)), {"axis": 0})
    yield Case("Unpack", (value,), {"num": 5, "axis": 1})
    paddings = np.array([[0, 0], [1, 2], [0, 0]], np.int32)
    yield Case("Pad", (value, paddings), {}, (1,))
    yield Case("PadV2", (value, paddings, np.float32(3)), {}, (1,))
    yield Case("MirrorPad", (value, paddings), {"mode": "REFLECT"}, (1,))
    masks = {"begin_mask": 0, "end_mask": 0, "ellipsis_mask": 0, "new_axis_mask": 0, "shrink_axis_mask": 0}
    for begin, end, strides, given in (
        ((0, 1), (7, -1), (1, 2), {}),
        ((0, 0), (0, 3), (1, 1), {"begin_mask": 1, "end_mask": 1}),
        ((0, 2), (0, 3), (1, 1), {"ellipsis_mask": 1, "shrink_axis_mask": 2}),
        ((0, 0, 0), (0, 0, 3), (1, 1, 1), {"begin_mask": 1, "end_mask": 1, "new_axis_mask": 2}),
        ((3,), (4,), (1,), {"shrink_axis_mask": 1}),
        ((0, -1), (0, -5), (-1, -2), {"begin_mask": 1, "end_mask": 1}),
        ((-100, 1, 0), (100, 9, 6), (1, 1, 1), {}),
    ):
        yield Case("StridedSlice", (value, ints(*begin), ints(*end), ints(*strides)), {**masks, **given}, (1, 2, 3))
    yield Case("StridedSliceGrad", (ints(7, 5, 6), ints(0, 1), ints(0, 4), ints(1, 1), drawn(1, 7, 3, 6)),
               {**masks, "begin_mask": 1, "end_mask": 1}, (0, 1, 2, 3))  # fmt: skip


def gather() -> Iterator[Case]:
    table = drawn(1, 6, 5)
    rows = drawn(2, 7, 3, low=0, high=5, dtype="int32")
    yield Case("Gather", (table, rows))
    yield Case("GatherV2", (table, rows, scalar(0)), {}, (2,))
    yield Case("GatherV2", (drawn(1, 7, 6, 5), drawn(2, 7, 3, low=0, high=5, dtype="int32"), scalar(1)), {"batch_dims": 1}, (2,))
    yield Case("GatherV2", (drawn(1, 7, 5, 6), drawn(2, 3, low=0, high=5, dtype="int32"), scalar(-2)), {}, (2,))
    yield Case("GatherNd", (drawn(1, 5, 5, 6), drawn(2, 7, 3, 2, low=0, high=5, dtype="int32")))
    for axis in (-1, 0, 1):
        yield Case("OneHot", (rows, scalar(5), np.float32(1), np.float32(0)), {"axis": axis}, (1,))
    yield Case("TopKV2", (drawn(1, 7, 2, 6), scalar(3)), {}, (1,))
    segments = drawn(2, 7, low=0, high=3, dtype="int32")
    for op in ("UnsortedSegmentSum", "UnsortedSegmentProd", "UnsortedSegmentMax", "UnsortedSegmentMin"):
        yield Case(op, (drawn(1, 7, 6, low=1, high=3), segments, scalar(4)), {}, (2,))
    for op in ("SegmentSum", "SegmentMean", "SegmentMax", "SegmentMin", "SegmentProd"):
        yield Case(op, (drawn(1, 7, 6), np.sort(segments)), tolerance=ULPS)
    yield Case("Where", (drawn(1, 7, 6) > 0,))
    yield Case("Unique", (rows.ravel(),))
    yield Case("ScatterNd", (ints(1, 3, 1).reshape(3, 1), drawn(1, 3, 6), ints(5, 6)), {}, (2,))
    yield Case("TensorScatterUpdate", (drawn(1, 5, 6), ints(1, 3).reshape(2, 1), drawn(1, 2, 6)))
    yield Case("Bincount", (rows.ravel(), scalar(5), np.zeros(0, np.float32)), {}, (1,))
    yield Case("DenseBincount", (rows, scalar(5), np.zeros(0, np.float32)), {}, (1,))
    yield Case("MatrixBandPart", (drawn(1, 7, 6, 6), scalar(1, "int64"), scalar(-1, "int64")))


def image() -> Iterator[Case]:
    value = drawn(1, 7, 4, 6, 5)
    for op in ("ResizeBilinear", "ResizeBicubic", "ResizeArea", "ResizeNearestNeighbor"):
        yield Case(op, (value, ints(8, 9)), {}, (1,), ULPS)
    yield Case("ResizeBilinearGrad", (drawn(2, 7, 8, 9, 5), value), tolerance=ULPS)
    yield Case("SpaceToDepth", (value,), {"block_size": 2})
    yield Case("DepthToSpace", (drawn(1, 7, 2, 3, 8),), {"block_size": 2})
    edges = np.array([[0, 2], [1, 1]], np.int32)
    yield Case("SpaceToBatchND", (value, ints(2, 2), edges), {}, (1, 2))
    yield Case("BatchToSpaceND", (drawn(1, 28, 3, 4, 5), ints(2, 2), edges), {}, (1, 2))


def shapes() -> Iterator[Case]:
    """Never divided: only their shapes are tried."""
    yield Case("Shape", (drawn(1, 7, 6),))
    yield Case("ShapeN", (drawn(1, 7, 6), drawn(2, 2)), {"out_type": DType("int64")})
    yield Case("Size", (drawn(1, 7, 6),))
    yield Case("Rank", (drawn(1, 7, 6),))
    yield Case("InvertPermutation", (ints(2, 0, 1),))
    yield Case("BroadcastArgs", (ints(5, 1), ints(6)))
    yield Case("BroadcastGradientArgs", (ints(5, 1), ints(6)))
    yield Case("Range", (scalar(2), scalar(11), scalar(3)), {}, (0, 1, 2))
    yield Case("Range", (np.float32(0), np.float32(1), np.float32(0.25)), {}, (0, 1, 2))
    yield Case("Fill", (ints(7, 6), np.float32(2)), {}, (0,))
    yield Case("RandomUniform", (ints(7, 6),), {"dtype": F32}, (0,))
    yield Case("StatelessRandomUniform", (ints(7, 6), ints(1, 2)), {}, (0,))
    yield Case("StatelessRandomGetKeyCounter", (ints(1, 2),))
    yield Case("RandomUniformInt", (ints(7, 6), scalar(0), scalar(9)), {}, (0,))
    yield Case("Multinomial", (reals(1, 7, 6), scalar(3)), {}, (1,))
    yield Case("EnsureShape", (drawn(1, 7, 6),), {"shape": ShapeAttr((None, 6))})


def every() -> tuple[Case, ...]:
    families = (elementwise, matmul, conv, pool, reduction, norm, layout, slicing, gather, image, shapes)
    return tuple(case for family in families for case in family())
