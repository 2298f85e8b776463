"""What partition says it did, as data: the derivation that `check` proves, and that a plan is written with.

For each divided node: the factors that run over mesh axes, the nodes it became on each device, and how each result lies.  For each piece of
a constant: which piece.  For each node of a reshard: which value of the module before it moves or combines.

    h = MatMul split by n:d -> h/0 on /device:CPU:0, h/1 on /device:CPU:1; h:0 lies as [_,d] in h/0, h/1
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from compiler.ir.graph import Value
from compiler.ir.sharding import Sharding


@dataclass(frozen=True)
class Part:
    """One device's share of a divided node: the node first, then those that finish its results; and the values that are its results."""

    device: str
    nodes: tuple[str, ...]
    results: tuple[Value, ...]


@dataclass(frozen=True)
class Divided:
    """A node of the module before: `factors` such as `("n:d",)`, a part for each device in the mesh's order, a layout for each result."""

    node: str
    op: str
    factors: tuple[str, ...]
    parts: tuple[Part, ...]
    layouts: tuple[Sharding, ...]

    def __str__(self) -> str:
        how = f"split by {', '.join(self.factors)}" if self.factors else "on every device"
        where = ", ".join(f"{part.nodes[0]} on {part.device}" for part in self.parts)
        lies = [
            f"{self.node}:{port} lies as {layout} in {', '.join(str(part.results[port]) for part in self.parts)}"
            for port, layout in enumerate(self.layouts)
        ]
        return "; ".join([f"{self.node} = {self.op} {how} -> {where}", *lies])


@dataclass(frozen=True)
class Share:
    """A constant that is a piece of one of the module before: (first, rows) in each dimension."""

    constant: str
    bounds: tuple[tuple[int, int], ...]


@dataclass
class Derivation:
    """What became of one entry; `partition` fills it.  `shares` and `moves` go by the names of the nodes they made."""

    entry: str
    divided: list[Divided] = field(default_factory=list)
    shares: dict[str, Share] = field(default_factory=dict)
    moves: dict[str, Value] = field(default_factory=dict)

    def to_json(self) -> Mapping[str, object]:
        """As data that a plan is written with."""
        return {
            "entry": self.entry,
            "divided": [str(divided) for divided in self.divided],
            "shares": {name: [share.constant, *map(list, share.bounds)] for name, share in sorted(self.shares.items())},
            "moves": {name: str(value) for name, value in sorted(self.moves.items())},
        }
