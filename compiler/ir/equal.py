"""When two graphs, or two modules, are the same: exactly when their texts are.

Names, attributes, types, devices and origins are compared strictly; nodes in `order()`, which insertion order refines but does not decide.
Stores are compared by name and file; the scratch store, which has no name of its own outside the process, is left out.
`==` on graphs and modules stays identity-free of all this: a graph is a mutable thing with a version.
"""

from __future__ import annotations

from collections.abc import Hashable
from pathlib import Path

from compiler.ir.errors import IrError
from compiler.ir.graph import Graph, attrs_key
from compiler.ir.module import Module


def equal(left: Module, right: Module) -> bool:
    """Do the two modules print as the same text?"""
    return (
        _module_key(left) == _module_key(right)
        and _same_graphs(left.entries, right.entries)
        and _same_graphs(left.functions, right.functions)
    )


def equal_graphs(left: Graph, right: Graph) -> bool:
    """Do the two graphs, names included, print as the same text?"""
    return graph_key(left) == graph_key(right)


def graph_key(graph: Graph) -> Hashable:
    """Equal exactly when the graphs are, and hashable; the graph's own name is part of it."""
    given = frozenset(graph.inputs)
    names = [*graph.inputs, *(name for name in _order(graph) if name not in given)]
    nodes = tuple((graph.node(name).key, graph.edges(name), graph.controls(name)) for name in names)
    return (graph.name, attrs_key(graph.attrs), graph.inputs, nodes, graph.outputs)


def _order(graph: Graph) -> tuple[str, ...]:
    try:
        return graph.order()
    except IrError:
        return tuple(node.name for node in graph)


def _module_key(module: Module) -> Hashable:
    return (
        module.name,
        module.facts,
        module.mesh,
        tuple(sorted(module.sizes.items())),
        _files(module),
        tuple(module.variables.items()),
        tuple(module.resources.items()),
    )


def _files(module: Module) -> tuple[tuple[str, Path], ...]:
    return tuple(sorted((name, path) for name, path in module.stores.files.items() if name != module.stores.scratch))


def _same_graphs(left: dict[str, Graph], right: dict[str, Graph]) -> bool:
    return list(left) == list(right) and all(equal_graphs(left[name], right[name]) for name in left)
