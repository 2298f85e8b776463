"""A module's entry as a GraphDef: the only emitter.

`flat`    nodes at the top, Placeholders for inputs, VarHandleOps for variables: for Sessions, folding, frozen files
`called`  the body is one function, called from a graph of Placeholders; its state comes in as captures: for tf.function and SavedModels

A profile with an envelope marks the body `_noinline` and calls it with a ConfigProto that switches Grappler off; inner calls and bodies
are kept from it likewise (`library.py`).  What is emitted runs as it was emitted, in any process.

Equal modules give equal bytes (`serialize`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from tensorflow.core.framework import graph_pb2, node_def_pb2

from compiler.backend.library import Capture, function_def, library_of, library_proto, must_run, ref_of
from compiler.backend.names import legal_names
from compiler.backend.nodes import Scope, device_of, node_def
from compiler.backend.profiles import Profile
from compiler.backend.protos import dtype_enum, envelope_config, literal_content_bytes, shape_proto, tensor_proto
from compiler.ir.errors import CleaveError, IrError
from compiler.ir.graph import INPUT, FunctionRef, Graph, Node, Value
from compiler.ir.module import Module, Variable
from compiler.ir.types import TensorType
from compiler.ir.weights import Literal, Splat, Tensor, WeightRef
from compiler.ops import opdefs
from compiler.ops.effects import Bodies

GRAPH_BYTES = 2**31 - 2**20
"""What one serialized proto may hold, less a margin for everything that is no constant."""
FED_BYTES = 1 << 16
"""Initial values from this size on are fed, not written into the graph."""
PRODUCER = 2474
"""The GraphDef version whose meaning of ops is emitted, less where a deprecated op stands."""


@dataclass(frozen=True)
class Emission:
    """A graph and how to run it: tensor names of inputs, outputs and captured state, and what must run beside the outputs.

    `initializers` give variables their values, one by one; `fed` are literals those read from Placeholders.
    """

    graph_def: graph_pb2.GraphDef
    feeds: Mapping[str, str]
    fetches: Mapping[str, str]
    targets: tuple[str, ...] = ()
    initializers: tuple[str, ...] = ()
    fed: Mapping[str, Literal] = field(default_factory=dict)
    captures: Mapping[Capture, str] = field(default_factory=dict)
    handles: Mapping[str, str] = field(default_factory=dict)
    """The variable each VarHandleOp at the top stands for."""


def serialize(graph_def: graph_pb2.GraphDef) -> bytes:
    data: bytes = graph_def.SerializeToString(deterministic=True)
    return data


def emit_flat(module: Module, entry: str, profile: Profile, *, limit_bytes: int = GRAPH_BYTES) -> Emission:
    """The entry's nodes at the top level.  Tables and assets live in a SavedModel only, and are refused."""
    graph = entry_of(module, entry)
    _check_size(module, [graph], limit_bytes)
    library = library_of(module)
    names = legal_names(node.name for node in graph)
    scope = Scope(module, graph, profile, library, names, _flat_reference(names))
    proto = graph_pb2.GraphDef()
    for name in graph.order():
        proto.node.append(_flat_node(scope, graph.node(name)))
    proto.library.CopyFrom(library_proto(module, graph, profile, library))
    emission = Emission(
        _versioned(proto),
        {name: f"{names[name]}:0" for name in graph.inputs},
        {output.name: _tensor(scope, output.value) for output in graph.outputs},
        tuple(names[name] for name in must_run(module, graph, Bodies(module))),
        handles={names[node.name]: ref_of(node) for node in graph if node.op == "Variable"},
    )
    return _with_initial_values(scope, emission)


def emit_called(
    module: Module, entry: str, profile: Profile, *, name: str | None = None, namespace: str = "", limit_bytes: int = GRAPH_BYTES
) -> Emission:
    """The entry as function `name`, called once; Placeholders stand for its inputs and, after them, its captures."""
    graph = entry_of(module, entry)
    _check_size(module, [graph], limit_bytes)
    library = library_of(module, namespace)
    taken = {*library.names.values(), *opdefs.names()}
    (function,) = legal_names([namespace + (name or f"cleave_{entry}")], taken).values()
    body = function_def(module, graph, function, profile, library, Bodies(module))
    proto = graph_pb2.GraphDef(library=library_proto(module, graph, profile, library))
    proto.library.function.append(body.definition)
    if profile.envelope:
        proto.library.function[-1].attr["_noinline"].b = True
    keys: list[str | Capture] = [*graph.inputs, *body.captures]
    labels = legal_names(graph.inputs, taken=("call",))
    places = [*labels.values(), *legal_names([f"capture/{c.ref}" for c in body.captures], taken=labels.values()).values()]
    types = [graph.node(i).type for i in graph.inputs] + [c.type for c in body.captures]
    for place, type_ in zip(places, types, strict=True):
        proto.node.append(_placeholder(place, type_, ""))
    proto.node.append(_call(graph, body.definition.signature.is_stateful, function, places, types, profile))
    tensors = dict(zip(keys, (f"{place}:0" for place in places), strict=True))
    return Emission(
        _versioned(proto),
        {name: tensors[name] for name in graph.inputs},
        {output.name: f"call:{index}" for index, output in enumerate(graph.outputs)},
        ("call",) if body.definition.signature.is_stateful else (),
        captures={capture: tensors[capture] for capture in body.captures},
    )


def entry_of(module: Module, entry: str) -> Graph:
    if entry not in module.entries:
        raise IrError(f"module {module.name!r} has no entry {entry!r}, expected one of {sorted(module.entries)}")
    return module.entries[entry]


def _call(
    graph: Graph, stateful: bool, function: str, inputs: list[str], types: list[TensorType], profile: Profile
) -> node_def_pb2.NodeDef:
    node = node_def_pb2.NodeDef(name="call", op="StatefulPartitionedCall" if stateful else "PartitionedCall", input=inputs)
    node.attr["f"].func.name = function
    node.attr["Tin"].list.type.extend(dtype_enum(type_.dtype) for type_ in types)
    node.attr["Tin"].list.SetInParent()
    node.attr["Tout"].list.type.extend(dtype_enum(graph.type_of(output.value).dtype) for output in graph.outputs)
    node.attr["Tout"].list.SetInParent()
    node.attr["_output_shapes"].list.shape.extend(shape_proto(graph.type_of(output.value).shape) for output in graph.outputs)
    if profile.envelope:
        node.attr["config_proto"].s = envelope_config()
    return node


def _flat_node(scope: Scope, node: Node) -> node_def_pb2.NodeDef:
    name = scope.names[node.name]
    if node.op == INPUT:
        return _placeholder(name, node.type, device_of(node.device, scope.profile))
    if node.op == "Variable":
        return _variable(scope, node)
    if node.op == "Resource":
        raise CleaveError(
            f"graph {scope.graph.name!r}: {ref_of(node)!r} is a table or an asset, which no bare graph carries; save a SavedModel"
        )
    return node_def(scope, node.name)


def _placeholder(name: str, type_: TensorType, device: str) -> node_def_pb2.NodeDef:
    node = node_def_pb2.NodeDef(name=name, op="Placeholder", device=device)
    node.attr["dtype"].type = dtype_enum(type_.dtype)
    node.attr["shape"].shape.CopyFrom(shape_proto(type_.shape))
    return node


def _variable(scope: Scope, node: Node) -> node_def_pb2.NodeDef:
    variable = _state_of(scope.module, node)
    proto = node_def_pb2.NodeDef(
        name=scope.names[node.name], op="VarHandleOp", device=device_of(node.device or variable.device, scope.profile)
    )
    proto.input.extend(sorted(f"^{scope.names[source]}" for source in scope.graph.controls(node.name)))
    proto.attr["dtype"].type = dtype_enum(variable.type.dtype)
    proto.attr["shape"].shape.CopyFrom(shape_proto(variable.type.shape))
    proto.attr["shared_name"].s = variable.name.encode()
    return proto


def _state_of(module: Module, node: Node) -> Variable:
    ref = ref_of(node)
    if ref not in module.variables:
        raise IrError(
            f"Variable {node.name!r} names {ref!r}, which the module does not have; expected one of {sorted(module.variables)[:5]}"
        )
    return module.variables[ref]


def _flat_reference(names: Mapping[str, str]) -> Callable[[Value], str]:
    def reference(value: Value) -> str:
        return names[value.node] if value.port == 0 else f"{names[value.node]}:{value.port}"

    return reference


def _tensor(scope: Scope, value: Value) -> str:
    return f"{scope.names[value.node]}:{value.port}"


def _with_initial_values(scope: Scope, emission: Emission) -> Emission:
    """Assignments for the variables the graph holds; a large value comes from a Placeholder, so it never enters the graph."""
    handles: dict[str, Node] = {}
    for node in scope.graph:
        if node.op == "Variable":
            handles.setdefault(ref_of(node), node)
    initial = {ref: scope.module.variables[ref].initial for ref in handles}
    wanted = [ref for ref, literal in initial.items() if literal is not None]
    taken = {node.name for node in emission.graph_def.node}
    values = legal_names([f"initial/{ref}" for ref in wanted], taken)
    assigns = legal_names([f"assign/{ref}" for ref in wanted], {*taken, *values.values()})
    fed: dict[str, Literal] = {}
    for ref in wanted:
        literal = initial[ref]
        assert literal is not None
        value, device = values[f"initial/{ref}"], device_of(handles[ref].device or scope.module.variables[ref].device, scope.profile)
        if literal_content_bytes(literal) >= FED_BYTES and not isinstance(literal, Splat) and literal.dtype != "string":
            emission.graph_def.node.append(_placeholder(value, TensorType(literal.dtype, literal.shape), device))
            fed[f"{value}:0"] = literal
        else:
            emission.graph_def.node.append(_const(scope.module, value, literal, device))
        emission.graph_def.node.append(_assign(assigns[f"assign/{ref}"], scope.names[handles[ref].name], value, literal, device))
    return replace(emission, initializers=tuple(assigns[f"assign/{ref}"] for ref in wanted), fed=fed)


def _const(module: Module, name: str, literal: Literal, device: str) -> node_def_pb2.NodeDef:
    node = node_def_pb2.NodeDef(name=name, op="Const", device=device)
    node.attr["dtype"].type = dtype_enum(literal.dtype)
    node.attr["value"].tensor.CopyFrom(tensor_proto(literal, module.stores))
    return node


def _assign(name: str, handle: str, value: str, literal: Literal, device: str) -> node_def_pb2.NodeDef:
    node = node_def_pb2.NodeDef(name=name, op="AssignVariableOp", device=device, input=[handle, value])
    node.attr["dtype"].type = dtype_enum(literal.dtype)
    return node


def _versioned(proto: graph_pb2.GraphDef) -> graph_pb2.GraphDef:
    """The newest version at which every op that stands here may still be added."""
    used = {node.op for node in proto.node} | {node.op for function in proto.library.function for node in function.node_def}
    limits = [
        found.deprecation.version - 1 for op in sorted(used) if (found := opdefs.get(op)) is not None and found.deprecation is not None
    ]
    proto.versions.producer = min([PRODUCER, *limits])
    return proto


def _check_size(module: Module, graphs: list[Graph], limit_bytes: int) -> None:
    """Before a byte is written: do the constants fit into one proto?"""
    every = [*graphs, *(module.function(FunctionRef(name)) for name in module.reachable_functions(graphs))]
    sizes = sorted(
        ((literal_content_bytes(attr), graph.name, node.name) for graph in every for node in graph for attr in _literals(node)),
        reverse=True,
    )
    total = sum(size for size, _, _ in sizes)
    if total <= limit_bytes:
        return
    largest = ", ".join(f"{name!r} of {graph!r} ({size / 2**20:.0f} MiB)" for size, graph, name in sizes[:3])
    raise CleaveError(
        f"the constants take {total / 2**20:.0f} MiB, a graph holds {limit_bytes / 2**20:.0f} MiB; "
        f"the largest are {largest}; keep them as variables of a SavedModel"
    )


def _literals(node: Node) -> Iterable[Literal]:
    return (attr for attr in node.attrs.values() if isinstance(attr, Tensor | Splat | WeightRef))
