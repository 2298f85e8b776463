"""tf.functions and ConcreteFunctions: saved with the state they capture, then read like any SavedModel.

f(x) -> (u, {"b": v})   =>   signature serving_default(x) -> (output_0 = u, output_1_b = v)
"""

from __future__ import annotations

import gc
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tensorflow as tf
from tensorflow.python.eager.polymorphic_function.concrete_function import ConcreteFunction
from tensorflow.python.trackable.resource import CapturableResource
from tensorflow.python.util import nest

from compiler.frontend import saved_model
from compiler.frontend.source import SourceModel
from compiler.ir.errors import CleaveError


def is_function(model: Any) -> bool:
    return isinstance(model, ConcreteFunction) or hasattr(model, "get_concrete_function")


def load(model: Any, signature: str | None = None, allow_files: bool = False, label: str | None = None) -> SourceModel:
    """Save the function, with every variable and table it captures, as signature `serving_default`, and read that."""
    label = label or f"function {getattr(model, '__name__', 'concrete')!r}"
    work = Path(tempfile.mkdtemp(prefix="cleave-function-"))
    try:
        concrete = _concrete(model)
        root = tf.Module()
        root.captured = _variables(concrete)
        root.tracked = _resources(concrete)
        tf.saved_model.save(root, str(work / "model"), signatures=flat(concrete))
    except CleaveError:
        raise
    except Exception as error:  # tracing runs the user's Python
        raise CleaveError(f"{label} cannot be saved: {' '.join(str(error).split())[:300]}") from None
    source = saved_model.load(work / "model", signature, None, allow_files, label)
    source.arguments, source.results = interface_of(concrete, source)
    return source.owns(work)


def interface_of(concrete: Any, source: SourceModel) -> tuple[tuple[str, ...], Any]:
    """The input keys of a source's only signature in the order its function takes them, and the structure it returns."""
    inputs = next(iter(source.signatures.values())).inputs
    return tuple(key for key in concrete._arg_keywords if key in inputs), _keys(concrete.structured_outputs)


def _concrete(model: Any) -> Any:
    if isinstance(model, ConcreteFunction):
        return model
    if getattr(model, "input_signature", None) is None:
        traced = model._list_all_concrete_functions() if hasattr(model, "_list_all_concrete_functions") else []
        if len(traced) == 1:
            return traced[0]
        state = f"{len(traced)} traces" if traced else "no trace"
        raise CleaveError(f"the tf.function has no input_signature and {state}, expected one of these; pass `f.get_concrete_function(...)`")
    return model.get_concrete_function()


def flat(concrete: Any) -> Any:
    """The same function with named tensors as results, which is all a signature can say."""
    results = concrete.structured_outputs
    tops = results.values() if isinstance(results, dict) else results if isinstance(results, list | tuple) else [results]
    if all(isinstance(top, tf.Tensor) for top in tops):
        return concrete
    flat_inputs = nest.flatten(concrete.structured_input_signature, expand_composites=True)
    specs = [spec for spec in flat_inputs if isinstance(spec, tf.TensorSpec)]

    def run(**inputs: Any) -> dict[str, Any]:
        return _named(concrete(**inputs))

    named = {key: tf.TensorSpec(spec.shape, spec.dtype, name=key) for key, spec in zip(concrete._arg_keywords, specs, strict=True)}
    return tf.function(run, autograph=False).get_concrete_function(**named)


def _named(results: Any) -> dict[str, Any]:
    """Every tensor of a structure under its path: `a_0` in {"a": [t]}, `output_1` in (s, t); a ragged one's parts are `output_0_0`, ..."""
    found: dict[str, Any] = {}
    every = [pair for name, item in _leaves(results) for pair in zip(_names(name, item), _parts(item), strict=True)]
    for name, tensor in every:
        found[name] = tensor
    if len(found) != len(every):
        raise CleaveError(f"results share a name in {sorted(name for name, _ in every)}, expected distinct paths")
    return found


def _leaves(results: Any) -> list[tuple[str, Any]]:
    """Tensors and composites with their names, None left out."""
    pairs = nest.flatten_with_joined_string_paths(results, separator="_")
    return [(f"{_prefix(results)}{path or 0}", item) for path, item in pairs if item is not None]


def _names(name: str, item: Any) -> list[str]:
    return [f"{name}_{i}" for i in range(len(_parts(item)))] if _is_composite(item) else [name]


def _parts(item: Any) -> list[Any]:
    return list(tf.nest.flatten(item, expand_composites=True)) if _is_composite(item) else [item]


def _is_composite(item: Any) -> bool:
    return isinstance(item, tf.__internal__.CompositeTensor) or (isinstance(item, tf.TypeSpec) and not isinstance(item, tf.TensorSpec))


def _prefix(results: Any) -> str:
    """Dictionaries and named tuples name their results themselves."""
    return "" if isinstance(results, dict) or hasattr(results, "_fields") else "output_"


@dataclass(frozen=True)
class Composite:
    """A ragged or sparse result in the structure of results: made of the outputs with these keys."""

    spec: Any
    keys: tuple[str, ...]

    def __call__(self, outputs: Mapping[str, Any]) -> Any:
        return tf.nest.pack_sequence_as(self.spec, [outputs[key] for key in self.keys], expand_composites=True)


def _keys(results: Any) -> Any:
    """The structure of the results with each tensor's output key in its place."""
    leaves = iter(_leaves(results))
    return nest.pack_sequence_as(results, [None if item is None else _key(*next(leaves)) for item in nest.flatten(results)])


def _key(name: str, item: Any) -> Any:
    if not _is_composite(item):
        return name
    return Composite(item if isinstance(item, tf.TypeSpec) else tf.type_spec_from_value(item), tuple(_names(name, item)))


def _variables(concrete: Any) -> list[Any]:
    """In the order of their capture, which unlike the graph's own list is the same in each process."""
    order = {id(external): index for index, (external, _) in enumerate(concrete.graph.captures)}
    return sorted(concrete.graph.variables, key=lambda v: (order.get(id(v.handle), len(order)), v.name))


def _resources(concrete: Any) -> list[Any]:
    """Tables and the like that the function captured.  It holds their handles alone, so their owners are looked for among all objects."""
    handles = [external for external, _ in concrete.graph.captures if external.dtype == tf.resource]
    owners = [item for item in gc.get_objects() if handles and issubclass(type(item), CapturableResource)]
    return [item for handle in handles for item in owners if getattr(item, "_resource_handle", None) is handle]
