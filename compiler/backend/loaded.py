"""A loaded SavedModel's callable as a function of named arrays, by `tf.saved_model.load`; the Session's side is in `session.py`.

leaf names: a signature's keywords, a method's arguments; inside a structure the path (`inputs/ids`), a composite's parts `x/0`, `x/1`

Everything is mapped by name. A missing, unknown or ill-typed input is refused in words before anything runs.
"""

import contextlib
import functools
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import tensorflow as tf
from tensorflow.core.function.polymorphism.function_type import sanitize_arg_name
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow.python.framework import op_def_registry

from compiler.execution import Array, Arrays, ErrorKind, SavedModelArtefact, TraceEvent

Trace = dict[str, tuple[TraceEvent, ...]]

# Ops with TensorFlow's stateful bit which change nothing a second run could see: reads, handles, immutable tables, and calls (whose bodies
# are looked at themselves).
_HARMLESS_NAMES = """
Placeholder PlaceholderWithDefault VarHandleOp ReadVariableOp VarIsInitializedOp VariableV2 Variable ResourceGather
ResourceGatherNd VariableShape HashTable HashTableV2 LookupTableFind LookupTableFindV2 LookupTableSize LookupTableSizeV2
InitializeTable InitializeTableV2 InitializeTableFromTextFile InitializeTableFromTextFileV2 LookupTableImport LookupTableImportV2
PartitionedCall StatefulPartitionedCall If While Case Assert Print PrintV2 RestoreV2 SaveV2 MergeV2Checkpoints ShardedFilename
NoOp TensorArrayV3 TensorArrayWriteV3 TensorArrayReadV3 TensorArrayGatherV3 TensorArrayScatterV3 TensorArraySizeV3
TensorArrayCloseV3 TensorArraySplitV3 TensorArrayConcatV3 TensorArrayGradV3 Stack StackV2 StackPushV2 StackPopV2
"""
_HARMLESS = frozenset(_HARMLESS_NAMES.split())


class RequestError(Exception):
    """A fault with a kind and one line to show, and the tasks of a cluster that are to blame."""

    def __init__(self, kind: ErrorKind, message: str, tasks: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.kind, self.tasks = kind, tasks


class Loaded(Protocol):
    """An artefact ready to be called. `stateful`: one run may change what the next one sees; `broken`: what it ran on is gone."""

    stateful: bool
    broken: bool

    def bind(self, inputs: Arrays) -> Callable[[], Any]: ...
    def outputs(self, raw: Any) -> dict[str, Array]: ...
    def variable_bytes(self) -> dict[str, int]: ...
    def variables(self, names: Sequence[str]) -> dict[str, Array]: ...
    def traced(self, inputs: Arrays) -> tuple[Any, Trace]: ...
    def close(self) -> None: ...


def is_stateful(graph_def: Any, setup: frozenset[str] = frozenset()) -> bool:
    """Whether a node, or one in a body it calls, may change state or draws from a stateful generator; `setup` nodes run at loading."""
    bodies = {function.signature.name: function.node_def for function in graph_def.library.function}
    waiting = [node for node in graph_def.node if node.name not in setup]
    reached: set[str] = set()
    operations: set[str] = set()
    while waiting:
        node = waiting.pop()
        operations.add(node.op)
        called = {node.op} | {name for value in node.attr.values() for name in _function_names(value)}
        for name in sorted(called & bodies.keys() - reached):
            reached.add(name)
            waiting += bodies[name]
    return any(_changes_state(op) for op in operations - _HARMLESS - reached)


def _function_names(value: Any) -> list[str]:
    return [value.func.name] if value.HasField("func") else [function.name for function in value.list.func]


def _changes_state(op: str) -> bool:
    definition = op_def_registry.get(op)
    return definition is None or bool(definition.is_stateful) or any(operand.is_ref for operand in definition.input_arg)


@dataclass(frozen=True)
class Leaf:
    """One tensor a callable takes."""

    key: str
    spec: tf.TensorSpec

    def __str__(self) -> str:
        shape = "unknown rank" if self.spec.shape.rank is None else ", ".join("?" if d is None else str(d) for d in self.spec.shape)
        return f"{self.key}: {self.spec.dtype.name}[{shape}]"


def match_inputs(leaves: Sequence[Leaf], inputs: Arrays) -> dict[str, Array]:
    """The arrays by key, quantized types restored; RequestError names the first misfit and what was expected."""
    expected = "; ".join(map(str, leaves)) or "nothing"
    wanted = {leaf.key for leaf in leaves}
    for name in sorted(wanted - set(inputs)):
        raise RequestError("input", f"no input {name!r}; expected {expected}")
    for name in sorted(set(inputs) - wanted):
        raise RequestError("input", f"unknown input {name!r}; expected {expected}")
    return {leaf.key: _match_input(leaf, inputs[leaf.key]) for leaf in leaves}


def _match_input(leaf: Leaf, array: Array) -> Array:
    if not leaf.spec.shape.is_compatible_with(array.shape):
        raise RequestError("input", f"input {leaf.key!r} has shape {list(array.shape)}; expected {leaf}")
    wanted = leaf.spec.dtype.as_numpy_dtype
    if leaf.spec.dtype == tf.string:
        if array.dtype.kind != "O":
            raise RequestError("input", f"input {leaf.key!r} is {array.dtype.name}; expected {leaf}")
        return array
    record = np.dtype(wanted)
    if array.dtype == (record[0] if record.names else record):
        return array.view(record)
    raise RequestError("input", f"input {leaf.key!r} is {array.dtype.name}; expected {leaf}")


def numpy_of(value: Any) -> Array:
    """An eager tensor's or fetched value's array, strings as bytes in an object array."""
    array = value.numpy() if hasattr(value, "numpy") else value
    return np.asarray(array, dtype=object if isinstance(array, str | bytes) else None)


def flatten_named(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """The tensors in a structure with their paths: {"a": [x, y]} => a/0, a/1; composites by component."""
    if isinstance(value, dict):
        for key in sorted(value, key=str):
            yield from flatten_named(value[key], _join(path, str(key)))
    elif isinstance(value, list | tuple):
        for key, item in zip(getattr(value, "_fields", range(len(value))), value, strict=True):
            yield from flatten_named(item, _join(path, str(key)))
    elif value is not None:
        parts = tf.nest.flatten(value, expand_composites=True)
        simple = len(parts) == 1 and parts[0] is value
        for index, part in enumerate(parts):
            yield (path or "0") if simple else _join(path, str(index)), part


def _join(path: str, key: str) -> str:
    return f"{path}/{key}" if path else key


class LoadedObject:
    """`tf.saved_model.load`ed: one signature, or one method with the traces it was saved with."""

    def __init__(self, artefact: SavedModelArtefact) -> None:
        self._root = load_object(artefact)
        self._functions = _functions(self._root, artefact)
        self.stateful = any(is_stateful(function.graph.as_graph_def()) for function in self._functions)
        self.broken = False
        self._returns_dict = artefact.method is None

    def bind(self, inputs: Arrays) -> Callable[[], Any]:
        function = _best_match(self._functions, inputs)
        args, kwargs = function.structured_input_signature
        arrays = match_inputs(_leaves(function), inputs)
        tensors = {key: tf.constant(array, dtype=_dtype_of(array)) for key, array in arrays.items()}
        keys = iter([leaf.key for leaf in _leaves(function)])
        args, kwargs = tf.nest.map_structure(lambda spec: _fill(spec, keys, tensors), (args, kwargs))
        return lambda: function(*args, **kwargs)

    def outputs(self, raw: Any) -> dict[str, Array]:
        named = list(flatten_named(raw, ""))
        if not isinstance(raw, dict):  # as TensorFlow names a signature's anonymous outputs
            named = [(f"output_{key}", value) for key, value in named]
        return {key: numpy_of(value) for key, value in named}

    @functools.cached_property
    def _variables(self) -> dict[str, Any]:
        return dict(named_variables(self._root))

    def variable_bytes(self) -> dict[str, int]:
        return {name: tensor_bytes(variable) for name, variable in self._variables.items()}

    def variables(self, names: Sequence[str]) -> dict[str, Array]:
        return {name: numpy_of(self._variables[name]) for name in names}

    def traced(self, inputs: Arrays) -> tuple[Any, Trace]:
        raise RequestError("input", "a trace needs a Session: loader='v1' or a GraphDef (eager runs record no step statistics)")

    def close(self) -> None:
        self._functions = []
        self._root = None


def tensor_bytes(tensor: Any) -> int:
    """As far as its static type says, 0 for strings and where a dimension is unknown."""
    return 0 if tensor.dtype == tf.string else (tensor.shape.num_elements() or 0) * int(tensor.dtype.size)


def named_variables(root: Any) -> list[tuple[str, Any]]:
    """Every variable reachable from the object, by its own name; those that share a name by `name@path.in.the.object`."""
    found: list[tuple[str, str, Any]] = []
    seen: set[int] = set()
    queue = [("", root)]
    for path, item in queue:
        if id(item) in seen:
            continue
        seen.add(id(item))
        if isinstance(item, tf.Variable):
            found.append((item.name.removesuffix(":0"), path, item))
            continue
        children = tf.train.TrackableView.children(item)
        queue += [(f"{path}.{name}" if path else name, child) for name, child in sorted(children.items())]
    names = [name for name, _, _ in found]
    return [(name if names.count(name) == 1 else f"{name}@{path}", variable) for name, path, variable in found]


def load_object(artefact: SavedModelArtefact, *, values: bool = True) -> Any:
    """The object; a saved optimizer's slot variables, which plain objects cannot hold, are dropped where they stop the loading.

    Without `values` its variables are left uninitialized.
    """
    policy = tf.saved_model.experimental.VariablePolicy.SAVE_VARIABLE_DEVICES if artefact.variable_devices else None
    options = tf.saved_model.LoadOptions(experimental_variable_policy=policy, experimental_skip_checkpoint=not values)
    tags = list(artefact.tags)
    try:
        return tf.saved_model.load(str(artefact.path), tags=tags, options=options)
    except AttributeError as error:
        if "add_slot" not in str(error):
            raise
    with rewritten_copy(Path(artefact.path), _drop_slots) as directory:
        return tf.saved_model.load(str(directory), tags=tags, options=options)


def _drop_slots(meta_graph: Any) -> None:
    for node in meta_graph.object_graph_def.nodes:
        node.ClearField("slot_variables")


@contextlib.contextmanager
def rewritten_copy(source: Path, rewrite: Callable[[Any], None]) -> Iterator[Path]:
    """A SavedModel with its meta graphs rewritten and the original's variables, for as long as it takes to load it."""
    saved = saved_model_pb2.SavedModel()
    saved.ParseFromString((source / "saved_model.pb").read_bytes())
    for meta_graph in saved.meta_graphs:
        rewrite(meta_graph)
    with tempfile.TemporaryDirectory() as directory:
        target = Path(directory)
        (target / "saved_model.pb").write_bytes(saved.SerializeToString())
        if (source / "variables").is_dir():
            (target / "variables").symlink_to(source.absolute() / "variables")
        if (source / "assets").is_dir():
            shutil.copytree(source / "assets", target / "assets")
        yield target


def _functions(root: Any, artefact: SavedModelArtefact) -> list[Any]:
    if artefact.method is None:
        signatures = getattr(root, "signatures", {})
        if artefact.signature not in signatures:
            raise RequestError("load", f"no signature {artefact.signature!r}; the model has {sorted(signatures)}")
        return [signatures[artefact.signature]]
    item = root
    for part in artefact.method.split("."):
        item = getattr(item, part, None)
    if not hasattr(item, "concrete_functions"):
        raise RequestError("load", f"no saved method {artefact.method!r}")
    if not item.concrete_functions:
        raise RequestError("load", f"method {artefact.method!r} was saved without a trace")
    return list(item.concrete_functions)


def _best_match(functions: Sequence[Any], inputs: Arrays) -> Any:
    """The trace that takes these inputs; of several the one with the fewest True literals (so `training=False`)."""
    for function in sorted(functions, key=_true_literals):
        try:
            match_inputs(_leaves(function), inputs)
        except RequestError:
            continue
        return function
    return min(functions, key=_true_literals)


def _true_literals(function: Any) -> int:
    return sum(leaf is True for leaf in tf.nest.flatten(function.structured_input_signature))


def _leaves(function: Any) -> list[Leaf]:
    """The callable's tensors in `tf.nest` order, each with the key its array comes under."""
    args, kwargs = function.structured_input_signature
    names = list(getattr(function.function_type, "parameters", {}))
    names += [str(index) for index in range(len(names), len(args))]
    flat = [pair for name, arg in zip(names, args, strict=False) for pair in _spec_paths(arg, name)]
    keys = {sanitize_arg_name(key): key for key in function._arg_keywords or ()}
    for name in sorted(kwargs):
        flat += _spec_paths(kwargs[name], keys.get(name, name))
    return [Leaf(key, spec) for path, item in flat for key, spec in _components(path, item)]


def _spec_paths(value: Any, path: str) -> list[tuple[str, tf.TypeSpec]]:
    if isinstance(value, dict):
        return [pair for key in sorted(value, key=str) for pair in _spec_paths(value[key], f"{path}/{key}")]
    if isinstance(value, list | tuple):
        names = getattr(value, "_fields", range(len(value)))
        return [pair for key, item in zip(names, value, strict=True) for pair in _spec_paths(item, f"{path}/{key}")]
    return [(path, value)] if isinstance(value, tf.TypeSpec) else []


def _components(path: str, spec: tf.TypeSpec) -> list[tuple[str, tf.TensorSpec]]:
    if isinstance(spec, tf.TensorSpec):
        return [(path, spec)]
    return [(f"{path}/{index}", part) for index, part in enumerate(tf.nest.flatten(spec, expand_composites=True))]


def _fill(spec: Any, keys: Iterator[str], tensors: dict[str, Any]) -> Any:
    if isinstance(spec, tf.TensorSpec):
        return tensors[next(keys)]
    if not isinstance(spec, tf.TypeSpec):
        return spec
    parts = [tensors[next(keys)] for _ in tf.nest.flatten(spec, expand_composites=True)]
    return tf.nest.pack_sequence_as(spec, parts, expand_composites=True)


def _dtype_of(array: Array) -> Any:
    return tf.string if array.dtype.kind == "O" else tf.as_dtype(array.dtype)
