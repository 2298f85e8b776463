"""Entries that are the same function under two names: compiled once, saved under both.

`serve` and `serving_default` of a Keras export call one body through two wrappers; nothing but names differs.
"""

from __future__ import annotations

from collections.abc import Hashable

from compiler.ir.graph import INPUT, Attr, FunctionRef, Graph, attr_key
from compiler.ir.module import Module


def aliases_of(module: Module) -> dict[str, str]:
    """alias -> the first entry (in name order, `serving_default` before all) that computes the same."""
    bodies: dict[str, int] = {}
    known: dict[Hashable, int] = {}
    for name in module.reachable_functions():
        key = _key(module.functions[name], bodies)
        bodies[name] = known.setdefault(key, len(known))
    first: dict[Hashable, str] = {}
    found: dict[str, str] = {}
    for entry in sorted(module.entries, key=lambda e: (e != "serving_default", e)):
        same = first.setdefault(_key(module.entries[entry], bodies), entry)
        if same != entry:
            found[entry] = same
    return found


def _key(graph: Graph, bodies: dict[str, int]) -> Hashable:
    """What a graph computes, names of inner nodes left out; functions by the number of their own key."""
    number = {name: i for i, name in enumerate(graph.order())}
    rows = []
    for name in graph.order():
        node = graph.node(name)
        attrs = tuple((k, _attr(a, bodies)) for k, a in sorted(node.attrs.items()))
        operands = tuple((number[v.node], v.port) for v in graph.operands(name))
        controls = tuple(sorted(number[c] for c in graph.controls(name)))
        rows.append((node.op, name if node.op == INPUT else "", attrs, node.types, operands, controls, node.device))
    outputs = tuple((o.name, number[o.value.node], o.value.port) for o in graph.outputs)
    return tuple(rows), outputs, tuple((k, attr_key(a)) for k, a in sorted(graph.attrs.items()))


def _attr(attr: Attr, bodies: dict[str, int]) -> Hashable:
    if isinstance(attr, tuple):
        return tuple(_attr(a, bodies) for a in attr)
    return ("function", bodies.get(attr.name, attr.name)) if isinstance(attr, FunctionRef) else attr_key(attr)
