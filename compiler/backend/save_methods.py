"""The object's own methods around compiled entries: `model.serve(x)` keeps its arguments and the structure of its result.

signature "serving_default" = wrapper that calls trace t;  t is a trace of `serve`  =>  new `serve` with the entry in t's place

A method is remade only where the signature's graph shows, wire by wire, that it calls that very trace: equal types prove nothing.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import tensorflow as tf

Call: TypeAlias = Callable[[Mapping[str, Any]], dict[str, Any]]
_CALLS = ("PartitionedCall", "StatefulPartitionedCall")


@dataclass(frozen=True)
class Trace:
    """A method's trace, the entry that replaces it, and the entry's keys in the trace's flat order."""

    function: Any
    entry: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


def methods_for(root: Any, keys: Sequence[str], calls: Mapping[str, Call]) -> dict[str, Any]:
    """A `tf.function` for each method of `root` that some entry computes, traced as the original was."""
    found: dict[str, Any] = {}
    wired = [trace for key in keys if key in getattr(root, "signatures", {}) for trace in _wires(key, root.signatures[key])]
    for name, method in _methods(root):
        traces = [Trace(f, t.entry, t.inputs, t.outputs) for f in method.concrete_functions for t in wired if _same(f, t.function)]
        if traces:
            found[name] = _remade(name, method, traces, calls)
    return found


def _methods(root: Any) -> Iterator[tuple[str, Any]]:
    for name, child in sorted(tf.train.TrackableView.children(root).items()):
        if hasattr(child, "concrete_functions") and name.isidentifier():
            yield name, child


def _same(function: Any, called: str) -> bool:
    return bool(function.name == called or function.name.encode() == called)


def _wires(key: str, signature: Any) -> list[Trace]:
    """The one function a signature's wrapper calls, with which key feeds each argument and reads each result."""
    operations = signature.graph.get_operations()
    calls = [operation for operation in operations if operation.type in _CALLS]
    if len(calls) != 1:
        return []
    by_tensor = {tensor.name: name for tensor, name in zip(signature.inputs, signature._arg_keywords or (), strict=False)}
    call = calls[0]
    inputs = tuple(by_tensor[_origin(tensor).name] for tensor in call.inputs if _origin(tensor).name in by_tensor)
    outputs = sorted(signature.structured_outputs)
    by_port = {_origin(tensor).name: name for tensor, name in zip(signature.outputs, outputs, strict=True)}
    ports = tuple(by_port.get(tensor.name, "") for tensor in call.outputs)
    return [Trace(call.get_attr("f").name, key, inputs, ports)] if all(ports) else []


def _origin(tensor: Any) -> Any:
    while tensor.op.type == "Identity":
        tensor = tensor.op.inputs[0]
    return tensor


def _remade(name: str, method: Any, traces: Sequence[Trace], calls: Mapping[str, Call]) -> Any:
    def run(*args: Any, **kwargs: Any) -> Any:
        tensors = [leaf for leaf in tf.nest.flatten((args, kwargs), expand_composites=True) if tf.is_tensor(leaf)]
        trace = next(t for t in traces if _fits(t, tensors))
        results = calls[trace.entry](dict(zip(trace.inputs, tensors, strict=True)))
        structure = trace.function.structured_outputs
        return tf.nest.pack_sequence_as(structure, [results[key] for key in trace.outputs], expand_composites=True)

    run.__name__ = run.__qualname__ = f"method_{name.strip('_')}"
    spec = method.function_spec.fullargspec if hasattr(method, "function_spec") else method._function_spec.fullargspec
    run.__signature__ = _signature(spec)  # type: ignore[attr-defined]
    remade = tf.function(run, autograph=False)
    for trace in traces:
        args, kwargs = trace.function.structured_input_signature
        remade.get_concrete_function(*args, **kwargs)
    return remade


def _fits(trace: Trace, tensors: Sequence[Any]) -> bool:
    specs = [
        spec
        for spec in tf.nest.flatten(trace.function.structured_input_signature, expand_composites=True)
        if isinstance(spec, tf.TensorSpec)
    ]
    return len(specs) == len(tensors) and all(
        spec.dtype == tensor.dtype and spec.shape.is_compatible_with(tensor.shape) for spec, tensor in zip(specs, tensors, strict=True)
    )


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
