"""One task of a cluster: a `tf.distribute.Server`, from its start to SIGTERM or Ctrl-C. `python -m compiler.backend.worker_child JOB`.

JOB (JSON: job, task, cluster, devices, threads, cores, lifeline)  =>  one line when it listens, one when it ends, with its peak of memory

The process is the server, nothing stands before it: whoever stops or kills it, stops or kills the task.  What a client may ask besides
TensorFlow's own services is how much memory the task's CPU uses: a PyFunc under a known token, which any graph on the task can run.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from typing import Any

import numpy as np

from compiler.backend.frames import Json

MEMORY_TOKEN = "cleave_memory"
"""PyFunc: () => int64 [in use, the most in use at once since the last reset]."""
RESET_TOKEN = "cleave_reset_memory"
"""PyFunc: () => int64 [in use]; the peak starts anew."""
_ENDING = (signal.SIGTERM, signal.SIGINT)


def main(arguments: list[str]) -> None:
    job = json.loads(arguments[0])
    signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)  # in every thread that TensorFlow will start, too: the wait below is for them
    out, err = _keep_for_our_lines()
    if job["cores"]:
        os.sched_setaffinity(0, job["cores"])
    if job["lifeline"] is not None:
        from compiler.backend.child import die_with_parent

        die_with_parent(job["lifeline"])
    name, address = f"{job['job']}:{job['task']}", job["cluster"][job["job"]][str(job["task"])]
    try:
        _refuse_taken(address)
        functions = _serve(job)
    except Exception as error:
        print(f"cleave: error: {name} cannot listen on {address}: {' '.join(str(error).split())[:400]}", file=err, flush=True)
        os._exit(2)
    print(f"{name} listens on {address}: {job['shown']}", file=out, flush=True)
    signal.sigwait(_ENDING)
    _, peak = functions[0]()
    print(f"{name} stopped; {peak:,} bytes were the most in use at once", file=out, flush=True)
    os._exit(0)  # a server of TensorFlow's has no orderly end


def _keep_for_our_lines() -> tuple[Any, Any]:
    """Standard output and standard error as they were; what TensorFlow prints goes nowhere."""
    ours = [os.fdopen(os.dup(descriptor), "w", encoding="utf-8", errors="backslashreplace") for descriptor in (1, 2)]
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    return ours[0], ours[1]


def _refuse_taken(address: str) -> None:
    """TensorFlow shares a port that somebody listens on already, and each would get half of the calls."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("", int(address.rpartition(":")[2])))


def _serve(job: Json) -> tuple[Any, ...]:
    """Starts the server; gives the functions it holds for its clients, which live as long as they are kept."""
    import tensorflow as tf

    from compiler.backend.child import configure_tensorflow
    from compiler.execution import RuntimeConfig

    count = job["devices"].get("CPU", 1)
    configure_tensorflow(RuntimeConfig(devices=count, intra_threads=job["threads"], inter_threads=job["threads"] * count))
    config = tf.compat.v1.ConfigProto(
        device_count={"CPU": count, "GPU": job["devices"].get("GPU", 0)},
        intra_op_parallelism_threads=job["threads"],
        inter_op_parallelism_threads=job["threads"] * count,
        gpu_options=tf.compat.v1.GPUOptions(allow_growth=True),
    )
    tasks = {name: {int(number): address for number, address in found.items()} for name, found in job["cluster"].items()}
    functions = _memory_functions(tf)
    if job["memory_limit_mb"] is not None:
        _reserve(tf, job["memory_limit_mb"] << 20)
    tf.distribute.Server(tf.train.ClusterSpec(tasks), job_name=job["job"], task_index=job["task"], config=config)
    return functions


def _reserve(tf: Any, limit_bytes: int) -> None:
    """Makes the allocator's memory one region.  Grown as needed it doubles, and a tensor is given up to twice its size of what is left."""
    tf.raw_ops.Empty(shape=[int(limit_bytes * 0.9)], dtype=tf.uint8)
    tf.config.experimental.reset_memory_stats("CPU:0")


def _memory_functions(tf: Any) -> tuple[Any, ...]:
    """The server's CPU and this process's own share one allocator, so what the one counts is the other's too."""
    from tensorflow.python.ops import script_ops

    def used() -> Any:
        found = tf.config.experimental.get_memory_info("CPU:0")
        return np.array([found["current"], found["peak"]], np.int64)

    def reset() -> Any:
        tf.config.experimental.reset_memory_stats("CPU:0")
        return np.array([used()[0]], np.int64)

    used()  # starts what it asks, before there is a server that counts on it
    script_ops._py_funcs._funcs[MEMORY_TOKEN] = used
    script_ops._py_funcs._funcs[RESET_TOKEN] = reset
    return used, reset


if __name__ == "__main__":
    main(sys.argv[1:])
