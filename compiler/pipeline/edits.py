"""What may be taken out of a module, or made simpler, while it stays a module: the moves of `reduce`.

A family lists what could be done in a module as items, and does one.  Items are names; what an earlier item took away is skipped.  Nothing
here asks whether a module is still wrong, and `reduce` verifies each before it asks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from compiler.ir.graph import INPUT, FunctionRef, Graph, Value
from compiler.ir.invariants_graph import STATE_OPS
from compiler.ir.module import Module
from compiler.ir.types import TensorType
from compiler.ir.weights import Splat, Stores, Tensor, WeightRef
from compiler.ops.effects import Bodies, has_effect
from compiler.pipeline.sizes import SIZES, Family, Item
from compiler.rewrite.emitter import Emitter

NO_ARRAY = ("resource", "variant")


def outputs(module: Module) -> list[Item]:
    return [(entry, o.name) for entry, graph in module.entries.items() for o in graph.outputs]


def drop_output(module: Module, item: Item) -> bool:
    """An entry keeps one output at least."""
    graph = module.entries.get(item[0])
    if graph is None or len(graph.outputs) < 2:
        return False
    graph.set_outputs(o for o in graph.outputs if o.name != item[1])
    return True


def entries(module: Module) -> list[Item]:
    return [(entry,) for entry in module.entries]


def drop_entry(module: Module, item: Item) -> bool:
    return len(module.entries) > 1 and module.entries.pop(item[0], None) is not None


def nodes(module: Module) -> list[Item]:
    """Users first: cutting there leaves most behind."""
    return [(name, n) for name, graph in module.graphs.items() for n in reversed(graph.order()) if graph.node(n).op != INPUT]


def cut(module: Module, item: Item) -> bool:
    """A node's results become inputs of the entry, or constants in a body; the node goes, whatever it did besides."""
    graph = _holder(module, item)
    if graph is None or (graph.node(item[1]).op == "Const" and item[0] not in module.entries):
        return False
    node = graph.node(item[1])
    needed = [Value(node.name, port) for port in range(len(node.types)) if _is_read(graph, Value(node.name, port))]
    given = [_given(module, graph, item[0] in module.entries, value) for value in needed]
    if any(value is None for value in given):
        return False
    for old, new in zip(needed, given, strict=True):
        assert new is not None, "checked above"
        graph.replace_uses(old, new)
    _release(graph, node.name)
    graph.remove(node.name)
    return True


def _given(module: Module, graph: Graph, is_entry: bool, value: Value) -> Value | None:
    """What stands for a value that is cut off."""
    type_ = replace(graph.type_of(value), sharding=None)
    if type_.dtype in NO_ARRAY:
        return None
    if is_entry:
        return graph.add_input(graph.fresh_name("cut"), type_)
    if not type_.is_static or type_.shape is None or type_.dtype == "string":
        return None
    literal = Splat(_one(type_), tuple(int(str(d)) for d in type_.shape))
    return Emitter(module, graph).constant(literal, name="cut", origin=graph.node(value.node).origin)


def bypass(module: Module, item: Item) -> bool:
    """An operand of the same type takes the place of a node's only result."""
    graph = _holder(module, item)
    node = None if graph is None else graph.node(item[1])
    if graph is None or node is None or len(node.types) != 1:
        return False
    for value in graph.operands(node.name):
        if value.node != node.name and graph.type_of(value) == node.type:
            graph.replace_uses(Value(node.name), value)
            _release(graph, node.name)
            graph.remove(node.name)
            return True
    return False


def ends(module: Module) -> list[Item]:
    """An output and an operand of the node that gives it."""
    return [
        (name, o.name, str(slot))
        for name, graph in module.entries.items()
        for o in graph.outputs
        for slot, value in enumerate(graph.operands(o.value.node))
        if graph.type_of(value).dtype not in NO_ARRAY
    ]


def retreat(module: Module, item: Item) -> bool:
    """An output gives what its node was given."""
    graph, slot = module.entries.get(item[0]), int(item[2])
    if graph is None:
        return False
    found = {o.name: graph.operands(o.value.node) for o in graph.outputs}.get(item[1], ())
    if slot >= len(found) or graph.type_of(found[slot]).dtype in NO_ARRAY:
        return False
    graph.set_outputs((o.name, found[slot] if o.name == item[1] else o.value) for o in graph.outputs)
    return True


def inputs(module: Module) -> list[Item]:
    return [(entry, name) for entry, graph in module.entries.items() for name in graph.inputs]


def merge_input(module: Module, item: Item) -> bool:
    """An input is read as the first of its type is."""
    graph = module.entries.get(item[0])
    if graph is None or item[1] not in graph:
        return False
    first = next(i for i in graph.inputs if graph.node(i).type == graph.node(item[1]).type)
    return first != item[1] and graph.replace_uses(Value(item[1]), Value(first)) > 0


def controls(module: Module) -> list[Item]:
    return [(name, node.name, c) for name, graph in module.graphs.items() for node in graph for c in graph.controls(node.name)]


def drop_control(module: Module, item: Item) -> bool:
    graph = _holder(module, item)
    if graph is None or item[2] not in graph.controls(item[1]):
        return False
    graph.set_control(item[1], [c for c in graph.controls(item[1]) if c != item[2]])
    return True


def attributes(module: Module) -> list[Item]:
    """Node attributes, devices (as `@`) and attributes of whole graphs (of node ""); not what makes a node the one it is."""
    found: list[Item] = [
        (name, node.name, key)
        for name, graph in module.graphs.items()
        for node in graph
        for key in sorted(node.attrs)
        if node.op not in ("Const", *STATE_OPS) and not isinstance(node.attrs[key], FunctionRef)
    ]
    found += [(name, node.name, "@") for name, graph in module.graphs.items() for node in graph if node.device]
    return found + [(name, "", key) for name, graph in module.graphs.items() for key in sorted(graph.attrs)]


def drop_attribute(module: Module, item: Item) -> bool:
    graph = module.graphs.get(item[0])
    name, key = item[1:]
    if graph is None or (name and name not in graph):
        return False
    if not name:
        return graph.attrs.pop(key, None) is not None
    node = graph.node(name)
    if key == "@":
        graph.set_device(name, "")
        return bool(node.device)
    graph.set_attrs(name, {k: v for k, v in node.attrs.items() if k != key})
    return key in node.attrs


def constants(module: Module) -> list[Item]:
    """Constants, to their first element everywhere, and then to 1."""
    found = [(name, node) for name, graph in module.graphs.items() for node in graph if node.op == "Const"]
    many: list[Item] = [(name, node.name, "first") for name, node in found if not isinstance(node.attrs["value"], Splat)]
    return many + [(name, node.name, "1") for name, node in found]


def flatten_constant(module: Module, item: Item) -> bool:
    graph = _holder(module, item)
    literal = None if graph is None else graph.node(item[1]).attrs.get("value")
    if graph is None or not isinstance(literal, Tensor | Splat | WeightRef) or 0 in literal.shape or literal.dtype in ("string", *NO_ARRAY):
        return False
    one = _one(graph.node(item[1]).types[0])
    first = Tensor(literal.dtype, np.array(module.stores.load(literal).reshape(-1)[0]))
    element = one if item[2] == "1" else first
    made = Splat(element, literal.shape) if literal.shape else element
    graph.set_attrs(item[1], {"value": made})
    return made != literal


def origins(module: Module) -> list[Item]:
    return [("",)] if any(node.origin for graph in module.graphs.values() for node in graph) else []


def drop_origins(module: Module, item: Item) -> bool:
    """Where everything comes from, at once: a graph knows of all its nodes or of none."""
    for graph in module.graphs.values():
        for node in graph:
            graph.set_origin(node.name, ())
    return True


def names(module: Module) -> list[Item]:
    """Graphs with a node that is not named by its op."""
    return [(name,) for name, graph in module.graphs.items() if any(n != m for n, m in _short_names(graph).items())]


def shorten_names(module: Module, item: Item) -> bool:
    """Nodes are named by their op, `sub`, `sub_1`, and inputs `x`, `x_1`."""
    graph = module.graphs.get(item[0])
    if graph is None:
        return False
    made = _renamed(graph, _short_names(graph))
    (module.entries if item[0] in module.entries else module.functions)[item[0]] = made
    return True


def _short_names(graph: Graph) -> dict[str, str]:
    taken: set[str] = set()
    found: dict[str, str] = {}
    for name in (*graph.inputs, *graph.order()):
        if name in found:
            continue
        base, count = "x" if graph.node(name).op == INPUT else graph.node(name).op.lower(), 0
        short = base
        while short in taken:
            count += 1
            short = f"{base}_{count}"
        taken.add(short)
        found[name] = short
    return found


def _renamed(graph: Graph, names: Mapping[str, str]) -> Graph:
    made = Graph(graph.name, graph.attrs)
    made.version = graph.version + 1

    def value(old: Value) -> Value:
        return Value(names[old.node], old.port)

    for name in graph.inputs:
        made.add_input(names[name], graph.node(name).type, origin=graph.node(name).origin, attrs=graph.node(name).attrs)
        made.set_device(names[name], graph.node(name).device)
    late = []
    for name in graph.order():
        if name in graph.inputs:
            continue
        edges = graph.edges(name)
        ready = not any(edge.back for edge in edges)
        made.add_node(replace(graph.node(name), name=names[name]), [value(e.value) for e in edges] if ready else ())
        late += [] if ready else [name]
    for name in late:
        for edge in graph.edges(name):
            made.set_operand(names[name], edge.slot, value(edge.value), back=edge.back)
    for name in graph.order():
        made.set_control(names[name], [names[c] for c in graph.controls(name)])
    made.set_outputs((o.name, value(o.value)) for o in graph.outputs)
    return made


FAMILIES: tuple[Family, ...] = (
    Family("entries", entries, drop_entry),
    Family("outputs", outputs, drop_output),
    Family("nodes cut off", nodes, cut),
    Family("nodes bypassed", nodes, bypass),
    Family("outputs retreated", ends, retreat),
    Family("control edges", controls, drop_control),
    Family("attributes", attributes, drop_attribute),
    *SIZES,
    Family("inputs merged", inputs, merge_input),
    Family("constants", constants, flatten_constant),
    Family("origins", origins, drop_origins),
    Family("names", names, shorten_names),
)
"""From what takes most to what only makes it easier to read."""


def sweep(module: Module) -> None:
    """Out goes what nobody needs: nodes without an effect, unread inputs of entries, functions, variables and resources."""
    bodies = Bodies(module)
    for graph in module.graphs.values():
        _sweep_graph(module, graph, bodies)
    kept = set(module.reachable_functions())
    for name in [n for n in module.functions if n not in kept]:
        del module.functions[name]
    used = {kind: {str(n.attrs.get("ref")) for g in module.graphs.values() for n in g if n.op == op} for op, kind in STATE_OPS.items()}
    module.variables = {n: v for n, v in module.variables.items() if n in used["variables"]}
    module.resources = {n: r for n, r in module.resources.items() if n in used["resources"]}


def without_stores(module: Module) -> Module:
    """The module, free of files that nothing in it refers to any more."""
    held = [a for g in module.graphs.values() for n in g for a in n.attrs.values()] + [v.initial for v in module.variables.values()]
    return module if any(isinstance(a, WeightRef) for a in held) else replace(module, stores=Stores())


def _sweep_graph(module: Module, graph: Graph, bodies: Bodies) -> None:
    is_entry = module.entries.get(graph.name) is graph
    waiting = [node.name for node in graph]
    while waiting:
        name = waiting.pop()
        if name not in graph or graph.is_needed(name):
            continue
        node = graph.node(name)
        if not is_entry if node.op == INPUT else has_effect(module, node, bodies):
            continue
        before = [v.node for v in graph.operands(name)] + list(graph.controls(name))
        graph.remove(name)
        waiting += before


def _holder(module: Module, item: Item) -> Graph | None:
    graph = module.graphs.get(item[0])
    return graph if graph is not None and item[1] in graph else None


def _is_read(graph: Graph, value: Value) -> bool:
    needs = graph.needs(value)
    return bool(needs.data or needs.outputs)


def _release(graph: Graph, name: str) -> None:
    """Who waited for the node waits for what it waited for."""
    before = graph.controls(name)
    for user in graph.needs(name).control:
        graph.set_control(user, [*(c for c in graph.controls(user) if c != name), *(c for c in before if c != user)])


def _one(type_: TensorType) -> Tensor:
    return Tensor(type_.dtype, np.ones((), type_.dtype.numpy))
