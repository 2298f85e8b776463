"""Random programs: modules valid by construction, drawn op by op, with sharing, dead ends and several outputs.

Every value is float32 [b, n] or [b, m, n] with a symbolic batch, int32, or a constant; shapes are known, so each op
drawn fits its operands.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from hypothesis import strategies as st

from compiler.ir.dims import symbol
from compiler.ir.graph import Graph, Value
from compiler.ir.module import Module
from compiler.ir.types import DType, TensorType
from compiler.rewrite.emitter import Emitter

FLOAT = DType("float32")
UNARY = (
    "Relu",
    "Tanh",
    "Sigmoid",
    "Neg",
    "Exp",
    "Abs",
    "Square",
    "Identity",
    "Softplus",
    "Softmax",
    "Relu6",
    "Erf",
    "Floor",
    "StopGradient",
)
BINARY = ("AddV2", "Sub", "Mul", "Maximum", "Minimum", "SquaredDifference")
WIDTHS = st.integers(1, 6)


@dataclass
class Drawn:
    """A program on its way: the values that later ops may read."""

    draw: st.DrawFn
    module: Module
    graph: Graph
    emitter: Emitter
    values: list[Value] = field(default_factory=list)

    def pick(self, rank: int | None = None) -> Value | None:
        fits = [v for v in self.values if rank is None or self.graph.type_of(v).rank == rank]
        return self.draw(st.sampled_from(fits)) if fits else None

    def width(self, value: Value) -> int:
        size = (self.graph.type_of(value).shape or (1,))[-1]
        assert isinstance(size, int)
        return size

    def weight(self, *shape: int) -> Value:
        seed = self.draw(st.integers(0, 3))
        array = np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)
        if self.draw(st.integers(0, 4)) == 0:
            array = np.full(shape, 0.5, np.float32)
        return self.emitter.constant(self.module.stores.constant(array), name="w", origin=("w",))

    def ints(self, *values: int) -> Value:
        return self.emitter.constant(self.module.stores.constant(np.array(values, np.int32)), name="i", origin=("i",))

    def add(self, op: str, *operands: Value, **attrs: object) -> None:
        name = f"{op.lower()}_{len(self.values)}"
        self.values.append(self.emitter.add(op, operands, attrs, name=name, origin=(name,)))  # type: ignore[arg-type]


def unary(d: Drawn) -> None:
    value = d.pick()
    assert value is not None
    d.add(d.draw(st.sampled_from(UNARY)), value)


def binary(d: Drawn) -> None:
    left = d.pick()
    assert left is not None
    shape = d.graph.type_of(left).shape
    same = [v for v in d.values if d.graph.type_of(v).shape == shape]
    right = d.draw(st.sampled_from([*same, None]))
    d.add(d.draw(st.sampled_from(BINARY)), left, right if right is not None else d.weight(d.width(left)))


def product(d: Drawn) -> None:
    value = d.pick(2)
    if value is not None:
        columns = d.draw(WIDTHS)
        turned = d.draw(st.booleans())
        weight = d.weight(columns, d.width(value)) if turned else d.weight(d.width(value), columns)
        d.add("MatMul", value, weight, **({"transpose_b": True} if turned else {}))


def bias(d: Drawn) -> None:
    value = d.pick(2)
    if value is not None:
        d.add("BiasAdd", value, d.weight(d.width(value)))


def reduction(d: Drawn) -> None:
    value = d.pick(3)
    if value is not None:
        d.add(d.draw(st.sampled_from(("Sum", "Mean", "Max"))), value, d.ints(d.draw(st.sampled_from((1, 2)))))


def reshape(d: Drawn) -> None:
    value = d.pick(3)
    if value is not None:
        rows = (d.graph.type_of(value).shape or ())[1]
        assert isinstance(rows, int)
        d.add("Reshape", value, d.ints(-1, rows * d.width(value)))


def open_up(d: Drawn) -> None:
    value = d.pick(2)
    if value is not None:
        width = d.width(value)
        rows = d.draw(st.sampled_from([n for n in range(1, width + 1) if width % n == 0]))
        d.add("Reshape", value, d.ints(-1, rows, width // rows))


def swap(d: Drawn) -> None:
    value = d.pick(3)
    if value is not None:
        d.add("Transpose", value, d.ints(0, 2, 1))


def concat(d: Drawn) -> None:
    left, right = d.pick(2), d.pick(2)
    if left is not None and right is not None:
        axis = d.emitter.constant(d.module.stores.constant(np.array(1, np.int32)), name="axis", origin=("axis",))
        d.add("ConcatV2", left, right, axis)


STEPS: tuple[Callable[[Drawn], None], ...] = (
    unary,
    unary,
    binary,
    binary,
    product,
    product,
    bias,
    reduction,
    reshape,
    open_up,
    swap,
    concat,
)


@st.composite
def programs(draw: st.DrawFn, most: int = 14) -> Module:
    """A module with one entry `f`, inputs x [b, n] and z [b, m, n]."""
    module = Module("random")
    graph = Graph("f")
    drawn = Drawn(draw, module, graph, Emitter(module, graph))
    batch = symbol("b")
    drawn.values.append(graph.add_input("x", TensorType(FLOAT, (batch, draw(WIDTHS)))))
    drawn.values.append(graph.add_input("z", TensorType(FLOAT, (batch, draw(WIDTHS), draw(WIDTHS)))))
    for _ in range(draw(st.integers(1, most))):
        draw(st.sampled_from(STEPS))(drawn)
    count = draw(st.integers(1, min(3, len(drawn.values))))
    graph.set_outputs((f"y{i}", value) for i, value in enumerate(drawn.values[-count:]))
    module.entries["f"] = graph
    module.sizes = {"b": 8}
    module.facts = frozenset({"typed"})
    return module
