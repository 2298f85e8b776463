"""`load(model)` => `SourceModel`: the module, where its state comes from, and the unfrozen original that is the oracle.

Every door ends in a SavedModel directory, a GraphDef file or an `.ir` text; loading runs nothing of the model.
"""

from __future__ import annotations

import shutil
import weakref
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from compiler.execution import Artefact, GraphDefArtefact, SavedModelArtefact
from compiler.ir.errors import CleaveError
from compiler.ir.module import Module
from compiler.ir.types import TensorType


@dataclass(frozen=True)
class SignatureInfo:
    """A signature as declared: inputs with their types, output keys, and the signature it is the same as, if one."""

    inputs: Mapping[str, TensorType]
    outputs: tuple[str, ...]
    method_name: str = ""
    alias_of: str | None = None


@dataclass
class SourceModel:
    """A model that was read.

    `kind` saved_model | saved_model_v1 | frozen | ir;  `locations` module variable or resource -> its path in the object tree.
    `kept` are signatures that were not asked for and go into the result as they are.
    `arguments` are input keys in the order the Python original takes them, `results` output keys in the structure it returns (None: a
    dict).  `others` are the tags of further graphs in the file, where nobody said which one is meant.
    """

    module: Module
    artefact: Artefact | None
    kind: str
    path: Path
    tags: tuple[str, ...] = ()
    signatures: dict[str, SignatureInfo] = field(default_factory=dict)
    locations: dict[str, str] = field(default_factory=dict)
    kept: tuple[str, ...] = ()
    label: str = ""
    arguments: tuple[str, ...] = ()
    results: Any = None
    owner: object = None
    others: tuple[tuple[str, ...], ...] = ()

    def artefact_of(self, entry: str) -> Artefact:
        """What runs one entry of the original."""
        match self.artefact:
            case SavedModelArtefact():
                return replace(self.artefact, signature=entry)
            case GraphDefArtefact():
                return self.artefact
            case _:
                raise CleaveError(f"{self.path}: an .ir file has no original to run, expected a model")

    def owns(self, directory: Path) -> SourceModel:
        """Have a temporary directory removed when neither the model nor a module with its weights is left."""
        owner = _Owner()
        weakref.finalize(owner, shutil.rmtree, directory, ignore_errors=True)
        self.owner = owner
        self.module.stores.kept.append(owner)
        return self


class _Owner:
    """Whoever holds it keeps a directory."""


def load(
    model: Any,
    signature: str | None = None,
    tags: tuple[str, ...] | None = None,
    allow_files: bool = False,
    outputs: tuple[str, ...] | None = None,
) -> SourceModel:
    """Read a model: a SavedModel directory, a .keras, .h5, .pb or .ir file, a Keras model, a tf.Module, a tf.function or ConcreteFunction.

    `signature` keeps one signature; `outputs` are tensor names of a frozen graph.  Raises CleaveError.
    """
    if isinstance(model, str | Path):
        return _load_path(Path(model), signature, tags, allow_files, outputs)
    from compiler.frontend import function, keras, methods

    if function.is_function(model):
        return function.load(model, signature, allow_files)
    if keras.is_model(model):
        return keras.load(model, signature, allow_files)
    if methods.is_object(model):
        return methods.load(model, signature, allow_files)
    raise CleaveError(f"a {type(model).__name__} is no model, expected a path, a Keras model, a tf.Module or a tf.function")


def _load_path(
    path: Path, signature: str | None, tags: tuple[str, ...] | None, allow_files: bool, outputs: tuple[str, ...] | None
) -> SourceModel:
    if not path.exists():
        raise CleaveError(f"{path}: no such file or directory, expected a SavedModel directory or a .keras, .h5, .pb or .ir file")
    if path.is_dir():
        from compiler.frontend import saved_model

        return saved_model.load(path, signature, tags, allow_files)
    match path.suffix.lower():
        case ".keras" | ".h5" | ".hdf5":
            from compiler.frontend import keras

            return keras.load_file(path, signature, allow_files)
        case ".ir":
            return _load_ir(path)
        case ".pb":
            from compiler.frontend import frozen

            if path.name == "saved_model.pb":
                raise CleaveError(f"{path} is part of a SavedModel, expected its directory: {path.parent}")
            return frozen.load(path, outputs, allow_files)
    raise CleaveError(f"{path}: unknown kind of file, expected a SavedModel directory or a .keras, .h5, .pb or .ir file")


def _load_ir(path: Path) -> SourceModel:
    from compiler.ir.text import read_module

    module = read_module(path)
    if not module.entries:
        raise CleaveError(f"{path} has no entry, expected at least one")
    infos = {
        key: SignatureInfo({n: graph.node(n).type for n in graph.inputs}, tuple(o.name for o in graph.outputs))
        for key, graph in module.entries.items()
    }
    return SourceModel(module, None, "ir", path, signatures=infos)
