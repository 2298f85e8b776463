"""For whom a model is emitted, as data: what the reader of a GraphDef may be asked to understand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from compiler.ir.errors import CleaveError


@dataclass(frozen=True)
class Profile:
    """`envelope`: the body is a function called with Grappler off. `devices`: nodes keep their devices, without job and task.
    `xla`: regions may be marked for XLA. `private_ops`: ops whose names begin with an underscore, tied to a version and a platform.
    `tasks`: devices keep job and task, for a cluster's own graphs; a saved model with them loads nowhere else.
    """

    name: str
    envelope: bool
    devices: bool
    xla: bool
    private_ops: bool
    tasks: bool = False


PROFILES: Mapping[str, Profile] = MappingProxyType(
    {
        "tf": Profile("tf", envelope=True, devices=True, xla=True, private_ops=False),
        "serving": Profile("serving", envelope=True, devices=True, xla=False, private_ops=False),  # XLA is opt-in there
        "tflite": Profile("tflite", envelope=False, devices=False, xla=False, private_ops=False),  # a call with a config does not convert
        "portable": Profile("portable", envelope=True, devices=False, xla=False, private_ops=False),
        # For a Session over tasks: functions there may not span them, and Grappler is off by the Session's own settings.
        "cluster": Profile("cluster", envelope=False, devices=True, xla=False, private_ops=False, tasks=True),
        "native": Profile("native", envelope=True, devices=True, xla=True, private_ops=True),
    }
)


def profile_named(name: str) -> Profile:
    if name not in PROFILES:
        raise CleaveError(f"no profile {name!r}, expected one of {', '.join(PROFILES)}")
    return PROFILES[name]
