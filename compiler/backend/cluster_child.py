"""The client of a cluster, in a process that may be killed: `... compiler.backend.cluster_child SOCKET LIFELINE JOB`, by `cluster.py`.

It speaks as `child.py` does, and what it loads is a flat graph whose nodes name tasks.  When its parent goes it closes what is open (a
server keeps a dead client's session, and the weights in it, for ever), but not for long.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import itertools
import json
import os
import resource
import socket
import sys
import threading
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from compiler.backend.child import Service, configure_tensorflow
from compiler.backend.frames import Channel, ConnectionEnded
from compiler.execution import Artefact, GraphDefArtefact, RuntimeConfig

if TYPE_CHECKING:
    from compiler.backend.cluster_session import ClusterGraph

_LONGEST_CLOSE = 5.0


def main(arguments: list[str]) -> None:
    descriptor, lifeline, job = int(arguments[0]), int(arguments[1]), json.loads(arguments[2])
    os.set_blocking(lifeline, True)
    threading.Thread(target=_leave_after, args=(lifeline,), daemon=True).start()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    channel = Channel(socket.socket(fileno=descriptor))
    config = RuntimeConfig(**job["config"])
    configure_tensorflow(config)
    gc.freeze()
    channel.send({"ready": True})
    service = Service(
        channel,
        config,
        functools.partial(
            _load, tasks=job["tasks"], deadline_seconds=job["deadline_seconds"], container=job["container"], numbers=itertools.count()
        ),
    )
    with contextlib.suppress(ConnectionEnded):
        service.serve()
    service.close()
    os._exit(0)


def _leave_after(lifeline: int) -> None:
    """The parent has closed its end, or is gone: the loop sees that too and closes the sessions, unless a server keeps it waiting."""
    os.read(lifeline, 1)
    threading.Event().wait(_LONGEST_CLOSE)
    os._exit(0)


def _load(
    artefact: Artefact, config: RuntimeConfig, *, tasks: Mapping[str, str], deadline_seconds: float, container: str, numbers: Iterator[int]
) -> ClusterGraph:
    from compiler.backend.cluster_session import open_on_cluster
    from compiler.backend.loaded import RequestError

    if not isinstance(artefact, GraphDefArtefact):
        raise RequestError("load", "a cluster runs flat graphs only: functions that span tasks are refused by TensorFlow's sessions")
    return open_on_cluster(artefact, config, tasks, deadline_seconds, f"{container}-{next(numbers)}")


if __name__ == "__main__":
    main(sys.argv[1:])
