"""The same function in float64: every float32 of a module becomes float64, so that a run of it is the truth to measure errors against.

f32[b,10] = MatMul(f32, f32)   =>   f64[b,10] = MatMul(f64, f64), its weights converted.  None where an operator has no float64 kernel.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from compiler.ir.graph import INPUT, Attr, Graph, Node, Value
from compiler.ir.module import Module, Variable
from compiler.ir.types import DType, TensorType
from compiler.ir.weights import Literal, Splat, Stores, Tensor, WeightRef, literal_bytes
from compiler.ops.queries import attrs_with_defaults
from compiler.ops.registry import spec
from compiler.rewrite.emitter import Emitter

BATCH_NORMS = ("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3")
_SINGLE, _DOUBLE = DType("float32"), DType("float64")
MOST_WEIGHT_BYTES = 600_000_000
"""Above this much, converting the weights costs more disk than the reference run is worth."""


def to_double(module: Module) -> Module | str:
    """The float64 twin, or why there is none."""
    for graph in module.graphs.values():
        for node in graph:
            reason = _obstacle(node, graph)
            if reason:
                return reason
    if _weight_bytes(module) > MOST_WEIGHT_BYTES:
        return f"its weights exceed {MOST_WEIGHT_BYTES:,} bytes"
    twin = module.copy()
    for graph in twin.graphs.values():
        for name in graph.order():
            if graph.node(name).op in BATCH_NORMS:
                _open_batch_norm(twin, graph, name)
        for name in graph.order():
            node = graph.node(name)
            graph.set_attrs(name, {key: _attr(value, module.stores) for key, value in node.attrs.items()})
            graph.set_types(name, [_type(t) for t in node.types])
    twin.variables = {name: _variable(v, module.stores) for name, v in module.variables.items()}
    return twin


def _obstacle(node: Node, graph: Graph) -> str:
    touches = any(_single(t) for t in (*node.types, *graph.operand_types(node.name)))
    if not touches or node.op in (INPUT, "Const", "Variable"):
        return ""
    if node.op in BATCH_NORMS:
        return _batch_norm_obstacle(node, graph)
    known = spec(node.op)
    if known is None:
        return f"{node.op} is opaque"
    return "" if known.double else f"{node.op} has no float64 kernel"


def _batch_norm_obstacle(node: Node, graph: Graph) -> str:
    """Inference over the last axis opens into arithmetic; anything else has no float64 form here."""
    attrs = attrs_with_defaults(node)
    if attrs.get("is_training") is not False or attrs.get("data_format") not in ("NHWC", "NDHWC"):
        return f"{node.op} in training, or with channels first, has no float64 kernel"
    used = [port for port in range(1, len(node.types)) if graph.needs(Value(node.name, port)).anyone]
    return f"the statistics of {node.op} {node.name!r} are used" if used else ""


def _open_batch_norm(module: Module, graph: Graph, name: str) -> None:
    """FusedBatchNorm(x, s, o, m, v)  =>  (x - m) * (s * rsqrt(v + epsilon)) + o"""
    node = graph.node(name)
    emitter = Emitter(module, graph)
    x, scale, offset, mean, variance = graph.operands(name)

    def add(op: str, *operands: Value) -> Value:
        return emitter.add(op, operands, name=f"{name}/{op.lower()}", device=node.device, origin=node.origin, controls=graph.controls(name))

    epsilon = emitter.constant(module.stores.constant(np.asarray(attrs_with_defaults(node)["epsilon"], np.float32)), name=f"{name}/epsilon")
    inverse = add("Mul", scale, add("Rsqrt", add("AddV2", variance, epsilon)))
    made = add("AddV2", add("Mul", add("Sub", x, mean), inverse), offset)
    graph.replace_uses(Value(name), made)
    graph.set_operands(name, ())
    for user in graph.needs(name).control:
        graph.set_control(user, [*(c for c in graph.controls(user) if c != name), made.node])
    graph.remove(name)


def _single(type_: TensorType) -> bool:
    return type_.dtype == _SINGLE or (type_.handle is not None and _single(type_.handle))


def _weight_bytes(module: Module) -> int:
    literals = [a for g in module.graphs.values() for n in g for a in n.attrs.values() if isinstance(a, WeightRef)]
    return sum(literal_bytes(a) for a in literals) + sum(
        literal_bytes(v.initial) for v in module.variables.values() if v.initial is not None
    )


def _type(type_: TensorType) -> TensorType:
    handle = None if type_.handle is None else _type(type_.handle)
    return replace(type_, dtype=_DOUBLE if type_.dtype == _SINGLE else type_.dtype, handle=handle)


def _attr(value: Attr, stores: Stores) -> Attr:
    if isinstance(value, tuple):
        return tuple(_attr(v, stores) for v in value)
    if isinstance(value, DType):
        return _DOUBLE if value == _SINGLE else value
    return _literal(value, stores) if isinstance(value, Tensor | Splat | WeightRef) else value


def _literal(value: Literal, stores: Stores) -> Literal:
    if value.dtype != _SINGLE:
        return value
    return stores.constant(np.asarray(stores.load(value)).astype(np.float64))


def _variable(variable: Variable, stores: Stores) -> Variable:
    initial = None if variable.initial is None else _literal(variable.initial, stores)
    return replace(variable, type=_type(variable.type), initial=initial)
