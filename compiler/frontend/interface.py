"""A signature's inputs and outputs: which tensors of the flat graph they are, of which types.

    x: f32[None,28]  =>  x: f32[b,28];      coo_sparse x: f32[None,3]  =>  x_dense_shape: i64[2], x_indices: i64[b,2], x_values: f32[b1]

A sparse input of TensorFlow 1 is three dense ones, as `tf.saved_model.load` names them.  Each unknown dimension is a size of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from tensorflow.core.protobuf import meta_graph_pb2

from compiler.frontend.element_types import dtype_of, shape_of
from compiler.frontend.source import SignatureInfo
from compiler.ir.dims import Dim, symbol
from compiler.ir.errors import CleaveError
from compiler.ir.types import DType, Shape, TensorType

_NOT_SIGNATURES = ("__saved_model_init_op", "__saved_model_train_op")


@dataclass(frozen=True)
class Interface:
    """A signature that can be read: input key -> (tensor name, type), output key -> tensor name, operations that run beside."""

    inputs: dict[str, tuple[str, TensorType]]
    outputs: dict[str, str]
    operations: tuple[str, ...]
    info: SignatureInfo


@dataclass
class Sizes:
    """Names for unknown dimensions: leading ones are `b`, `b1`, ..., others `n`, `n1`, ..."""

    counts: dict[str, int] = field(default_factory=lambda: {"b": 0, "n": 0})

    def named(self, shape: Iterable[int | None] | None) -> Shape:
        return None if shape is None else tuple(self._named(size, "n" if axis else "b") for axis, size in enumerate(shape))

    def _named(self, size: int | None, base: str) -> Dim:
        if size is not None:
            return size
        name = f"{base}{self.counts[base] or ''}"
        self.counts[base] += 1
        return symbol(name)


def signature_keys(meta: meta_graph_pb2.MetaGraphDef) -> list[str]:
    return [key for key in sorted(meta.signature_def) if key not in _NOT_SIGNATURES]


def interfaces(meta: meta_graph_pb2.MetaGraphDef, where: str, wanted: str | None) -> tuple[dict[str, Interface], list[str]]:
    """The signatures that can be read, and the keys of those that cannot; CleaveError where nothing remains to read."""
    found = {key: meta.signature_def[key] for key in signature_keys(meta)}
    if not found:
        raise CleaveError(f"{where} has no signatures and no traced method, expected at least one (save the model with `signatures=`)")
    if wanted is not None and wanted not in found:
        raise CleaveError(f"{where} has no signature {wanted!r}, expected one of {sorted(found)}")
    readable: dict[str, Interface] = {}
    refusals: dict[str, CleaveError] = {}
    for key, definition in found.items():
        try:
            readable[key] = _interface(definition, f"{where}: signature {key!r}")
        except CleaveError as error:
            refusals[key] = error
    if wanted in refusals or not readable:
        raise refusals[wanted or next(iter(refusals))]
    return readable, list(refusals)


def _interface(definition: meta_graph_pb2.SignatureDef, where: str) -> Interface:
    sizes = Sizes()
    declared = sorted(found for name, info in definition.inputs.items() for found in _dense(name, info, where))
    inputs = {name: (tensor, TensorType(dtype, sizes.named(shape))) for name, tensor, dtype, shape in declared}
    outputs = {name: _tensor(name, info, where) for name, info in sorted(definition.outputs.items())}
    operations = tuple(name for name in outputs.values() if ":" not in name)
    outputs = {key: name for key, name in outputs.items() if ":" in name}
    info = SignatureInfo({n: t for n, (_, t) in inputs.items()}, tuple(outputs), definition.method_name)
    return Interface(inputs, outputs, operations, info)


def _dense(name: str, info: meta_graph_pb2.TensorInfo, where: str) -> Iterator[tuple[str, str, DType, tuple[int | None, ...] | None]]:
    """(key, tensor, element type, shape) of each dense input that this one is."""
    dtype, shape = dtype_of(info.dtype), shape_of(info.tensor_shape)
    if info.WhichOneof("encoding") != "coo_sparse":
        yield name, _tensor(name, info, where), dtype, shape
        return
    rank = None if shape is None else len(shape)
    yield f"{name}_indices", info.coo_sparse.indices_tensor_name, DType("int64"), (None, rank)
    yield f"{name}_values", info.coo_sparse.values_tensor_name, dtype, (None,)
    yield f"{name}_dense_shape", info.coo_sparse.dense_shape_tensor_name, DType("int64"), (rank,)


def _tensor(name: str, info: meta_graph_pb2.TensorInfo, where: str) -> str:
    if info.WhichOneof("encoding") != "name":
        raise CleaveError(f"{where}: {name!r} is a {info.WhichOneof('encoding')} value, expected a dense tensor")
    return str(info.name)
