"""Device strings in one form: `/job:localhost/replica:0/task:0/cpu:0` => `/device:CPU:0`; a remote task is kept, a replica never."""

from __future__ import annotations

from functools import cache

from compiler.ir.errors import CleaveError


@cache
def canonical_device(device: str) -> str:
    """The canonical form; "" is no device.  CleaveError for what is no device string."""
    parts = dict(_part(part, device) for part in device.split("/") if part)
    local = parts.get("job", "localhost") == "localhost"
    kept = [f"/{key}:{parts[key]}" for key in ("job", "task") if key in parts and not local]
    return "".join(kept) + (f"/device:{parts['device']}" if "device" in parts else "")


def _part(part: str, device: str) -> tuple[str, str]:
    """`replica:0` => (replica, 0);  `cpu:0`, `device:CPU:0` => (device, CPU:0)."""
    key, colon, value = part.partition(":")
    if key.lower() in ("job", "replica", "task") and value:
        return key.lower(), value
    if key.lower() == "device":
        kind, _, index = value.partition(":")
        return "device", f"{kind.upper()}:{index or '*'}"
    if key.upper() in ("CPU", "GPU", "TPU") and (value.isdigit() or value == "*" or not colon):
        return "device", f"{key.upper()}:{value or '*'}"
    raise CleaveError(f"{device!r} is no device, expected one such as '/device:CPU:0'")
