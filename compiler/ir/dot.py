"""A module as a Graphviz drawing: one cluster for each graph, a colour for each device."""

from __future__ import annotations

from compiler.ir.module import Module

_COLOURS = ("lightblue", "palegreen", "lightsalmon", "plum", "khaki", "lightcyan", "pink", "lightgrey")


def to_dot(module: Module, entry: str | None = None) -> str:
    """The drawing of one entry, or of every graph."""
    graphs = {entry: module.entries[entry]} if entry is not None else dict(module.graphs)
    devices = sorted({node.device for graph in graphs.values() for node in graph if node.device})
    colour = {device: _COLOURS[i % len(_COLOURS)] for i, device in enumerate(devices)}
    lines = ["digraph module {", "  node [shape=box, style=filled, fillcolor=white];"]
    for number, (name, graph) in enumerate(graphs.items()):
        lines += [f"  subgraph cluster_{number} {{", f"    label={_quoted(name)};"]
        for node in map(graph.node, graph.order()):
            label = _quoted(f"{node.op}\n{node.name}\n{', '.join(map(str, node.types))}")
            fill = f", fillcolor={colour[node.device]}" if node.device else ""
            lines.append(f"    {_quoted(f'{number}/{node.name}')} [label={label}{fill}];")
        lines.append("  }")
        for node in graph:
            for value in graph.operands(node.name):
                lines.append(f"  {_quoted(f'{number}/{value.node}')} -> {_quoted(f'{number}/{node.name}')};")
            for source in graph.controls(node.name):
                lines.append(f"  {_quoted(f'{number}/{source}')} -> {_quoted(f'{number}/{node.name}')} [style=dashed];")
    return "\n".join([*lines, "}"]) + "\n"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
