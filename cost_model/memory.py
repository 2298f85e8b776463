"""Peak bytes of a placed graph, device by device, by exact liveness over a given order.

A buffer is live from the step that makes it to the step of its last use.  Views share their operand's buffer; a value used on another
device has a second buffer there, made when the value is; constants and variables stay from the first step to the last, and so do inputs
(the caller holds them) and outputs.  At each step operands and results are live together: nothing is computed in place.
The inside of a call counts at the call's step: the peak of its body, without inputs and outputs, which its caller counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from compiler.ir.graph import INPUT, Graph
from compiler.ir.module import Module, function_refs
from compiler.ir.types import TensorType
from compiler.ops.registry import spec
from compiler.ops.spec import Trait
from cost_model.analytic import type_bytes
from cost_model.flow import Flow, flow_of, moves_data
from cost_model.model import Prices


@dataclass(frozen=True)
class Peak:
    """The most bytes live at once on a device, the node at whose step they are, and how many of them stay for the whole run."""

    bytes: int
    step: str
    resident: int


@dataclass(frozen=True)
class Buffer:
    """Bytes on a device, live at steps `start` to `end`; what stays for the whole run is `resident`."""

    device: str
    bytes: int
    start: int
    end: int
    resident: bool


@dataclass
class Liveness:
    """Buffers of one flow on given devices (one for each position).  `inner` are the bytes a body needs while it runs, by function."""

    flow: Flow
    devices: tuple[str, ...]
    prices: Prices
    graph: Graph
    inner: Mapping[str, int]
    sizes: Mapping[str, int]
    made: list[tuple[str, int, bool]] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    of: dict[tuple[int, int], int] = field(default_factory=dict)
    copies: dict[tuple[int, str], int] = field(default_factory=dict)
    variables: dict[tuple[str, str], int] = field(default_factory=dict)

    def buffers(self) -> list[Buffer]:
        """All buffers, found in one sweep."""
        for position in range(len(self.flow)):
            for slot_value in self.flow.operands[position]:
                self._use(slot_value, position)
            self._make(position)
        last = len(self.flow) - 1
        for value in self.flow.outputs:
            self.ends[self.of[value]] = last
        return [
            Buffer(device, size, 0 if stays else start, last if stays else end, stays)
            for (device, size, stays), start, end in zip(self.made, self.starts, self.ends, strict=True)
        ]

    def _use(self, value: tuple[int, int], position: int) -> int:
        """The buffer that the node at `position` reads `value` from."""
        buffer, device = self.of[value], self.devices[position]
        type_ = self.flow.type_of(*value)
        if self.made[buffer][0] != device and moves_data(type_):
            key = (buffer, device)
            if key not in self.copies:
                self.copies[key] = self._new(device, type_bytes(type_, self.sizes), value[0], False)
            buffer = self.copies[key]
            self.starts[buffer] = min(self.starts[buffer], value[0])
        self.ends[buffer] = max(self.ends[buffer], position)
        return buffer

    def _make(self, position: int) -> None:
        node, device = self.flow.nodes[position], self.devices[position]
        aliases = self._aliases(position)
        for port, type_ in enumerate(node.types):
            if port < aliases:
                self.of[position, port] = self._use(self.flow.operands[position][port], position)
            elif type_.handle is not None and "ref" in node.attrs:
                self.of[position, port] = self._variable(str(node.attrs["ref"]), device, type_.handle, position)
            else:
                stays = node.op == INPUT or _has(node.op, Trait.CONSTANT)
                self.of[position, port] = self._new(device, type_bytes(type_, self.sizes), position, stays)
        inner = max((self.inner.get(ref.name, 0) for ref in function_refs(node)), default=0)
        if inner:
            self._new(device, inner, position, False)

    def _aliases(self, position: int) -> int:
        """How many results are operands under another name: all of an identity's, the first of a view's."""
        node = self.flow.nodes[position]
        if not self.prices.is_view(self.graph, node.name) or _has(node.op, Trait.SHAPE):
            return 0
        wanted = len(node.types) if _has(node.op, Trait.IDENTITY) else 1
        return min(wanted, len(self.flow.operands[position]))

    def _variable(self, ref: str, device: str, held: TensorType, position: int) -> int:
        if (ref, device) not in self.variables:
            self.variables[ref, device] = self._new(device, type_bytes(held, self.sizes), position, True)
        return self.variables[ref, device]

    def _new(self, device: str, size: int, position: int, resident: bool) -> int:
        self.made.append((device, size, resident))
        self.starts.append(position)
        self.ends.append(position)
        return len(self.made) - 1


def _has(op: str, trait: Trait) -> bool:
    known = spec(op)
    return known is not None and known.has(trait)


def peak_bytes(
    module: Module, graph: Graph, prices: Prices, *, order: tuple[str, ...] | None = None, devices: Mapping[str, str] | None = None
) -> dict[str, Peak]:
    """The peak of each device that holds anything, in `order` (the graph's own by default); `devices` override the nodes' own."""
    flow = flow_of(graph, order)
    placed = tuple((devices or {}).get(node.name, node.device) for node in flow.nodes)
    inner = body_bytes(module, graph, prices)
    return _peaks(flow, Liveness(flow, placed, prices, graph, inner, module.sizes).buffers())


def _peaks(flow: Flow, buffers: list[Buffer]) -> dict[str, Peak]:
    changes: dict[str, dict[int, int]] = {}
    resident: dict[str, int] = {}
    for buffer in buffers:
        steps = changes.setdefault(buffer.device, {})
        steps[buffer.start] = steps.get(buffer.start, 0) + buffer.bytes
        steps[buffer.end + 1] = steps.get(buffer.end + 1, 0) - buffer.bytes
        resident[buffer.device] = resident.get(buffer.device, 0) + (buffer.bytes if buffer.resident else 0)
    return {device: _highest(flow, steps, resident[device]) for device, steps in sorted(changes.items())}


def _highest(flow: Flow, changes: Mapping[int, int], resident: int) -> Peak:
    live, most, step = 0, -1, 0
    for position in sorted(changes):
        live += changes[position]
        if live > most:
            most, step = live, position
    return Peak(most, flow.names[min(step, len(flow) - 1)], resident)


def body_bytes(module: Module, graph: Graph, prices: Prices) -> dict[str, int]:
    """What each function a graph reaches needs while it runs, callees first."""
    found: dict[str, int] = {}
    for name in module.reachable_functions([graph]):
        body = module.functions[name]
        flow = flow_of(body)
        live = Liveness(flow, ("",) * len(flow), prices, body, found, module.sizes)
        buffers = live.buffers()
        interface = {live.of[value] for value in flow.outputs} | {live.of[flow.index[i], 0] for i in body.inputs}
        own = [b for i, b in enumerate(buffers) if i not in interface]
        found[name] = max((p.bytes for p in _peaks(flow, own).values()), default=0)
    return found
