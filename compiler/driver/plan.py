"""The plan of a compiled module: how each operator is split and why, where it runs, and what that is predicted to cost.

`explain` and `what_if` argue, `diff` compares, `to_json` keeps; `follow` is what another compilation needs to do the same.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from compiler.driver.explain import differences, explain, made_from
from compiler.ir.errors import CleaveError
from passes.layers import nobody, speaks_of
from passes.split.choose import Alternative, Decision
from passes.split.iopddl import problem_bytes
from passes.split.problem import Unsolvable
from passes.split.study import Study, WhatIf
from passes.split.wishes import Wishes


@dataclass(frozen=True)
class Placed:
    """One node of the final module: where it runs, and from what it came."""

    entry: str
    node: str
    op: str
    device: str
    origin: tuple[str, ...]


@dataclass(frozen=True)
class DeviceLoad:
    """Predicted figures of one device for one call: busy seconds, bytes of weights it holds, the highest bytes alive at once."""

    device: str
    busy_seconds: float
    weight_bytes: int
    peak_bytes: int


@dataclass(frozen=True)
class Plan:
    """What was decided.  `predicted_seconds` is the simulated time of one call, `unsplit_seconds` the same of the module on one device."""

    cluster: str
    objective: str
    sizes: Mapping[str, int]
    predicted_seconds: float
    unsplit_seconds: float
    bound_gap: Mapping[str, float]
    loads: tuple[DeviceLoad, ...]
    decisions: tuple[Decision, ...]
    placed: tuple[Placed, ...]
    workers: int = 0
    """Devices that operators may be divided over."""
    pins: Mapping[str, str] = field(default_factory=dict)
    wishes: Mapping[str, str] = field(default_factory=dict)
    """Splits that were asked for."""
    derivations: tuple[Mapping[str, object], ...] = ()
    """The proof: what became of each node, constant and reshard, as it was checked."""
    studies: Mapping[str, Study] = field(default_factory=dict, compare=False, repr=False)
    """By entry, all prices; not kept in a file."""

    @property
    def splits(self) -> tuple[Decision, ...]:
        """Decisions that divide an operator."""
        return tuple(d for d in self.decisions if d.chosen not in ("whole", "replica"))

    def explain(self, op: str) -> str:
        """Why an operator, those of a layer or of a kind, are as they are: what was considered, at what price, and why not otherwise."""
        found = [d for d in self.decisions if speaks_of(op, d.node, d.op, d.origin)]
        if not found:
            raise nobody(op, ((d.node, d.op, d.origin) for d in self.decisions))
        return explain(self, found)

    def what_if(self, op: str, strategy: str, entry: str | None = None) -> WhatIf:
        """The best plan in which `op` (an operator, layer or kind) is split by `strategy` (`n`, `n:d`, `whole`, `replica`): its time, and
        the difference; the rest is chosen anew.  Seconds are those of the cost model, of operators and moves one after another."""
        if not self.studies:
            raise CleaveError(
                "this plan keeps no prices: it was read from a file or made for one device; plan the model again to ask what if"
            )
        refused: CleaveError | None = None
        for study in (self.studies[e] for e in self.studies if entry in (None, e)):
            try:
                return study.what_if(study.meant(op, strategy))
            except Unsolvable:
                raise
            except CleaveError as error:
                refused = refused or error
        raise refused or CleaveError(f"the plan has no signature {entry!r}, expected one of {sorted(self.studies)}")

    def iopddl(self, entry: str | None = None, compressed: bool = False) -> bytes:
        """The problem that was solved for one signature, as a file of the IOPDDL contest's format."""
        found = [key for key in self.studies if entry in (None, key)]
        if len(found) != 1:
            kept = (
                f"it keeps those of {sorted(self.studies)}" if self.studies else "it keeps none: made for one device, or read from a file"
            )
            raise CleaveError(f"one signature's problem can be exported from the plan, but {kept}")
        return problem_bytes(self.studies[found[0]].problem, found[0], compressed)

    def diff(self, other: Plan) -> str:
        """What `other` does otherwise, in words; "" where it is the same."""
        return "\n".join(differences(self, other))

    @property
    def follow(self) -> Wishes:
        """What choose needs to take the same strategies: on as many devices all of them, on others as a start."""
        chosen: dict[str, dict[str, str]] = {}
        for decision in self.decisions:
            chosen.setdefault(decision.entry, {})[decision.node] = decision.chosen
        return Wishes(chosen=chosen, devices=self.workers)

    def to_json(self) -> str:
        """The plan as data; equal plans give equal text."""
        return json.dumps(asdict(replace(self, studies={})), indent=1, sort_keys=True) + "\n"

    @staticmethod
    def from_json(text: str, name: str = "the plan") -> Plan:
        """The inverse of `to_json`; CleaveError where the text is no plan."""
        try:
            return _plan(json.loads(text))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise CleaveError(f"{name} is not a plan as to_json writes it: {type(error).__name__} {error}") from None

    @staticmethod
    def read(path: str | Path) -> Plan:
        """The plan in a file."""
        try:
            return Plan.from_json(Path(path).read_text(encoding="utf-8"), str(path))
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not text"
            raise CleaveError(f"cannot read the plan {path}: {why}; --save-plan writes one") from None

    def table(self) -> list[tuple[str, str, str, str]]:
        """(layer or node, op, how it is split, devices), one row for each divided operator."""
        return [(d.origin[0] if d.origin else d.node, d.op, d.chosen, self._devices(d)) for d in self.splits]

    def _devices(self, decision: Decision) -> str:
        devices = {p.device.removeprefix("/device:") for p in self.placed if made_from(p.entry, p.node, p.origin, decision)}
        return ", ".join(sorted(devices))


def _plan(data: Any) -> Plan:
    fields = {name: value for name, value in data.items() if name != "studies"}
    fields["loads"] = tuple(DeviceLoad(**load) for load in data["loads"])
    fields["placed"] = tuple(Placed(**{**placed, "origin": tuple(placed["origin"])}) for placed in data["placed"])
    fields["derivations"] = tuple(data.get("derivations", ()))
    fields["decisions"] = tuple(
        Decision(**{**d, "origin": tuple(d["origin"]), "alternatives": tuple(Alternative(**a) for a in d["alternatives"])})
        for d in data["decisions"]
    )
    return Plan(**fields)


def summary(decisions: Iterable[Decision]) -> dict[str, int]:
    """How many operators were split by each kind of factor, and how many left whole."""
    return dict(sorted(Counter(d.chosen for d in decisions).items()))
