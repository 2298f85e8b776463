"""A graph as a FunctionDef, and the module's functions as a library, callees first.

function @f(%x) -> (y = %m) { %m = Mul(%x, %x) }  =>  f(x) -> y {m = Mul(x, x)}, ret y = m:z:0, control_ret = what must run

A body's state comes in as arguments: each Variable or Resource node of an entry becomes one, after the inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from tensorflow.core.framework import function_pb2, op_def_pb2

from compiler.backend.names import argument_names, legal_names
from compiler.backend.nodes import Library, Scope, emitted_attrs, emitted_op, node_def, output_references
from compiler.backend.profiles import Profile
from compiler.backend.protos import attr_value, dtype_enum, shape_proto
from compiler.backend.regions import unconditional
from compiler.ir.errors import CleaveError, IrError
from compiler.ir.graph import INPUT, Graph, Node, Value
from compiler.ir.module import Module, function_refs
from compiler.ir.types import TensorType
from compiler.ops import opdefs
from compiler.ops.effects import Bodies, has_effect

HANDLES = ("Variable", "Resource")
_UNTOUCHED = "_tf_data_function"
"""Grappler leaves functions with this mark alone. Without it, it rewrites bodies of loops and inner calls in the caller's graph, whatever
the call's own configuration says.
"""


@dataclass(frozen=True)
class Capture:
    """State that a function is given: `kind` is "Variable" or "Resource", `ref` its name in the module."""

    kind: str
    ref: str
    type: TensorType


@dataclass(frozen=True)
class Body:
    """An emitted function and what it is called with: the graph's inputs in order, then its captures."""

    definition: function_pb2.FunctionDef
    captures: tuple[Capture, ...]


def library_of(module: Module, namespace: str = "") -> Library:
    """Names for all functions of the module, none of them an op's, and which are stateful."""
    names = legal_names(module.functions, taken=frozenset(opdefs.names()))
    stateful: set[str] = set()
    pending = set(module.functions)
    for name in module.reachable_functions([*module.entries.values(), *module.functions.values()]):
        pending.discard(name)
        if _is_stateful(module.functions[name], stateful | pending):
            stateful.add(name)
    return Library({name: namespace + emitted for name, emitted in names.items()}, frozenset(stateful))


def _is_stateful(graph: Graph, stateful: set[str]) -> bool:
    for node in graph:
        if node.op == "Call":
            if any(ref.name in stateful for ref in function_refs(node)):
                return True
        elif node.op not in (INPUT, *HANDLES) and opdefs.is_stateful(node.op):
            return True
    return False


def library_proto(module: Module, graph: Graph, profile: Profile, library: Library) -> function_pb2.FunctionDefLibrary:
    """The functions that `graph` needs, callees first."""
    proto = function_pb2.FunctionDefLibrary()
    bodies = Bodies(module)
    for name in module.reachable_functions([graph]):
        body = function_def(module, module.functions[name], library.name(name), profile, library, bodies)
        if body.captures:
            raise CleaveError(
                f"function @{name} holds {body.captures[0].kind} {body.captures[0].ref!r}, expected state in entries only;"
                " inline it or pass the handle"
            )
        proto.function.append(body.definition)
    return proto


def function_def(module: Module, graph: Graph, name: str, profile: Profile, library: Library, bodies: Bodies) -> Body:
    captures = captures_of(graph)
    scope, arguments = _body_scope(module, graph, profile, library, captures)
    proto = function_pb2.FunctionDef()
    proto.signature.name = name
    proto.signature.is_stateful = _is_stateful(graph, set(library.stateful))
    types = [graph.node(i).type for i in graph.inputs] + [c.type for c in captures]
    for position, (argument, type_) in enumerate(zip(arguments, types, strict=True)):
        _add_argument(proto, position, argument, type_)
    for node in graph.order():
        if node not in scope.arguments:
            proto.node_def.append(node_def(scope, node))
    _add_results(proto, scope)
    _add_effects(proto, scope, must_run(module, graph, bodies))
    for key, attr in sorted(graph.attrs.items()):
        if key.startswith("_"):
            proto.attr[key].CopyFrom(attr_value(attr, None, module.stores, library.name))
    if profile.envelope:
        proto.attr[_UNTOUCHED].b = True
    return Body(proto, captures)


def captures_of(graph: Graph) -> tuple[Capture, ...]:
    """The state a graph holds, each piece once, in the order its nodes stand."""
    found: dict[tuple[str, str], Capture] = {}
    for node in graph:
        if node.op in HANDLES:
            found.setdefault((node.op, ref_of(node)), Capture(node.op, ref_of(node), node.type))
    return tuple(found.values())


def ref_of(node: Node) -> str:
    ref = node.attrs.get("ref")
    if not isinstance(ref, str):
        raise IrError(f"{node.op} {node.name!r}: attribute 'ref' is {ref!r}, expected the name of the module's state")
    return ref


def _body_scope(
    module: Module, graph: Graph, profile: Profile, library: Library, captures: Sequence[Capture]
) -> tuple[Scope, tuple[str, ...]]:
    inner = [node.name for node in graph if node.op != INPUT and node.op not in HANDLES]
    names = legal_names(inner)
    keys = [("input", i) for i in graph.inputs] + [(c.kind, c.ref) for c in captures]
    arguments = argument_names([name for _, name in keys], names.values())
    by_key = dict(zip(keys, arguments, strict=True))
    for node in graph:
        if node.op == INPUT:
            names[node.name] = by_key["input", node.name]
        elif node.op in HANDLES:
            names[node.name] = by_key[node.op, ref_of(node)]
    outer = frozenset(node.name for node in graph if node.op == INPUT or node.op in HANDLES)
    scope = Scope(module, graph, profile, library, names, str, outer)
    return Scope(module, graph, profile, library, names, _references(scope), outer), arguments


def _references(scope: Scope) -> Callable[[Value], str]:
    """`node:output:0`; an argument is its own name."""
    several: dict[str, tuple[str, ...]] = {}

    def reference(value: Value) -> str:
        name = scope.names[value.node]
        if value.node in scope.arguments:
            return name
        node = scope.graph.node(value.node)
        op = emitted_op(node, scope.library)
        definition = opdefs.get(op)
        if definition is not None and len(definition.outputs) == 1:
            return f"{name}:{definition.outputs[0].name}:{value.port}"
        if value.node not in several:
            several[value.node] = output_references(op, emitted_attrs(scope, node, op, scope.graph.operands(value.node)))
        return f"{name}:{several[value.node][value.port]}"

    return reference


def _add_argument(proto: function_pb2.FunctionDef, position: int, name: str, type_: TensorType) -> None:
    argument = proto.signature.input_arg.add(name=name, type=dtype_enum(type_.dtype))
    _add_handle(argument, type_)
    if type_.handle is not None:
        return  # its own shape is taken for the variable's where TensorFlow reads functions (ResourceGatherNd), so TensorFlow states none
    shapes = proto.arg_attr[position].attr["_output_shapes"].list.shape
    shapes.append(shape_proto(type_.shape))


def _add_handle(argument: op_def_pb2.OpDef.ArgDef, type_: TensorType) -> None:
    if type_.handle is not None:
        argument.handle_data.add(dtype=dtype_enum(type_.handle.dtype), shape=shape_proto(type_.handle.shape))


def _add_results(proto: function_pb2.FunctionDef, scope: Scope) -> None:
    results = argument_names([o.name for o in scope.graph.outputs], [a.name for a in proto.signature.input_arg])
    for output, name in zip(scope.graph.outputs, results, strict=True):
        type_ = scope.graph.type_of(output.value)
        _add_handle(proto.signature.output_arg.add(name=name, type=dtype_enum(type_.dtype)), type_)
        proto.ret[name] = scope.reference(output.value)


def _add_effects(proto: function_pb2.FunctionDef, scope: Scope, effects: Iterable[str]) -> None:
    for name in effects:
        proto.control_ret[scope.names[name]] = scope.names[name]
        proto.signature.control_output.append(scope.names[name])


def must_run(module: Module, graph: Graph, bodies: Bodies) -> tuple[str, ...]:
    """Nodes that a call waits for though nobody may read them, in order.  In a v1 loop or branch they run with what they feed."""
    once = unconditional(graph)
    names = [name for name in graph.order() if name in once and graph.node(name).op not in (INPUT, *HANDLES)]
    return tuple(name for name in names if has_effect(module, graph.node(name), bodies))
