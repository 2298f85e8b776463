"""The geometry of windowed ops: where batch, channel and space are, how a window pads, and what a shard of rows needs.

Rows [s, e) of the result need rows [s·stride - before, (e-1)·stride - before + reach) of the operand, reach = (k-1)·dilation + 1: a halo.
A shard takes those of them that exist and pads the others itself, so SAME becomes explicit, asymmetric padding.
"""

from __future__ import annotations

from dataclasses import dataclass

from compiler.ir.dims import Dim
from compiler.ir.errors import IrError
from compiler.ops.rules import factor
from compiler.ops.shapes import misfit, same_padding, window_size
from compiler.ops.spec import Factor, Kind, Operation, Shard


@dataclass(frozen=True)
class Layout:
    """Axes of batch, channel and space in a data format such as NHWC or NCDHW."""

    rank: int
    channel: int
    space: tuple[int, ...]

    def arrange(self, batch: object, channel: object, space: tuple[object, ...]) -> list[object]:
        """The parts in this layout's order."""
        return [batch, channel, *space] if self.channel == 1 else [batch, *space, channel]


def layout(operation: Operation, default: str) -> Layout:
    """The layout of the operation's images."""
    text = str(operation.attrs.get("data_format", default))
    if text in ("NHWC", "NDHWC"):
        return Layout(len(text), len(text) - 1, tuple(range(1, len(text) - 1)))
    if text in ("NCHW", "NCDHW"):
        return Layout(len(text), 1, tuple(range(2, len(text))))
    raise misfit(operation, f"data format {text!r}, expected channels last or at dimension 1")


@dataclass(frozen=True)
class Window:
    """One spatial axis: sizes of operand and window, how it moves, and what is padded where."""

    size: Dim
    window: Dim
    stride: int
    dilation: int
    padding: str
    explicit: tuple[int, int]

    def result(self, operation: Operation) -> Dim:
        return window_size(operation, self.size, self.window, self.stride, self.dilation, self.padding, self.explicit)

    @property
    def pads(self) -> tuple[int, int] | None:
        """(before, after), None where SAME cannot be told for an unknown size."""
        if self.padding == "VALID":
            return 0, 0
        if self.padding == "EXPLICIT":
            return self.explicit
        if not isinstance(self.size, int) or not isinstance(self.window, int):
            return None
        return same_padding(self.size, self.window, self.stride, self.dilation)

    @property
    def halo(self) -> tuple[int, int, int] | None:
        """(lo, hi, stride) where the window and the padding are static, and every window meets a row."""
        pads = self.pads
        if pads is None or not isinstance(self.window, int) or not isinstance(self.size, int):
            return None
        beyond = (self.window - 1) * self.dilation
        return (pads[0], beyond - pads[0], self.stride) if max(pads) <= beyond else None


def windows(operation: Operation, where: Layout, sizes: tuple[Dim, ...], kernel: tuple[Dim, ...]) -> tuple[Window, ...]:
    """One `Window` for each spatial axis; `sizes` are the operand's dimensions, `kernel` the windows' sizes."""
    strides = operation.ints_attr("strides")
    dilations = operation.attrs.get("dilations") or (1,) * where.rank
    explicit = operation.attrs.get("explicit_paddings") or (0,) * (2 * where.rank)
    padding = operation.str_attr("padding")
    if not isinstance(dilations, tuple) or not isinstance(explicit, tuple):
        raise misfit(operation, f"dilations {dilations!r} and explicit_paddings {explicit!r}, expected lists of integers")
    if len(strides) == 2 and where.rank == 4:
        strides = tuple(where.arrange(1, 1, strides))  # type: ignore[arg-type]
    return tuple(
        Window(sizes[a], k, strides[a], _int(dilations[a]), padding, (_int(explicit[2 * a]), _int(explicit[2 * a + 1])))
        for a, k in zip(where.space, kernel, strict=True)
    )


def _int(value: object) -> int:
    assert isinstance(value, int)
    return value


def space_factors(spans: tuple[Window, ...], sizes: tuple[Dim, ...], divisible: bool) -> tuple[Factor, ...]:
    """Factors s0, s1, ... of the result's rows: with a halo where it is known and the op can pad each shard by itself, else WHOLE."""
    return tuple(
        factor(f"s{i}", size, Kind.HALO if divisible and span.halo is not None else Kind.WHOLE, halo=span.halo or (0, 0, 1), least=1)
        for i, (span, size) in enumerate(zip(spans, sizes, strict=True))
    )


def shard_pads(operation: Operation, spans: tuple[Window, ...], shard: Shard) -> tuple[tuple[int, int], ...]:
    """For each spatial axis what this shard pads: its halo rows that lie outside the operand, the whole padding where it is not divided."""
    return tuple(_shard_pads(operation, span, shard, f"s{i}") for i, span in enumerate(spans))


def _shard_pads(operation: Operation, span: Window, shard: Shard, name: str) -> tuple[int, int]:
    if name not in shard.start:
        if span.pads is None:
            raise IrError(f"{operation.op} {operation.name!r}: the padding of an undivided axis is not static")
        return span.pads
    start, size = shard.start[name], shard.size[name]
    if span.halo is None or not isinstance(start, int) or not isinstance(size, int) or not isinstance(span.size, int):
        raise IrError(f"{operation.op} {operation.name!r}: shard {start}+{size} of rows, expected static rows")
    lo, hi, stride = span.halo
    return max(0, lo - start * stride), max(0, (start + size - 1) * stride + 1 + hi - span.size)
