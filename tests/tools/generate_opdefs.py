"""The installed TensorFlow's OpDefs => compiler/ops/opdefs.txt, in the format that compiler.ops.opdefs describes.

Run `python -m tests.tools.generate_opdefs`. The same TensorFlow gives the same bytes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import tensorflow as tf
from tensorflow.core.framework import attr_value_pb2, op_def_pb2, tensor_pb2, tensor_shape_pb2
from tensorflow.python.client import pywrap_tf_session

from compiler.ops import opdefs

TABLE = Path(opdefs.__file__).with_name("opdefs.txt")


def registered() -> Iterator[op_def_pb2.OpDef]:
    """Every op of the installed TensorFlow, private ones too, by name."""
    ops = op_def_pb2.OpList.FromString(pywrap_tf_session.TF_GetBuffer(pywrap_tf_session.TF_GetAllOpList()))
    return iter(sorted(ops.op, key=lambda op: op.name))


def table(ops: Iterable[op_def_pb2.OpDef], version: str) -> str:
    """The text of the whole table."""
    lines = [json.dumps({"tensorflow": version})]
    lines += [f"{op.name} {json.dumps(fields(op), separators=(',', ':'), ensure_ascii=False)}" for op in ops]
    return "\n".join(lines) + "\n"


def fields(op: op_def_pb2.OpDef) -> dict[str, object]:
    """What one line says of `op`; whatever is empty or false is left out."""
    every: dict[str, object] = {
        "in": [argument(arg) for arg in op.input_arg],
        "out": [argument(arg) for arg in op.output_arg],
        "attr": {attr.name: attribute(attr) for attr in sorted(op.attr, key=lambda attr: attr.name)},
        "is": [flag for flag in opdefs.FLAGS if getattr(op, flag)],
        "deprecated": [op.deprecation.version, op.deprecation.explanation] if op.HasField("deprecation") else None,
    }
    return {name: value for name, value in every.items() if value}


def argument(arg: op_def_pb2.OpDef.ArgDef) -> str:
    base = arg.type_list_attr or arg.type_attr or dtype_name(arg.type)
    base = f"Ref({base})" if arg.is_ref else base
    return f"{arg.name}: {arg.number_attr} * {base}" if arg.number_attr else f"{arg.name}: {base}"


def attribute(attr: op_def_pb2.OpDef.AttrDef) -> dict[str, object]:
    spec: dict[str, object] = {"type": attr.type}
    if attr.HasField("default_value"):
        spec["default"] = plain(attr.default_value)
    if attr.HasField("allowed_values"):
        spec["allowed"] = plain(attr.allowed_values)
    if attr.has_minimum:
        spec["minimum"] = attr.minimum
    return spec


def plain(value: attr_value_pb2.AttrValue) -> object:
    """An AttrValue as JSON has it; see compiler.ops.opdefs for what stands for dtypes, shapes and tensors."""
    kind = value.WhichOneof("value")
    if kind == "list":
        return [item for field, items in value.list.ListFields() for item in map(scalar_of(field.name), items)]
    if kind is None:
        raise ValueError(f"an attribute value without a kind: {value}")
    return scalar_of(kind)(getattr(value, kind))


def scalar_of(kind: str) -> Callable[[Any], object]:
    special: dict[str, Callable[[Any], object]] = {
        "s": bytes.decode,
        "type": dtype_name,
        "shape": shape,
        "tensor": tensor,
        "func": lambda function: function.name,
    }
    return special.get(kind, lambda same: same)


def dtype_name(number: int) -> str:
    return str(tf.dtypes.as_dtype(number).name)


def shape(proto: tensor_shape_pb2.TensorShapeProto) -> list[int | None] | None:
    return None if proto.unknown_rank else [None if dim.size < 0 else dim.size for dim in proto.dim]


def tensor(proto: tensor_pb2.TensorProto) -> list[object]:
    array = tf.make_ndarray(proto)
    return [dtype_name(proto.dtype), list(array.shape), array.ravel().tolist()]


def main() -> None:
    text = table(registered(), tf.__version__)
    TABLE.write_text(text, encoding="utf-8")
    print(f"{TABLE.name}: {text.count(chr(10)) - 1} ops of TensorFlow {tf.__version__}, {len(text)} characters")


if __name__ == "__main__":
    main()
