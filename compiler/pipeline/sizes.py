"""Moves of `reduce` that make a module's sizes smaller: one size, wherever it stands, at once; types follow from there by inference.

size 128 -> 2    inputs f32[b,128] -> f32[b,2], constants sliced, [-1, 128] as a shape operand -> [-1, 2]
symbol b -> 2    inputs f32[b,2]   -> f32[2,2]
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from compiler.ir.dims import Dim, Expr, KnownDim, substitute, symbols
from compiler.ir.errors import IrError
from compiler.ir.graph import INPUT, Graph
from compiler.ir.module import Module
from compiler.ir.types import TensorType
from compiler.ir.weights import Array, Literal, Splat, Tensor, WeightRef, literal_type
from compiler.ops.queries import infer_graph

Item: TypeAlias = tuple[str, ...]
SMALL = 2
MOST_SHAPE_ELEMENTS = 8
"""A constant of so few integers may be a shape."""


@dataclass(frozen=True)
class Family:
    """Moves of one kind: what there is to do, and doing one (False: it does not apply)."""

    name: str
    items: Callable[[Module], list[Item]]
    apply: Callable[[Module, Item], bool]


def sizes(module: Module) -> list[Item]:
    """Static sizes of inputs, constants and variables, the most frequent first, each to 1, to 2, and to its half."""
    found: Counter[int] = Counter()
    for type_ in _given_types(module):
        found.update(d for d in type_.shape or () if isinstance(d, int))
    ordered = sorted(found, key=lambda size: (-found[size], size))
    return [(str(d), str(to)) for d in ordered for to in dict.fromkeys((1, SMALL, d // 2)) if 0 < to < d]


def shrink_size(module: Module, item: Item) -> bool:
    old, new = map(int, item)
    return _resize(module, lambda dim: new if dim == old else dim)


def open_sizes(module: Module) -> list[Item]:
    return [(s,) for s in sorted({s for t in _given_types(module) for d in t.shape or () if isinstance(d, Expr) for s in symbols(d)})]


def close_size(module: Module, item: Item) -> bool:
    return _resize(module, lambda dim: substitute(dim, {item[0]: SMALL}) or 0)


SIZES = (Family("sizes", sizes, shrink_size), Family("open sizes", open_sizes, close_size))


def _given_types(module: Module) -> list[TensorType]:
    """Types that are given, not inferred: of inputs, constants and state."""
    given = [t for g in module.graphs.values() for n in g if n.op in (INPUT, "Const") for t in n.types]
    return given + [t.handle for t in given if t.handle is not None] + [v.type for v in module.variables.values()]


def _resize(module: Module, change: Callable[[KnownDim], KnownDim]) -> bool:
    """Change every size that is given, and infer the rest."""
    if module.mesh is not None:
        return False  # shardings say how sizes are divided
    for name, variable in module.variables.items():
        initial = None if variable.initial is None else _sliced(module, variable.initial, change)
        module.variables[name] = replace(variable, type=_type(variable.type, change), initial=initial)
    for graph in module.graphs.values():
        _resize_given(module, graph, change)
    return _infer(module)


def _resize_given(module: Module, graph: Graph, change: Callable[[KnownDim], KnownDim]) -> None:
    for node in graph:
        literal = node.attrs.get("value")
        if node.op == "Const" and isinstance(literal, Tensor | Splat | WeightRef):
            made = _renumbered(module, _sliced(module, literal, change), change)
            graph.set_node(replace(node, attrs={**node.attrs, "value": made}, types=(literal_type(made),)))
        elif node.op in (INPUT, "Variable"):
            graph.set_types(node.name, [_type(t, change) for t in node.types])


def _infer(module: Module) -> bool:
    """Everything else follows, callees first; False where it does not."""
    graphs = [module.functions[name] for name in module.reachable_functions()] + list(module.entries.values())
    try:
        for graph in graphs:
            for name, types in infer_graph(module, graph).types.items():
                if graph.node(name).op not in (INPUT, "Const", "Variable"):
                    graph.set_types(name, types)
    except (IrError, ValueError):
        return False
    return True


def _type(type_: TensorType, change: Callable[[KnownDim], KnownDim]) -> TensorType:
    def dim(size: Dim) -> Dim:
        return None if size is None else change(size)

    handle = None if type_.handle is None else _type(type_.handle, change)
    return replace(type_, shape=None if type_.shape is None else tuple(map(dim, type_.shape)), handle=handle)


def _sliced(module: Module, literal: Literal, change: Callable[[KnownDim], KnownDim]) -> Literal:
    """The first so many along each dimension that shrinks."""
    wanted = tuple(int(str(change(size))) for size in literal.shape)
    if wanted == literal.shape:
        return literal
    if isinstance(literal, Splat):
        return replace(literal, shape=wanted)
    array: Array = module.stores.load(literal)[tuple(slice(0, size) for size in wanted)]
    return module.stores.constant(np.ascontiguousarray(array), literal.dtype)


def _renumbered(module: Module, literal: Literal, change: Callable[[KnownDim], KnownDim]) -> Literal:
    """A few integers may be a shape: sizes in it change too."""
    few = len(literal.shape) <= 1 and sum(literal.shape) <= MOST_SHAPE_ELEMENTS
    if literal.dtype not in ("int32", "int64") or not few:
        return literal
    array = np.array(module.stores.load(literal))
    made = np.array([int(str(change(int(item)))) for item in array.reshape(-1)], array.dtype).reshape(array.shape)
    return literal if np.array_equal(array, made) else module.stores.constant(made, literal.dtype)
