"""A module's entry as a Python callable: `function({"x": array})` => `{"y": tensor}`, state kept from call to call.

In this process where it has the devices and the module owns its state; else the same artefact a user would get, in a child of the pool.
TensorFlow fixes logical devices at first use, so a process that has used it can no longer be given more.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.eager import context
from tensorflow.python.framework import ops

from compiler.backend.graphdef import Emission, emit_called, serialize
from compiler.backend.importing import call_graph
from compiler.backend.pool import Pool
from compiler.backend.profiles import PROFILES, Profile
from compiler.backend.saved_model import Original, processor_index, save
from compiler.execution import Array, Arrays, RuntimeConfig, SavedModelArtefact
from compiler.ir.errors import CleaveError
from compiler.ir.graph import FunctionRef
from compiler.ir.module import Module
from compiler.ir.types import TensorType

EntryFunction = Callable[[Mapping[str, Any]], dict[str, Any]]


def build_callable(
    module: Module, entry: str, pool: Pool, original: Original | None = None, profile: Profile = PROFILES["tf"]
) -> EntryFunction:
    """The entry, ready to be called with tensors or arrays by input name."""
    emission = emit_called(module, entry, profile)
    if _owns_state(module, emission) and has_devices(devices_of(module, entry)):
        return local_callable(module, entry, profile)
    return ChildFunction(module, entry, pool, original, profile)


def devices_of(module: Module, entry: str) -> int:
    """How many CPU devices the entry and what it calls are placed on."""
    graph = module.entries[entry]
    graphs = [graph, *(module.function(FunctionRef(name)) for name in module.reachable_functions([graph]))]
    return 1 + max((processor_index(node.device) for g in graphs for node in g), default=0)


def has_devices(count: int) -> bool:
    """Has this process as many logical CPUs?  One that has not used TensorFlow yet is given them."""
    if context.context()._context_handle is None and count > 1:
        processor = tf.config.list_physical_devices("CPU")[0]
        if tf.config.get_logical_device_configuration(processor) is None:
            tf.config.set_logical_device_configuration(processor, [tf.config.LogicalDeviceConfiguration()] * count)
    return len(tf.config.list_logical_devices("CPU")) >= count


def _owns_state(module: Module, emission: Emission) -> bool:
    return all(c.kind == "Variable" and module.variables[c.ref].initial is not None for c in emission.captures)


def local_callable(module: Module, entry: str, profile: Profile) -> EntryFunction:
    """A tf.function around the emitted graph, on variables of its own that hold the module's values."""
    plain = emit_called(module, entry, profile)
    digest = hashlib.sha256(serialize(plain.graph_def)).hexdigest()[:16]
    emission = emit_called(module, entry, profile, namespace=f"cleave_{digest}_")  # a process has one table of functions
    for function in emission.graph_def.library.function:
        context.context().add_function_def(function)  # importing a graph tells the graph of them, not the runtime
    variables = {c.ref: _variable(module, c.ref, profile) for c in emission.captures}
    graph = module.entries[entry]
    types = {name: graph.node(name).type for name in graph.inputs}
    shapes = {output.name: _shape(graph.type_of(output.value)) for output in graph.outputs}

    def traced(**inputs: Any) -> dict[str, Any]:
        held = {tensor: ops.get_default_graph().capture(variables[c.ref].handle) for c, tensor in emission.captures.items()}
        feeds = {emission.feeds[name]: tensor for name, tensor in inputs.items()}
        results = call_graph(emission.graph_def, feeds | held, list(emission.fetches.values()))
        for result, name in zip(results, emission.fetches, strict=True):
            result.set_shape(shapes[name])
        return dict(zip(emission.fetches, results, strict=True))

    specs = {name: tf.TensorSpec(_shape(type_), str(type_.dtype), name=name) for name, type_ in types.items()}
    concrete = tf.function(traced, autograph=False).get_concrete_function(**specs)
    return lambda inputs: dict(concrete(**{name: _tensor(name, inputs, type_) for name, type_ in types.items()}))


def _variable(module: Module, ref: str, profile: Profile) -> Any:
    variable = module.variables[ref]
    assert variable.initial is not None
    with tf.device(variable.device if profile.devices and variable.device else None):
        value = np.asarray(module.stores.load(variable.initial))
        return tf.Variable(value, trainable=variable.trainable, dtype=str(variable.type.dtype), shape=_shape(variable.type))


def _shape(type_: TensorType) -> Any:
    return tf.TensorShape(None if type_.shape is None else [dim if isinstance(dim, int) else None for dim in type_.shape])


def _tensor(name: str, inputs: Mapping[str, Any], type_: TensorType) -> Any:
    if name not in inputs:
        raise CleaveError(f"no input {name!r}, expected {type_}; given were {sorted(inputs)}")
    return tf.convert_to_tensor(inputs[name], dtype=str(type_.dtype))


class ChildFunction:
    """The entry as a SavedModel of its own, run in a child process; state stays there from call to call."""

    def __init__(self, module: Module, entry: str, pool: Pool, original: Original | None, profile: Profile) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="cleave-function-")
        saved = save(module, Path(self._directory.name) / "model", original=original, profile=profile)
        self._artefact = SavedModelArtefact(saved.path, signature=entry)
        self._config = RuntimeConfig(devices=devices_of(module, entry), grappler=True)
        self._pool = pool

    def __call__(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        return ArrayFunction(self._run)(inputs)

    def _run(self, arrays: Arrays) -> dict[str, Array]:
        (result,) = self._pool.run(self._artefact, [arrays], config=self._config, keep_state=True)
        if result.error is not None:
            raise CleaveError(str(result.error))
        return result.outputs


class ArrayFunction:
    """A function of arrays, elsewhere, as one of this process's tensors."""

    def __init__(self, function: Callable[[Arrays], Mapping[str, Array]]) -> None:
        self._function = function

    def __call__(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        arrays = {name: value.numpy() if hasattr(value, "numpy") else np.asarray(value) for name, value in inputs.items()}
        arrays = {name: array.astype(object) if array.dtype.kind in "SU" else array for name, array in arrays.items()}
        outputs = self._function(arrays)
        return {name: tf.constant(value, dtype=tf.string if value.dtype.kind == "O" else None) for name, value in outputs.items()}
