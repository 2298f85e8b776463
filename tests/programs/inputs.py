"""Inputs for a random program: what validation draws, integers of both signs, an empty batch once in a while."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from compiler.ir.module import Module
from compiler.ir.types import TensorType
from compiler.validate.draw import SCHEMES, draws


def requests(module: Module, entry: str = "f", seed: int = 0) -> list[dict[str, np.ndarray]]:
    """One and five rows, special values among five, none at all, and the first again: a second call, when there is state."""
    inputs = {name: module.entries[entry].node(name).type for name in module.entries[entry].inputs}
    found = [dict(draw.inputs) for draw in draws(inputs, SCHEMES[0], seed, batches=(1, 5))]
    if seed % 4 == 0 and not _convolves(module):
        found += [dict(draw.inputs) for draw in draws(inputs, SCHEMES[0], seed, batches=(0,))[:1]]
    rng = np.random.default_rng(seed)
    return [_wider(inputs, given, rng) for given in (*found, found[0])]


def _convolves(module: Module) -> bool:
    """TensorFlow 2.21's oneDNN convolution of an empty batch has one channel, whatever the filter says."""
    return any("Conv" in node.op for graph in module.graphs.values() for node in graph)


def _wider(inputs: Mapping[str, TensorType], given: Mapping[str, np.ndarray], rng: np.random.Generator) -> dict[str, np.ndarray]:
    def array(name: str) -> np.ndarray:
        dtype = inputs[name].dtype
        low = 0 if dtype.startswith("u") else -4
        return rng.integers(low, 9, given[name].shape).astype(dtype.numpy) if dtype.is_integer else given[name]

    return {name: array(name) for name in given}
