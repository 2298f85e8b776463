"""What the user, or an earlier plan, has fixed before splits are chosen: a service that choose reads.

splits   `{"dense": "n"}`     operators by name, layer or kind: only strategies that divide by that factor ("n:d", "whole", "replica" too)
chosen   {entry: {node: label}}    the strategies of a plan made for as many devices; a node that cannot be divided so is chosen anew
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from compiler.ir.errors import CleaveError
from passes.layers import Named, nobody, speaks_of


@dataclass(frozen=True)
class Wishes:
    """`devices` is how many the plan of `chosen` was made for: with another number its strategies are a start, not a constraint."""

    splits: Mapping[str, str] = field(default_factory=dict)
    chosen: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    devices: int = 0


def is_meant(wish: str, label: str) -> bool:
    """Does a strategy's label fulfil a wish?  `n` or `n:d` for `n:d`; `n,m` for both factors."""
    if wish == label:
        return True
    asked, given = sorted(wish.split(",")), sorted(part.partition(":")[0] for part in label.split(","))
    return ":" in label and (asked == given or asked == sorted(label.split(",")))


def allowed(wish: str, labels: Sequence[str]) -> list[bool]:
    return [is_meant(wish, label) for label in labels]


def fixed_by(wishes: Mapping[str, str], nodes: Sequence[tuple[Named, Sequence[str]]]) -> dict[int, str]:
    """position -> the wish that fixes it.  Of a layer, what can be divided so is; CleaveError where nothing can, or nothing is meant."""
    found: dict[int, str] = {}
    for wanted, wish in wishes.items():
        meant = [i for i, (who, _) in enumerate(nodes) if speaks_of(wanted, *who)]
        able = [i for i in meant if any(allowed(wish, nodes[i][1]))]
        if not meant:
            raise nobody(wanted, (who for who, _ in nodes))
        if not able:
            raise CleaveError(f"{wanted!r} cannot be split by {wish!r}; {_ways(nodes[i] for i in meant)}")
        found.update(dict.fromkeys(able, wish))
    return found


def _ways(nodes: Iterable[tuple[Named, Sequence[str]]]) -> str:
    """What there is instead, of the first node that can be divided at all."""
    listed = list(nodes)
    (name, op, _), labels = next((n for n in listed if len(n[1]) > 1), listed[0])
    if len(labels) == 1:
        return f"{op} {name!r} is not divided at all"
    return f"expected one of {', '.join(labels)} for {op} {name!r}"
