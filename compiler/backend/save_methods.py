"""The object's own methods around compiled entries: `model.serve(x)` keeps its arguments and the structure of its result.

signature "serving_default" = wrapper that calls trace t;  t is a trace of `serve`  =>  new `serve` with the entry in t's place

A method is remade only where the signature's graph shows, wire by wire, that it calls that very trace, or one with an equal body on the
same state (TensorFlow traces a method once more when it saves), or where both are proven to compute the same: equal types prove nothing.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import tensorflow as tf

from compiler.backend.save_proof import proven

Call: TypeAlias = Callable[[Mapping[str, Any]], dict[str, Any]]
_CALLS = ("PartitionedCall", "StatefulPartitionedCall")
_TRANSPARENT = ("Placeholder", "Identity", "NoOp")


@dataclass(frozen=True)
class Layer:
    """A function inside a signature: what it computes, the key or captured tensor behind each argument, the key of each result."""

    body: str
    entry: str
    arguments: tuple[str | int, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True)
class Trace:
    """A method's trace, the entry that replaces it, and the entry's keys in the trace's flat order."""

    function: Any
    entry: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


def methods_for(root: Any, keys: Sequence[str], kept: Sequence[str], calls: Mapping[str, Call]) -> dict[str, Any]:
    """A `tf.function` for each method of `root` that some entry computes, traced as the original was, and those of kept signatures."""
    found: dict[str, Any] = {}
    signatures = {key: root.signatures[key] for key in keys if key in getattr(root, "signatures", {})}
    compiled = [layer for key, signature in signatures.items() for layer in _layers(key, signature)]
    spared = [layer for key in kept for layer in _layers(key, root.signatures[key])]
    for name, method in methods_of(root):
        functions = method.concrete_functions
        traces = [trace for function in functions for trace in _matches(function, compiled) or _proven(function, signatures)]
        if traces:
            found[name] = _remade(name, method, traces, calls)
        elif functions and all(_matches(function, spared) for function in functions):
            found[name] = method
    return found


def _matches(function: Any, layers: Sequence[Layer]) -> list[Trace]:
    """The function as a trace of the layers that are the same function on the same state."""
    definition = function.function_def
    body = _Bodies(function.graph.as_graph_def().library.function).digest_of(definition)
    captured = tuple(id(tensor) for tensor in function.captured_inputs)
    free = len(definition.signature.input_arg) - len(captured)
    return [
        Trace(function, layer.entry, tuple(str(key) for key in layer.arguments[:free]), layer.outputs)
        for layer in layers
        if layer.body == body and layer.arguments[free:] == captured and all(isinstance(key, str) for key in layer.arguments[:free])
    ]


def _proven(function: Any, signatures: Mapping[str, Any]) -> list[Trace]:
    """The function as a trace of an entry whose results are its own, if there is one."""
    for key, signature in signatures.items():
        found = proven(function, signature)
        if found is not None:
            return [Trace(function, key, *found)]
    return []


class _Bodies:
    """Functions by what they compute: a digest of the body that names of functions and arguments do not enter."""

    def __init__(self, functions: Iterable[Any]) -> None:
        self.by_name = {function.signature.name: function for function in functions}
        self._digests: dict[str, str] = {}

    def digest(self, name: str) -> str:
        if name not in self._digests:
            self._digests[name] = name  # what a recursive function sees of itself
            self._digests[name] = self.digest_of(self.by_name[name]) if name in self.by_name else name
        return self._digests[name]

    def digest_of(self, definition: Any) -> str:
        plain = type(definition)()
        plain.CopyFrom(definition)
        plain.signature.name = ""
        for field in ("arg_attr", "attr", "resource_arg_unique_id"):
            plain.ClearField(field)
        for node in plain.node_def:
            node.ClearField("experimental_debug_info")
            for value in node.attr.values():
                for called in [value.func] if value.HasField("func") else value.list.func:
                    called.name = self.digest(called.name)
        return hashlib.sha256(plain.SerializeToString(deterministic=True)).hexdigest()


def methods_of(root: Any) -> Iterator[tuple[str, Any]]:
    for name, child in sorted(tf.train.TrackableView.children(root).items()):
        if hasattr(child, "concrete_functions") and name.isidentifier():
            yield name, child


def _layers(key: str, signature: Any) -> list[Layer]:
    """The functions a signature is made of, one inside the other, as long as each is nothing but a call of the next."""
    arguments: list[str | int] = [*(signature._arg_keywords or ()), *(id(tensor) for tensor in signature.captured_inputs)]
    if len(signature.inputs) != len(arguments) or len(signature.outputs) != len(signature.structured_outputs):
        return []  # values of several tensors, or of none
    feeds = {tensor.op.name: argument for tensor, argument in zip(signature.inputs, arguments, strict=True)}
    fetches = {tensor.name: name for tensor, name in zip(signature.outputs, sorted(signature.structured_outputs), strict=True)}
    graph_def = signature.graph.as_graph_def()
    bodies = _Bodies(graph_def.library.function)
    found: list[Layer] = []
    peeled = _peeled(list(graph_def.node), feeds, fetches)
    while peeled is not None:
        called, inputs, outputs = peeled
        found.append(Layer(bodies.digest(called), key, inputs, outputs))
        body = bodies.by_name[called]
        feeds = {argument.name: value for argument, value in zip(body.signature.input_arg, inputs, strict=True)}
        fetches = {body.ret[result.name]: name for result, name in zip(body.signature.output_arg, outputs, strict=True)}
        peeled = _peeled(list(body.node_def), feeds, fetches)
    return found


def _peeled(
    nodes: list[Any], feeds: Mapping[str, str | int], fetches: Mapping[str, str]
) -> tuple[str, tuple[str | int, ...], tuple[str, ...]] | None:
    """(function called, what feeds each argument, key of each result) of a body that is nothing but one call."""
    calls = [node for node in nodes if node.op in _CALLS]
    if len(calls) != 1 or any(node.op not in (*_CALLS, *_TRANSPARENT) for node in nodes):
        return None
    call = calls[0]
    identities = {node.name: node.input[0] for node in nodes if node.op == "Identity"}
    sources = [_traced_back(name, identities) for name in call.input if not name.startswith("^")]
    by_port: dict[int, str] = {}
    for tensor, key in fetches.items():
        node, _, port = _traced_back(tensor, identities).partition(":")
        if node != call.name:
            return None
        by_port[int(port.rpartition(":")[2] or 0)] = key
    count = len(call.attr["Tout"].list.type)
    if set(by_port) != set(range(count)) or sorted(sources) != sorted(feeds):
        return None
    return call.attr["f"].func.name, tuple(feeds[source] for source in sources), tuple(by_port[port] for port in range(count))


def _traced_back(tensor: str, identities: Mapping[str, str]) -> str:
    """The tensor that identities hand on; an argument by its bare name."""
    while (node := tensor.partition(":")[0]) in identities:
        tensor = identities[node]
    return tensor


def _remade(name: str, method: Any, traces: Sequence[Trace], calls: Mapping[str, Call]) -> Any:
    spec = method.function_spec.fullargspec if hasattr(method, "function_spec") else method._function_spec.fullargspec
    signature = _signature(spec)

    def run(*args: Any, **kwargs: Any) -> Any:
        leaves = _leaves(signature, args, kwargs)
        trace = next(t for t in traces if _fits(_leaves(signature, *t.function.structured_input_signature), leaves))
        tensors = [leaf for leaf in leaves if tf.is_tensor(leaf)]
        results = calls[trace.entry](dict(zip(trace.inputs, tensors, strict=True)))
        structure = trace.function.structured_outputs
        return tf.nest.pack_sequence_as(structure, [results[key] for key in trace.outputs], expand_composites=True)

    run.__name__ = run.__qualname__ = f"method_{name.strip('_')}"
    run.__signature__ = signature  # type: ignore[attr-defined]
    remade = tf.function(run, autograph=False)
    for trace in traces:
        args, kwargs = trace.function.structured_input_signature
        remade.get_concrete_function(*args, **kwargs)
    return remade


def _leaves(signature: inspect.Signature, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    """The tensors or specs, and the literals, of a call's arguments in the signature's order, defaults among them."""
    bound = signature.bind(*args, **kwargs)
    bound.apply_defaults()
    return list(tf.nest.flatten(list(bound.arguments.values()), expand_composites=True))


def _fits(wanted: Sequence[Any], given: Sequence[Any]) -> bool:
    """Does a call with these leaves mean the trace with those?  Literals are part of what was traced."""
    return len(wanted) == len(given) and all(_agree(a, b) for a, b in zip(wanted, given, strict=True))


def _agree(wanted: Any, given: Any) -> bool:
    if isinstance(wanted, tf.TensorSpec):
        return tf.is_tensor(given) and wanted.dtype == given.dtype and bool(wanted.shape.is_compatible_with(given.shape))
    return type(wanted) is type(given) and bool(wanted == given)


def _signature(spec: inspect.FullArgSpec) -> inspect.Signature:
    """The method's arguments under their names, `self` left out."""
    names = [name for name in spec.args if name != "self"]
    defaults = dict(zip(reversed(names), reversed(spec.defaults or ()), strict=False))
    kinds = inspect.Parameter
    parameters = [kinds(name, kinds.POSITIONAL_OR_KEYWORD, default=defaults.get(name, kinds.empty)) for name in names]
    if spec.varargs:
        parameters.append(kinds(spec.varargs, kinds.VAR_POSITIONAL))
    for name in spec.kwonlyargs:
        parameters.append(kinds(name, kinds.KEYWORD_ONLY, default=(spec.kwonlydefaults or {}).get(name, kinds.empty)))
    if spec.varkw:
        parameters.append(kinds(spec.varkw, kinds.VAR_KEYWORD))
    return inspect.Signature(parameters)
