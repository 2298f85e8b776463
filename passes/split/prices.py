"""What it costs to bring a value from how it lies to how it is wanted: asked for each edge, answered once for each kind of edge.

whole     -> anything    sent from one device, or cut there
anything  -> whole       gathered
divided   -> windowed    as the window's base, then a halo exchange along each dimension that is not whole everywhere
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from compiler.ir.sharding import Mesh, Sharding, Windowed, without
from compiler.ir.types import TensorType
from cost_model.model import CostModel
from passes.split.problem import FORBIDDEN, Vector

Lies = Sharding | Windowed | None
"""How a value lies, or is wanted; None: whole on one device."""


@dataclass
class Reshards:
    """Seconds of reshards on one mesh."""

    costs: CostModel
    mesh: Mesh
    sizes: Mapping[str, int]
    _seconds: dict[tuple[TensorType, Lies, Lies], float] = field(default_factory=dict)
    _matrices: dict[tuple[TensorType, tuple[Lies, ...], tuple[Lies, ...]], Vector] = field(default_factory=dict)

    def matrix(self, type_: TensorType, sources: tuple[Lies, ...], targets: tuple[Lies, ...]) -> Vector:
        """[source, target] seconds; the same array for the same question."""
        key = (type_, sources, targets)
        if key not in self._matrices:
            self._matrices[key] = np.array([[self.seconds(type_, a, b) for b in targets] for a in sources])
        return self._matrices[key]

    def seconds(self, type_: TensorType, source: Lies, target: Lies) -> float:
        """Seconds from one form to another; a whole value is sent to, or gathered on, one device."""
        key = (type_, source, target)
        if key not in self._seconds:
            self._seconds[key] = self._reshard(type_, source, target)
        return self._seconds[key]

    def _reshard(self, type_: TensorType, source: Lies, target: Lies) -> float:
        if source == target or type_.shape is None:
            return 0.0
        if isinstance(target, Windowed):
            return self._windowed(type_, source, target)
        assert not isinstance(source, Windowed), "results do not overlap"
        if isinstance(target, Sharding) and not set(target.partial) <= set(source.partial if source is not None else ()):
            return FORBIDDEN
        everywhere = Sharding(((),) * len(type_.shape))
        if source is None:
            return self._sent(type_, target or everywhere, everywhere)
        if target is None:
            return self.costs.reshard_seconds(type_, source, everywhere, self.mesh, self.sizes) if source != everywhere else 0.0
        return self.costs.reshard_seconds(type_, source, target, self.mesh, self.sizes)

    def _sent(self, type_: TensorType, target: Sharding, everywhere: Sharding) -> float:
        first, last = self.mesh.devices[0], self.mesh.devices[-1]
        sent = self.costs.transfer_seconds(self.costs.bytes(type_, self.sizes) if target == everywhere else 0, first, last)
        return self.costs.reshard_seconds(type_, everywhere, target, self.mesh, self.sizes) + sent

    def _windowed(self, type_: TensorType, source: Lies, target: Windowed) -> float:
        """The windows of dimensions that every device has whole are cut there; the others are exchanged."""
        base = target.base
        if source is None:
            return self.seconds(type_, None, base)
        assert isinstance(source, Sharding), "results do not overlap"
        held = [d for d, _ in target.windows if not source.dims[d] and not source.axes() & set(base.dims[d])]
        arranged = self.seconds(type_, source, without(base, held))
        if held:
            arranged += self.seconds(type_, without(base, held), base)
        moved = [d for d, _ in target.windows if d not in held]
        return arranged + sum(self.costs.halo_seconds(type_, target, d, self.mesh, self.sizes) for d in moved)
