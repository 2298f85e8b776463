"""Objects with methods: a tf.Module, a loaded model, a SavedModel without signatures. Each trace of a method becomes a signature.

class M(tf.Module): __call__(x), encode(x), encode(x, training=True)   =>   signatures serving_default, encode, encode_1

A SavedModel is loaded and saved again by a child, `python -m compiler.frontend.methods JOB.json`: loading fills its tables.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tensorflow as tf
from tensorflow.python.eager.polymorphic_function.concrete_function import ConcreteFunction
from tensorflow.python.trackable.autotrackable import AutoTrackable

from compiler.frontend import function, saved_model
from compiler.frontend.objects import is_method_name
from compiler.frontend.source import SourceModel
from compiler.ir.errors import CleaveError

DEFAULT = "serving_default"
_KEPT = ("PATH", "HOME", "TMPDIR", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "PYTHONHOME")
_SECONDS = 1800.0


def is_object(model: Any) -> bool:
    """Something that TensorFlow can save and whose methods it finds."""
    return isinstance(model, AutoTrackable)


def load(model: Any, signature: str | None = None, allow_files: bool = False) -> SourceModel:
    """Save the object with its methods as signatures, and read that."""
    label = f"object of class {type(model).__name__!r}"
    work = Path(tempfile.mkdtemp(prefix="cleave-object-"))
    try:
        signatures = save(model, work / "model")
    except CleaveError as error:
        raise CleaveError(f"{label} {error}") from None
    except Exception as error:  # tracing runs the user's Python
        raise CleaveError(f"{label} cannot be saved: {' '.join(str(error).split())[:300]}") from None
    source = saved_model.load(work / "model", signature, None, allow_files, label)
    if len(signatures) == 1:
        (source.arguments, source.results) = function.interface_of(next(iter(signatures.values())), source)
    return source.owns(work)


def load_signed(path: Path, signature: str | None, tags: tuple[str, ...], allow_files: bool, label: str) -> SourceModel:
    """A SavedModel without signatures, by a copy that has them."""
    work = Path(tempfile.mkdtemp(prefix="cleave-signed-"))
    job = work / "job.json"
    job.write_text(json.dumps({"path": str(path.absolute()), "tags": list(tags), "out": str(work / "model")}))
    command = [sys.executable, "-m", "compiler.frontend.methods", str(job)]
    try:
        done = subprocess.run(command, env=_environment(), cwd=os.sep, capture_output=True, timeout=_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise CleaveError(f"{label}: loading it took more than {_SECONDS:g} s and was stopped") from None
    if done.returncode != 0:
        lines = [line for line in done.stderr.decode(errors="replace").splitlines() if line.strip()]
        raise CleaveError(f"{label} {lines[-1][:600] if lines else f'could not be loaded: status {done.returncode}'}")
    return saved_model.load(work / "model", signature, None, allow_files, label).owns(work)


def _environment() -> dict[str, str]:
    packages = str(Path(__file__).resolve().parents[2])
    paths = os.pathsep.join(filter(None, [packages, os.environ.get("PYTHONPATH")]))
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
    return kept | {"PYTHONPATH": paths, "PYTHONSAFEPATH": "1", "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}


def save(root: Any, out: Path) -> dict[str, Any]:
    """The object as a SavedModel: under its own signatures where it has some, else under one for each trace of a method."""
    own = getattr(root, "signatures", None)
    traces = dict(own) if own else signatures_of(root)
    signatures = {key: function.flat(trace) for key, trace in traces.items()}
    tf.saved_model.save(root, str(out), signatures=signatures, options=tf.saved_model.SaveOptions(experimental_custom_gradients=False))
    return traces


def signatures_of(root: Any) -> dict[str, Any]:
    """Signature -> trace; a method's first trace is the one with the fewest literals that are True (so `training=False`)."""
    found: dict[str, Any] = {}
    refusals: list[str] = []
    for name, method in _methods(root):
        traces = [trace for trace in _traces(method) if _is_dense(trace)]
        if not traces:
            refusals.append(f"{name} has no trace of dense tensors")
        for count, trace in enumerate(sorted(traces, key=_true_literals)):
            key = DEFAULT if name == "__call__" else name
            found[f"{key}_{count}" if count else key] = trace
    if not found:
        why = "; ".join(refusals) or "it has no tf.function"
        raise CleaveError(f"has no method to compile: {why}; expected a traced method, or one with an input_signature")
    return found


def _methods(root: Any) -> Iterator[tuple[str, Any]]:
    for name, child in sorted(tf.train.TrackableView.children(root, save_type="savedmodel", cache={}).items()):
        if is_method_name(name) and (isinstance(child, ConcreteFunction) or hasattr(child, "get_concrete_function")):
            yield name, child


def _traces(method: Any) -> list[Any]:
    return [method] if isinstance(method, ConcreteFunction) else list(method._list_all_concrete_functions_for_serialization())


def _is_dense(trace: Any) -> bool:
    leaves = tf.nest.flatten((trace.structured_input_signature, trace.structured_outputs))
    return all(
        isinstance(leaf, tf.TensorSpec | tf.Tensor) or not isinstance(leaf, tf.TypeSpec | tf.__internal__.CompositeTensor)
        for leaf in leaves
    )


def _true_literals(trace: Any) -> int:
    return sum(leaf is True for leaf in tf.nest.flatten(trace.structured_input_signature))


def main(arguments: list[str]) -> int:
    job = json.loads(Path(arguments[0]).read_text())
    try:
        save(tf.saved_model.load(job["path"], tags=job["tags"]), Path(job["out"]))
    except CleaveError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
