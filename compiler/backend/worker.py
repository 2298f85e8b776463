"""Starting a task of a cluster: a process that is a `tf.distribute.Server`, in an environment made for it.

become_worker(cluster, "worker:1", Settings(), warn)       this process goes on as the task, under the id it has
with Worker(cluster, "worker:1", Settings()) as worker:    a child is the task, and ends with the block, or with its parent

TensorFlow's server listens on every interface of its machine, whatever address it is given, and asks nobody who they are: anyone who can
reach its port can run code in it.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from compiler.backend.frames import Json
from compiler.backend.pool import child_environment
from compiler.execution import RuntimeConfig
from compiler.ir.errors import CleaveError
from cost_model.cluster import Cluster
from cost_model.devices import task_of

WARNING = (
    "TensorFlow's server listens on all interfaces of this machine and asks for no password: "
    "whoever reaches port {port} can run code here; keep it behind a firewall"
)
_LONGEST_STOP = 5.0


@dataclass(frozen=True)
class Settings:
    """What one task may use: bytes of memory for its CPU's tensors (MB; None: all there is), threads (0: TensorFlow's choice), cores."""

    memory_limit_mb: int | None = None
    threads: int = 0
    cores: tuple[int, ...] = ()


def become_worker(cluster: Cluster, task: str, settings: Settings, warn: Callable[[str], None]) -> None:
    """This process is the task from here on; it warns first, and refuses before it warns."""
    command, environment = _prepared(cluster, task, settings, None)
    warn(WARNING.format(port=cluster.task(task).address.rpartition(":")[2]))
    sys.stdout.flush()
    with contextlib.suppress(OSError):
        os.dup2(sys.stderr.fileno(), 2)  # the command line has put its own elsewhere, to keep TensorFlow's lines out of it
    os.execve(command[0], command, environment)


class Worker:
    """A task in a child process of its own."""

    def __init__(self, cluster: Cluster, task: str, settings: Settings = Settings()) -> None:
        self.task, self.last_words = cluster.task(task), ""
        reading, self._lifeline = os.pipe()
        command, environment = _prepared(cluster, task, settings, reading)
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            pass_fds=(reading,),
            env=environment,
            start_new_session=True,
        )
        os.close(reading)
        self._stopped = False

    def __enter__(self) -> Self:
        return self.wait_ready()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait_ready(self) -> Self:
        """Returns when it listens; CleaveError, in its own words, where it does not."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        if " listens on " not in line:
            self.stop()
            raise CleaveError(line.removeprefix("cleave: error: ") or f"{self.task.name} ended before it listened")
        return self

    def send(self, number: signal.Signals) -> None:
        """A signal to the task's process."""
        os.kill(self.pid, number)

    def stop(self) -> None:
        """Ends it, in order if it can still hear; may be called twice."""
        if self._stopped:
            return
        self._stopped = True
        self._process.send_signal(signal.SIGTERM)
        self._process.send_signal(signal.SIGCONT)
        try:
            self.last_words = self._process.communicate(timeout=_LONGEST_STOP)[0].strip()
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()
        os.close(self._lifeline)


def _prepared(cluster: Cluster, task: str, settings: Settings, lifeline: int | None) -> tuple[list[str], dict[str, str]]:
    """The command of a task, and its environment."""
    found = cluster.task(task)
    devices = Counter(device.kind for device in cluster.devices if task_of(device.name) == found.name)
    job = _job(cluster, found.job, found.number, devices, settings) | {"lifeline": lifeline}
    environment = child_environment(RuntimeConfig(memory_limit_mb=settings.memory_limit_mb))
    environment["TF_CPU_ALLOCATOR_USE_BFC"] = "true"  # counts every byte, and does not give pages back only to fault them in again
    if devices.keys() - {"CPU"}:
        environment.pop("CUDA_VISIBLE_DEVICES")
        environment |= {"CUDA_VISIBLE_DEVICES": given} if (given := os.environ.get("CUDA_VISIBLE_DEVICES")) is not None else {}
    return [sys.executable, "-m", "compiler.backend.worker_child", json.dumps(job)], environment


def _job(cluster: Cluster, job: str, number: int, devices: Counter[str], settings: Settings) -> Json:
    tasks: dict[str, dict[int, str]] = {}
    for task in cluster.tasks:
        tasks.setdefault(task.job, {})[task.number] = task.address
    taken = (*(f"{kind}:{i}" for kind, count in sorted(devices.items()) for i in range(count)),)
    limit = f"at most {settings.memory_limit_mb} MB" if settings.memory_limit_mb is not None else "no limit of memory"
    return {
        "job": job,
        "task": number,
        "cluster": tasks,
        "devices": dict(devices),
        "threads": settings.threads,
        "memory_limit_mb": settings.memory_limit_mb,
        "cores": list(_usable(settings.cores)),
        "shown": f"{', '.join(taken)}; {limit}" + (f"; cores {', '.join(map(str, settings.cores))}" if settings.cores else ""),
    }


def _usable(cores: tuple[int, ...]) -> tuple[int, ...]:
    """The cores, if this process may use them."""
    allowed = os.sched_getaffinity(0)
    refused = [core for core in cores if core not in allowed]
    if refused:
        raise CleaveError(f"core {refused[0]} cannot be used, expected some of {', '.join(map(str, sorted(allowed)))}")
    return cores
