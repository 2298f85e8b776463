"""Local clusters for tests: free ports, workers that end with the block they are started in."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from compiler.backend.worker import Settings, Worker
from cost_model.cluster import Cluster


def free_ports(count: int) -> list[int]:
    held = [socket.socket() for _ in range(count)]
    for each in held:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in held]
    for each in held:
        each.close()
    return ports


def cluster_text(ports: list[int], memory_bytes: float = 4e9) -> str:
    """Tasks of one CPU each; computing costs, moving hardly does: whatever can be divided is."""
    last = len(ports) - 1
    tasks = "".join(f'[[tasks]]\nname = "/job:worker/task:{k}"\naddress = "127.0.0.1:{port}"\n' for k, port in enumerate(ports))
    return f"""name = "local"
[[devices]]
name = "/job:worker/task:[0-{last}]/device:CPU:0"
peak_flops = {{ float32 = 1e9 }}
memory_bandwidth = 1e9
memory_bytes = {memory_bytes}
[[links]]
name = "grpc"
alpha_seconds = 1e-6
bytes_per_second = 1e11
{tasks}"""


@contextmanager
def workers(cluster: Cluster, settings: Settings | None = None) -> Iterator[dict[str, Worker]]:
    """A worker for each task, all started at once, each of one thread."""
    with ExitStack() as stack:
        started = {f"{t.job}:{t.number}": Worker(cluster, t.name, settings or Settings(threads=1)) for t in cluster.tasks}
        for worker in started.values():
            stack.callback(worker.stop)
        for worker in started.values():
            worker.wait_ready()
        yield started
