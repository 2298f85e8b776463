"""A module as an ordinary SavedModel: emitted here, put together around the original's state in a child process, moved into place whole.

save(module, "out", original=Original("model"))  =>  out/{saved_model.pb, variables/, assets/, fingerprint.pb}, the same bytes each time

Every signature, method, variable, table and asset of the original that the module or a kept signature uses is there, under its old path.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias

from compiler.backend.graphdef import GRAPH_BYTES, Emission, emit_called, serialize
from compiler.backend.pool import child_environment
from compiler.backend.profiles import PROFILES, Profile
from compiler.backend.protos import tensor_proto
from compiler.backend.saved_model_proto import canonicalize, sign
from compiler.backend.splice import fill, hollow_weights
from compiler.backend.weights import WEIGHT_BYTES, place_weights
from compiler.execution import RuntimeConfig
from compiler.ir.errors import CleaveError
from compiler.ir.module import Module
from compiler.ir.types import TensorType
from compiler.ir.weights import Literal, Stores, WeightRef

Json: TypeAlias = dict[str, Any]
_OURS = frozenset({"saved_model.pb", "fingerprint.pb", "variables", "assets", "assets.extra", "plan.json", "report.json"})


@dataclass(frozen=True)
class Original:
    """The SavedModel a module was read from. `keep`: signatures exported as they are.

    `names`: module variable or resource -> its name or path in the object tree, where its own name does not tell.
    """

    path: str | Path
    tags: tuple[str, ...] = ("serve",)
    keep: tuple[str, ...] = ()
    names: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Saved:
    """Where it lies, and the original's methods: those compiled or of a kept signature; those left as they were, as no entry was seen to
    compute them; those dropped, as they need state that is no longer there.
    """

    path: Path
    methods: tuple[str, ...]
    untouched: tuple[str, ...]
    dropped: tuple[str, ...]


def save(
    module: Module,
    out_dir: str | Path,
    *,
    original: Original | None = None,
    aliases: Mapping[str, str] = MappingProxyType({}),
    profile: Profile = PROFILES["tf"],
    overwrite: bool = False,
    weight_bytes: int = WEIGHT_BYTES,
    timeout_seconds: float = 1800.0,
) -> Saved:
    """Writes the SavedModel. One that is there is replaced only with `overwrite`, and only a SavedModel.

    `aliases`: further signature -> the entry that it is.
    """
    target = Path(out_dir).absolute()
    refuse_taken(target, overwrite)
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{target.name}.", dir=target.parent) as directory:
        work = Path(directory)
        placed, weights = hollow_weights(place_weights(module, weight_bytes))
        job = {**_job(placed, original, profile, work), "aliases": dict(aliases)}
        (work / "job.json").write_text(json.dumps(job))
        _run(work / "job.json", timeout_seconds)
        canonicalize(work / "model")
        if weights:
            sign(work / "model", fill(work / "model" / "saved_model.pb", weights, module.stores))
        report = json.loads((work / "report.json").read_text())
        _replace(work, work / "model", target)
    return Saved(target, tuple(report["methods"]), tuple(report["untouched"]), tuple(report["dropped"]))


def copy_saved_model(source: Path, target: str | Path, overwrite: bool = False) -> None:
    """Put a copy of a saved model at `target`, whole or not at all."""
    place = Path(target).absolute()
    refuse_taken(place, overwrite)
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{place.name}.", dir=place.parent) as directory:
        work = Path(directory)
        shutil.copytree(source, work / "model")
        _replace(work, work / "model", place)


def refuse_taken(target: Path, overwrite: bool) -> None:
    if not target.exists() or (target.is_dir() and not any(target.iterdir())):
        return
    if not overwrite:
        raise CleaveError(f"{target} exists and is not empty; choose another directory or allow to overwrite it")
    if not (target / "saved_model.pb").exists() or {item.name for item in target.iterdir()} - _OURS:
        raise CleaveError(f"{target} is not a SavedModel alone; only a SavedModel is overwritten")


def _job(module: Module, original: Original | None, profile: Profile, work: Path) -> Json:
    emissions = {key: emit_called(module, key, profile, limit_bytes=GRAPH_BYTES) for key in module.entries}
    refs = {c.ref for e in emissions.values() for c in e.captures if c.kind == "Variable"}
    devices = [node.device for e in emissions.values() for f in e.graph_def.library.function for node in f.node_def]
    devices += [module.variables[ref].device for ref in refs]
    return {
        "original": None if original is None else {"path": str(Path(original.path).absolute()), "tags": list(original.tags)},
        "keep": [key for key in (original.keep if original is not None else ()) if key not in module.entries],
        "names": dict(original.names) if original is not None else {},
        "devices": 1 + max((processor_index(device) for device in devices), default=0),
        "variable_devices": profile.devices and any(processor_index(module.variables[ref].device) for ref in refs),
        "entries": [_entry_job(module, key, emission, work / f"entry{i}.pb") for i, (key, emission) in enumerate(emissions.items())],
        "variables": {ref: _variable_job(module, ref, profile, work / f"value{i}.pb") for i, ref in enumerate(sorted(refs))},
        "out": str(work / "model"),
        "report": str(work / "report.json"),
    }


def processor_index(device: str) -> int:
    """The index of a CPU device, 0 for anything else."""
    for part in device.split("/"):
        kind, _, index = part.removeprefix("device:").rpartition(":")
        if kind.upper() == "CPU" and index.isdigit():
            return int(index)
    return 0


def _entry_job(module: Module, key: str, emission: Emission, file: Path) -> Json:
    file.write_bytes(serialize(emission.graph_def))
    graph = module.entries[key]
    return {
        "key": key,
        "graph": str(file),
        "inputs": [{"key": name, "tensor": emission.feeds[name], **_type_job(graph.node(name).type)} for name in graph.inputs],
        "outputs": [{"key": o.name, "tensor": emission.fetches[o.name], **_type_job(graph.type_of(o.value))} for o in graph.outputs],
        "captures": [{"kind": c.kind, "ref": c.ref, "tensor": tensor} for c, tensor in emission.captures.items()],
    }


def _type_job(type_: TensorType) -> Json:
    shape = None if type_.shape is None else [dim if isinstance(dim, int) else None for dim in type_.shape]
    return {"dtype": str(type_.dtype), "shape": shape}


def _variable_job(module: Module, ref: str, profile: Profile, file: Path) -> Json:
    variable = module.variables[ref]
    return {
        **_type_job(variable.type),
        "name": "".join(c if c.isalnum() or c in "_./-" else "_" for c in ref),
        "trainable": variable.trainable,
        "device": variable.device if profile.devices else "",
        "value": None if variable.initial is None else _value_job(variable.initial, module.stores, file),
    }


def _value_job(literal: Literal, stores: Stores, file: Path) -> Json:
    if isinstance(literal, WeightRef):
        path = str(stores.files[literal.store].absolute())
        region = None if literal.region is None else [list(pair) for pair in literal.region]
        return {
            "path": path,
            "offset": literal.offset,
            "dtype": literal.dtype.numpy.name,
            "shape": list(literal.full_shape),
            "region": region,
        }
    file.write_bytes(tensor_proto(literal, stores).SerializeToString(deterministic=True))
    return {"proto": str(file)}


def _run(job: Path, timeout_seconds: float) -> None:
    command: Sequence[str] = [sys.executable, "-m", "compiler.backend.save_child", str(job)]
    environment = child_environment(RuntimeConfig())
    try:
        done = subprocess.run(command, env=environment, cwd=os.sep, capture_output=True, timeout=timeout_seconds, check=False)
    except subprocess.TimeoutExpired:
        raise CleaveError(f"saving took more than {timeout_seconds:g} s and was stopped") from None
    if done.returncode != 0:
        lines = [line for line in done.stderr.decode(errors="replace").splitlines() if line.strip()]
        ours = [line.removeprefix("cleave: ") for line in lines if line.startswith("cleave: ")]
        killed = [f"its process was ended by signal {-done.returncode}" + " (out of memory?)" * (done.returncode == -9)]
        why = killed if done.returncode < 0 else ours or lines or [f"status {done.returncode}"]
        raise CleaveError(f"the model could not be saved: {why[-1][:600]}")


def _replace(work: Path, model: Path, target: Path) -> None:
    """Whole or not at all: the old one is moved aside before the new one comes."""
    if target.exists():
        target.rename(work / "old")
    try:
        model.rename(target)
    except OSError:
        if (work / "old").exists():
            (work / "old").rename(target)
        raise
    shutil.rmtree(work / "old", ignore_errors=True)
