"""The user's pins: operators by name, by layer, or of a kind run where they are told to, and are not divided.

    --pin dense=CPU:1      %h = MatMul(%x, %w) from(dense)   =>   %h = MatMul(%x, %w) from(dense) on "/device:CPU:1"

A later pin wins over an earlier one, and any over a `tf.device` scope, which is said.  Splitting leaves pinned nodes whole, placement
keeps them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from compiler.ir.graph import Graph
from compiler.ir.module import Module
from compiler.pipeline.base import Context, Pass
from cost_model.cluster import Cluster
from passes.layers import is_operator, named, nobody, speaks_of


@dataclass(frozen=True)
class Pins:
    """A service: name, layer or kind -> device, in the order they were given."""

    devices: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Pin(Pass):
    """Put each pin on the nodes it speaks of."""

    name = "pin"

    def run(self, module: Module, context: Context) -> None:
        pins = context.services.get(Pins)
        if not isinstance(pins, Pins):
            return
        for wanted, text in pins.devices.items():
            device = context.service(Cluster).resolve(text if text.startswith("/") else f"/{text}")
            met = [_pin(graph, wanted, device, context) for graph in module.entries.values()]
            if not any(met):
                raise nobody(wanted, named(module.entries.values()))


def _pin(graph: Graph, wanted: str, device: str, context: Context) -> bool:
    """Does the name mean anything here?"""
    met = False
    for name in graph.order():
        node = graph.node(name)
        if not is_operator(node) or not speaks_of(wanted, name, node.op, node.origin):
            continue
        met = True
        if node.device == device or not context.spend():
            continue
        if node.device:
            context.refuse(name, f"it was on {node.device}, --pin {wanted} puts it on {device}")
        graph.set_device(name, device)
        context.change(name, f"pinned to {device}")
    return met
