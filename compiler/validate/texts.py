"""Strings that a model may want as input: words, numbers, serialized tf.Examples with the features its parsers name, images, sound.

ParseExampleV2(serialized, ..., dense_keys=["a"]) : f32[b,4]   =>   Example {features {"a": float_list of 4}}

Each is a set to draw from; validation tries them in turn until the original accepts one.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from compiler.ir.graph import Graph, Node, ShapeAttr, Value
from compiler.ir.module import Module
from compiler.ir.weights import Splat, Tensor, WeightRef

Texts = tuple[bytes, ...]

WORDS: Texts = (b"", b"a", b"the", b"def f(x): return x", b"\xc3\xa9t\xc3\xa9", b"12 34")
NUMBERS: Texts = (b"0", b"1", b"-2", b"3", b"17", b"4")
_COUNT = 6
_LIST_FIELDS = {"string": 1, "float32": 2, "int64": 3}


@dataclass(frozen=True)
class Feature:
    """What a parser reads under a key: `count` values of one type; None where any number will do."""

    dtype: str
    count: int | None


def kinds_of_text(module: Module | None) -> tuple[Texts, ...]:
    """The sets of strings to try on a model, the likeliest first."""
    features = _features(module) if module is not None else {}
    examples = (tuple(example(features, seed) for seed in range(_COUNT)),) if features else ()
    return (*examples, WORDS, NUMBERS, tuple(map(image, range(_COUNT))), tuple(map(sound, range(_COUNT))))


def _features(module: Module) -> dict[str, Feature]:
    """All that the model's parsers ask for."""
    found: dict[str, Feature] = {}
    for graph in module.graphs.values():
        for node in graph:
            if node.op in _PARSERS:  # what these take is no meaning of theirs, but what to draw
                found.update(_asked(module, graph, node))
    return dict(sorted(found.items()))


def _asked(module: Module, graph: Graph, node: Node) -> Iterator[tuple[str, Feature]]:
    """The outputs are sparse indices, values and shapes, then dense values, then ragged values and splits; keys come in that order too."""
    sparse, dense, ragged = _PARSERS[node.op](module, graph, node)
    shapes = node.attrs.get("dense_shapes", ())
    values = [(key, node.types[len(sparse) + i], None) for i, key in enumerate(sparse)]
    for i, key in enumerate(dense):
        shape = shapes[i] if isinstance(shapes, tuple) and i < len(shapes) else None
        sizes = shape.shape if isinstance(shape, ShapeAttr) and shape.shape is not None else ()
        count = int(np.prod([size if isinstance(size, int) else 1 for size in sizes]))
        values.append((key, node.types[3 * len(sparse) + i], count))  # type: ignore[arg-type]
    values += [(key, node.types[3 * len(sparse) + len(dense) + i], None) for i, key in enumerate(ragged)]
    yield from ((key, Feature(str(type_.dtype), count)) for key, type_, count in values)


Keys = tuple[Sequence[str], Sequence[str], Sequence[str]]


def _keys_by_tensor(module: Module, graph: Graph, node: Node) -> Keys:
    sparse, dense, ragged = (_strings(module, graph, operand) for operand in graph.operands(node.name)[2:5])
    return sparse, dense, ragged


def _keys_one_by_one(module: Module, graph: Graph, node: Node) -> Keys:
    shapes = node.attrs.get("dense_shapes", ())
    dense = len(shapes) if isinstance(shapes, tuple) else 0
    sparse = (len(node.types) - dense) // 3
    keys = [key for operand in graph.operands(node.name)[2 : 2 + sparse + dense] for key in _strings(module, graph, operand)]
    return (keys[:sparse], keys[sparse:], ()) if len(keys) == sparse + dense else ((), (), ())


def _keys_in_attributes(module: Module, graph: Graph, node: Node) -> Keys:
    sparse, dense = (node.attrs.get(name, ()) for name in ("sparse_keys", "dense_keys"))
    return [str(k) for k in sparse] if isinstance(sparse, tuple) else (), [str(k) for k in dense] if isinstance(dense, tuple) else (), ()


_PARSERS = {"ParseExampleV2": _keys_by_tensor, "ParseExample": _keys_one_by_one, "ParseSingleExample": _keys_in_attributes}


def _strings(module: Module, graph: Graph, operand: Value) -> list[str]:
    node = graph.node(operand.node)
    literal = node.attrs.get("value")
    if node.op != "Const" or not isinstance(literal, Tensor | Splat | WeightRef):
        return []
    return [bytes(item).decode(errors="replace") for item in np.asarray(module.stores.load(literal), object).reshape(-1)]


def example(features: Mapping[str, Feature], seed: int) -> bytes:
    """A serialized tf.train.Example with values for all the features."""
    rng = np.random.default_rng(seed)
    entries = [_field(1, _field(1, key.encode()) + _field(2, _values(feature, rng))) for key, feature in features.items()]
    return _field(1, b"".join(entries))


def _values(feature: Feature, rng: np.random.Generator) -> bytes:
    count = int(rng.integers(0, 4)) if feature.count is None else feature.count
    match feature.dtype:
        case "float32":
            data = _field(1, rng.standard_normal(count).astype("<f4").tobytes())
        case "int64":
            data = _field(1, bytes(rng.integers(0, 5, count).astype(np.uint8)))  # packed varints of one byte each
        case _:
            data = b"".join(_field(1, WORDS[i]) for i in rng.integers(0, len(WORDS), count))
    return _field(_LIST_FIELDS.get(feature.dtype, 1), data)


def _field(number: int, data: bytes) -> bytes:
    """A length-delimited field of a proto."""
    return bytes([number << 3 | 2]) + _varint(len(data)) + data


def _varint(value: int) -> bytes:
    low, rest = value & 0x7F, value >> 7
    return bytes([low]) if not rest else bytes([low | 0x80]) + _varint(rest)


def image(seed: int) -> bytes:
    """A PNG of 8 x 8 noise, which TensorFlow's decoders of other formats read as well."""
    pixels = np.random.default_rng(seed).integers(0, 256, (8, 8, 3), np.uint8)
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)
    header = struct.pack(">IIBBBBB", 8, 8, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows, 0)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(struct.pack(">I", len(d)) + k + d + struct.pack(">I", zlib.crc32(k + d)) for k, d in chunks)


def sound(seed: int) -> bytes:
    """A WAV of one channel of noise, 16 bits, a second of 16 kHz."""
    samples = np.random.default_rng(seed).integers(-9999, 9999, 16000).astype("<i2").tobytes()
    form = struct.pack("<4sIHHIIHH", b"fmt ", 16, 1, 1, 16000, 32000, 2, 16)
    data = b"WAVE" + form + struct.pack("<4sI", b"data", len(samples)) + samples
    return struct.pack("<4sI", b"RIFF", len(data)) + data
