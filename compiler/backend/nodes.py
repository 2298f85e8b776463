"""One IR node as a NodeDef: what the IR leaves out is derived again, inputs are written in the form of the place it goes to.

%y = Call(%x) {f=@body} on f32  =>  y = PartitionedCall[f=body, Tin=[DT_FLOAT], Tout=[DT_FLOAT]](x:0)

The same node stands in a flat graph (`split:1`) or in a function's body (`split:output:1`); a `Scope` knows which.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from tensorflow.core.framework import node_def_pb2

from compiler.backend.profiles import Profile
from compiler.backend.protos import attr_value, envelope_config
from compiler.ir.errors import CleaveError, IrError
from compiler.ir.graph import Attr, Graph, Node, ShapeAttr, Value
from compiler.ir.module import Module, function_refs
from compiler.ir.node import attr_key
from compiler.ir.types import DType, TensorType
from compiler.ops import opdefs
from compiler.ops.attributes import complete, defaults
from compiler.ops.opdefs import OpDef

# What stands for nothing at run time: gradients belong to the original, colocation follows resources, and positions go stale.
_DROPPED = frozenset({"_gradient_op_type", "_class", "_output_shapes", "_read_only_resource_inputs"})
_WITH_SHAPES = frozenset({"If", "StatelessIf", "While", "StatelessWhile", "Case", "StatelessCase"})
_STATEFUL_FORMS: Mapping[str, str] = MappingProxyType({"StatelessIf": "If", "StatelessWhile": "While", "StatelessCase": "Case"})


@dataclass(frozen=True)
class Library:
    """Emitted names of the module's functions, and which of them are stateful."""

    names: Mapping[str, str]
    stateful: frozenset[str]

    def name(self, function: str) -> str:
        if function not in self.names:
            raise IrError(f"function @{function} is not in the module, expected one of {sorted(self.names)[:5]}")
        return self.names[function]


@dataclass(frozen=True)
class Scope:
    """Where nodes are written: their graph, their emitted names, and how a value is named as an input."""

    module: Module
    graph: Graph
    profile: Profile
    library: Library
    names: Mapping[str, str]
    reference: Callable[[Value], str]
    arguments: frozenset[str] = frozenset()
    """Nodes that are a function's arguments: nobody needs to wait for them."""


def emitted_op(node: Node, library: Library) -> str:
    """The op's name in TensorFlow; calls and control flow are as stateful as their bodies."""
    if node.op == "Call":
        return "StatefulPartitionedCall" if _is_stateful(node, library) else "PartitionedCall"
    if node.op in _STATEFUL_FORMS and _is_stateful(node, library):
        return _STATEFUL_FORMS[node.op]
    return node.op


def _is_stateful(node: Node, library: Library) -> bool:
    return any(ref.name in library.stateful for ref in function_refs(node))


def node_def(scope: Scope, name: str) -> node_def_pb2.NodeDef:
    node = scope.graph.node(name)
    op = emitted_op(node, scope.library)
    _check_allowed(scope, node, op)
    proto = node_def_pb2.NodeDef(name=scope.names[name], op=op, device=device_of(node.device, scope.profile))
    operands = scope.graph.operands(name)
    proto.input.extend(scope.reference(value) for value in operands)
    controls = [source for source in scope.graph.controls(name) if source not in scope.arguments]
    proto.input.extend(sorted(f"^{scope.names[source]}" for source in controls))
    for key, attr in sorted(emitted_attrs(scope, node, op, operands).items()):
        kind = _kind(op, key)
        proto.attr[key].CopyFrom(attr_value(attr, kind, scope.module.stores, scope.library.name))
    if node.op == "Call" and scope.profile.envelope:  # TensorFlow writes its own configuration on every call, and Grappler is on in it
        proto.attr["config_proto"].s = envelope_config(proto.attr["config_proto"].s)
    return proto


def emitted_attrs(scope: Scope, node: Node, op: str, operands: tuple[Value, ...]) -> dict[str, Attr]:
    """The node's own attributes and those that its operands and results determine; what equals the OpDef's default is left to it."""
    definition = opdefs.get(op)
    if definition is None:
        return {key: attr for key, attr in node.attrs.items() if _is_kept(key, scope.profile)}
    kept = {key: attr for key, attr in node.attrs.items() if _is_kept(key, scope.profile)}
    try:
        found = complete(op, kept, [scope.graph.type_of(value).dtype for value in operands])
        found = from_results(definition, found, kept, node.types)
    except IrError as error:
        raise IrError(f"graph {scope.graph.name!r}: {node.op} {node.name!r}: {error}") from None
    if op in _WITH_SHAPES and node.types:
        found["output_shapes"] = tuple(ShapeAttr(_static_shape(type_)) for type_ in node.types)
    usual = defaults(op)
    return {key: attr for key, attr in found.items() if key not in usual or attr_key(attr) != attr_key(usual[key])}


def from_results(
    definition: OpDef, attrs: Mapping[str, Attr], stored: Mapping[str, Attr], types: tuple[TensorType, ...]
) -> dict[str, Attr]:
    """`attrs` with type and number attributes that only results tell, where the node does not store them."""
    found = dict(attrs)
    by_operands = {name for arg in definition.inputs for name in (arg.type_attr, arg.number_attr, arg.type_list_attr)}
    open_args = [a for a in definition.outputs if (a.type_list_attr or a.number_attr) not in (None, *stored, *by_operands)]
    known = sum(_count(a.type_list_attr or a.number_attr, found) for a in definition.outputs if a not in open_args)
    if open_args and (len({a.type_list_attr or a.number_attr for a in open_args}) > 1 or (len(types) - known) % len(open_args)):
        raise IrError(f"{len(types)} results do not fit, expected the attributes {sorted({a.name for a in open_args})} to tell them apart")
    start = 0
    for arg in definition.outputs:
        share = (len(types) - known) // len(open_args) if arg in open_args else _count(arg.type_list_attr or arg.number_attr, found)
        dtypes = tuple(DType(t.dtype.removesuffix("_ref")) for t in types[start : start + share])
        start += share
        if arg.number_attr is not None and arg in open_args:
            found[arg.number_attr] = share
        if arg.type_list_attr is not None and arg in open_args:
            found[arg.type_list_attr] = dtypes
        elif arg.type_attr is not None and dtypes and arg.type_attr not in stored and arg.type_attr not in by_operands:
            found[arg.type_attr] = dtypes[0]
    return found


def _count(attribute: str | None, attrs: Mapping[str, Attr]) -> int:
    if attribute is None:
        return 1
    value = attrs.get(attribute)
    return len(value) if isinstance(value, tuple) else value if isinstance(value, int) else 0


def _static_shape(type_: TensorType) -> tuple[int | None, ...] | None:
    return None if type_.shape is None else tuple(dim if isinstance(dim, int) else None for dim in type_.shape)


def _kind(op: str, attribute: str) -> str | None:
    definition = opdefs.get(op)
    return definition.attrs[attribute].type if definition is not None and attribute in definition.attrs else None


def _is_kept(attribute: str, profile: Profile) -> bool:
    return attribute not in _DROPPED and (profile.xla or not attribute.startswith(("_Xla", "_xla")))


def _check_allowed(scope: Scope, node: Node, op: str) -> None:
    if opdefs.get(op) is None:
        raise CleaveError(f"graph {scope.graph.name!r}: {node.op} {node.name!r} is no op of TensorFlow {opdefs.tensorflow_version()}")
    if op.startswith("_") and not scope.profile.private_ops:
        raise CleaveError(
            f"graph {scope.graph.name!r}: {op} {node.name!r} is a private op,"
            f" which profile {scope.profile.name!r} does not allow; use profile 'native'"
        )


def device_of(device: str, profile: Profile) -> str:
    """Without job and task: a saved model runs where it is loaded."""
    if not profile.devices or not device:
        return ""
    if not profile.tasks:
        device = "/" + "/".join(part for part in device.strip("/").split("/") if not part.startswith(("job:", "replica:", "task:")))
    return device if device != "/" else ""


def output_references(op: str, attrs: Mapping[str, Attr]) -> tuple[str, ...]:
    """How a function's body names each result: `output:0`."""
    ranges = opdefs.output_ranges(op, attrs)
    return tuple(f"{arg}:{index}" for arg, ports in ranges.items() for index in range(len(ports)))
