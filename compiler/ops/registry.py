"""Every op the compiler knows, by name, as one literal table: `spec("MatMul")`.  An op without an entry is opaque."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from compiler.ir.graph import Node
from compiler.ops import (
    collective,
    constant,
    control_flow,
    conv,
    elementwise,
    gather,
    image,
    layout,
    matmul,
    norm,
    pool,
    random,
    reduction,
    slicing,
    state,
    strided,
)
from compiler.ops.spec import OpSpec, Trait

FAMILIES: Mapping[str, tuple[OpSpec, ...]] = MappingProxyType(
    {
        "constant": constant.SPECS,
        "elementwise": elementwise.SPECS,
        "matmul": matmul.SPECS,
        "conv": conv.SPECS,
        "pool": pool.SPECS,
        "reduction": reduction.SPECS,
        "norm": norm.SPECS,
        "layout": layout.SPECS,
        "slicing": slicing.SPECS,
        "strided": strided.SPECS,
        "gather": gather.SPECS,
        "image": image.SPECS,
        "random": random.SPECS,
        "state": state.SPECS,
        "control_flow": control_flow.SPECS,
        "collective": collective.SPECS,
    }
)

SPECS: Mapping[str, OpSpec] = MappingProxyType({entry.name: entry for family in FAMILIES.values() for entry in family})


def spec(op: str) -> OpSpec | None:
    """The op's entry; None: opaque, never cut, fused, folded or moved."""
    return SPECS.get(op)


def has(node: Node, trait: Trait) -> bool:
    """Does the node's op have the trait?  An opaque op has none."""
    found = SPECS.get(node.op)
    return found is not None and trait in found.traits


def coverage_table() -> list[tuple[str, str, bool, bool, bool, bool, bool]]:
    """One row for each op: (op, family, shapes, sharding rule, content, own FLOPs, localize), for `cleave ops`."""
    return [
        (s.name, family, True, s.rule is not None, s.content is not None, s.flops is not None, s.localize is not None)
        for family, entries in FAMILIES.items()
        for s in sorted(entries, key=lambda s: s.name)
    ]
