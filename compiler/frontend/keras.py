"""Keras models, in memory or in files: exported to a SavedModel by Keras itself, then read like one.

Files are opened with `safe_mode`: nothing of the model's Python runs, no pickle is read, archive members stay inside the archive.
"""

from __future__ import annotations

import json
import re
import tempfile
import zipfile
from pathlib import Path, PurePosixPath
from typing import Any, cast

from compiler.frontend import function, saved_model
from compiler.frontend.source import SourceModel
from compiler.ir.errors import CleaveError

_INSTEAD = "pass the model itself or export a SavedModel"
_CODE = ("Lambda", "__lambda__", "function", "LambdaCallback")


def is_model(model: Any) -> bool:
    """A Keras model of either major version, without importing one that is not there."""
    return any(c.__module__.startswith(("keras.", "tf_keras.")) and c.__name__ == "Model" for c in type(model).__mro__)


def load(model: Any, signature: str | None = None, allow_files: bool = False, label: str | None = None) -> SourceModel:
    """Export a built model to a temporary SavedModel and read that."""
    if not getattr(model, "built", True) or (hasattr(model, "inputs") and model.inputs is None):
        raise CleaveError(f"Keras model {model.name!r} is not built, expected one that has been called or given an Input")
    label = label or f"Keras model {model.name!r}"
    if _is_nested(getattr(model, "_outputs_struct", None)) and hasattr(model, "_inputs_struct"):
        return function.load(_functional(model), signature, allow_files, label)
    work = Path(tempfile.mkdtemp(prefix="cleave-keras-"))
    try:
        if type(model).__module__.startswith("tf_keras") or any(c.__module__.startswith("tf_keras.") for c in type(model).__mro__):
            import tensorflow as tf

            tf.saved_model.save(model, str(work / "model"), signatures=_keras2_signature(model))
        else:
            _export(model, work / "model")
    except Exception as error:  # tracing runs the layers' Python
        raise CleaveError(f"{label} cannot be exported: {_first_line(error)}") from None
    source = saved_model.load(work / "model", signature, None, allow_files, label)
    _remember_structure(model, source, work / "model")
    return source.owns(work)


def _export(model: Any, directory: Path) -> None:
    """What `model.export` does, with variables in the model's order: Keras takes them from a set, in another order in each process."""
    import keras
    from keras.src.export.export_utils import get_input_signature

    archive = keras.export.ExportArchive()
    archive.track_and_add_endpoint("serve", model, get_input_signature(model))
    position = {id(getattr(v, "value", v)): index for index, v in enumerate(model.variables)}
    graph = archive._tf_trackable.serve.get_concrete_function().graph
    graph.variables = sorted(graph.variables, key=lambda v: (position.get(id(v), len(position)), v.name))
    archive.write_out(str(directory), verbose=False)


def _is_nested(structure: Any) -> bool:
    """Does a result stand inside another?  Keras exports flat dictionaries, lists and tuples only."""
    tops = structure.values() if isinstance(structure, dict) else structure if isinstance(structure, list | tuple) else ()
    return any(isinstance(top, dict | list | tuple) for top in tops)


def _functional(model: Any) -> Any:
    """A functional model of Keras 3 as a function of its inputs, in their order."""
    import keras
    import tensorflow as tf

    def serve(*inputs: Any) -> Any:
        return model(keras.tree.pack_sequence_as(model._inputs_struct, list(inputs)), training=False)

    return tf.function(serve, input_signature=[tf.TensorSpec(t.shape, t.dtype, name=t.name) for t in model.inputs], autograph=False)


def _remember_structure(model: Any, source: SourceModel, directory: Path) -> None:
    """How the model takes its inputs, where it is functional and so says it, and how it returns its outputs."""
    info = next(iter(source.signatures.values()))
    names = tuple(str(t.name).split(":")[0] for t in getattr(model, "inputs", None) or ())
    if set(names) == set(info.inputs):
        source.arguments = names
    if getattr(model, "_nested_outputs", None) is not None:
        source.results = _keras2_results(model)
        return
    structure = getattr(model, "_outputs_struct", None)
    structure = saved_model.method_results(directory, "serve") if structure is None else structure
    if len(info.outputs) == 1 and not isinstance(structure, dict | list | tuple):
        source.results = info.outputs[0]
    elif isinstance(structure, list | tuple) and set(info.outputs) == {f"output_{i}" for i in range(len(structure))}:
        source.results = type(structure)(f"output_{i}" for i in range(len(structure)))


def _keras2_signature(model: Any) -> Any:
    import tensorflow as tf

    specs = [tf.TensorSpec(t.shape, t.dtype, name=t.name.split(":")[0]) for t in model.inputs]

    @tf.function(input_signature=specs)  # type: ignore[untyped-decorator]
    def serve(*inputs: Any) -> Any:
        result = model(inputs[0] if len(inputs) == 1 else list(inputs), training=False)
        if isinstance(result, dict):
            return result
        flat = tf.nest.flatten(result)
        return dict(zip(_keras2_names(model, len(flat)), flat, strict=True))

    return serve


def _keras2_names(model: Any, count: int) -> list[str]:
    return list(model.output_names) if len(model.output_names) == count else [f"output_{i}" for i in range(count)]


def _keras2_results(model: Any) -> Any:
    """The keys of `_keras2_signature` in the structure that a functional model returns."""
    import tensorflow as tf

    structure = model._nested_outputs
    if isinstance(structure, dict):
        return {key: key for key in structure}
    return tf.nest.pack_sequence_as(structure, _keras2_names(model, len(tf.nest.flatten(structure))))


def load_file(path: Path, signature: str | None = None, allow_files: bool = False) -> SourceModel:
    """Open a .keras or .h5 file and read the model."""
    _check_file(path)
    return load(_open(path), signature, allow_files, str(path))


def _check_file(path: Path) -> None:
    if path.suffix.lower() == ".keras":
        try:
            with zipfile.ZipFile(path) as archive:
                names = archive.namelist()
        except (zipfile.BadZipFile, OSError) as error:
            raise CleaveError(f"{path} is not a .keras archive: {error}") from None
        for name in names:
            if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts or "\\" in name:
                raise CleaveError(f"{path} has a member {name!r} that points outside the archive, refused")
    elif not path.read_bytes()[:8].startswith(b"\x89HDF\r\n\x1a\n"):
        raise CleaveError(f"{path} is not an HDF5 file, expected one saved by Keras")


def _open(path: Path) -> Any:
    import keras

    try:
        return keras.saving.load_model(str(path), compile=False, safe_mode=True)
    except Exception as error:
        first = _first_line(error)
    try:
        import tf_keras
    except ImportError:
        raise CleaveError(f"{path} cannot be loaded by Keras: {first} (a Keras 2 file needs pip install 'tf-cleave[keras2]')") from None
    _refuse_code(path, first)
    try:
        return tf_keras.models.load_model(str(path), compile=False, safe_mode=True)
    except Exception:
        raise CleaveError(f"{path} cannot be loaded by Keras: {first}") from None


def _refuse_code(path: Path, reason: str) -> None:
    """Keras 2 runs the Python in an HDF5 file whatever `safe_mode` says: its configuration may name layers of Keras only."""
    try:
        waiting = [json.loads(_configuration(path))]
    except (OSError, ValueError, KeyError, zipfile.BadZipFile):
        raise CleaveError(f"{path} cannot be loaded by Keras: {reason}") from None
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            module = item.get("module")
            own = module is None or str(module).partition(".")[0] in ("keras", "tf_keras") or str(module).startswith("tensorflow.keras")
            if item.get("class_name") in _CODE or not own:
                what = item["class_name"] if item.get("class_name") in _CODE else module
                raise CleaveError(f"{path} cannot be loaded safely: its configuration has {what!r}, which runs Python; {_INSTEAD}")
            waiting.extend(item.values())
        elif isinstance(item, list):
            waiting.extend(item)


def _configuration(path: Path) -> str | bytes:
    if path.suffix.lower() == ".keras":
        with zipfile.ZipFile(path) as archive:
            return archive.read("config.json")
    import h5py  # type: ignore[import-untyped]

    with h5py.File(path, "r") as file:
        return cast("str | bytes", file.attrs["model_config"])


def _first_line(error: BaseException) -> str:
    """The message on one line; of Keras's pages on a class that it does not know, the sentence that names it."""
    text = " ".join(str(error).split())
    unknown = re.search(r"Could not locate (?:class|function) '[^']*'|Unknown layer: '[^']*'", text)
    if unknown:
        return f"{unknown[0]}; files with classes of your own cannot be opened, {_INSTEAD}"
    return text[:300] or type(error).__name__
