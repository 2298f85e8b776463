"""Passes that are wrong on purpose: what verifies, validates, bisects and reduces must catch and name them.

Each makes rewrites that are right until it meets its occasion, so that there is a first wrong one to find.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from compiler.ir.graph import Graph, Node, Value
from compiler.ir.module import Module
from compiler.ir.types import DType
from compiler.ir.weights import Tensor
from compiler.pipeline.base import Context, Pass
from passes import PASSES


def nodes(module: Module, *ops: str) -> Iterator[tuple[Graph, Node]]:
    """The nodes of these ops, in every graph."""
    for graph in module.graphs.values():
        for name in graph.order():
            if graph.node(name).op in ops:
                yield graph, graph.node(name)


@dataclass(frozen=True)
class DropsControls(Pass):
    """Wrong where a read waits for a write; others that wait do so in vain."""

    name = "drops-controls"

    def run(self, module: Module, context: Context) -> None:
        for graph in module.graphs.values():
            for name in graph.order():
                if graph.controls(name) and context.spend():
                    context.change(name, f"it no longer waits for {', '.join(graph.controls(name))}")
                    graph.set_control(name, ())


@dataclass(frozen=True)
class SwapsOperands(Pass):
    """Wrong for Sub: a - b becomes b - a."""

    name = "swaps-operands"

    def run(self, module: Module, context: Context) -> None:
        for graph, node in nodes(module, "AddV2", "Mul", "Sub"):
            if context.spend():
                context.change(node.name, f"{node.op}: operands swapped")
                graph.set_operands(node.name, graph.operands(node.name)[::-1])


@dataclass(frozen=True)
class WrongType(Pass):
    """Wrong for Sub: its float32 is said to be an int32."""

    name = "wrong-type"

    def run(self, module: Module, context: Context) -> None:
        for graph, node in nodes(module, "AddV2", "Mul", "Sub"):
            if context.spend():
                dtype = DType("int32") if node.op == "Sub" else node.type.dtype
                context.change(node.name, f"{node.op}: {node.type.dtype} is {dtype}")
                graph.set_types(node.name, [replace(node.type, dtype=dtype)])


@dataclass(frozen=True)
class StaleShape(Pass):
    """Wrong for Sub: a shape that the operands contradict."""

    name = "stale-shape"

    def run(self, module: Module, context: Context) -> None:
        for graph, node in nodes(module, "AddV2", "Mul", "Sub"):
            if context.spend():
                shape = (7,) if node.op == "Sub" else node.type.shape
                context.change(node.name, f"{node.op}: its shape is {shape}")
                graph.set_types(node.name, [node.type.with_shape(shape)])


@dataclass(frozen=True)
class SlightlyOff(Pass):
    """Wrong for Sub: the result is multiplied by 1.001."""

    name = "slightly-off"

    def run(self, module: Module, context: Context) -> None:
        for graph, node in nodes(module, "AddV2", "Mul", "Sub"):
            if not context.spend():
                return
            scale = 1.001 if node.op == "Sub" else 1.0
            context.change(node.name, f"{node.op}: times {scale}")
            literal = Tensor(DType("float32"), np.array(scale, np.float32))
            one, product = graph.fresh_name(f"{node.name}/scale"), graph.fresh_name(f"{node.name}/product")
            graph.add("Const", (), {"value": literal}, [node.type.with_shape(())], name=one, origin=node.origin)
            graph.add("Mul", [Value(node.name), Value(one)], {}, node.types, name=product, origin=node.origin)
            graph.replace_uses(Value(node.name), Value(product), except_by=[product])


@dataclass(frozen=True)
class WrongRelu(Pass):
    """Wrong, always: Relu becomes Neg."""

    name = "wrong-relu"

    def run(self, module: Module, context: Context) -> None:
        for graph, node in nodes(module, "Relu"):
            if context.spend():
                context.change(node.name, "Relu became Neg")
                graph.set_node(replace(node, op="Neg"))


@dataclass(frozen=True)
class Raises(Pass):
    """Raises at the first Sub, with a rewrite of its own before each node."""

    name = "raises"

    def run(self, module: Module, context: Context) -> None:
        for graph, node in nodes(module, "AddV2", "Mul", "Sub"):
            if not context.spend():
                return
            if node.op == "Sub":
                raise KeyError(node.name)
            graph.set_operands(node.name, graph.operands(node.name)[::-1])
            context.change(node.name, f"{node.op}: operands swapped")


@dataclass(frozen=True)
class Decides(Pass):
    """Marks nodes; `carries-out` does what the marks say, all at once, as partition does what choose says."""

    name = "decides"

    def run(self, module: Module, context: Context) -> None:
        for graph, node in nodes(module, "AddV2", "Mul", "Sub"):
            if context.spend():
                context.change(node.name, f"{node.op}: to be swapped")
                graph.set_attrs(node.name, {**node.attrs, "_swap": True})


@dataclass(frozen=True)
class CarriesOut(Pass):
    """Wrong where the decision was."""

    name = "carries-out"

    def run(self, module: Module, context: Context) -> None:
        for graph, node in nodes(module, "AddV2", "Mul", "Sub"):
            if "_swap" in node.attrs:
                graph.set_operands(node.name, graph.operands(node.name)[::-1])
                graph.set_attrs(node.name, {k: v for k, v in node.attrs.items() if k != "_swap"})


WRONG: tuple[type[Pass], ...] = (DropsControls, SwapsOperands, WrongType, StaleShape, SlightlyOff)
TABLE: Mapping[str, type[Pass]] = {**PASSES, **{p.name: p for p in (*WRONG, WrongRelu, Raises, Decides, CarriesOut)}}
