"""Kind 9, constants: protos that repeat their last value, bit patterns of halves, odd element types, aliases, hashes that are too weak."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.framework import graph_pb2, tensor_pb2, types_pb2

import compiler
from tests.cases.case import NAN, Case, call, f32
from tests.cases.suite import Suite, runs

pytestmark = [pytest.mark.tf, pytest.mark.timeout(900)]


def proto(dtype: int, shape: list[int], **values: Any) -> tensor_pb2.TensorProto:
    found = tensor_pb2.TensorProto(dtype=dtype, **values)
    for size in shape:
        found.tensor_shape.dim.add(size=size)
    found.tensor_shape.SetInParent()
    return found


PROTOS = {
    "repeats": proto(types_pb2.DT_FLOAT, [4], float_val=[1, 2]),
    "nothing": proto(types_pb2.DT_FLOAT, [3]),
    "half": proto(types_pb2.DT_HALF, [], half_val=[15360]),
    "bfloat": proto(types_pb2.DT_BFLOAT16, [2], half_val=[16256]),
    "truth": proto(types_pb2.DT_BOOL, [3], bool_val=[False, True]),
    "string": proto(types_pb2.DT_STRING, [2], string_val=[b"a\x00b"]),
    "complex": proto(types_pb2.DT_COMPLEX64, [2], scomplex_val=[1, -2]),
    "empty": proto(types_pb2.DT_INT32, [0]),
    "scalar": proto(types_pb2.DT_INT64, [], int64_val=[2**53 + 1]),
    "byte": proto(types_pb2.DT_UINT8, [3], int_val=[255, 0]),
    "wide": proto(types_pb2.DT_UINT64, [1], uint64_val=[2**64 - 1]),
    "content": proto(types_pb2.DT_INT16, [2], tensor_content=b"\xff\xff\x02\x00"),
    "minus_0": proto(types_pb2.DT_FLOAT, [2], float_val=[-0.0]),
    "no_number": proto(types_pb2.DT_DOUBLE, [2], double_val=[NAN, 1]),
    "four_bits": proto(types_pb2.DT_INT4, [3], int_val=[-8, 7]),
    "four_bits_more": proto(types_pb2.DT_UINT4, [2], int_val=[15, 1]),
    "quantized": proto(types_pb2.DT_QUINT8, [2], int_val=[200, 3]),
    "eight": proto(types_pb2.DT_FLOAT8_E5M2, [2], float8_val=b"\x3c\xbc"),
    "matrix": proto(types_pb2.DT_FLOAT, [2, 3], float_val=[1, 2, 3, 4]),
    "complex_repeats": proto(types_pb2.DT_COMPLEX128, [2], dcomplex_val=[1, 2]),
}
_AS = {"four_bits": tf.int32, "four_bits_more": tf.int32, "eight": tf.float32}


def protos(x: tf.Tensor) -> dict[str, Any]:
    graph = graph_pb2.GraphDef()
    for name, value in PROTOS.items():
        node = graph.node.add(name=name, op="Const")
        node.attr["dtype"].type = value.dtype
        node.attr["value"].tensor.CopyFrom(value)
    tensors = dict(
        zip(PROTOS, tf.graph_util.import_graph_def(graph, return_elements=[f"{name}:0" for name in PROTOS], name="protos"), strict=True)
    )
    quantized = tensors.pop("quantized")
    found = {name: tf.cast(tensor, _AS[name]) if name in _AS else tensor for name, tensor in tensors.items()}
    return {**found, "quantized": tf.bitcast(quantized, tf.uint8), "spread": tf.constant(2.5, shape=[1000]) * x, "x": x * 2}


def alike(x: tf.Tensor) -> dict[str, Any]:
    """Equal bytes, unequal constants; equal values, unequal bytes."""
    one, bits = tf.constant(1.0), tf.constant(0x3F800000)
    zeros = [
        tf.constant(0.0),
        tf.constant(-0.0),
        tf.constant(0),
        tf.zeros([1]),
        tf.zeros([1, 1]),
        tf.constant(0, tf.int64),
        tf.constant(False),
    ]
    nans = [tf.bitcast(tf.constant(pattern, tf.int32), tf.float32) for pattern in (0x7FC00000, 0x7FC00001)]
    return {
        "one": x * one,
        "bits": tf.cast(x, tf.int32) + bits,
        "plus": 1 / (x * 0 + zeros[0]),
        "minus": 1 / (zeros[1] * x),
        "vector": x + zeros[3],
        "matrix": x + zeros[4],
        "integer": tf.cast(x, tf.int32) + zeros[2],
        "long": tf.cast(x, tf.int64) + zeros[5],
        "truth": (x > 0) | zeros[6],
        "nan": tf.bitcast(nans[0], tf.int32),
        "other_nan": tf.bitcast(nans[1], tf.int32),
        "double": tf.cast(x, tf.float64) * tf.constant(0.1, tf.float64),
        "single": tf.cast(x * tf.constant(0.1), tf.float64),
        "strings": tf.strings.join([tf.constant("a"), tf.constant("a\x00")]),
    }


def aliases(x: tf.Tensor) -> dict[str, Any]:
    """One constant and views of it, which later folds must not share or change."""
    c = tf.constant(np.arange(6, dtype=np.float32).reshape(2, 3))
    turned, flat, part = tf.transpose(c), tf.reshape(c, [6]), c[:, 1:]
    scaled = c * 2.0
    return {
        "c": c + x,
        "turned": turned + x,
        "flat": flat + x,
        "part": part + x,
        "scaled": scaled + x,
        "again": c * scaled + x,
        "reverse": tf.reverse(c, [0]) + x,
        "gather": tf.gather(c, [1, 1]) + x,
    }


def folds(x: tf.Tensor) -> dict[str, Any]:
    """What depends on constants alone is TensorFlow's own result, to the bit."""
    c = tf.constant(np.linspace(-3, 3, 37, dtype=np.float32))
    names = ("exp", "tanh", "sigmoid", "sin", "erf", "log1p", "expm1", "rsqrt", "lgamma", "softplus")
    found = {name: getattr(tf.math, name)(c) for name in names}
    rows = tf.reshape(c[:36], [6, 6])
    found |= {
        "matmul": rows @ rows,
        "sum": tf.reduce_sum(c),
        "mean": tf.reduce_mean(rows, 0),
        "softmax": tf.nn.softmax(rows),
        "round": tf.round(c),
        "pow": tf.pow(tf.abs(c), 2.3),
    }
    return {name: value + x * 0 for name, value in found.items()}


CASES = {
    "protos": Case(
        protos,
        (f32(),),
        (
            call(
                {
                    "repeats": np.array([1, 2, 2, 2], np.float32),
                    "nothing": [0, 0, 0],
                    "half": np.float16(1) * np.ones((), np.float16),
                    "bfloat": np.array([1, 1], ml_dtypes.bfloat16),
                    "truth": [False, True, True],
                    "complex": np.array([1 - 2j] * 2, np.complex64),
                    "empty": np.zeros(0, np.int32),
                    "scalar": 2**53 + 1,
                    "byte": np.array([255, 0, 0], np.uint8),
                    "wide": np.array([2**64 - 1], np.uint64),
                    "content": np.array([-1, 2], np.int16),
                    "minus_0": [-0.0, -0.0],
                    "no_number": [NAN, 1],
                    "four_bits": [-8, 7, 7],
                    "four_bits_more": [15, 1],
                    "quantized": [200, 3],
                    "eight": [1, -1],
                    "matrix": [[1, 2, 3], [4, 4, 4]],
                    "complex_repeats": [1 + 2j] * 2,
                    "spread": np.full(1000, 5, np.float32),
                    "x": 4,
                },
                x=2,
            ),
        ),
    ),
    "alike": Case(
        alike,
        (f32(1),),
        (call({"bits": np.array([0x3F800002], np.int32), "plus": [np.inf], "minus": [-np.inf], "matrix": [[2]], "vector": [2]}, x=[2]),),
    ),
    "aliases": Case(
        aliases,
        (f32(),),
        (
            call(
                {
                    "c": [[0, 1, 2], [3, 4, 5]],
                    "turned": [[0, 3], [1, 4], [2, 5]],
                    "part": [[1, 2], [4, 5]],
                    "again": [[0, 2, 8], [18, 32, 50]],
                },
                x=0,
            ),
        ),
    ),
    "folds": Case(folds, (f32(),), (call(x=1),)),
}


@pytest.mark.parametrize(("cluster", "route"), runs("constants"))
@pytest.mark.parametrize("name", CASES)
def test_values(name: str, cluster: str, route: str, suite: Suite) -> None:
    suite.check("constants", name, cluster, route)


def test_a_splat_does_not_grow(tmp_path: Path) -> None:
    """4,000,000 equal numbers are stored once, in the graph that comes in and in the one that goes out."""
    spread = tf.function(
        lambda x: {"y": x + tf.fill([1000, 1000], 2.5), "z": x * tf.constant(1.5, shape=[1000, 1000])}, input_signature=[f32(1)]
    )
    path = compiler.compile_model(spread, cluster="cpu:2", validate=False).save(tmp_path / "model")
    assert sum(file.stat().st_size for file in path.rglob("*") if file.is_file()) < 40_000
