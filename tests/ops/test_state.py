"""Updates of a variable and its slots divide alike along any axis: shards of ResourceApply*, joined, are the whole update."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from compiler.ir.sharding import MeshAxis, extent
from compiler.ir.types import DType, TensorType
from compiler.ops import opdefs, queries
from compiler.ops.attributes import complete
from compiler.ops.spec import Operation
from tests.ops.splitting import reals

pytestmark = pytest.mark.tf

SHAPE = (7, 4)
HELD = TensorType(DType("resource"), (), handle=TensorType(DType("float32"), SHAPE))
TENSOR, SCALAR = TensorType(DType("float32"), SHAPE), TensorType(DType("float32"), ())
UPDATES = {
    "ResourceApplyAdam": ("VVVssssssT", {}),
    "ResourceApplyGradientDescent": ("VsT", {}),
    "ResourceApplyMomentum": ("VVsTs", {}),
    "ResourceApplyKerasMomentum": ("VVsTs", {}),
    "ResourceApplyRMSProp": ("VVVssssT", {}),
    "ResourceApplyAdagradV2": ("VVssT", {}),
    "AssignAddVariableOp": ("VT", {"dtype": DType("float32")}),
    "AssignSubVariableOp": ("VT", {"dtype": DType("float32")}),
    "AssignVariableOp": ("VT", {"dtype": DType("float32")}),
}


def updated(op: str, values: list[np.ndarray]) -> list[np.ndarray]:
    """The variables after the update."""
    operands = [tf.Variable(v) if kind == "V" else tf.constant(v) for kind, v in zip(UPDATES[op][0], values, strict=True)]
    arguments = [v.handle if isinstance(v, tf.Variable) else v for v in operands]
    definition = opdefs.get(op)
    assert definition is not None
    getattr(tf.raw_ops, op)(**dict(zip((arg.name for arg in definition.inputs), arguments, strict=True)))
    return [v.numpy() for v in operands if isinstance(v, tf.Variable)]


@pytest.mark.parametrize("op", sorted(UPDATES))
@pytest.mark.parametrize("parts", [2, 3])
def test_updates_divide_along_any_axis(op: str, parts: int) -> None:
    kinds, attrs = UPDATES[op]
    types = tuple({"V": HELD, "T": TENSOR, "s": SCALAR}[k] for k in kinds)
    operation = Operation("u", op, complete(op, attrs, [t.dtype for t in types]), types)
    rule = queries.rule(operation)
    assert rule is not None
    values = [reals(i, *(() if k == "s" else SHAPE)) for i, k in enumerate(kinds)]
    whole = updated(op, values)
    assert [f.name for f in rule.splits()] == ["d0", "d1"]
    for axis, size in enumerate(SHAPE):
        shards = []
        for i in range(parts):
            first, rows = extent(size, MeshAxis("x", parts), i)
            local = [v if d is None else np.take(v, range(first, first + rows), axis) for v, d in zip(values, rule.operands, strict=True)]
            shards.append(updated(op, local))
        for joined, expected in zip((np.concatenate(s, axis) for s in zip(*shards, strict=True)), whole, strict=True):
            np.testing.assert_allclose(joined, expected, rtol=1e-6)
