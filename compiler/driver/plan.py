"""The plan of a compiled module: how each operator is split and why, where it runs, and what that is predicted to cost."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass

from compiler.ir.errors import CleaveError
from passes.split.choose import Decision


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

    @property
    def splits(self) -> tuple[Decision, ...]:
        """Decisions that divide an operator."""
        return tuple(d for d in self.decisions if d.chosen not in ("whole", "replica"))

    def explain(self, op: str) -> str:
        """Why the operators named `op`, or that come from the layer `op`, are as they are: what was considered, at what price."""
        found = [d for d in self.decisions if _speaks_of(d, op)]
        if not found:
            names = sorted({d.node for d in self.decisions})
            raise CleaveError(f"no operator or layer {op!r} in the plan, expected one such as {', '.join(names[:4])}")
        return "\n\n".join(self._explain_one(d) for d in found)

    def _explain_one(self, decision: Decision) -> str:
        lines = [f"{decision.op} {decision.node!r} (from {', '.join(decision.origin) or 'nothing'}): {_in_words(decision.chosen)}"]
        if decision.refusal:
            lines.append(f"  not divided: {decision.refusal}")
        best = min((a.seconds + a.reshard_seconds for a in decision.alternatives), default=0.0)
        for alternative in sorted(decision.alternatives, key=lambda a: (a.seconds + a.reshard_seconds, a.label)):
            total = alternative.seconds + alternative.reshard_seconds
            mark = "->" if alternative.label == decision.chosen else "  "
            lines.append(
                f"  {mark} {alternative.label:<16} {total * 1e6:10.1f} us  (computing {alternative.seconds * 1e6:.1f}, "
                f"moving data to and from its neighbours {alternative.reshard_seconds * 1e6:.1f}; {(total - best) * 1e6:+.1f})"
            )
        parts = Counter(p.device for p in self.placed if _made_from(p, decision))
        lines.append(
            "  runs on " + (", ".join(f"{d} ({n} nodes)" for d, n in sorted(parts.items())) or "no device: it was folded or fused away")
        )
        return "\n".join(lines)

    def to_json(self) -> str:
        """The plan as data; equal plans give equal text."""
        return json.dumps(asdict(self), indent=1, sort_keys=True) + "\n"

    def table(self) -> list[tuple[str, str, str, str]]:
        """(layer or node, op, how it is split, devices), one row for each divided operator."""
        return [(d.origin[0] if d.origin else d.node, d.op, d.chosen, self._devices(d)) for d in self.splits]

    def _devices(self, decision: Decision) -> str:
        return ", ".join(sorted({p.device.removeprefix("/device:") for p in self.placed if _made_from(p, decision)}))


def _speaks_of(decision: Decision, op: str) -> bool:
    """Is `op` the node, or scopes in where it comes from?  Keras numbers its scopes: `dense` is found in `model/dense_1/MatMul`."""
    wanted = op.strip("/").split("/")
    for name in (decision.node, *decision.origin):
        scopes = name.split("/")
        for start in range(len(scopes) - len(wanted) + 1):
            if all(_is_scope(a, b) for a, b in zip(scopes[start:], wanted, strict=False)):
                return True
    return False


def _is_scope(scope: str, wanted: str) -> bool:
    return scope == wanted or (scope.startswith(f"{wanted}_") and scope[len(wanted) + 1 :].isdigit())


def _made_from(placed: Placed, decision: Decision) -> bool:
    if placed.entry != decision.entry:
        return False
    return placed.node == decision.node or placed.node.startswith(f"{decision.node}/") or bool(set(placed.origin) & set(decision.origin))


def _in_words(label: str) -> str:
    if label == "whole":
        return "left whole"
    if label == "replica":
        return "computed on every device"
    return "split by " + ", ".join(f"{part.split(':')[0]} over mesh axis {part.split(':')[1]}" for part in label.split(","))


def summary(decisions: Iterable[Decision]) -> dict[str, int]:
    """How many operators were split by each kind of factor, and how many left whole."""
    return dict(sorted(Counter(d.chosen for d in decisions).items()))
