"""Planted errors: every small change of a partitioned module or of its derivation that the checker must notice, systematically.

`mutants(module, derivations)` yields (what was done, a changed module, its derivations); the ones that change nothing that is computed,
such as two operands of one AddN exchanged, are among them and have to be told apart by whoever asks.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from compiler.ir.graph import Graph, Node, Value
from compiler.ir.module import Module
from compiler.ir.weights import Literal, Splat, Tensor, WeightRef
from passes.split.derivation import Derivation, Divided, Share

Mutant = tuple[str, Module, list[Derivation]]
Change = Callable[[Graph], object]
OTHER_OPS = {
    "AddN": ("Maximum", "ConcatV2"), "Maximum": ("Minimum", "Mul", "AddV2"), "Minimum": ("Maximum",), "Mul": ("AddV2",),
    "RealDiv": ("Mul",), "Exp": ("Tanh",), "Relu": ("Relu6",), "Neg": ("Abs",), "Sum": ("Mean", "Max"), "Max": ("Sum",), "AddV2": ("Sub",),
    "LogicalOr": ("LogicalAnd",),
}  # fmt: skip


def mutants(module: Module, derivations: Sequence[Derivation], rewires: int = 4) -> Iterator[Mutant]:
    """All mutants of the only entry; `rewires` bounds the other values tried in place of one operand."""
    (entry,) = module.entries
    graph = module.entries[entry]
    for what, change in _changes(graph, derivations[0], rewires):
        mutant = module.copy()
        change(mutant.entries[entry])
        yield what, mutant, list(derivations)
    for what, lie in _lies(derivations[0]):
        yield what, module.copy(), [lie]


def _changes(graph: Graph, derivation: Derivation, rewires: int) -> Iterator[tuple[str, Change]]:
    made = {name: position for position, name in enumerate(graph.order())}
    values: dict[object, list[Value]] = {}
    for name in graph.order():
        for port, type_ in enumerate(graph.node(name).types):
            values.setdefault((type_.dtype, type_.shape), []).append(Value(name, port))
    for name in graph.order():
        node = graph.node(name)
        yield from _rewired(graph, node, values, made, rewires)
        yield from _reordered(graph, node)
        yield from _renamed(node)
        yield from _valued(node)
        if graph.controls(name):
            yield f"{name} waits for nothing", lambda g, n=name: g.set_control(n, ())
        if node.device and any(name in part.nodes for divided in derivation.divided for part in divided.parts):
            yield f"{name} runs nowhere in particular", lambda g, n=name: g.set_device(n, "")
    for index, output in enumerate(graph.outputs):
        for operand in graph.operands(output.value.node)[:2]:
            outputs = [(o.name, operand if i == index else o.value) for i, o in enumerate(graph.outputs)]
            yield f"output {output.name} is {operand}", lambda g, o=outputs: g.set_outputs(o)


def _rewired(
    graph: Graph, node: Node, values: dict[object, list[Value]], made: dict[str, int], rewires: int
) -> Iterator[tuple[str, Change]]:
    """Another value of the same type, of those that come before: the nearest ones by name are its siblings on other devices."""
    for slot, value in enumerate(graph.operands(node.name)):
        type_ = graph.type_of(value)
        others = [v for v in values[type_.dtype, type_.shape] if v != value and made[v.node] < made[node.name]]
        stem = value.node.rpartition("/")[0] or value.node
        others.sort(key=lambda v, s=stem: (not v.node.startswith(s), -made[v.node]))
        for other in others[:rewires]:
            yield f"{node.name} reads {other} for {value}", lambda g, s=slot, o=other: g.set_operand(node.name, s, o)
        for inner in graph.operands(value.node)[:2]:
            if inner not in others and graph.type_of(inner).dtype == type_.dtype:
                yield f"{node.name} reads {inner}, past {value}", lambda g, s=slot, o=inner: g.set_operand(node.name, s, o)


def _reordered(graph: Graph, node: Node) -> Iterator[tuple[str, Change]]:
    operands = graph.operands(node.name)
    for i in range(len(operands) - 1):
        if operands[i] != operands[i + 1] and graph.type_of(operands[i]).dtype == graph.type_of(operands[i + 1]).dtype:
            swapped = [*operands[:i], operands[i + 1], operands[i], *operands[i + 2 :]]
            yield f"{node.name} swaps operands {i} and {i + 1}", lambda g, o=swapped: g.set_operands(node.name, o)
    if node.op in ("AddN", "ConcatV2") and len(operands) > 1:
        for i in range(len(operands) - (node.op == "ConcatV2")):
            fewer, twice = [*operands[:i], *operands[i + 1 :]], [*operands[:i], operands[i], *operands[i:]]
            yield f"{node.name} lacks {operands[i]}", lambda g, o=fewer: g.set_operands(node.name, o)
            yield f"{node.name} has {operands[i]} twice", lambda g, o=twice: g.set_operands(node.name, o)


def _renamed(node: Node) -> Iterator[tuple[str, Change]]:
    for op in OTHER_OPS.get(node.op, ()):
        yield f"{node.name} is {op}", lambda g, o=op: g.set_node(replace(node, op=o))
    for name, attr in node.attrs.items():
        if isinstance(attr, bool | int | str) and node.op != "Const":
            other = not attr if isinstance(attr, bool) else attr + 1 if isinstance(attr, int) else {"SAME": "VALID"}.get(attr, "SAME")
            yield f"{node.name} has {name} {other}", lambda g, n=name, o=other: g.set_attrs(node.name, {**node.attrs, n: o})


def _valued(node: Node) -> Iterator[tuple[str, Change]]:
    literal = node.attrs.get("value")
    if node.op != "Const" or not isinstance(literal, Tensor | Splat | WeightRef):
        return
    for other in _other_literals(literal):
        yield f"{node.name} is {other}", lambda g, o=other: g.set_attrs(node.name, {**node.attrs, "value": o})


def _other_literals(literal: Literal) -> Iterator[Literal]:
    if isinstance(literal, WeightRef):
        yield replace(literal, offset=literal.offset + literal.dtype.bits // 8)
        yield replace(literal, store=f"{literal.store}_of_another")
        region = literal.region or tuple((0, size) for size in literal.full_shape)
        for axis, (start, size) in enumerate(region):
            for shifted in sorted({start - 1, start + 1, start + size, start - size}):
                if shifted >= 0 and shifted + size <= literal.full_shape[axis] and shifted != start:
                    yield replace(literal, region=(*region[:axis], (shifted, size), *region[axis + 1 :]))
    elif isinstance(literal, Splat):
        yield Splat(Tensor(literal.dtype, np.asarray(literal.item.array + np.ones((), literal.dtype.numpy))), literal.shape)
    else:
        for index in np.ndindex(*literal.shape[:1]) if literal.array.size <= 8 else [(0,) * literal.array.ndim]:
            array = literal.array.copy()
            array[index] = array[index] + np.ones((), array.dtype)
            yield Tensor(literal.dtype, array)
        if literal.array.ndim and (literal.array[::-1] != literal.array).any():
            yield Tensor(literal.dtype, literal.array[::-1])


def _lies(derivation: Derivation) -> Iterator[tuple[str, Derivation]]:
    """Derivations that do not say what was done."""
    for i, divided in enumerate(derivation.divided):
        for what, other in _other_claims(divided):
            told = copy.copy(derivation)
            told.divided = [*derivation.divided[:i], other, *derivation.divided[i + 1 :]]
            yield f"derivation: {divided.node} {what}", told
    for name, share in derivation.shares.items():
        for axis, (start, size) in enumerate(share.bounds):
            told = copy.copy(derivation)
            moved = (*share.bounds[:axis], (start + 1, size), *share.bounds[axis + 1 :])
            told.shares = {**derivation.shares, name: Share(share.constant, moved)}
            yield f"derivation: {name} is rows {moved}", told


def _other_claims(divided: Divided) -> Iterator[tuple[str, Divided]]:
    yield "was a replica", replace(divided, factors=() if divided.factors else ("d0:d",))
    yield "has its parts the other way round", replace(divided, parts=divided.parts[::-1])
    yield "has a part less", replace(divided, parts=divided.parts[1:])
    for port, layout in enumerate(divided.layouts):
        flipped = replace(layout, partial=(), dims=layout.dims[::-1])
        if flipped != layout:
            layouts = (*divided.layouts[:port], flipped, *divided.layouts[port + 1 :])
            yield f"lies as {flipped}", replace(divided, layouts=layouts)
