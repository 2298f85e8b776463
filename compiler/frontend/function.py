"""tf.functions and ConcreteFunctions: saved with the state they capture, then read like any SavedModel."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import tensorflow as tf
from tensorflow.python.eager.polymorphic_function.concrete_function import ConcreteFunction

from compiler.frontend import saved_model
from compiler.frontend.source import SourceModel
from compiler.ir.errors import CleaveError


def is_function(model: Any) -> bool:
    return isinstance(model, ConcreteFunction) or hasattr(model, "get_concrete_function")


def load(model: Any, signature: str | None = None, allow_files: bool = False) -> SourceModel:
    """Save the function, with every variable and table it captures, as signature `serving_default`, and read that."""
    concrete = _concrete(model)
    root = tf.Module()
    root.captured = list(concrete.graph.variables)
    root.tracked = [t for _, t in _trackables(concrete)]
    work = Path(tempfile.mkdtemp(prefix="cleave-function-"))
    try:
        tf.saved_model.save(root, str(work / "model"), signatures=concrete)
    except (ValueError, TypeError, AssertionError) as error:
        raise CleaveError(f"the function cannot be saved: {' '.join(str(error).split())[:300]}") from None
    source = saved_model.load(work / "model", signature, None, allow_files)
    source.label = f"function {getattr(model, '__name__', 'concrete')!r}"
    return source.owns(work)


def _concrete(model: Any) -> Any:
    if isinstance(model, ConcreteFunction):
        return model
    if getattr(model, "input_signature", None) is None:
        traced = model._list_all_concrete_functions() if hasattr(model, "_list_all_concrete_functions") else []
        if len(traced) == 1:
            return traced[0]
        raise CleaveError("the tf.function has no input_signature, expected one, or pass `f.get_concrete_function(...)`")
    return model.get_concrete_function()


def _trackables(concrete: Any) -> list[tuple[Any, Any]]:
    """Tables and other resources the function captured, found by their handles."""
    handles = {id(external) for external, _ in concrete.graph.captures}
    found = []
    for resource in getattr(concrete.graph, "_resource_tracker", ()) or ():
        if id(resource.resource_handle) in handles:
            found.append((resource.resource_handle, resource))
    return found
