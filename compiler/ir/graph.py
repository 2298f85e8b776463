"""A graph of operators.  The only module that touches networkx mutably.

Nodes are frozen `Node`s keyed by name in a `MultiDiGraph`; edges are the only record of connectivity.  A data edge is keyed by the
consumer's slot and carries the producer's port (so parallel edges and ports survive); a control edge has the key `CONTROL`.  A data edge
marked `back` closes a v1 loop (NextIteration -> Merge) and is ignored by `order`.

Graph inputs are nodes with the pseudo-op `Input`; outputs are named references to values.  All change goes through the few mutators,
each of which bumps `version`: what the graph counted is what changed.
"""

from __future__ import annotations

import heapq
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import networkx as nx

from compiler.ir.errors import IrError
from compiler.ir.node import CONTROL, INPUT, Attr, Edge, FunctionRef, Needs, Node, Output, ShapeAttr, Use, Value, attr_key, attrs_key
from compiler.ir.types import TensorType

__all__ = [
    "CONTROL", "INPUT", "Attr", "Edge", "FunctionRef", "Graph", "Needs", "Node", "Output", "ShapeAttr", "Use", "Value",
    "attr_key", "attrs_key",
]  # fmt: skip

MultiDiGraph: TypeAlias = Any
"""networkx has no types of its own; this is the one place that says so."""


class Graph:
    """One closed graph: an entry of a module or a function body."""

    def __init__(self, name: str, attrs: Mapping[str, Attr] | None = None) -> None:
        self.name = name
        self.version = 0
        self.attrs: dict[str, Attr] = dict(attrs or {})
        self._nodes: MultiDiGraph = nx.MultiDiGraph()
        self._inputs: tuple[str, ...] = ()
        self._outputs: tuple[Output, ...] = ()
        self._taken: dict[str, int] = {}
        self._order: tuple[int, tuple[str, ...]] | None = None

    # ---- reading

    def __len__(self) -> int:
        return len(self._nodes)

    def __contains__(self, name: str) -> bool:
        return name in self._nodes

    def __iter__(self) -> Iterator[Node]:
        """Nodes in insertion order."""
        return (data["node"] for data in list(self._nodes._node.values()))

    def node(self, name: str) -> Node:
        try:
            found: Node = self._nodes._node[name]["node"]
        except KeyError:
            raise IrError(f"graph {self.name!r} has no node {name!r}") from None
        return found

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the `Input` nodes, in order."""
        return self._inputs

    @property
    def outputs(self) -> tuple[Output, ...]:
        return self._outputs

    @property
    def view(self) -> MultiDiGraph:
        """A read-only networkx view, for algorithms; node data holds `node`, edge data `port` and `back`."""
        return nx.freeze(self._nodes.copy(as_view=True))

    def operands(self, name: str) -> tuple[Value, ...]:
        """The values `name` consumes, by slot."""
        found = [(key, source, data["port"]) for source, edges in self._in_edges(name) for key, data in edges.items() if key != CONTROL]
        found.sort()
        return tuple(Value(source, port) for _, source, port in found)

    def edges(self, name: str) -> tuple[Edge, ...]:
        """The data edges into `name`, by slot: its operands and which of them are back edges."""
        found = [
            Edge(key, Value(source, data["port"]), bool(data["back"]))
            for source, edges in self._in_edges(name)
            for key, data in edges.items()
            if key != CONTROL
        ]
        return tuple(sorted(found))

    def is_back(self, use: Use) -> bool:
        """Does this operand close a v1 loop?"""
        return any(edges[use.slot]["back"] for _, edges in self._in_edges(use.user) if use.slot in edges)

    def controls(self, name: str) -> tuple[str, ...]:
        """Nodes that must run before `name`, sorted by name."""
        return tuple(sorted(source for source, edges in self._in_edges(name) if CONTROL in edges))

    def _in_edges(self, name: str) -> list[tuple[str, dict[Any, dict[str, Any]]]]:
        try:
            return list(self._nodes._pred[name].items())
        except KeyError:
            raise IrError(f"graph {self.name!r} has no node {name!r}") from None

    def users(self, name: str) -> tuple[str, ...]:
        """Names of the nodes that depend on `name`, by data or control, sorted."""
        return tuple(sorted(self._nodes._succ[name]))

    def needs(self, what: Value | str) -> Needs:
        """Who needs this value (or, for a name, any output of the node): data users, control users, graph outputs."""
        name, port = (what, None) if isinstance(what, str) else what
        data, control = [], []
        for user, edges in self._nodes._succ[name].items():
            for key, edge in edges.items():
                if key == CONTROL:
                    control.append(user)
                elif port is None or edge["port"] == port:
                    data.append(Use(user, key))
        outputs = tuple(o.name for o in self._outputs if o.value.node == name and port in (None, o.value.port))
        return Needs(tuple(sorted(data)), tuple(sorted(control)), outputs)

    def sole_use(self, value: Value) -> Use | None:
        """The one data use of `value` where it is the whole need for its node's outputs and controls; constant time at any fan-out."""
        if any(o.value == value for o in self._outputs):
            return None
        found: Use | None = None
        for user, edges in self._nodes._succ[value.node].items():
            for key, edge in edges.items():
                if key == CONTROL or (edge["port"] == value.port and found is not None):
                    return None
                if edge["port"] == value.port:
                    found = Use(user, key)
        return found

    def is_needed(self, name: str) -> bool:
        """Does anyone need this node: a user by data or control, or an output?  Constant time at any fan-out."""
        return bool(self._nodes._succ[name]) or any(o.value.node == name for o in self._outputs)

    def outsider(self, name: str, among: Container[str]) -> str | None:
        """Someone who needs `name` other than as a data operand of a node in `among`, in words; None if nobody does.  Stops at one."""
        for output in self._outputs:
            if output.value.node == name:
                return f"output {output.name!r}"
        for user, edges in self._nodes._succ[name].items():
            if user not in among:
                return repr(user)
            if CONTROL in edges:
                return f"{user!r} (by control)"
        return None

    def type_of(self, value: Value) -> TensorType:
        types = self.node(value.node).types
        if not 0 <= value.port < len(types):
            raise IrError(
                f"graph {self.name!r}: {value} does not exist, {self.node(value.node).op} {value.node!r} has {len(types)} outputs"
            )
        return types[value.port]

    def operand_types(self, name: str) -> tuple[TensorType, ...]:
        return tuple(self.type_of(v) for v in self.operands(name))

    def order(self) -> tuple[str, ...]:
        """Node names, producers first (v1 back edges ignored), else in insertion order: deterministic, a fixed point of printing."""
        if self._order is None or self._order[0] != self.version:
            self._order = (self.version, self._topological())
        return self._order[1]

    def _topological(self) -> tuple[str, ...]:
        names = list(self._nodes._node)
        index = {name: i for i, name in enumerate(names)}
        waiting = {
            name: sum(not d.get("back") for edges in preds.values() for d in edges.values()) for name, preds in self._nodes._pred.items()
        }
        ready = [index[name] for name, count in waiting.items() if not count]
        heapq.heapify(ready)
        done: list[str] = []
        while ready:
            name = names[heapq.heappop(ready)]
            done.append(name)
            for user, edges in self._nodes._succ[name].items():
                released = sum(not d.get("back") for d in edges.values())
                waiting[user] -= released
                if released and not waiting[user]:
                    heapq.heappush(ready, index[user])
        if len(done) != len(names):
            shown = " -> ".join(repr(name) for name in self.cycle()[:6])
            raise IrError(f"graph {self.name!r} has a cycle, {shown}, expected none but through v1 loop back edges")
        return tuple(done)

    def cycle(self) -> tuple[str, ...]:
        """Nodes in a circle without a back edge, each needed by the next and the last by the first; () where there is none."""
        waiting = {n: {p for p, e in preds.items() if not all(d.get("back") for d in e.values())} for n, preds in self._nodes._pred.items()}
        ready = [name for name, preds in waiting.items() if not preds]
        while ready:
            name = ready.pop()
            del waiting[name]
            for user in self._nodes._succ[name]:
                if user in waiting and name in waiting[user]:
                    waiting[user].discard(name)
                    ready += [] if waiting[user] else [user]
        path: dict[str, None] = {}
        name = min(waiting, default="")
        while waiting and name not in path:
            path[name] = None
            name = min(waiting[name])
        names = list(path)
        return tuple(reversed(names[names.index(name) :])) if names else ()

    def fresh_name(self, base: str) -> str:
        """`base`, or `base_1`, `base_2`, ... : a name no node has."""
        if base not in self._nodes:
            return base
        count = self._taken.get(base, 0)
        while True:
            count += 1
            if f"{base}_{count}" not in self._nodes:
                self._taken[base] = count
                return f"{base}_{count}"

    def copy(self, name: str | None = None) -> Graph:
        """An independent graph with the same nodes, order and version."""
        twin = Graph(name or self.name, self.attrs)
        twin._nodes = self._nodes.copy()
        twin._inputs, twin._outputs, twin.version = self._inputs, self._outputs, self.version
        twin._taken, twin._order = dict(self._taken), self._order
        return twin

    # ---- mutators: everything that changes a graph is below

    def add(
        self,
        op: str,
        operands: Sequence[Value] = (),
        attrs: Mapping[str, Attr] | None = None,
        types: Sequence[TensorType] = (),
        *,
        name: str,
        device: str = "",
        origin: Iterable[str] = (),
        controls: Iterable[str] = (),
    ) -> Node:
        """Add a node; its operands and controls must exist and its name be new (see `fresh_name`)."""
        return self.add_node(Node(name, op, attrs or {}, tuple(types), device, tuple(origin)), operands, controls)

    def add_node(self, node: Node, operands: Sequence[Value] = (), controls: Iterable[str] = ()) -> Node:
        if node.name in self._nodes:
            raise IrError(f"graph {self.name!r} already has a node {node.name!r}, expected a new name")
        for value in operands:
            self.type_of(value)
        controls = tuple(controls)
        for source in controls:
            self.node(source)
        self._nodes.add_node(node.name, node=node)
        for slot, value in enumerate(operands):
            self._nodes.add_edge(value.node, node.name, key=slot, port=value.port, back=False)
        for source in controls:
            self._nodes.add_edge(source, node.name, key=CONTROL)
        self.version += 1
        return node

    def add_input(self, name: str, type_: TensorType, *, origin: Iterable[str] = (), attrs: Mapping[str, Attr] | None = None) -> Value:
        """Append a graph input."""
        self.add(INPUT, attrs=attrs, types=(type_,), name=name, origin=origin)
        self._inputs = (*self._inputs, name)
        return Value(name)

    def set_outputs(self, outputs: Iterable[tuple[str, Value]]) -> None:
        found = tuple(Output(name, Value(*value)) for name, value in outputs)
        for output in found:
            self.type_of(output.value)
        if len({o.name for o in found}) != len(found):
            raise IrError(f"graph {self.name!r}: two outputs share a name in {[o.name for o in found]}")
        self._outputs = found
        self.version += 1

    def remove(self, name: str) -> None:
        """Remove a node nobody needs; IrError names the users otherwise."""
        needs = self.needs(self.node(name).name)
        if needs.anyone:
            who = [u.user for u in needs.data] + list(needs.control) + [f"output {o}" for o in needs.outputs]
            raise IrError(f"graph {self.name!r}: cannot remove {name!r}, still needed by {', '.join(who[:5])}")
        self._nodes.remove_node(name)
        self._inputs = tuple(i for i in self._inputs if i != name) if name in self._inputs else self._inputs
        self.version += 1

    def replace_uses(self, old: Value, new: Value, *, except_by: Iterable[str] = ()) -> int:
        """Make everyone who reads `old` (nodes and graph outputs, not control users) read `new`; returns how many did."""
        self.type_of(new)
        spared = frozenset(except_by)
        needs = self.needs(old)
        uses = [u for u in needs.data if u.user not in spared]
        for user, slot in uses:  # the producer is known, so this does not depend on how many operands the user has
            back = self._nodes._succ[old.node][user][slot]["back"]
            self._nodes.remove_edge(old.node, user, key=slot)
            self._nodes.add_edge(new.node, user, key=slot, port=new.port, back=back)
        if needs.outputs:
            self._outputs = tuple(Output(o.name, new) if o.value == old else o for o in self._outputs)
        if uses or needs.outputs:
            self.version += 1
        return len(uses) + len(needs.outputs)

    def set_operand(self, name: str, slot: int, value: Value, *, back: bool = False) -> None:
        """Connect operand `slot` (an existing one, or the next) of `name` to `value`."""
        count = len(self.operands(name))
        if not 0 <= slot <= count:
            raise IrError(f"graph {self.name!r}: {name!r} has {count} operands, cannot set operand {slot}")
        self.type_of(value)
        self._set_edge(name, slot, value, back)
        self.version += 1

    def _set_edge(self, name: str, slot: int, value: Value, back: bool | None = None) -> None:
        for source, edges in self._in_edges(name):
            if slot in edges:
                back = edges[slot]["back"] if back is None else back
                self._nodes.remove_edge(source, name, key=slot)
                break
        self._nodes.add_edge(value.node, name, key=slot, port=value.port, back=bool(back))

    def set_operands(self, name: str, operands: Sequence[Value]) -> None:
        """Replace all data operands at once (their number may change)."""
        for value in operands:
            self.type_of(value)
        for source, edges in self._in_edges(name):
            for key in [k for k in edges if k != CONTROL]:
                self._nodes.remove_edge(source, name, key=key)
        for slot, value in enumerate(operands):
            self._nodes.add_edge(value.node, name, key=slot, port=value.port, back=False)
        self.version += 1

    def set_control(self, name: str, controls: Iterable[str]) -> None:
        """Replace the set of nodes that must run before `name`."""
        wanted = frozenset(controls)
        present = frozenset(self.controls(name))
        for source in wanted:
            self.node(source)
        for source in sorted(present - wanted):
            self._nodes.remove_edge(source, name, key=CONTROL)
        for source in sorted(wanted - present):
            self._nodes.add_edge(source, name, key=CONTROL)
        if wanted != present:
            self.version += 1

    def set_order(self, names: Sequence[str]) -> None:
        """Make `names`, all nodes with producers first, the insertion order: `order()` is then exactly this, and the text prints it."""
        if tuple(names) == self.order():
            return
        position = {name: i for i, name in enumerate(names)}
        if len(position) != len(names) or position.keys() != self._nodes._node.keys():
            raise IrError(f"graph {self.name!r}: the new order names {len(names)} nodes, expected each of its {len(self)} nodes once")
        for name in names:
            late = [e.value.node for e in self.edges(name) if not e.back and position[e.value.node] > position[name]]
            late += [c for c in self.controls(name) if position[c] > position[name]]
            if late:
                raise IrError(f"graph {self.name!r}: the new order puts {name!r} before {late[0]!r}, which it needs")
        nodes = self._nodes._node
        for name in names:
            nodes[name] = nodes.pop(name)
        self.version += 1

    def set_node(self, node: Node) -> None:
        """Change what the node of this name is (op, attributes, types, ...), keep how it is connected; ports in use must remain."""
        gone = [p for p in range(len(node.types), len(self.node(node.name).types)) if self.needs(Value(node.name, p)).anyone]
        if gone:
            raise IrError(
                f"graph {self.name!r}: {node.name!r} cannot become {node.op} with {len(node.types)} outputs, port {gone[0]} is used"
            )
        self._update(node)

    def set_attrs(self, name: str, attrs: Mapping[str, Attr]) -> None:
        """Replace all attributes of a node."""
        self._update(replace(self.node(name), attrs=attrs))

    def set_types(self, name: str, types: Sequence[TensorType]) -> None:
        self._update(replace(self.node(name), types=tuple(types)))

    def set_device(self, name: str, device: str) -> None:
        self._update(replace(self.node(name), device=device))

    def set_origin(self, name: str, origin: Iterable[str]) -> None:
        self._update(replace(self.node(name), origin=tuple(origin)))

    def _update(self, node: Node) -> None:
        if node != self.node(node.name):
            self._nodes._node[node.name]["node"] = node
            self.version += 1
