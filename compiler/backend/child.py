"""The child process: loads what it is sent, runs it, answers. `python -m compiler.backend.child SOCKET LIFELINE CONFIG`, by `pool.py`.

run frame, then a request frame and a result frame in turn; a fault is a result with an error, and only death ends the loop

The child dies with its parent: LIFELINE is the read end of a pipe only the parent can write to, and its end of file is turned into SIGKILL
by the kernel (a hung kernel of TensorFlow's may hold every thread), and into an exit by a thread where that is not to be had.
TensorFlow's settings are fixed here, before its first use.
"""

import contextlib
import fcntl
import gc
import itertools
import json
import os
import re
import resource
import signal
import socket
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING

from compiler.backend.frames import Channel, ConnectionEnded, Json, decode_artefact
from compiler.backend.state_view import StateView
from compiler.execution import Array, Artefact, GraphDefArtefact, RuntimeConfig

if TYPE_CHECKING:
    from compiler.backend.loaded import Loaded

_KEPT_LOADED = 4
_MESSAGE_LENGTH = 600


def main(arguments: list[str]) -> None:
    descriptor, lifeline, config = int(arguments[0]), int(arguments[1]), RuntimeConfig(**json.loads(arguments[2]))
    die_with_parent(lifeline)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    channel = Channel(socket.socket(fileno=descriptor))
    configure_tensorflow(config)
    gc.freeze()  # TensorFlow's own million objects never go: looking through them took most of the time of small stateful models
    channel.send({"ready": True})
    with contextlib.suppress(ConnectionEnded):
        Service(channel, config, _load).serve()


def die_with_parent(lifeline: int) -> None:
    """This process ends when the other end of the pipe does."""
    if sys.platform == "linux":
        fcntl.fcntl(lifeline, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(lifeline, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(lifeline, fcntl.F_SETFL, os.O_ASYNC)
    threading.Thread(target=_exit_at_end_of, args=(lifeline,), daemon=True).start()


def _exit_at_end_of(lifeline: int) -> None:
    os.read(lifeline, 1)
    os._exit(0)


def configure_tensorflow(config: RuntimeConfig) -> None:
    """Everything process-wide that is not in the environment: devices, threads, Grappler."""
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(config.intra_threads)
    tf.config.threading.set_inter_op_parallelism_threads(config.inter_threads)
    if config.devices > 1:
        processor = tf.config.list_physical_devices("CPU")[0]
        tf.config.set_logical_device_configuration(processor, [tf.config.LogicalDeviceConfiguration()] * config.devices)
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": not config.grappler})
    tf.config.set_soft_device_placement(config.soft_placement)


class Service:
    """The loop, and the few artefacts it keeps loaded (least recently used goes first)."""

    def __init__(
        self, channel: Channel, config: RuntimeConfig, load: "Callable[[Artefact, RuntimeConfig], Loaded]", keeps: int = _KEPT_LOADED
    ) -> None:
        self._channel, self._config, self._load, self._keeps = channel, config, load, keeps
        self._kept: OrderedDict[str, Loaded] = OrderedDict()

    def close(self) -> None:
        while self._kept:
            self._kept.popitem()[1].close()

    def serve(self) -> None:
        while True:
            run, arrays = self._channel.receive()
            key, loaded, fault = self._loaded(decode_artefact(run["artefact"], arrays))
            view = StateView(loaded) if loaded is not None and run["variables"] else None
            for _ in range(run["requests"]):
                header, values = self._channel.receive()
                inputs = dict(zip(header["names"], values, strict=True))
                self._answer({"error": fault}, {}, {}) if loaded is None else self._execute(loaded, view, inputs, run)
            if loaded is not None:
                self._keep(key, loaded, run["keep_state"])

    def _loaded(self, artefact: Artefact) -> tuple[str, "Loaded | None", Json | None]:
        from compiler.backend.session import artefact_key

        try:
            key = artefact_key(artefact)
            kept = self._kept.pop(key, None)
            while kept is None and len(self._kept) >= self._keeps:
                self._kept.popitem(last=False)[1].close()
            return key, kept or self._load(artefact, self._config), None
        except Exception as error:
            return "", None, fault_of(error, "load")

    def _keep(self, key: str, loaded: "Loaded", keep_state: bool) -> None:
        """A run starts from the saved state: what may have changed its own is dropped, unless the caller wants it so."""
        if (keep_state or not loaded.stateful) and not loaded.broken:
            self._kept[key] = loaded
        else:
            loaded.close()
            gc.collect()  # a dropped model's variables hang in reference cycles

    def _execute(self, loaded: "Loaded", view: StateView | None, inputs: dict[str, Array], run: Json) -> None:
        header: Json = {"error": None, "unchanged": []}
        outputs: dict[str, Array] = {}
        variables: dict[str, Array] = {}
        try:
            begin = time.perf_counter()
            if run["trace"]:
                raw, trace = loaded.traced(inputs)
                header["trace"] = {device: [list(asdict(event).values()) for event in events] for device, events in trace.items()}
            else:
                call = loaded.bind(inputs)
                begin = time.perf_counter()
                raw = call()
            header["seconds"] = time.perf_counter() - begin
            outputs = loaded.outputs(raw)
            if view is not None:
                variables, header["unchanged"] = view.read()
            if run["repeat"]:
                header["timings"] = timed(loaded, inputs, run["repeat"])
        except Exception as error:
            header["error"] = fault_of(error, "run")
            outputs, variables = {}, {}
        self._answer(header, outputs, variables)

    def _answer(self, header: Json, outputs: dict[str, Array], variables: dict[str, Array]) -> None:
        names = {"outputs": list(outputs), "variables": list(variables)}
        self._channel.send(header | names, [*outputs.values(), *variables.values()])


def _load(artefact: Artefact, config: RuntimeConfig) -> "Loaded":
    from compiler.backend.loaded import LoadedObject
    from compiler.backend.session import load_graph_def, load_saved_graph

    if isinstance(artefact, GraphDefArtefact):
        return load_graph_def(artefact, config)
    return load_saved_graph(artefact, config) if artefact.loader == "v1" else LoadedObject(artefact)


def timed(loaded: "Loaded", inputs: dict[str, Array], repeat: int) -> list[float]:
    """Seconds of each of `repeat` calls, inputs already bound."""
    call = loaded.bind(inputs)
    moments = [time.perf_counter()]
    for _ in range(repeat):
        call()
        moments.append(time.perf_counter())
    return [after - before for before, after in itertools.pairwise(moments)]


def fault_of(error: BaseException, kind: str) -> Json:
    """An exception as a kind and one line."""
    import tensorflow as tf

    from compiler.backend.loaded import RequestError

    if isinstance(error, RequestError):
        kind = error.kind
    elif isinstance(error, tf.errors.ResourceExhaustedError | MemoryError):
        kind = "memory"
    message = _one_line(str(error))
    tasks = list(error.tasks) if isinstance(error, RequestError) else []
    return {"tasks": tasks, "kind": kind, "message": message if isinstance(error, RequestError) else f"{type(error).__name__}: {message}"}


def _one_line(text: str) -> str:
    """TensorFlow's message without the preamble and stack traces it wraps a graph's failure in."""
    text = re.sub(r"^Graph execution error:\s*", "", text)
    text = re.sub(
        r"Detected at node (\S+) defined at \(most recent call last\):\n(?:<stack traces unavailable>\n?|(?: +.*\n)+)", r"\1: ", text
    )
    text = re.sub(r"\n*Original stack trace for.*", "", text, flags=re.DOTALL)
    return " ".join(text.split())[:_MESSAGE_LENGTH]


if __name__ == "__main__":
    main(sys.argv[1:])
