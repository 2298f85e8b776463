"""What is run, how, and what comes back: the plain data between those who execute a model and the room that can.

artefact + requests + config  =>  one RunResult per request, never an exception for a model's fault.

Nothing here imports TensorFlow. Values are numpy arrays keyed by name: strings are object arrays of bytes, bfloat16 and its kin are
ml_dtypes, a ragged or sparse value is its component tensors (`x/0`, `x/1`, ... in TensorFlow's order: flat values, row splits; indices,
values, dense shape).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias

import numpy.typing as npt

from compiler.ir.module import Module

Array: TypeAlias = npt.NDArray[Any]
Arrays: TypeAlias = Mapping[str, Array]

ErrorKind = Literal["load", "input", "run", "memory", "crash", "timeout", "lost"]
"""`lost`: a task of the cluster is gone, or silent."""


@dataclass(frozen=True)
class RuntimeConfig:
    """The settings TensorFlow fixes for a whole process at first use; one child process serves one config.

    `onednn` None, and thread counts of 0, are TensorFlow's own choice. `memory_limit_mb` caps the CPU allocator (BFC): above it a run ends
    in an error of kind "memory" (TensorFlow retries for 10 s first). `soft_placement` lets `/device:CPU:1` run where it does not exist.
    """

    devices: int = 1
    grappler: bool = False
    onednn: bool | None = None
    intra_threads: int = 0
    inter_threads: int = 0
    memory_limit_mb: int | None = None
    soft_placement: bool = True


@dataclass(frozen=True)
class SavedModelArtefact:
    """A SavedModel directory and the callable in it: a signature, or a `method` of the object (`__call__`, `serve`, `encoder.call`).

    Loader "v2" is `tf.saved_model.load`; "v1" is a Session over the flat graph (signatures only; the only one that can trace).
    `variable_devices` keeps the devices variables were saved with.
    """

    path: str | Path
    signature: str = "serving_default"
    tags: tuple[str, ...] = ("serve",)
    method: str | None = None
    loader: Literal["v2", "v1"] = "v2"
    variable_devices: bool = False


@dataclass(frozen=True)
class FileTensor:
    """`region` (start, size for each dimension) of the row-major tensor of `shape` that lies `offset` bytes into a file."""

    path: str | Path
    offset: int
    dtype: str
    shape: tuple[int, ...]
    region: tuple[tuple[int, int], ...] | None = None


@dataclass(frozen=True)
class GraphDefArtefact:
    """A GraphDef, serialized or in a file, run in a Session: input and output names -> tensor names (`x:0`).

    `targets` are operations run beside the fetches on each call; `initializers` run once after loading, in order, one by one, with
    `initial` fed to those that read it: tensor names -> values too large for the graph, memory-mapped.
    """

    graph_def: bytes | str | Path
    feeds: Mapping[str, str]
    fetches: Mapping[str, str]
    targets: tuple[str, ...] = ()
    initializers: tuple[str, ...] = ()
    initial: Mapping[str, FileTensor] = field(default_factory=dict)


Artefact: TypeAlias = SavedModelArtefact | GraphDefArtefact


@dataclass(frozen=True)
class RunError:
    """Why a request has no outputs: a kind to decide on, one line to show, a child's last words after a crash, the tasks that are lost."""

    kind: ErrorKind
    message: str
    log_tail: str = ""
    tasks: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.kind}: {self.message}"


@dataclass(frozen=True)
class TraceEvent:
    """One node's execution on a device; seconds, `start` from the first event of the call."""

    node: str
    start_seconds: float
    duration_seconds: float


@dataclass(frozen=True)
class RunResult:
    """One request's answer. `seconds` times the call, `timings` its `repeat` repetitions.

    `variables` is the state right after the call, but for large ones of large models that are `unchanged` since the run began.
    """

    outputs: dict[str, Array] = field(default_factory=dict)
    variables: dict[str, Array] | None = None
    unchanged: tuple[str, ...] = ()
    error: RunError | None = None
    seconds: float = 0.0
    timings: tuple[float, ...] = ()
    trace: dict[str, tuple[TraceEvent, ...]] | None = None


class Executor(Protocol):
    """Runs requests, in order, on one loaded artefact: state persists from one request to the next."""

    def run(
        self,
        artefact: Artefact,
        requests: Sequence[Arrays],
        *,
        config: RuntimeConfig = RuntimeConfig(),
        timeout_seconds: float = 120.0,
        want_variables: bool = False,
        repeat: int = 0,
        trace: bool = False,
        keep_state: bool = False,
    ) -> list[RunResult]: ...


class ModuleExecutor(Protocol):
    """Emits an entry of a module and runs requests on it, in order, in a child process: folding, validating and measuring use it."""

    def run_module(
        self,
        module: Module,
        entry: str,
        requests: Sequence[Arrays],
        *,
        config: RuntimeConfig = RuntimeConfig(),
        timeout_seconds: float = 120.0,
        want_variables: bool = False,
        repeat: int = 0,
    ) -> list[RunResult]: ...
