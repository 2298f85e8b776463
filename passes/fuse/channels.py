"""Constants that broadcast along the output channels only: what may move into a convolution's or a product's weight, or be its bias."""

from __future__ import annotations

from compiler.ir.types import TensorType
from compiler.rewrite.matcher import Match
from compiler.rewrite.rule import Refusal

FLOATS = ("float32", "float64")


def channel_axis(m: Match, label: str) -> int:
    """The output's channel dimension: the last, or 1 for channels-first data."""
    if "data_format" not in m.node(label).attrs:
        return len(m.type(label).shape or ()) - 1
    return 1 if str(m.attr(label, "data_format")).startswith("NC") else len(m.type(label).shape or ()) - 1


def per_channel(m: Match, label: str, constant: str) -> Refusal | None:
    """None where `constant` is one, has a value for each output channel of the node `label`, and broadcasts along nothing else."""
    result = m.type(label)
    if m.literal(constant) is None:
        return Refusal("the factor or summand is not a constant", constant)
    if result.dtype not in FLOATS or result.shape is None:
        return Refusal(f"its type is {result}, expected a float of known rank", label)
    axis, channels = channel_axis(m, label), result.shape[channel_axis(m, label)]
    if not isinstance(channels, int):
        return Refusal("the number of channels is not static", result)
    if not _only_along(m.type(constant), len(result.shape), axis, channels):
        return Refusal(f"a constant of type {m.type(constant)} is not one value for each of {channels} channels of {result}", constant)
    return None


def _only_along(constant: TensorType, rank: int, axis: int, channels: int) -> bool:
    shape = constant.shape or ()
    if len(shape) > rank:
        return False
    aligned = (1,) * (rank - len(shape)) + shape
    return all(size == (channels if i == axis else 1) for i, size in enumerate(aligned))
