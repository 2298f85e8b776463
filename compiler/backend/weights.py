"""Which weights stand in the graph and which become variables of the saved model: a graph holds less than 2 GB.

%w = Const() {value=weight(...)}  =>  %w/handle = Variable() {ref="weight/w"}; %w = ReadVariableOp(%w/handle), where they take too much

A Const stays with its node's device in every load; a variable keeps its device only if its loader asks. So Consts are left alone while all
of them fit. Where they do not, all but the small ones go: TensorFlow holds a Const several times over once it is loaded, a variable once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from compiler.backend.protos import literal_content_bytes
from compiler.ir.graph import Graph, Node, Value
from compiler.ir.module import Module, Variable
from compiler.ir.types import DType, TensorType
from compiler.ir.weights import Literal, WeightRef, literal_type

WEIGHT_BYTES = 128 << 20
"""What the Consts of one saved model may take together: 470 MB of them took 4.6 GB to load and 7.8 GB to call."""
SMALL_BYTES = 1 << 16
"""A weight below this is a Const in any case."""


def place_weights(module: Module, limit_bytes: int = WEIGHT_BYTES) -> Module:
    """The module itself where its constants fit, else a copy whose entries read theirs from variables; equal ones share one."""
    total = sum(size for size, _, _ in _weights(module))
    if total <= limit_bytes:
        return module
    placed = module.copy()
    known: dict[tuple[Literal, str], str] = {}
    for size, graph, name in sorted(_movable(placed), key=lambda item: (-item[0], item[1], item[2])):
        if size < min(SMALL_BYTES, limit_bytes):
            break
        _move(placed, placed.entries[graph], name, known)
    return placed


def _weights(module: Module) -> Iterator[tuple[int, Graph, Node]]:
    for graph in module.graphs.values():
        for node in graph:
            if node.op == "Const" and isinstance(literal := node.attrs["value"], WeightRef):
                yield literal_content_bytes(literal), graph, node


def _movable(module: Module) -> Iterator[tuple[int, str, str]]:
    """Weights of entries; a body's are its own, and a variable there would have to come in as an argument."""
    entries = module.entries
    return ((size, graph.name, node.name) for size, graph, node in _weights(module) if entries.get(graph.name) is graph)


def _move(module: Module, graph: Graph, name: str, known: dict[tuple[Literal, str], str]) -> None:
    node = graph.node(name)
    literal = node.attrs["value"]
    assert isinstance(literal, WeightRef)
    key = (literal, node.device)
    if key not in known:
        known[key] = _fresh(module, f"weight/{name}")
        type_ = literal_type(literal)
        module.variables[known[key]] = Variable(known[key], type_, literal, trainable=False, device=node.device)
    held = TensorType(DType("resource"), (), handle=literal_type(literal))
    handle = graph.fresh_name(f"{name}/handle")
    graph.add_node(Node(handle, "Variable", {"ref": known[key]}, (held,), node.device, node.origin))
    graph.set_node(replace(node, op="ReadVariableOp", attrs={}))
    graph.set_operands(name, (Value(handle),))


def _fresh(module: Module, base: str) -> str:
    name, count = base, 0
    while name in module.variables or name in module.resources:
        count += 1
        name = f"{base}_{count}"
    return name
