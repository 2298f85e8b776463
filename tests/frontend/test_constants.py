"""TensorProtos read as the runtime reads them: every type, short lists, none, patterns of bits, contents, and faults in words."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.framework import tensor_pb2, types_pb2

from compiler.frontend.constants import literal_of
from compiler.ir.errors import CleaveError
from compiler.ir.weights import Splat, Stores, Tensor, WeightRef

pytestmark = pytest.mark.tf


def proto(dtype: str, shape: tuple[int, ...], **fields: object) -> tensor_pb2.TensorProto:
    made = tensor_pb2.TensorProto(dtype=types_pb2.DataType.Value(f"DT_{dtype.upper()}"))
    made.tensor_shape.SetInParent()
    for size in shape:
        made.tensor_shape.dim.add(size=size)
    for name, value in fields.items():
        if isinstance(value, bytes):
            setattr(made, name, value)
        else:
            getattr(made, name).extend(value)
    return made


def runtime(made: tensor_pb2.TensorProto) -> np.ndarray:
    """What a Const of this proto yields."""
    node = tf.compat.v1.NodeDef(name="c", op="Const")
    node.attr["dtype"].type = made.dtype
    node.attr["value"].tensor.CopyFrom(made)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        tf.import_graph_def(tf.compat.v1.GraphDef(node=[node]), name="")
        return np.asarray(session.run("c:0"))


CASES = {
    "last repeats": proto("float", (4,), float_val=[1, 2]),
    "none is zeros": proto("float", (3,)),
    "none is one zero": proto("float", ()),
    "splat": proto("double", (2, 3), double_val=[2.5]),
    "minus zero": proto("float", (2,), float_val=[-0.0]),
    "nan": proto("float", (2,), float_val=[float("nan")]),
    "more than the shape": proto("float", (2,), float_val=[1, 2, 3]),
    "empty": proto("float", (0,)),
    "empty with a value": proto("float", (0, 3), float_val=[1]),
    "half": proto("half", (2,), half_val=[15360]),
    "half list": proto("half", (3,), half_val=[15360, 0x8000]),
    "bfloat16": proto("bfloat16", (), half_val=[16256]),
    "bool": proto("bool", (3,), bool_val=[True, False]),
    "string": proto("string", (3,), string_val=[b"a", b"\xff\x00"]),
    "no string": proto("string", (2,)),
    "complex64": proto("complex64", (3,), scomplex_val=[1, 2, 3, 4]),
    "complex128": proto("complex128", (2,), dcomplex_val=[1, -2]),
    "int4": proto("int4", (3,), int_val=[-8, 7]),
    "uint4": proto("uint4", (2,), int_val=[15]),
    "int8": proto("int8", (3,), int_val=[-1, -128]),
    "uint8": proto("uint8", (2,), int_val=[255]),
    "int16": proto("int16", (2,), int_val=[-5, 6]),
    "uint16": proto("uint16", (2,), int_val=[65535, 1]),
    "uint32": proto("uint32", (2,), uint32_val=[2**32 - 1]),
    "int64": proto("int64", (2,), int64_val=[2**53 + 1, -1]),
    "uint64": proto("uint64", (2,), uint64_val=[2**64 - 1]),
    "content": proto("float", (3,), tensor_content=np.float32([1, -0.0, np.nan]).tobytes()),
    "int content": proto("int64", (2,), tensor_content=np.int64([3, -4]).tobytes()),
    "int4 content": proto("int4", (3,), tensor_content=b"\xf8\x08\x07"),
    "float8": proto("float8_e5m2", (3,), float8_val=b"\x38\x3c"),
}


@pytest.mark.parametrize("name", CASES)
def test_the_value_is_the_runtimes(name: str) -> None:
    stores = Stores()
    found, expected = np.asarray(stores.load(literal_of(CASES[name], stores, "c"))), runtime(CASES[name])
    assert found.shape == expected.shape
    assert found.dtype == expected.dtype
    if found.dtype == object or name.startswith(("int4", "uint4")):  # of whose bytes half the bits say nothing
        assert found.tolist() == expected.tolist()
    else:
        assert found.tobytes() == expected.tobytes()


@pytest.mark.parametrize("dtype", ["qint8", "quint8", "qint16", "quint16", "qint32"])
def test_quantized_integers_are_their_integers(dtype: str) -> None:
    found = literal_of(proto(dtype, (3,), int_val=[1, 100]), Stores(), "c")
    assert found.dtype == dtype
    assert np.asarray(found.array).tolist() == [1, 100, 100]


def test_strings_may_be_lengths_and_bytes() -> None:
    made = proto("string", (3,), tensor_content=b"\x01\x00\x03axyz")
    assert literal_of(made, Stores(), "c").array.tolist() == [b"a", b"", b"xyz"]


def test_a_repeated_value_stays_one_value_however_large() -> None:
    found = literal_of(proto("float", (10**9,), float_val=[2.5]), Stores(), "c")
    assert isinstance(found, Splat)
    assert (found.shape, found.item.array.item()) == ((10**9,), 2.5)


def test_small_ones_are_inline_and_large_ones_are_kept_in_a_file() -> None:
    stores = Stores()
    small = literal_of(proto("float", (64,), float_val=list(range(64))), stores, "c")
    large = literal_of(proto("float", (65,), float_val=list(range(65))), stores, "c")
    assert isinstance(small, Tensor) and isinstance(large, WeightRef)
    assert stores.load(large).tolist() == list(range(65))


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (proto("float", (3,), tensor_content=b"1234"), "3 float32 has 4 bytes, expected 12"),
        (proto("float", (1,), tensor_content=b"12341234"), "1 float32 has 8 bytes, expected 4"),
        (proto("string", (2,), tensor_content=b"\x05\x01ab"), "2 strings has 4 bytes that do not hold them"),
        (proto("string", (9,), tensor_content=b"\x05"), "9 strings has 1 bytes that do not hold them"),
        (proto("float", (-1,)), "has shape .*, expected a static one"),
        (proto("float", (2**30, 2**30)), "elements, expected at most"),
        (proto("resource", ()), "of type resource cannot be read"),
        (tensor_pb2.TensorProto(), "0 is no element type"),
        (tensor_pb2.TensorProto(dtype=1, tensor_shape=tf.TensorShape(None).as_proto()), "has shape None"),
    ],
)
def test_what_says_no_constant_is_refused(made: tensor_pb2.TensorProto, message: str) -> None:
    with pytest.raises(CleaveError, match=message):
        literal_of(made, Stores(), "c")
