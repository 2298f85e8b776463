"""A cluster as TOML: `read_cluster(write_cluster(c)) == c`, and every fault of the text is named with its entry and key.

name = "node"
[[devices]]
name = "/job:worker/task:[0-1]/device:GPU:[0-7]"     # [lo-hi] counts: sixteen devices
kind = "GPU"
peak_flops = { float32 = 19.5e12, bfloat16 = 312e12 }
memory_bandwidth = 2.0e12
memory_bytes = 80e9
overhead_seconds = 5e-6
efficiency = { matmul = [[1e9, 0.3], [1e12, 0.75]] }
[[links]]
name = "nvlink"
scope = "task"
between = ["*GPU*", "*GPU*"]
alpha_seconds = 5e-6
bytes_per_second = 300e9
[[tasks]]                                             # where tasks listen: only for clusters that things are run on
name = "/job:worker/task:[0-1]"
address = "10.0.0.[7-8]:2222"
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Iterator, Mapping
from itertools import groupby, pairwise, product

from compiler.ir.errors import CleaveError, IrError
from compiler.ir.types import DType
from cost_model.cluster import Cluster
from cost_model.devices import OP_CLASSES, PORTS, SCOPES, Device, Link, Task, device_name

_DEVICE_KEYS = ("name", "kind", "peak_flops", "memory_bandwidth", "memory_bytes", "overhead_seconds", "efficiency")
_LINK_KEYS = ("name", "alpha_seconds", "bytes_per_second", "scope", "between", "port")
_TASK_KEYS = ("name", "address")
_ADDRESS = re.compile(r"(?:[\w.\-]+|\[[0-9A-Fa-f:.]+\]):(\d{1,5})")
_RANGE = re.compile(r"\[(\d+)-(\d+)\]")
_MOST_DEVICES = 100_000


def read_cluster(text: str, where: str) -> Cluster:
    """The cluster a TOML text describes; `where` names the text in errors."""
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise CleaveError(f"{where}: not TOML: {error}") from None
    _known(table, ("name", "devices", "links", "tasks"), where)
    name = table.get("name", "cluster")
    if not isinstance(name, str):
        raise CleaveError(f"{where}: name is {name!r}, expected a string")
    devices = tuple(d for i, entry in enumerate(_entries(table, "devices", where)) for d in _devices(entry, f"{where}: devices[{i}]"))
    if len(devices) > _MOST_DEVICES:
        raise CleaveError(f"{where}: {len(devices)} devices, expected at most {_MOST_DEVICES}")
    links = tuple(_link(entry, f"{where}: links[{i}]") for i, entry in enumerate(_entries(table, "links", where)))
    tasks = tuple(t for i, entry in enumerate(_entries(table, "tasks", where)) for t in _tasks(entry, f"{where}: tasks[{i}]"))
    return Cluster(devices, links, name, tasks)


def _entries(table: Mapping[str, object], key: str, where: str) -> list[Mapping[str, object]]:
    found = table.get(key, [])
    if not isinstance(found, list) or not all(isinstance(e, dict) for e in found):
        raise CleaveError(f"{where}: {key!r} is not a list of tables, write [[{key}]]")
    return found


def _known(table: Mapping[str, object], keys: tuple[str, ...], where: str) -> None:
    for key in table:
        if key not in keys:
            raise CleaveError(f"{where}: unknown key {key!r}, expected one of {', '.join(keys)}")


def _devices(entry: Mapping[str, object], where: str) -> Iterator[Device]:
    _known(entry, _DEVICE_KEYS, where)
    peaks = _table(entry, "peak_flops", where)
    for dtype in peaks:
        _element_type(dtype, where)
    if "float32" not in peaks:
        raise CleaveError(f"{where}: peak_flops has no float32 figure, the one other types fall back on")
    name = _text(entry, "name", where)
    for expanded in _expand(name, where):
        parts = device_name(expanded)
        if parts.kind is None or parts.number is None:
            raise CleaveError(f"{where}: name {expanded!r} is no whole device name, expected one such as '/device:CPU:0'")
        kind = entry.get("kind", parts.kind)
        if kind != parts.kind:
            raise CleaveError(f"{where}: kind is {kind!r} but the name {expanded!r} says {parts.kind!r}")
        yield Device(
            str(parts),
            parts.kind,
            {k: _number(peaks, k, f"{where}.peak_flops") for k in sorted(peaks)},
            _number(entry, "memory_bandwidth", where),
            _number(entry, "memory_bytes", where, math.inf),
            _number(entry, "overhead_seconds", where, 1e-6, least=0.0),
            {k: _curve(v, f"{where}.efficiency.{k}") for k, v in sorted(_table(entry, "efficiency", where).items())},
        )


def _element_type(name: str, where: str) -> None:
    try:
        long = DType(name)
    except IrError as error:
        raise CleaveError(f"{where}: peak_flops: {error}") from None
    if long != name:
        raise CleaveError(f"{where}: peak_flops names {name!r}, write {str(long)!r}")


def _link(entry: Mapping[str, object], where: str) -> Link:
    _known(entry, _LINK_KEYS, where)
    between = entry.get("between", ["*", "*"])
    if not isinstance(between, list) or len(between) != 2 or not all(isinstance(b, str) for b in between):
        raise CleaveError(f"{where}: between is {between!r}, expected two patterns of device names")
    return Link(
        _text(entry, "name", where),
        _number(entry, "alpha_seconds", where, least=0.0),
        _number(entry, "bytes_per_second", where),
        _choice(entry, "scope", SCOPES, "cluster", where),
        (between[0], between[1]),
        _choice(entry, "port", PORTS, "device", where),
    )


def _tasks(entry: Mapping[str, object], where: str) -> Iterator[Task]:
    """Ranges of the name and of the address count together."""
    _known(entry, _TASK_KEYS, where)
    names = list(_expand(_text(entry, "name", where), where))
    addresses = list(_expand(_text(entry, "address", where), where))
    if len(names) != len(addresses):
        raise CleaveError(f"{where}: {len(names)} names and {len(addresses)} addresses, expected one address for each name")
    for name, address in zip(names, addresses, strict=True):
        parts = device_name(name)
        if parts.job is None or parts.task is None or parts.kind is not None:
            raise CleaveError(f"{where}: name {name!r} is no task, expected one such as '/job:worker/task:0'")
        found = _ADDRESS.fullmatch(address)
        if found is None or not 0 < int(found[1]) < 65536:
            raise CleaveError(f"{where}: address is {address!r}, expected HOST:PORT")
        yield Task(str(parts), address)


def _choice(entry: Mapping[str, object], key: str, allowed: tuple[str, ...], default: str, where: str) -> str:
    value = entry.get(key, default)
    if not isinstance(value, str) or value not in allowed:
        raise CleaveError(f"{where}: {key} is {value!r}, expected one of {', '.join(allowed)}")
    return value


def _text(entry: Mapping[str, object], key: str, where: str) -> str:
    value = entry.get(key)
    if not isinstance(value, str) or not value:
        raise CleaveError(f"{where}: {key} is {value!r}, expected a string")
    return value


def _table(entry: Mapping[str, object], key: str, where: str) -> Mapping[str, object]:
    value = entry.get(key, {})
    if not isinstance(value, dict):
        raise CleaveError(f"{where}: {key} is {value!r}, expected a table such as {{ float32 = 1e12 }}")
    return value


def _number(entry: Mapping[str, object], key: str, where: str, default: float | None = None, least: float | None = None) -> float:
    """A figure above 0 (or at least `least`)."""
    value = entry.get(key, default)
    if value is None:
        raise CleaveError(f"{where}: {key} is missing, expected a number")
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
        raise CleaveError(f"{where}: {key} is {value!r}, expected a number")
    if value < least if least is not None else value <= 0:
        raise CleaveError(f"{where}: {key} is {value!r}, expected {'at least 0' if least is not None else 'more than 0'}")
    return float(value)


def _curve(value: object, where: str) -> tuple[tuple[float, float], ...]:
    if where.rsplit(".", 1)[1] not in OP_CLASSES:
        raise CleaveError(f"{where}: unknown class of operators, expected one of {', '.join(OP_CLASSES)}")
    points = [[1.0, value]] if isinstance(value, int | float) else value
    if not isinstance(points, list) or not points or not all(isinstance(p, list) and len(p) == 2 for p in points):
        raise CleaveError(f"{where} is {value!r}, expected a share or points [[flops, share], ...]")
    curve = tuple((_number({"flops": f}, "flops", where), _number({"share": s}, "share", where)) for f, s in points)
    if any(share > 1 for _, share in curve) or any(a[0] >= b[0] for a, b in pairwise(curve)):
        raise CleaveError(f"{where} is {value!r}, expected shares of at most 1 at increasing flops")
    return curve


def _expand(name: str, where: str) -> Iterator[str]:
    """`GPU:[0-7]` is eight names, the last range counting fastest."""
    ranges = [(int(low), int(high)) for low, high in _RANGE.findall(name)]
    if any(high < low or high - low >= _MOST_DEVICES for low, high in ranges):
        raise CleaveError(f"{where}: name {name!r} has a range that counts down or past {_MOST_DEVICES}")
    pieces = _RANGE.split(name)[::3]
    for numbers in product(*(range(low, high + 1) for low, high in ranges)):
        yield "".join(a + str(n) for a, n in zip(pieces, numbers, strict=False)) + pieces[-1]


def write_cluster(cluster: Cluster) -> str:
    """The text form: runs of devices with equal figures as one entry where their names count up."""
    blocks = [f"name = {_quoted(cluster.name)}\n"]
    for _, run in groupby(cluster.devices, key=Device.figures):
        devices = list(run)
        for pattern in _patterns([d.name for d in devices]):
            blocks.append(_device_text(devices[0], pattern))
    blocks += [_link_text(link) for link in cluster.links]
    blocks += [f"[[tasks]]\nname = {_quoted(task.name)}\naddress = {_quoted(task.address)}\n" for task in cluster.tasks]
    return "\n".join(blocks)


def _patterns(names: list[str]) -> list[str]:
    """One pattern that expands to `names`, or the names themselves."""
    first, last = device_name(names[0]), device_name(names[-1])
    task = "" if first.task is None else f"/task:{_range(first.task, last.task)}"
    job = "" if first.job is None else f"/job:{first.job}"
    pattern = f"{job}{task}/device:{first.kind}:{_range(first.number, last.number)}"
    return [pattern] if list(_expand(pattern, "")) == names else names


def _range(low: int | None, high: int | None) -> str:
    return str(low) if low == high or high is None or low is None or high < low else f"[{low}-{high}]"


def _device_text(device: Device, pattern: str) -> str:
    lines = [
        "[[devices]]",
        f"name = {_quoted(pattern)}",
        f"kind = {_quoted(device.kind)}",
        f"peak_flops = {{ {', '.join(f'{k} = {v!r}' for k, v in sorted(device.peak_flops.items()))} }}",
        f"memory_bandwidth = {device.memory_bandwidth!r}",
        f"memory_bytes = {device.memory_bytes!r}",
        f"overhead_seconds = {device.overhead_seconds!r}",
    ]
    if device.efficiency:
        curves = (f"{k} = [{', '.join(f'[{f!r}, {s!r}]' for f, s in points)}]" for k, points in sorted(device.efficiency.items()))
        lines.append(f"efficiency = {{ {', '.join(curves)} }}")
    return "\n".join(lines) + "\n"


def _link_text(link: Link) -> str:
    lines = [
        "[[links]]",
        f"name = {_quoted(link.name)}",
        f"alpha_seconds = {link.alpha_seconds!r}",
        f"bytes_per_second = {link.bytes_per_second!r}",
    ]
    lines += [
        f"scope = {_quoted(link.scope)}",
        f"between = [{_quoted(link.between[0])}, {_quoted(link.between[1])}]",
        f"port = {_quoted(link.port)}",
    ]
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(f"\\u{ord(c):04x}" if ord(c) < 32 else c for c in escaped) + '"'
