"""What a value is: `TensorType(dtype, shape, sharding)`, printed as `f32[b,28,28,1]`.

`DType` names are TensorFlow's (`float32`, `resource`, ...); the short names (`f32`) are the text form.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TypeAlias

import ml_dtypes
import numpy as np

from compiler.ir.dims import Dim, KnownDim, mul, parse_dim
from compiler.ir.errors import IrError
from compiler.ir.sharding import Sharding

SHORT_NAMES = {
    "float32": "f32", "float64": "f64", "float16": "f16", "bfloat16": "bf16",
    "float8_e5m2": "f8e5m2", "float8_e4m3fn": "f8e4m3fn", "float8_e4m3fnuz": "f8e4m3fnuz", "float8_e4m3b11fnuz": "f8e4m3b11fnuz",
    "float8_e5m2fnuz": "f8e5m2fnuz", "float4_e2m1fn": "f4e2m1fn",
    "int2": "i2", "uint2": "u2", "int4": "i4", "uint4": "u4", "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64",
    "uint8": "u8", "uint16": "u16", "uint32": "u32", "uint64": "u64",
    "bool": "bool", "complex64": "c64", "complex128": "c128",
    "qint8": "qi8", "quint8": "qu8", "qint16": "qi16", "quint16": "qu16", "qint32": "qi32",
    "string": "string", "resource": "resource", "variant": "variant",
}  # fmt: skip
LONG_NAMES = {short: long for long, short in SHORT_NAMES.items()}
_NUMPY = {"qint8": "int8", "quint8": "uint8", "qint16": "int16", "quint16": "uint16", "qint32": "int32", "string": "object"}
_EXTENDED = ("bfloat16", "float8_e5m2", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e4m3b11fnuz", "float8_e5m2fnuz",
             "float4_e2m1fn", "int2", "uint2", "int4", "uint4")  # fmt: skip


class DType(str):
    """A TensorFlow element type by its name; `str(DType('float32')) == 'float32'`, `.short == 'f32'`."""

    __slots__ = ()

    def __new__(cls, name: str) -> DType:
        stem, suffix = (name[: -len("_ref")], "_ref") if name.endswith("_ref") else (name, "")
        long = LONG_NAMES.get(stem, stem)
        if long not in SHORT_NAMES:
            raise IrError(f"{name!r} is not an element type, expected one of {sorted(SHORT_NAMES)}")
        return str.__new__(cls, long + suffix)

    @property
    def short(self) -> str:
        return SHORT_NAMES[self.removesuffix("_ref")] + ("_ref" if self.endswith("_ref") else "")

    @property
    def numpy(self) -> np.dtype:
        """The array element type that holds it (strings are objects; resource and variant have none)."""
        name = self.removesuffix("_ref")
        if name in ("resource", "variant"):
            raise IrError(f"a {name} has no array form")
        return np.dtype(getattr(ml_dtypes, name)) if name in _EXTENDED else np.dtype(_NUMPY.get(name, name))

    @property
    def bits(self) -> int:
        """Bits an element takes in memory; strings, resources and variants count as one 64-bit word."""
        if self.removesuffix("_ref") in ("resource", "variant", "string"):
            return 64
        return self.numpy.itemsize * 8

    @property
    def is_floating(self) -> bool:
        return self.startswith(("float", "bfloat"))

    @property
    def is_complex(self) -> bool:
        return self.startswith("complex")

    @property
    def is_integer(self) -> bool:
        return self.startswith(("int", "uint"))


Shape: TypeAlias = tuple[Dim, ...] | None
"""Dimensions, or None when even the rank is unknown."""


@dataclass(frozen=True)
class TensorType:
    """dtype, shape and, once annotated, the sharding; `handle` is what a resource holds."""

    dtype: DType
    shape: Shape = None
    sharding: Sharding | None = None
    handle: TensorType | None = None

    def __post_init__(self) -> None:
        if type(self.dtype) is not DType:
            object.__setattr__(self, "dtype", DType(self.dtype))
        if self.shape is not None and type(self.shape) is not tuple:
            object.__setattr__(self, "shape", tuple(self.shape))

    def __str__(self) -> str:
        inner = f"<{self.handle}>" if self.handle is not None else ""
        dims = "*" if self.shape is None else ",".join("?" if d is None else str(d).replace(" ", "") for d in self.shape)
        placed = "" if self.sharding is None else f"@{self.sharding}"
        return f"{self.dtype.short}{inner}[{dims}]{placed}"

    @property
    def rank(self) -> int | None:
        return None if self.shape is None else len(self.shape)

    @property
    def is_static(self) -> bool:
        return self.shape is not None and all(isinstance(d, int) for d in self.shape)

    @property
    def elements(self) -> KnownDim | None:
        """The number of elements, possibly symbolic; None where a dimension is unknown."""
        return None if self.shape is None else size_of(self.shape)

    def with_shape(self, shape: Shape) -> TensorType:
        return replace(self, shape=shape)

    def with_sharding(self, sharding: Sharding | None) -> TensorType:
        return replace(self, sharding=sharding)


def parse_shape(text: str) -> Shape:
    """What stands between the brackets: `b,28,ceil(b/2),?`; `*` is an unknown rank."""
    if text.strip() in ("", "*"):
        return None if text.strip() else ()
    return tuple(int(dim) if dim.isdecimal() else parse_dim(dim) for dim in _split_dims(text))


def _split_dims(text: str) -> list[str]:
    """Split at the commas outside parentheses: `max(a,b),3` is two dimensions."""
    if "(" not in text:
        return text.split(",")
    dims, depth, start = [], 0, 0
    for position, char in enumerate(text):
        depth += (char == "(") - (char == ")")
        if char == "," and depth == 0:
            dims.append(text[start:position])
            start = position + 1
    return [*dims, text[start:]]


def size_of(shape: Iterable[Dim]) -> KnownDim | None:
    """The product of the dimensions, None if one is unknown (unless another is 0)."""
    product: KnownDim = 1
    unknown = False
    for dim in shape:
        if dim is None:
            unknown = True
        elif dim == 0:
            return 0
        else:
            product = mul(product, dim)
    return None if unknown else product


def static_bytes(type_: TensorType) -> int | None:
    """Bytes of the dense value, None where the shape is not static."""
    elements = type_.elements
    return elements * type_.dtype.bits // 8 if isinstance(elements, int) else None


def compatible(left: TensorType, right: TensorType) -> bool:
    """Could both describe one value?  Same dtype, and no two static dimensions that differ."""
    if left.dtype != right.dtype:
        return False
    if left.shape is None or right.shape is None:
        return True
    if len(left.shape) != len(right.shape):
        return False
    return all(a == b for a, b in zip(left.shape, right.shape, strict=True) if isinstance(a, int) and isinstance(b, int))
