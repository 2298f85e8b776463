"""The mesh that splits are chosen over: two axes, as nearly equal as the number of devices allows, the shorter one first.

    4 devices => [x=2, y=2]      6 => [x=2, y=3]      8 => [x=2, y=4]      2, 3, 5, 7 => [d=2], ...

A factor may run over one axis, over the other, or over both, so what one axis of all devices offers is among what two offer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from compiler.ir.sharding import Mesh, MeshAxis


def mesh_over(devices: Sequence[str]) -> Mesh:
    """The mesh over the devices in their order: those that differ along the last axis only are neighbours."""
    count = len(devices)
    short = max(n for n in range(1, math.isqrt(count) + 1) if count % n == 0)
    if short == 1:
        return Mesh((MeshAxis("d", count),), tuple(devices))
    return Mesh((MeshAxis("x", short), MeshAxis("y", count // short)), tuple(devices))
