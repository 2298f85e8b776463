"""A module as text: `%y = Mul(%x, %x) : f32[b]`, one statement a line.

Equal text <=> equal module (`equal.py`): nodes stand in `graph.order()`, attributes sorted, all else as the module has it.
Nothing that is empty is printed.  The grammar is `text_parse.py`'s docstring.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from compiler.ir.errors import IrError
from compiler.ir.graph import Attr, Edge, FunctionRef, Graph, Node, Output, ShapeAttr, Value
from compiler.ir.module import Module, Resource, Variable
from compiler.ir.sharding import Mesh
from compiler.ir.text_literal import elements_text, float_text, name_text, quote, quote_bytes, word_text
from compiler.ir.types import DType, TensorType
from compiler.ir.weights import Literal, Splat, Tensor, WeightRef, literal_type


def print_document(pipeline: str | None, module: Module, base_dir: Path | None = None) -> str:
    """The module under the pipeline that is to run on it: a reproducer, a golden test, a dump."""
    header = "" if pipeline is None else f"pipeline {quote(pipeline)}\n"
    return header + print_module(module, base_dir)


def print_module(module: Module, base_dir: Path | None = None) -> str:
    """The whole module.  Stores below `base_dir` are written relative to it; the scratch store is left out (`write_module` keeps it)."""
    sections = ["\n".join(_head(module, base_dir))]
    sections += [print_graph(graph, f"entry @{name_text(name)}") for name, graph in module.entries.items()]
    sections += [print_graph(graph, f"function @{name_text(name)}") for name, graph in module.functions.items()]
    return "\n\n".join(sections) + "\n"


def _head(module: Module, base_dir: Path | None) -> Iterator[str]:
    facts = f" facts({', '.join(sorted(map(word_text, module.facts)))})" if module.facts else ""
    yield f"module {quote(module.name)}{facts}"
    if module.mesh is not None:
        yield mesh_text(module.mesh)
    for symbol, size in sorted(module.sizes.items()):
        yield f"size {word_text(symbol)} = {size}"
    for store, path in sorted(module.stores.files.items()):
        if store != module.stores.scratch:
            yield f"store {word_text(store)} = {quote(_path_text(path, base_dir))}"
    for variable in module.variables.values():
        yield variable_text(variable)
    for resource in module.resources.values():
        yield resource_text(resource)


def _path_text(path: Path, base_dir: Path | None) -> str:
    """Relative to `base_dir` where it is below that, else absolute: a reader starts from the file, not from where it was written."""
    if base_dir is None:
        return path.as_posix()
    if not path.resolve().is_relative_to(base_dir.resolve()):
        return path.absolute().as_posix()
    return path.resolve().relative_to(base_dir.resolve()).as_posix()


def mesh_text(mesh: Mesh) -> str:
    return f"mesh {mesh} on ({', '.join(map(quote, mesh.devices))})"


def variable_text(variable: Variable) -> str:
    parts = [f"variable @{name_text(variable.name)} : {variable.type}"]
    if variable.initial is not None:
        parts.append(f"= {literal_text(variable.initial)}")
    flags = (("untrainable", not variable.trainable), ("written_elsewhere", variable.written_elsewhere))
    parts += [word for word, holds in (*flags, ("read_elsewhere", variable.read_elsewhere)) if holds]
    if variable.sharding is not None:
        parts.append(f"sharding {variable.sharding}")
    if variable.device:
        parts.append(f"on {quote(variable.device)}")
    return " ".join(parts)


def resource_text(resource: Resource) -> str:
    return f"resource @{name_text(resource.name)} : {resource.type} kind {quote(resource.kind)}"


def print_graph(graph: Graph, keyword: str | None = None) -> str:
    """A graph as it stands in a module; `keyword` is what stands before its inputs, `function @name` unless said."""
    header = f"function @{name_text(graph.name)}" if keyword is None else keyword
    inputs = ", ".join(_input_text(graph, name) for name in graph.inputs)
    outputs = ", ".join(map(_output_text, graph.outputs))
    attrs = f" {attrs_text(graph.attrs)}" if graph.attrs else ""
    given = frozenset(graph.inputs)
    lines = [f"  {print_node(graph, name)}" for name in _print_order(graph) if name not in given]
    return "\n".join([f"{header}({inputs}) -> ({outputs}){attrs} {{", *lines, "}"])


def _print_order(graph: Graph) -> tuple[str, ...]:
    """A graph with a forbidden cycle has no order, and must be printable all the same: an error shows it."""
    try:
        return graph.order()
    except IrError:
        return tuple(node.name for node in graph)


def _input_text(graph: Graph, name: str) -> str:
    node = graph.node(name)
    return f"%{name_text(name)}: {types_text(node.types)}{_attrs_suffix(node)}{_place_suffix(graph, node)}"


def _output_text(output: Output) -> str:
    return f"{word_text(output.name)} = {value_text(output.value)}"


def print_node(graph: Graph, name: str) -> str:
    """One node, one line: `%y = Add(%a, %b:1) {k=1} : f32[2] on "/device:CPU:0" from(layer) after(%c)`."""
    node = graph.node(name)
    operands = ", ".join(map(edge_text, graph.edges(name)))
    head = f"%{name_text(name)} = {word_text(node.op)}({operands}){_attrs_suffix(node)} : {types_text(node.types)}"
    return head + _place_suffix(graph, node)


def _attrs_suffix(node: Node) -> str:
    return f" {attrs_text(node.attrs)}" if node.attrs else ""


def _place_suffix(graph: Graph, node: Node) -> str:
    device = f" on {quote(node.device)}" if node.device else ""
    origin = f" from({', '.join(map(name_text, node.origin))})" if node.origin else ""
    controls = graph.controls(node.name)
    after = f" after({', '.join('%' + name_text(c) for c in controls)})" if controls else ""
    return device + origin + after


def edge_text(edge: Edge) -> str:
    return f"~{value_text(edge.value)}" if edge.back else value_text(edge.value)


def value_text(value: Value) -> str:
    return f"%{name_text(value.node)}:{value.port}" if value.port else f"%{name_text(value.node)}"


def types_text(types: tuple[TensorType, ...]) -> str:
    return str(types[0]) if len(types) == 1 else f"({', '.join(map(str, types))})"


def attrs_text(attrs: Mapping[str, Attr]) -> str:
    return "{" + ", ".join(f"{word_text(name)}={attr_text(attr)}" for name, attr in sorted(attrs.items())) + "}"


def attr_text(attr: Attr) -> str:
    """One attribute; IrError for a value that is of no attribute's kind (a numpy scalar, a list, None)."""
    match attr:
        case bool():
            return "true" if attr else "false"
        case int():
            return int.__repr__(attr)
        case float():
            return float_text(attr)
        case DType():
            return attr.short
        case str():
            return quote(attr)
        case bytes():
            return quote_bytes(attr)
        case tuple():
            return f"[{', '.join(map(attr_text, attr))}]"
        case FunctionRef(name=name):
            return f"@{name_text(name)}"
        case ShapeAttr(shape=shape):
            return "shape[*]" if shape is None else f"shape[{','.join('?' if d is None else str(d) for d in shape)}]"
        case Tensor() | Splat() | WeightRef():
            return literal_text(attr)
    raise IrError(f"attribute value {attr!r} is a {type(attr).__name__}, expected int, float, bool, str, bytes, tuple or an IR type")


def literal_text(literal: Literal) -> str:
    """`tensor(f32[2], [1.0, 2.0])`, `splat(f32[9], 0.5)`, `weight(store, offset, f32[8,4])`, with a region `weight(..., [0+2, 1+3])`."""
    if isinstance(literal, Tensor):
        return f"tensor({literal_type(literal)}, {elements_text(literal.dtype, literal.array)})"
    if isinstance(literal, Splat):
        return f"splat({literal_type(literal)}, {elements_text(literal.dtype, literal.item.array)})"
    full = TensorType(literal.dtype, literal.full_shape)
    region = "" if literal.region is None else f", [{', '.join(f'{start}+{size}' for start, size in literal.region)}]"
    return f"weight({word_text(literal.store)}, {literal.offset}, {full}{region})"
