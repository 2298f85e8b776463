"""Is a task there?  Asked through its own gRPC service, beside whatever else it does; and what a client left there is cleared away.

probe({"/job:worker/task:1": "10.0.0.8:2222"}, 0.5)  =>  {task: Pulse(devices=(...), fault="")}
clear({"/job:worker/task:1": "10.0.0.8:2222"}, "cleave-1f", 0.5)      the variables in this container give their memory back

A killed task refuses the connection at once; a stopped one accepts it, as its kernel does, and says nothing until the time is up.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import grpc
from tensorflow.core.framework import device_attributes_pb2

_STATUS, _CLEANUP = "/tensorflow.WorkerService/GetStatus", "/tensorflow.WorkerService/CleanupAll"
_NOTHING = "/tensorflow.WorkerService/Nothing"
"""A method no server has: gRPC itself refuses it, even while every thread of TensorFlow's is busy and GetStatus waits for one."""


@dataclass(frozen=True)
class Pulse:
    """What a task answered: its devices by full name, and numbers that are others after it is started again; or why it did not."""

    devices: tuple[str, ...] = ()
    fault: str = ""
    incarnations: tuple[int, ...] = ()

    @property
    def alive(self) -> bool:
        return not self.fault


def probe(tasks: Mapping[str, str], timeout_seconds: float) -> dict[str, Pulse]:
    """All tasks at once, none waited for longer than `timeout_seconds`; one that is too busy to say more is alive, of unknown devices."""
    with _calls(tasks, _NOTHING, b"", timeout_seconds) as refusals, _calls(tasks, _STATUS, b"", timeout_seconds) as calls:
        found = {task: _pulse(call, timeout_seconds) for task, call in calls.items()}
        answered = {task for task, call in refusals.items() if call.code() is grpc.StatusCode.UNIMPLEMENTED}
    return {task: Pulse() if not pulse.alive and task in answered else pulse for task, pulse in found.items()}


def clear(tasks: Mapping[str, str], container: str, timeout_seconds: float) -> None:
    """Whoever is there lets go of what is in the container; sessions, and other containers, are left alone."""
    name = container.encode()
    assert len(name) < 128, "a longer name has a longer length"
    with _calls(tasks, _CLEANUP, b"\x0a" + bytes([len(name)]) + name, timeout_seconds) as calls:  # CleanupAllRequest.container = 1
        for call in calls.values():
            call.exception()


@contextmanager
def _calls(tasks: Mapping[str, str], method: str, request: bytes, timeout_seconds: float) -> Iterator[dict[str, grpc.Future]]:
    channels = {task: grpc.insecure_channel(address, options=(("grpc.enable_http_proxy", 0),)) for task, address in tasks.items()}
    try:
        yield {task: channel.unary_unary(method).future(request, timeout=timeout_seconds) for task, channel in channels.items()}
    finally:
        for channel in channels.values():
            channel.close()


def silent(pulses: Mapping[str, Pulse]) -> tuple[str, ...]:
    return tuple(sorted(task for task, pulse in pulses.items() if not pulse.alive))


def in_words(tasks: Mapping[str, str], pulses: Mapping[str, Pulse]) -> str:
    """`task worker:1 at 10.0.0.8:2222 cannot be reached: ...`, one clause for each that is silent."""
    return "; ".join(f"task {short(task)} at {tasks[task]} {pulses[task].fault}" for task in silent(pulses))


def short(task: str) -> str:
    """`/job:worker/task:1` => `worker:1`."""
    job, _, number = task.removeprefix("/job:").partition("/task:")
    return f"{job}:{number}"


def _pulse(call: grpc.Future, timeout_seconds: float) -> Pulse:
    try:
        found = [device_attributes_pb2.DeviceAttributes.FromString(piece) for piece in _pieces(call.result())]
    except grpc.RpcError as error:
        if error.code() is grpc.StatusCode.UNAVAILABLE:
            return Pulse(fault="is gone: nobody listens there (it was killed, or never started)")
        if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
            return Pulse(fault=f"is silent: no answer within {timeout_seconds:.2g} s (it is stopped, or cut off)")
        return Pulse(fault=f"is no TensorFlow server: {error.code().name.lower()}")
    return Pulse(tuple(_without_replica(device.name) for device in found), "", tuple(device.incarnation for device in found))


def _without_replica(name: str) -> str:
    return "/".join(part for part in name.split("/") if not part.startswith("replica:"))


def _pieces(message: bytes) -> Iterator[bytes]:
    """The length-delimited fields of a message that has no others, as GetStatusResponse (repeated DeviceAttributes), which Python lacks."""
    at = 0
    while at < len(message):
        length, at = _varint(message, at + 1)
        yield message[at : at + length]
        at += length


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value, shift, at = value | (byte & 127) << shift, shift + 7, at + 1
        if byte < 128:
            return value, at
