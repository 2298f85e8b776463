"""How two modules differ, in words, for a person: not a patch.

    entry @main: node removed: BiasAdd 'bias' from dense, now in 'matmul'
    entry @main: node 'matmul': op: MatMul -> _FusedMatMul; fused_ops=["BiasAdd"] set; operands: (%x, %w) -> (%x, %w, %b)

    added, removed    by name; of a long list the first few and how many more; what was removed, by who took over its origin
    changed           op, attributes, operands, controls, types, device, origin: old -> new
    moved             nothing else differs, but the order of two nodes does

Linear in the nodes of both.  Equal modules give the empty list, and only they do (`equal.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TypeVar

from compiler.ir.equal import equal, equal_graphs
from compiler.ir.graph import Attr, Graph, Node, attr_key
from compiler.ir.module import Module
from compiler.ir.text_print import attr_text, attrs_text, edge_text, mesh_text, resource_text, types_text, value_text, variable_text

T = TypeVar("T")

_SHOWN = 20


def diff(left: Module, right: Module) -> list[str]:
    """What it takes from `left` to `right`, one change a line; [] when they are equal."""
    lines = [*_heads(left, right), *_graphs("entry", left.entries, right.entries), *_graphs("function", left.functions, right.functions)]
    return lines or ([] if equal(left, right) else ["the order of entries, functions, variables or resources differs"])


def diff_graphs(left: Graph, right: Graph) -> list[str]:
    """The same for two graphs, whatever their names."""
    lines = [
        *_one("attributes", attrs_text(left.attrs), attrs_text(right.attrs)),
        *_one("inputs", _inputs_text(left), _inputs_text(right)),
        *_one("outputs", _outputs_text(left), _outputs_text(right)),
        *_nodes(left, right),
    ]
    return lines or ([] if equal_graphs(left.copy(right.name), right) else ["the order of the nodes differs"])


def nodes_from(graph: Graph, prefix: str) -> tuple[str, ...]:
    """Nodes with an origin that is `prefix` or lies below it (`block1` has `block1/conv`, not `block10`), in insertion order."""
    prefix = prefix.rstrip("/")
    return tuple(node.name for node in graph if any(o == prefix or o.startswith(f"{prefix}/") for o in node.origin))


def _heads(left: Module, right: Module) -> Iterator[str]:
    yield from _one("name", repr(left.name), repr(right.name))
    yield from _one("facts", ", ".join(sorted(left.facts)), ", ".join(sorted(right.facts)))
    yield from _one("mesh", *("none" if m.mesh is None else mesh_text(m.mesh) for m in (left, right)))
    yield from _table("size", left.sizes, right.sizes, str)
    yield from _table("store", _files(left), _files(right), str)
    yield from _table("variable", left.variables, right.variables, variable_text)
    yield from _table("resource", left.resources, right.resources, resource_text)


def _files(module: Module) -> dict[str, Path]:
    return {name: path for name, path in module.stores.files.items() if name != module.stores.scratch}


def _one(what: str, old: str, new: str) -> list[str]:
    return [] if old == new else [f"{what}: {old or 'none'} -> {new or 'none'}"]


def _table(what: str, left: Mapping[str, T], right: Mapping[str, T], text: Callable[[T], str]) -> Iterator[str]:
    yield from _names(f"{what} removed", (name for name in left if name not in right))
    yield from _names(f"{what} added", (name for name in right if name not in left))
    changed = [name for name in left if name in right and left[name] != right[name]]
    yield from _limited(f"{what} {name!r}: {text(left[name])} -> {text(right[name])}" for name in changed)


def _names(what: str, names: Iterable[str]) -> Iterator[str]:
    yield from _limited(f"{what}: {name!r}" for name in names)


def _limited(lines: Iterable[str]) -> Iterator[str]:
    """The first lines, and how many more there are."""
    more = 0
    for count, line in enumerate(lines):
        if count < _SHOWN:
            yield line
        else:
            more += 1
    if more:
        yield f"... and {more} more like it"


def _graphs(kind: str, left: Mapping[str, Graph], right: Mapping[str, Graph]) -> Iterator[str]:
    yield from _names(f"{kind} removed", (name for name in left if name not in right))
    yield from _names(f"{kind} added", (name for name in right if name not in left))
    for name in left:
        if name in right:
            yield from (f"{kind} @{name}: {line}" for line in diff_graphs(left[name], right[name]))


def _inputs_text(graph: Graph) -> str:
    return ", ".join(graph.inputs)


def _outputs_text(graph: Graph) -> str:
    return ", ".join(f"{name} = {value_text(value)}" for name, value in graph.outputs)


def _nodes(left: Graph, right: Graph) -> Iterator[str]:
    heirs = _heirs(left, right)
    yield from _limited(f"node removed: {_title(node)}{_now_in(node, heirs)}" for node in left if node.name not in right)
    yield from _limited(f"node added: {_title(node)}" for node in right if node.name not in left)
    changed = (
        (node.name, changes)
        for node in left
        if node.name in right and (changes := list(_changes(left, right, node, right.node(node.name))))
    )
    yield from _limited(f"node {name!r}: {'; '.join(changes)}" for name, changes in changed)


def _heirs(left: Graph, right: Graph) -> dict[str, str]:
    """Origin -> the node of `right` that took it over: it is new, or did not have it in `left`."""
    heirs: dict[str, str] = {}
    for node in right:
        had = left.node(node.name).origin if node.name in left else ()
        for origin in node.origin:
            if origin not in had:
                heirs.setdefault(origin, node.name)
    return heirs


def _now_in(node: Node, heirs: Mapping[str, str]) -> str:
    found = list(dict.fromkeys(heirs[origin] for origin in node.origin if origin in heirs))
    return f", now in {', '.join(map(repr, found[:3]))}" if found else ""


def _title(node: Node) -> str:
    origin = f" from {', '.join(node.origin[:3])}" if node.origin else ""
    return f"{node.op} {node.name!r}{origin}"


def _changes(left: Graph, right: Graph, old: Node, new: Node) -> Iterator[str]:
    yield from _one("op", old.op, new.op)
    yield from _attr_changes(old.attrs, new.attrs)
    edges = left.edges(old.name), right.edges(new.name)
    if edges[0] != edges[1]:
        yield from _one("operands", *(f"({', '.join(map(edge_text, e))})" for e in edges))
    yield from _one("after", ", ".join(left.controls(old.name)), ", ".join(right.controls(new.name)))
    if old.types != new.types:
        yield from _one("type", types_text(old.types), types_text(new.types))
    yield from _one("device", old.device, new.device)
    yield from _one("origin", ", ".join(old.origin), ", ".join(new.origin))


def _attr_changes(old: Mapping[str, Attr], new: Mapping[str, Attr]) -> Iterator[str]:
    for name in sorted(old.keys() | new.keys()):
        if name not in new:
            yield f"{name}={attr_text(old[name])} dropped"
        elif name not in old:
            yield f"{name}={attr_text(new[name])} set"
        elif attr_key(old[name]) != attr_key(new[name]):
            yield f"{name}: {attr_text(old[name])} -> {attr_text(new[name])}"
