"""Children that execute TensorFlow artefacts and may be killed: one for each RuntimeConfig, started at need, reused, replaced.

with Pool() as pool: pool.run(artefact, [{"x": array}])  =>  [RunResult(outputs={"y": ...})]

Threads, logical devices, Grappler and oneDNN are process-wide in TensorFlow and fixed at first use, and one deadlocked function poisons its
process: so nothing runs in the caller's. A crash or a hang is a RunError of the requests it took along; the next run has a fresh child.
"""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from compiler.backend.frames import Channel, ConnectionEnded, DeadlineExceeded, Json, encode_artefact
from compiler.execution import Array, Arrays, Artefact, ErrorKind, RunError, RunResult, RuntimeConfig, TraceEvent

_KEPT_ENVIRONMENT = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "PYTHONPATH", "PYTHONHOME", "SYSTEMROOT")
_LOG_PIECES = 8
_PIECE_BYTES = 4096
_TAIL_CHARACTERS = 4000


class Pool:
    """At most `max_children` processes; safe to share between threads (one run at a time in each child)."""

    def __init__(self, max_children: int = 2, start_seconds: float = 120.0) -> None:
        self._max_children, self._start_seconds = max_children, start_seconds
        self._children: OrderedDict[RuntimeConfig, Child] = OrderedDict()
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Kills every child; the pool may be used again."""
        with self._lock:
            children = list(self._children.values())
            self._children.clear()
        for child in children:
            child.kill()

    def run(
        self,
        artefact: Artefact,
        requests: Sequence[Arrays],
        *,
        config: RuntimeConfig = RuntimeConfig(),  # noqa: B008 - frozen
        timeout_seconds: float = 120.0,
        want_variables: bool = False,
        repeat: int = 0,
        trace: bool = False,
        keep_state: bool = False,
    ) -> list[RunResult]:
        """One result per request, in order, on one loaded artefact. State persists between the requests; the next run starts from the
        saved state again unless `keep_state`. The time, loading included and a child's start excluded, is for all requests together.
        """
        options: Json = {"variables": want_variables, "repeat": repeat, "trace": trace, "keep_state": keep_state}
        child = self._child(config)
        with child.lock:
            try:
                return child.run(artefact, requests, options, timeout_seconds)
            except BaseException:  # an interrupt leaves an answer underway that the next run would take for its own
                child.kill()
                raise

    def pids(self) -> dict[RuntimeConfig, int]:
        """The living children's process ids."""
        with self._lock:
            return {config: child.pid for config, child in self._children.items() if child.pid is not None}

    def _child(self, config: RuntimeConfig) -> "Child":
        with self._lock:
            if config not in self._children:
                while len(self._children) >= self._max_children:
                    self._evict()
                self._children[config] = Child(config, self._start_seconds)
            self._children.move_to_end(config)
            return self._children[config]

    def _evict(self) -> None:
        """The least recently used child goes, an idle one if there is one."""
        idle = [config for config, child in self._children.items() if not child.lock.locked()]
        child = self._children.pop(idle[0] if idle else next(iter(self._children)))
        with child.lock:
            child.kill()


class Child:
    """A process, started at its first run and after each death; `program` takes a socket, a lifeline and `job`, JSON of the config's."""

    def __init__(
        self, config: RuntimeConfig, start_seconds: float, program: str = "compiler.backend.child", job: Json | None = None
    ) -> None:
        self._config, self._start_seconds, self._program = config, start_seconds, program
        self._job = job if job is not None else asdict(config)
        self._process: subprocess.Popen[bytes] | None = None
        self._log: deque[bytes] = deque(maxlen=_LOG_PIECES)
        self._ready = False
        self.lock = threading.Lock()

    @property
    def pid(self) -> int | None:
        process = self._process
        return process.pid if process is not None and process.poll() is None else None

    def run(self, artefact: Artefact, requests: Sequence[Arrays], options: Json, timeout_seconds: float) -> list[RunResult]:
        results: list[RunResult] = []
        try:
            self._ensure_started()
            self._channel.deadline = time.monotonic() + timeout_seconds
            self._log.clear()
            header, arrays = encode_artefact(artefact)
            self._channel.send({**options, "artefact": header, "requests": len(requests)}, arrays)
            for request in requests:
                self._channel.send({"names": list(request)}, list(request.values()))
                results.append(_result(*self._channel.receive(), options))
        except DeadlineExceeded:
            phase = f"no answer within {timeout_seconds:g} s" if self._ready else f"not started within {self._start_seconds:g} s"
            error = self._end("timeout", f"{phase}; the process was killed")
        except ConnectionEnded:
            error = self._end("crash", "")
        return results + [RunResult(error=error) for _ in requests[len(results) :]]

    def _ensure_started(self) -> None:
        if self.pid is None:
            self.kill()
            self._start()

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        lifeline, self._lifeline = os.pipe()
        self._channel = Channel(ours)
        command = [sys.executable, "-m", self._program, str(theirs.fileno()), str(lifeline), json.dumps(self._job)]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=(theirs.fileno(), lifeline),
            env=child_environment(self._config),
            cwd=os.sep,
            start_new_session=True,
        )
        theirs.close()
        os.close(lifeline)
        self._reader = threading.Thread(target=_drain, args=(self._process.stdout, self._log), daemon=True)
        self._reader.start()
        self._channel.deadline = time.monotonic() + self._start_seconds
        self._channel.receive()
        self._ready = True

    def _end(self, kind: ErrorKind, message: str) -> RunError:
        """The process is gone or goes now; its last words come along."""
        process = self._process
        assert process is not None
        if kind == "crash":
            message = _cause_of_death(process)
        self.kill()
        tail = b"".join(self._log).decode(errors="replace")[-_TAIL_CHARACTERS:]
        return RunError(kind, message, tail)

    def close(self, seconds: float) -> None:
        """Hangs up, and gives the process `seconds` to leave by itself before it is killed."""
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._channel.close()
                self._process.wait(seconds)
        self.kill()

    def kill(self) -> None:
        process, self._process = self._process, None
        self._ready = False
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        self._channel.close()
        os.close(self._lifeline)
        self._reader.join(timeout=1.0)


def _result(header: Json, arrays: Sequence[Array], options: Json) -> RunResult:
    if header["error"] is not None:
        return RunResult(error=RunError(header["error"]["kind"], header["error"]["message"], tasks=tuple(header["error"]["tasks"])))
    count = len(header["outputs"])
    trace = {device: tuple(TraceEvent(*event) for event in events) for device, events in header.get("trace", {}).items()}
    return RunResult(
        outputs=dict(zip(header["outputs"], arrays[:count], strict=True)),
        variables=dict(zip(header["variables"], arrays[count:], strict=True)) if options["variables"] else None,
        unchanged=tuple(header["unchanged"]),
        seconds=header["seconds"],
        timings=tuple(header.get("timings", ())),
        trace=trace if options["trace"] else None,
    )


def _cause_of_death(process: "subprocess.Popen[bytes]") -> str:
    try:
        status = process.wait(timeout=5.0)
    except subprocess.TimeoutExpired:
        return "the process closed its connection"
    if status >= 0:
        return f"the process exited with status {status}"
    name = signal.Signals(-status).name
    return f"the process died of {name}" + (" (killed from outside, or out of memory)" if name == "SIGKILL" else "")


def _drain(stream: IO[bytes], log: "deque[bytes]") -> None:
    """Keeps the last pieces of what a child prints; the rest is noise."""
    with stream:
        while piece := os.read(stream.fileno(), _PIECE_BYTES):
            log.append(piece)


def child_environment(config: RuntimeConfig) -> dict[str, str]:
    """A spare one: how to find Python's modules, and TensorFlow's settings that only the environment can give."""
    environment = {name: os.environ[name] for name in _KEPT_ENVIRONMENT if name in os.environ}
    packages = str(Path(__file__).resolve().parents[2])
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [packages, environment.get("PYTHONPATH")]))
    environment |= {"PYTHONSAFEPATH": "1", "PYTHONDONTWRITEBYTECODE": "1", "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
    if config.onednn is not None:
        environment["TF_ENABLE_ONEDNN_OPTS"] = str(int(config.onednn))
    if config.memory_limit_mb is not None:
        environment |= {"TF_CPU_ALLOCATOR_USE_BFC": "true", "TF_CPU_BFC_MEM_LIMIT_IN_MB": str(config.memory_limit_mb)}
    return environment
