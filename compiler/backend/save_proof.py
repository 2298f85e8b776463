"""What a traced function computes, as digests of its results: names, the order of nodes and the nesting of calls do not enter.

f(x) = relu(g(x));  s(a) -> {"y": relu(...g's nodes...)}   =>   f's result is s's "y", if x is a

Only functions without effects have digests: where nothing is written, each node's value follows from its operands, attributes and state.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import permutations
from typing import Any

from tensorflow.core.framework import attr_value_pb2, function_pb2, node_def_pb2

from compiler.backend.loaded import is_stateful

_CALLS = ("PartitionedCall", "StatefulPartitionedCall")
_SPEAKS = ("Assert", "Print", "PrintV2")
_NO_MEANING = ("config_proto", "config", "executor_type", "output_shapes", "Tin", "Tout")
_NODES = 1_000_000
_PERMUTED = 3


class TooLarge(Exception):
    """More nodes than are worth a proof."""


@dataclass
class Proof:
    """The functions of one graph; `left` is how many nodes may still be looked at."""

    functions: Mapping[str, function_pb2.FunctionDef]
    left: int = _NODES
    bodies: dict[str, str] = field(default_factory=dict)

    def results(self, body: function_pb2.FunctionDef, arguments: Sequence[str]) -> list[str]:
        """The digest of each result, given those of the arguments."""
        known = dict(zip((argument.name for argument in body.signature.input_arg), arguments, strict=True))
        nodes = {node.name: node for node in body.node_def}
        values: dict[str, dict[str, str] | str] = {}
        for name in _order(nodes, (body.ret[result.name] for result in body.signature.output_arg)):
            values[name] = self._value(nodes[name], [_read(reference, known, values) for reference in _data(nodes[name])])
        return [_read(body.ret[result.name], known, values) for result in body.signature.output_arg]

    def _value(self, node: node_def_pb2.NodeDef, operands: list[str]) -> dict[str, str] | str:
        """A node's digest; of a call the digests of its results by name."""
        self.left -= 1
        if self.left < 0:
            raise TooLarge
        if node.op == "Identity":
            return {"output:0": operands[0]}
        called = node.attr["f"].func.name if node.op in _CALLS else node.op
        if called in self.functions:
            body = self.functions[called]
            results = self.results(body, operands)
            names = (
                (f"output:{i}" for i in range(len(results))) if node.op in _CALLS else (f"{r.name}:0" for r in body.signature.output_arg)
            )
            return dict(zip(names, results, strict=True))
        attrs = [(key, self._attr(value)) for key, value in sorted(node.attr.items()) if key not in _NO_MEANING and not key.startswith("_")]
        return _digest([node.op, *operands, *(text for pair in attrs for text in pair)])

    def _attr(self, value: attr_value_pb2.AttrValue) -> str:
        named = [value.func] if value.HasField("func") else list(value.list.func)
        if named:
            return _digest([self._body(function.name) for function in named])
        return hashlib.sha256(value.SerializeToString(deterministic=True)).hexdigest()

    def _body(self, name: str) -> str:
        """A function that a node refers to, as a function of its arguments; one that calls itself sees its name."""
        if name not in self.functions:
            return name
        if name not in self.bodies:
            self.bodies[name] = name
            body = self.functions[name]
            self.bodies[name] = _digest(self.results(body, [f"argument {i}" for i in range(len(body.signature.input_arg))]))
        return self.bodies[name]


def _order(nodes: Mapping[str, node_def_pb2.NodeDef], references: Iterable[str]) -> Iterator[str]:
    """The nodes that the references need, operands first."""
    done: set[str] = set()
    waiting = [reference.partition(":")[0] for reference in references]
    while waiting:
        name = waiting[-1]
        operands = (
            [source for r in _data(nodes[name]) if (source := r.partition(":")[0]) not in done and source in nodes] if name in nodes else []
        )
        if operands and name not in done:
            waiting += operands
            continue
        waiting.pop()
        if name in nodes and name not in done:
            done.add(name)
            yield name


def _data(node: node_def_pb2.NodeDef) -> list[str]:
    return [reference for reference in node.input if not reference.startswith("^")]


def _read(reference: str, known: Mapping[str, str], values: Mapping[str, dict[str, str] | str]) -> str:
    name, _, port = reference.partition(":")
    if name in known:
        return known[name]
    value = values[name]
    return value[port] if isinstance(value, dict) else f"{value} {port}"


def _digest(texts: Iterable[str]) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()


def proven(trace: Any, signature: Any) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
    """The signature's keys for the trace's tensors and for its results, if each result is one of the signature's; else None."""
    keys = list(signature._arg_keywords or ())
    captured = [f"captured {id(tensor)}" for tensor in trace.captured_inputs]
    free = len(trace.inputs) - len(captured)
    if (
        free != len(keys)
        or not (_is_silent(trace) and _is_silent(signature))
        or len(signature.outputs) != len(signature.structured_outputs)
    ):
        return None
    try:
        of_signature = _results(signature, [*keys, *(f"captured {id(tensor)}" for tensor in signature.captured_inputs)])
        by_digest = dict(zip(of_signature, sorted(signature.structured_outputs), strict=True))
        for order in _orders([str(name) for name in trace._arg_keywords or ()], keys):
            of_trace = _results(trace, [*order, *captured])
            if all(result in by_digest for result in of_trace):
                return order, tuple(by_digest[result] for result in of_trace)
    except TooLarge:
        return None
    return None


def _results(function: Any, arguments: Sequence[str]) -> list[str]:
    library = {f.signature.name: f for f in function.graph.as_graph_def().library.function}
    return Proof(library).results(function.function_def, arguments)


def _orders(names: Sequence[str], keys: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """The keys in the orders in which the trace may take them: as it names them, or any if they are few."""
    if sorted(names) == sorted(keys):
        yield tuple(names)
    elif len(keys) <= _PERMUTED:
        yield from permutations(keys)


def _is_silent(function: Any) -> bool:
    """Does it do nothing but return its results?"""
    graph_def = function.graph.as_graph_def()
    every = [*graph_def.node, *(node for body in graph_def.library.function for node in body.node_def)]
    return not is_stateful(graph_def) and not any(node.op in _SPEAKS for node in every)
