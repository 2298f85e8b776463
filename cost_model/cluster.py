"""The devices a module is compiled for and the links between them: `Cluster.parse("cpu:2")`, a TOML file's path, or TOML text."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from compiler.ir.errors import CleaveError
from cost_model.devices import Device, DeviceName, Link, Task, device_name, task_of

_LOCAL = re.compile(r"^cpu:(\d+)$")
_MOST_LOCAL_DEVICES = 1024


@dataclass(frozen=True)
class LinkGroup:
    """Devices that take part in one collective, as levels from the nearest link outwards: `(members, link, ports_shared_by)`.

    Eight devices on two tasks of four are `((4, nvlink, 1), (2, network, 1))`; `ports_shared_by` is 4 where the network card is the task's.
    """

    levels: tuple[tuple[int, Link, int], ...]

    @property
    def size(self) -> int:
        size = 1
        for members, _, _ in self.levels:
            size *= members
        return size


@dataclass(frozen=True)
class Cluster:
    """Devices in order, and links of which the first that joins two devices carries their transfers; `tasks` say where processes listen."""

    devices: tuple[Device, ...]
    links: tuple[Link, ...] = ()
    name: str = "cluster"
    tasks: tuple[Task, ...] = ()
    _groups: dict[tuple[str, ...], LinkGroup] = field(default_factory=dict, init=False, repr=False, compare=False)
    _pairs: dict[tuple[str, str], Link] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.devices:
            raise CleaveError(f"cluster {self.name!r} has no devices, expected at least one")
        if len(self._by_name) != len(self.devices):
            twice = sorted({d.name for d in self.devices if sum(e.name == d.name for e in self.devices) > 1})
            raise CleaveError(f"cluster {self.name!r} names device {twice[0]!r} twice")
        self._check_tasks()

    def _check_tasks(self) -> None:
        """Addresses for all tasks that have devices, or for none."""
        names, addresses = Counter(t.name for t in self.tasks), Counter(t.address for t in self.tasks)
        for name, count in names.items():
            if count > 1:
                raise CleaveError(f"cluster {self.name!r} gives task {name!r} twice")
        strange, missing = sorted(set(names) - set(self.task_names)), [n for n in self.task_names if n not in names]
        if strange:
            raise CleaveError(f"cluster {self.name!r} gives an address for {strange[0]!r}, which has no [[devices]]")
        if names and missing:
            raise CleaveError(f"cluster {self.name!r} has no address for task {missing[0]!r}, add a [[tasks]] entry")
        for address, count in addresses.items():
            if count > 1:
                raise CleaveError(f"cluster {self.name!r} gives the address {address} to {count} tasks")

    @classmethod
    def parse(cls, text: str | Path) -> Cluster:
        """`cpu:N`, a path to a TOML file, or TOML text (recognised by its newline or `=`)."""
        from cost_model.cluster_toml import read_cluster

        if isinstance(text, str) and (local := _LOCAL.match(text)):
            return local_cpus(int(local[1]))
        if isinstance(text, str) and ("\n" in text or "=" in text):
            return read_cluster(text, "cluster text")
        path = Path(text)
        try:
            content = path.read_text(encoding="utf-8")
        except FileNotFoundError:
            raise CleaveError(f"cluster {str(text)!r}: no such file, expected 'cpu:N' or the path of a cluster .toml") from None
        except (OSError, UnicodeDecodeError) as error:
            raise CleaveError(f"cluster {str(text)!r} cannot be read: {error}") from None
        return read_cluster(content, str(path))

    def to_toml(self) -> str:
        """The text that parses to this cluster."""
        from cost_model.cluster_toml import write_cluster

        return write_cluster(self)

    @cached_property
    def _by_name(self) -> dict[str, Device]:
        return {d.name: d for d in self.devices}

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(d.name for d in self.devices)

    @cached_property
    def task_names(self) -> tuple[str, ...]:
        """The tasks that devices are in, in order; "" is the one local process."""
        return tuple(dict.fromkeys(task_of(d.name) for d in self.devices))

    def task(self, text: str) -> Task:
        """The task that `worker:1` or `/job:worker/task:1` names."""
        if not self.tasks:
            raise CleaveError(f"cluster {self.name!r} gives no addresses, add a [[tasks]] entry with name and address for each task")
        job, _, number = text.partition(":")
        found = [t for t in self.tasks if text == t.name or (job == t.job and number == str(t.number))]
        if not found:
            raise CleaveError(f"cluster {self.name!r} has no task {text!r}, it has {_first([f'{t.job}:{t.number}' for t in self.tasks])}")
        return found[0]

    def without(self, *tasks: str) -> Cluster:
        """The cluster that is left when these tasks (`worker:1`) are gone."""
        gone = {self.task(text).name for text in tasks}
        devices = tuple(d for d in self.devices if task_of(d.name) not in gone)
        if not devices:
            raise CleaveError(f"cluster {self.name!r} without {', '.join(tasks)} has no devices left")
        return Cluster(devices, self.links, self.name, tuple(t for t in self.tasks if t.name not in gone))

    def __contains__(self, name: str) -> bool:
        return name in self._by_name

    def device(self, name: str) -> Device:
        found = self._by_name.get(name)
        if found is None:
            raise CleaveError(f"cluster {self.name!r} has no device {name!r}, it has {_first(self.names)}")
        return found

    @cached_property
    def workers(self) -> tuple[Device, ...]:
        """The devices to compute on: all but the host CPUs of tasks that have accelerators."""
        accelerated = {device_name(d.name)[:2] for d in self.devices if d.kind != "CPU"}
        return tuple(d for d in self.devices if d.kind != "CPU" or device_name(d.name)[:2] not in accelerated)

    def host(self, name: str) -> str:
        """The CPU of the task `name` is in, where strings, shapes and variants live; `name` itself where the task lists no CPU."""
        task = device_name(name)[:2]
        return self._hosts.get(task, name)

    @cached_property
    def _hosts(self) -> dict[tuple[str | None, int | None], str]:
        hosts: dict[tuple[str | None, int | None], str] = {}
        for device in self.devices:
            if device.kind == "CPU":
                hosts.setdefault(device_name(device.name)[:2], device.name)
        return hosts

    def resolve(self, pin: str) -> str:
        """The device a pin such as `/CPU:1` or `/job:worker/task:1` means: the first that fits; CleaveError where none does."""
        if pin in self._by_name:
            return pin
        wanted = device_name(pin)
        fits = [d.name for d in self.devices if wanted.fits(device_name(d.name))]
        if not fits:
            raise CleaveError(f"cluster {self.name!r} has no device that fits {pin!r}, it has {_first(self.names)}")
        return fits[0]

    def link(self, left: str, right: str) -> Link:
        """The link between two different devices."""
        found = self._pairs.get((left, right))
        if found is None:
            for link in self.links:
                if link.joins(left, right):
                    self._pairs[left, right] = found = link
                    break
            else:
                raise CleaveError(f"cluster {self.name!r} has no link between {left!r} and {right!r}, add a [[links]] entry")
        return found

    def group(self, devices: Iterable[str]) -> LinkGroup:
        """The levels of a collective over `devices`: within a task first, then between tasks."""
        key = tuple(dict.fromkeys(devices))
        if key not in self._groups:
            self._groups[key] = self._level(key)
        return self._groups[key]

    def _level(self, devices: tuple[str, ...]) -> LinkGroup:
        tasks: dict[tuple[str | None, int | None], list[str]] = {}
        for name in devices:
            tasks.setdefault(device_name(self.device(name).name)[:2], []).append(name)
        groups = list(tasks.values())
        if len(devices) == 1:
            return LinkGroup(())
        if len(groups) == 1 or len({len(g) for g in groups}) > 1:
            return LinkGroup(((len(devices), self._slowest(devices), _sharing(groups)),))
        inner = len(groups[0])
        within = ((inner, self._slowest(groups[0]), 1),) if inner > 1 else ()
        across = self._slowest([g[0] for g in groups])
        return LinkGroup((*within, (len(groups), across, inner if across.port != "device" else 1)))

    def _slowest(self, devices: Sequence[str]) -> Link:
        """The slowest link of the ring through `devices`."""
        ring = zip(devices, [*devices[1:], devices[0]], strict=True)
        return max(
            (self.link(a, b) for a, b in ring if a != b), key=lambda link: (1 / link.bytes_per_second, link.alpha_seconds, link.name)
        )


def _sharing(groups: list[list[str]]) -> int:
    return 1 if len(groups) == 1 else max(len(g) for g in groups)


def _first(names: Sequence[str]) -> str:
    return ", ".join(names[:4]) + (f", ... ({len(names)} in all)" if len(names) > 4 else "")


def local_cpus(count: int) -> Cluster:
    """`count` logical CPU devices of one process, one core each: a transfer hands over a pointer and wakes a thread.

    Figures of a server core of 2020 with AVX2 at 90 GFLOP/s, measured through TensorFlow's executor; `cleave calibrate` replaces them.
    """
    if not 1 <= count <= _MOST_LOCAL_DEVICES:
        raise CleaveError(f"cluster 'cpu:{count}': expected between 1 and {_MOST_LOCAL_DEVICES} devices")
    devices = tuple(
        Device(str(DeviceName(None, None, "CPU", i)), "CPU", {"float32": 90e9}, memory_bandwidth=12e9, overhead_seconds=1e-6)
        for i in range(count)
    )
    return Cluster(devices, (Link("memory", 50e-6, 50e9, scope="task"),), f"cpu:{count}")
