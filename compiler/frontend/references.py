"""What a node's inputs refer to: `x`, `x:1`, `^x` in a graph; `arg`, `node:out_arg:1`, `^node` in a function."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from compiler.ir.errors import CleaveError
from compiler.ir.graph import Attr, Value
from compiler.ops import opdefs


@dataclass(frozen=True)
class Reference:
    """A node and a port, or (`port` -1) a control dependency on it."""

    node: str
    port: int

    @property
    def is_control(self) -> bool:
        return self.port < 0

    @property
    def value(self) -> Value:
        return Value(self.node, self.port)


def graph_reference(text: str, where: str) -> Reference:
    if text.startswith("^"):
        return Reference(text[1:], -1)
    name, colon, port = text.rpartition(":")
    if not colon:
        return Reference(text, 0)
    if not port.isdigit():
        raise CleaveError(f"{where}: input {text!r} is no reference, expected NODE or NODE:PORT")
    return Reference(name, int(port))


def function_reference(text: str, ranges: Mapping[str, Mapping[str, range]], where: str) -> Reference:
    """`ranges[node][output argument]` are its ports; an argument of the function has none and is a node of its own."""
    if text.startswith("^"):
        return Reference(text[1:], -1)
    parts = text.split(":")
    if len(parts) == 1:
        return Reference(text, 0)
    if len(parts) == 2 and parts[1].isdigit():
        return Reference(parts[0], int(parts[1]))
    node, argument = parts[0], parts[1]
    ports = ranges.get(node, {}).get(argument)
    index = int(parts[2]) if len(parts) == 3 and parts[2].isdigit() else 0
    if ports is None or index >= len(ports):
        raise CleaveError(f"{where}: input {text!r} names no output, node {node!r} has {sorted(ranges.get(node, {}))}")
    return Reference(node, ports[index])


def output_ranges(op: str, attrs: Mapping[str, Attr], callee_outputs: tuple[str, ...] | None, where: str) -> Mapping[str, range]:
    """The ports of each output argument of a node; a called function's outputs are its own arguments."""
    if callee_outputs is not None:
        return {**{name: range(i, i + 1) for i, name in enumerate(callee_outputs)}, "output": range(len(callee_outputs))}
    if opdefs.get(op) is None:
        raise CleaveError(f"{where}: op {op!r} is not registered in TensorFlow, expected a model of built-in ops")
    try:
        return opdefs.output_ranges(op, attrs)
    except opdefs.OpDefError as error:
        raise CleaveError(f"{where}: {error}") from None
