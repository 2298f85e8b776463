"""The process that writes a SavedModel: `python -m compiler.backend.save_child JOB.json`, by `saved_model.py`.

original's state + emitted entries  =>  signatures and methods around the entries, the state they use, in TensorFlow's own format

It ends with status 0, or with one line on its standard error and status 1.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import graph_pb2, tensor_pb2
from tensorflow.python.framework import ops
from tensorflow.python.trackable.autotrackable import AutoTrackable

from compiler.backend.child import configure_tensorflow
from compiler.backend.frames import mapped
from compiler.backend.importing import call_graph
from compiler.backend.loaded import is_stateful
from compiler.backend.save_methods import methods_for, methods_of
from compiler.backend.save_state import Original, by_capture, handle_of, load_original, rebuild, setup_functions
from compiler.backend.save_values import hollow_variable, rewrite_checkpoint
from compiler.execution import FileTensor, RuntimeConfig
from compiler.ir.errors import CleaveError

Json: TypeAlias = dict[str, Any]


def main(arguments: list[str]) -> int:
    job = json.loads(Path(arguments[0]).read_text())
    configure_tensorflow(RuntimeConfig(devices=job["devices"]))
    try:
        save(job)
    except CleaveError as error:
        sys.stderr.write(f"cleave: {error}\n")
        return 1
    return 0


def save(job: Json) -> None:
    source = job["original"]
    original = load_original(source["path"], tuple(source["tags"])) if source is not None else Original()
    state = State(job["variables"], original, job["names"])
    entries = {entry["key"]: _callable(entry, state, _declared(original, entry["key"])) for entry in job["entries"]}
    signatures = {entry["key"]: _traced(entry, entries[entry["key"]]) for entry in job["entries"]}
    for alias, key in job["aliases"].items():
        entries[alias] = entries[key]
        signatures[alias] = _traced({**next(e for e in job["entries"] if e["key"] == key), "key": alias}, entries[key])
    kept = {key: original.root.signatures[key] for key in job["keep"]}
    methods = methods_for(original.root, list(entries), job["keep"], entries) if original.root is not None else {}
    setup = [function for item in state.old for function in setup_functions(item)]
    setup += [original.root.initializer._init_fn] if original.nodes else []
    needed = [*state.old, *by_capture(original, [*kept.values(), *setup])]
    untouched = _untouched(original, needed, methods)
    held = [*needed, *by_capture(original, [f for method in untouched.values() for f in method.concrete_functions])]
    root = rebuild(original, _distinct(held)) if original.root is not None else AutoTrackable()
    state.attach(root)
    if original.nodes:
        root.initializer, root.asset_paths = original.root.initializer, original.root.asset_paths
    for name, method in {**methods, **untouched}.items():
        setattr(root, name, method)
    policy = tf.saved_model.experimental.VariablePolicy.SAVE_VARIABLE_DEVICES if job["variable_devices"] else None
    options = tf.saved_model.SaveOptions(experimental_variable_policy=policy, experimental_custom_gradients=False)
    tf.saved_model.save(root, job["out"], signatures={**kept, **signatures}, options=options)
    shared = (original.root, original.checkpoint) if original.checkpoint is not None else None
    rewrite_checkpoint(Path(job["out"]), root, state.values, shared)
    every = [name for name, _ in methods_of(original.root)] if original.root is not None else []
    dropped = [name for name in every if name not in methods and name not in untouched]
    Path(job["report"]).write_text(json.dumps({"methods": sorted(methods), "untouched": sorted(untouched), "dropped": dropped}))


def _untouched(original: Original, held: list[Any], methods: Mapping[str, Any]) -> dict[str, Any]:
    """The original's other methods that change nothing, or only what is there anyway: they and the variables they read stay as they are.

    A variable that nobody holds may be a constant in the entries by now, so what writes to it cannot stay.
    """
    found = {}
    present = {id(handle_of(item)) for item in held}
    for name, method in methods_of(original.root) if original.root is not None else ():
        functions = method.concrete_functions
        resources = [tensor for function in functions for tensor in function.captured_inputs if tensor.dtype == tf.resource]
        reads = not any(is_stateful(function.graph.as_graph_def()) for function in functions)
        if name not in methods and functions and (reads or all(id(tensor) in present for tensor in resources)):
            found[name] = method
    return found


class State:
    """The variables, tables and assets that entries capture: the original's own, or new ones with the module's values."""

    def __init__(self, declared: Mapping[str, Json], original: Original, names: Mapping[str, str]) -> None:
        self._declared, self._original, self._names = declared, original, names
        self._made: dict[str, tf.Variable] = {}
        self.old: list[Any] = []
        self.values: list[tuple[tf.Variable, Callable[[], Any]]] = []
        """New variables, which are empty, and what they hold."""

    def handle(self, kind: str, ref: str) -> Any:
        """A tensor of the graph being built that stands for the state."""
        graph = ops.get_default_graph()
        if kind == "Resource" and ref in self._original.nodes:
            return self._table(graph, ref)
        item = self._variable(ref) if kind == "Variable" else self._resource(ref)
        return graph.capture(handle_of(item))

    def _variable(self, ref: str) -> tf.Variable:
        if ref in self._made:
            return self._made[ref]
        declared = self._declared[ref]
        found = self._original.find(self._names.get(ref, ref))
        if isinstance(found, tf.Variable) and found.dtype.name == declared["dtype"] and found.shape.is_compatible_with(declared["shape"]):
            self.old.append(found)
            self._made[ref] = found
        else:
            self._made[ref] = _new_variable(ref, declared)
            self.values.append((self._made[ref], partial(_array, declared["value"])))
        return self._made[ref]

    def _resource(self, ref: str) -> Any:
        found = self._original.find(self._names.get(ref, ref))
        if found is None or isinstance(found, tf.Variable):
            raise CleaveError(f"the original has no table or asset {ref!r}; it has {sorted(self._original.known)[:8]}")
        self.old.append(found)
        return found

    def _table(self, graph: Any, ref: str) -> Any:
        node = self._original.nodes[ref]
        if node.name not in {operation.name for operation in graph.get_operations()}:
            tf.graph_util.import_graph_def(graph_pb2.GraphDef(node=[node]), name="")
        return graph.get_tensor_by_name(f"{node.name}:0")

    def share_tables(self, graph_def: graph_pb2.GraphDef) -> None:
        """Tables that stand in the graph itself are those the original's initializers fill."""
        bodies = (node for function in graph_def.library.function for node in function.node_def)
        for node in [*graph_def.node, *bodies]:
            shared = node.attr["shared_name"].s.decode(errors="replace") if "shared_name" in node.attr else ""
            if shared in self._original.nodes:
                node.attr["shared_name"].s = self._original.nodes[shared].attr["shared_name"].s
            elif shared in self._original.tables:
                loaded, item = self._original.tables[shared]
                node.attr["shared_name"].s = loaded.encode()
                self.old.append(item)

    def attach(self, root: Any) -> None:
        """New variables hang under `weights`, by their names."""
        new = {ref: variable for ref, variable in self._made.items() if not any(variable is old for old in self.old)}
        if new:
            holder = AutoTrackable()
            for ref, variable in sorted(new.items()):
                holder._track_trackable(variable, name=ref)
            root._track_trackable(holder, name="weights", overwrite=True)


def _new_variable(ref: str, declared: Json) -> tf.Variable:
    if declared["value"] is None:
        raise CleaveError(f"variable {ref!r} is neither in the original nor has it a value")
    with tf.init_scope(), tf.device(declared["device"] or None):
        return hollow_variable(tf.TensorShape(declared["shape"]), declared["dtype"], declared["name"], declared["trainable"])


def _array(value: Json) -> Any:
    if "proto" in value:
        return tf.make_ndarray(tensor_pb2.TensorProto.FromString(Path(value["proto"]).read_bytes()))
    region = None if value["region"] is None else tuple((start, size) for start, size in value["region"])
    return np.asarray(mapped(FileTensor(value["path"], value["offset"], value["dtype"], tuple(value["shape"]), region)))


def _declared(original: Original, key: str) -> dict[str, tf.TensorShape]:
    """The shapes that the original's signature states for its outputs: whoever reads the result's is told no less."""
    signature = getattr(original.root, "signatures", {}).get(key)
    outputs = signature.structured_outputs if signature is not None else None
    return {name: tensor.shape for name, tensor in outputs.items() if hasattr(tensor, "shape")} if isinstance(outputs, dict) else {}


def _callable(entry: Json, state: State, declared: Mapping[str, tf.TensorShape]) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """(inputs by key) -> outputs by key, in the graph being traced."""
    graph_def = graph_pb2.GraphDef.FromString(Path(entry["graph"]).read_bytes())
    state.share_tables(graph_def)

    def call(inputs: Mapping[str, Any]) -> dict[str, Any]:
        feeds = {item["tensor"]: inputs[item["key"]] for item in entry["inputs"]}
        feeds |= {capture["tensor"]: state.handle(capture["kind"], capture["ref"]) for capture in entry["captures"]}
        results = call_graph(graph_def, feeds, [item["tensor"] for item in entry["outputs"]])
        for item, result in zip(entry["outputs"], results, strict=True):
            known = declared.get(item["key"], tf.TensorShape(None))
            result.set_shape(item["shape"])
            if result.shape.is_compatible_with(known):
                result.set_shape(known)
        return {item["key"]: result for item, result in zip(entry["outputs"], results, strict=True)}

    return call


def _traced(entry: Json, call: Callable[[Mapping[str, Any]], dict[str, Any]]) -> Any:
    """The signature's function. Its keys are the names of its arguments' specs, which unlike Python's may be anything."""

    def run(**inputs: Any) -> dict[str, Any]:
        return call({item["key"]: inputs[f"input_{i}"] for i, item in enumerate(entry["inputs"])})

    run.__name__ = run.__qualname__ = f"entry_{''.join(c if c.isalnum() else '_' for c in entry['key'])}"
    specs = {f"input_{i}": tf.TensorSpec(item["shape"], item["dtype"], name=item["key"]) for i, item in enumerate(entry["inputs"])}
    return tf.function(run, autograph=False).get_concrete_function(**specs)


def _distinct(items: list[Any]) -> list[Any]:
    found: list[Any] = []
    for item in items:
        if not any(item is other for other in found):
            found.append(item)
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
