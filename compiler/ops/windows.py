"""The geometry of windowed ops: where batch, channel and space are, how a window pads, and what a shard of rows needs.

Rows [s, e) of the result need rows [s·stride - before, (e-1)·stride - before + reach) of the operand, reach = (k-1)·dilation + 1: a halo.
A shard takes those of them that exist and pads the others itself, so SAME becomes explicit, asymmetric padding.

Some ops pad by SAME only, AvgPool so that it divides by the valid count.  Their shard begins a multiple of the stride earlier and ends as
the whole does, modulo the stride: SAME then pads it as it pads the whole, and what saw a border where there is none is cut off (`trimmed`).
"""

from __future__ import annotations

from dataclasses import dataclass

from compiler.ir.dims import Dim
from compiler.ir.errors import IrError
from compiler.ops.rules import factor
from compiler.ops.shapes import misfit, same_padding, window_size
from compiler.ops.spec import Factor, Kind, Operation, Shard, Size, Step


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

    @property
    def early(self) -> int:
        """Results that see the border before the first row."""
        return -(-(self.pads or (0, 0))[0] // self.stride)

    @property
    def same_halo(self) -> tuple[int, int, int] | None:
        """(lo, hi, stride) with which SAME pads a shard as it pads the whole."""
        if self.halo is None or self.padding != "SAME" or not isinstance(self.size, int):
            return None
        reach = self.halo[1]
        return self.early * self.stride, reach + (self.size - 1 - reach) % self.stride, self.stride


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


def pads_freely(operation: Operation, spans: tuple[Window, ...]) -> bool:
    """Can a shard be given its own padding?  Only ops with explicit paddings can, or where nothing is padded at all."""
    return "explicit_paddings" in operation.attrs or all(span.pads == (0, 0) for span in spans)


def space_factors(operation: Operation, spans: tuple[Window, ...], sizes: tuple[Dim, ...]) -> tuple[Factor, ...]:
    """Factors s0, s1, ... of the result's rows: with a halo where it is known, else WHOLE.

    A shard that is padded explicitly is so along every axis, so all of them must be known."""
    freely = pads_freely(operation, spans)
    known = not freely or all(span.pads is not None for span in spans)
    halos = [None if not known else span.halo if freely else span.same_halo for span in spans]
    return tuple(
        factor(f"s{i}", size, Kind.WHOLE if halo is None else Kind.HALO, halo=halo or (0, 0, 1), least=1)
        for i, (halo, size) in enumerate(zip(halos, sizes, strict=True))
    )


def trimmed(operation: Operation, spans: tuple[Window, ...], shard: Shard, where: Layout, operands: tuple[int, ...]) -> tuple[Step, ...]:
    """A shard padded by SAME, and the slice of it that the whole has."""
    begin, size = [0] * where.rank, [-1] * where.rank
    for i, (span, axis) in enumerate(zip(spans, where.space, strict=True)):
        if f"s{i}" in shard.start:
            start, rows = shard.start[f"s{i}"], shard.size[f"s{i}"]
            if not isinstance(start, int) or not isinstance(rows, int):
                raise IrError(f"{operation.op} {operation.name!r}: shard {start}+{rows} of rows, expected static rows")
            begin[axis], size[axis] = min(start, span.early), rows
    own = Step("wide", operation.op, operands, {k: v for k, v in operation.attrs.items() if k in _OWN and v is not None})
    return own, Step("rows", "Slice", ("wide", Size(tuple(begin)), Size(tuple(size))))


_OWN = ("ksize", "strides", "padding", "data_format", "dilations")


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
