"""The OpDef table is the installed TensorFlow's: equal to it for the same version, of the same arity for any other."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import tensorflow as tf
from tensorflow.core.framework import op_def_pb2

from compiler.ops import opdefs
from tests.tools import generate_opdefs

pytestmark = pytest.mark.tf


def test_table_is_what_this_tensorflow_would_generate() -> None:
    if tf.__version__ != opdefs.tensorflow_version():
        pytest.skip(f"TensorFlow {tf.__version__} is installed, the table is of {opdefs.tensorflow_version()}")
    code = """
import sys, tensorflow as tf
from tests.tools import generate_opdefs as g
sys.stdout.write(g.table(g.registered(), tf.__version__))
"""
    # A process of its own: importing tf.lite elsewhere registers ops of its own.
    done = subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[2], capture_output=True, check=True)
    assert generate_opdefs.TABLE.read_bytes() == done.stdout


def test_no_op_of_this_tensorflow_changed_its_arguments() -> None:
    changed = []
    for op in generate_opdefs.registered():
        known = opdefs.get(op.name)
        if known is None:
            continue
        installed = opdefs.parse(op.name, json.dumps(generate_opdefs.fields(op)))
        if (installed.inputs, installed.outputs) != (known.inputs, known.outputs):
            changed.append(op.name)
    assert changed == []


def declared(proto: op_def_pb2.OpDef.ArgDef) -> opdefs.ArgDef:
    """An ArgDef straight from the proto, by another way than the table's notation."""
    dtype = None if proto.type_attr or proto.type_list_attr else tf.dtypes.as_dtype(proto.type).name
    return opdefs.ArgDef(proto.name, dtype, proto.type_attr or None, proto.number_attr or None, proto.type_list_attr or None, proto.is_ref)


def test_parsing_reads_back_every_field_of_every_op() -> None:
    for op in generate_opdefs.registered():
        known = opdefs.parse(op.name, json.dumps(generate_opdefs.fields(op)))
        for args, protos in ((known.inputs, op.input_arg), (known.outputs, op.output_arg)):
            assert list(args) == [declared(proto) for proto in protos], op.name
        assert [attr.name for attr in known.attrs.values()] == sorted(attr.name for attr in op.attr)
        assert all(known.attrs[attr.name].has_default == attr.HasField("default_value") for attr in op.attr), op.name
        assert all(getattr(known, flag) == getattr(op, flag) for flag in opdefs.FLAGS), op.name
        assert (known.deprecation is not None) == op.HasField("deprecation"), op.name


@tf.function
def branches(x: tf.Tensor, s: tf.Tensor) -> tuple[tf.Tensor, ...]:
    low, high = tf.split(x, 2)
    stacked = tf.stack([low, high, low + high])
    values, indices = tf.nn.top_k(stacked, k=1)
    total = tf.while_loop(lambda i, t: i < 3, lambda i, t: (i + 1, t * 2.0), (0, tf.reduce_sum(values)))[1]
    return tf.cond(total > 0.0, lambda: total, lambda: -total), tf.cast(indices, tf.bfloat16), tf.strings.length(s)


def test_dtypes_and_arities_of_a_traced_graph_agree_with_tensorflow() -> None:
    graph = branches.get_concrete_function(tf.TensorSpec((4, 8)), tf.TensorSpec((), tf.string)).graph
    bodies = [function.graph for function in graph._functions.values() if hasattr(function, "graph")]
    seen = 0
    for operation in (operation for body in [graph, *bodies] for operation in body.get_operations()):
        attrs = {
            attr.name: generate_opdefs.plain(operation.node_def.attr[attr.name])
            for attr in operation.op_def.attr
            if attr.name in operation.node_def.attr
        }
        assert opdefs.output_dtypes(operation.type, attrs) == tuple(output.dtype.base_dtype.name for output in operation.outputs), (
            operation.name
        )
        assert opdefs.input_dtypes(operation.type, attrs) == tuple(operand.dtype.base_dtype.name for operand in operation.inputs), (
            operation.name
        )
        assert opdefs.input_arity(operation.type, attrs) == len(operation.inputs)
        assert opdefs.output_arity(operation.type, attrs) == len(operation.outputs)
        seen += 1
    assert seen > 20
