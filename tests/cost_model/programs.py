"""Small placed graphs: random ones, valid by construction, and a way to write one by hand."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from compiler.ir.graph import Graph, Value
from compiler.ir.module import Module
from compiler.ir.types import DType, TensorType
from compiler.ir.weights import Tensor
from cost_model.cluster import Cluster
from cost_model.model import CostModel, Prices


def f32(*shape: int) -> TensorType:
    return TensorType(DType("float32"), shape)


def prices_of(module: Module, cluster: str | Cluster = "cpu:3") -> Prices:
    return Prices(module, CostModel(cluster if isinstance(cluster, Cluster) else Cluster.parse(cluster)))


@st.composite
def placed_modules(draw: st.DrawFn, devices: int = 3, most: int = 14) -> Module:
    """Square matrices through Relu, MatMul, Add and Reshape, on random devices, with shared and dead values and control edges."""
    size = draw(st.sampled_from([4, 64, 256]))
    graph = Graph("main")
    graph.add_input("x", f32(size, size))
    value = Tensor(DType("int32"), np.array([size, size]))
    shape = graph.add("Const", attrs={"value": value}, types=(TensorType(DType("int32"), (2,)),), name="shape", device="/device:CPU:0")
    values = [Value("x")]
    for i in range(draw(st.integers(1, most))):
        op = draw(st.sampled_from(["Relu", "MatMul", "AddV2", "Reshape"]))
        first, second = draw(st.sampled_from(values)), draw(st.sampled_from(values))
        operands = {"Relu": [first], "Reshape": [first, Value(shape.name)]}.get(op, [first, second])
        device = f"/device:CPU:{draw(st.integers(0, devices - 1))}"
        controls = [draw(st.sampled_from(values)).node] if draw(st.integers(0, 4)) == 0 else []
        graph.add(op, operands, types=(f32(size, size),), name=f"n{i}", device=device, controls=controls)
        values.append(Value(f"n{i}"))
    graph.set_outputs([("y", values[-1])])
    return Module("random", {"main": graph})
