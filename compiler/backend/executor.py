"""Runs a module's entry as it stands: emitted flat, into a child process of the pool.

run_module(module, "serving_default", [{"x": array}])  =>  [RunResult(outputs={"y": ...})]

Folding asks it for values (no inputs, many outputs), validation for behaviour: variables hold their stored values before the first request.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from compiler.backend.graphdef import Emission, emit_flat, serialize
from compiler.backend.pool import Pool
from compiler.backend.profiles import PROFILES, Profile
from compiler.execution import Arrays, FileTensor, GraphDefArtefact, RunError, RunResult, RuntimeConfig
from compiler.ir.errors import CleaveError
from compiler.ir.module import Module
from compiler.ir.weights import Literal, Stores, WeightRef

_INLINE_BYTES = 1 << 25
"""A larger graph goes by a file instead of through the socket."""


class GraphExecutor:
    """A `ModuleExecutor` over a pool of children, which may serve others as well."""

    def __init__(self, pool: Pool, profile: Profile = PROFILES["native"]) -> None:
        self._pool, self._profile = pool, profile

    def run_module(
        self,
        module: Module,
        entry: str,
        requests: Sequence[Arrays],
        *,
        config: RuntimeConfig = RuntimeConfig(),  # noqa: B008 - frozen
        timeout_seconds: float = 120.0,
        want_variables: bool = False,
        repeat: int = 0,
        trace: bool = False,
    ) -> list[RunResult]:
        """One result per request; a module that cannot be emitted as a graph is an error of kind "load" for each."""
        try:
            emission = emit_flat(module, entry, self._profile)
        except CleaveError as error:
            return [RunResult(error=RunError("load", str(error))) for _ in requests]
        with tempfile.TemporaryDirectory(prefix="cleave-graph-") as directory:
            results = self._pool.run(
                artefact_of(emission, module.stores, Path(directory)),
                requests,
                config=config,
                timeout_seconds=timeout_seconds,
                want_variables=want_variables,
                repeat=repeat,
                trace=trace,
            )
        return [by_reference(result, emission.handles) for result in results]


def by_reference(result: RunResult, handles: Mapping[str, str]) -> RunResult:
    """State under the module's names for it."""
    if result.variables is None:
        return result
    named = {handles.get(name, name): value for name, value in result.variables.items()}
    return replace(result, variables=named, unchanged=tuple(handles.get(name, name) for name in result.unchanged))


def artefact_of(emission: Emission, stores: Stores, directory: Path) -> GraphDefArtefact:
    """The emission as something to run; a large graph is written into `directory`."""
    data = serialize(emission.graph_def)
    graph_def: bytes | Path = data
    if len(data) > _INLINE_BYTES:
        graph_def = directory / "graph.pb"
        graph_def.write_bytes(data)
    return GraphDefArtefact(
        graph_def, emission.feeds, emission.fetches, emission.targets, emission.initializers, _files(emission.fed, stores, directory)
    )


def _files(fed: Mapping[str, Literal], stores: Stores, directory: Path) -> dict[str, FileTensor]:
    """Where each value lies; one that is in no file yet is put into one."""
    found: dict[str, FileTensor] = {}
    for position, (tensor, literal) in enumerate(fed.items()):
        if isinstance(literal, WeightRef):
            path = stores.files[literal.store]
            found[tensor] = FileTensor(path, literal.offset, literal.dtype.numpy.name, literal.full_shape, literal.region)
        else:
            path = directory / f"{position}.bin"
            path.write_bytes(stores.load(literal).tobytes())
            found[tensor] = FileTensor(path, 0, literal.dtype.numpy.name, literal.shape)
    return found
