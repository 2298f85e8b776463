"""Words of the text form, both ways: names, quoted strings, and the elements of constants, to the bit.

Elements are written row-major: `[1.0, -0.0, inf, nan]`, `[true, false]`, `["text", b"\\xff"]`; a complex number is two reals, one after
the other.  A float is the shortest decimal that gives the same bits; where none does (a NaN with a payload) it is its bits, `0x7fc00001`.
"""

from __future__ import annotations

import ast
import json
import math
import re
from collections.abc import Sequence

import numpy as np

from compiler.ir.errors import IrError
from compiler.ir.types import DType
from compiler.ir.weights import Array

NAME = re.compile(r"[A-Za-z0-9_./\-]+")
WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_.>]*")
STRING = re.compile(r'"(?:[^"\\\n]|\\.)*"')
BYTES = re.compile(r'b"(?:[^"\\\n]|\\.)*"')
NUMBER = re.compile(r"-?(?:0x[0-9a-f]+|inf|nan|[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?)")
ELEMENT = re.compile(rf"{BYTES.pattern}|{STRING.pattern}|{NUMBER.pattern}|true|false")

_ESCAPES = {code: f"\\x{code:02x}" for code in range(256) if not 32 <= code < 127} | {ord('"'): '\\"', ord("\\"): "\\\\"}


def name_text(name: str) -> str:
    """A name as it stands after `%` or `@`: plain where its characters allow, else quoted."""
    return name if NAME.fullmatch(name) else json.dumps(name)


def word_text(word: str) -> str:
    """An attribute's, op's, store's or output's name: plain where it is a word, else quoted."""
    return word if WORD.fullmatch(word) else json.dumps(word)


def quote(text: str) -> str:
    return json.dumps(text)


def quote_bytes(data: bytes) -> str:
    return f'b"{data.decode("latin-1").translate(_ESCAPES)}"'


def unquote(text: str) -> str:
    try:
        found: str = json.loads(text)
    except ValueError:
        raise IrError(f"{text} is not a string, expected JSON's escapes") from None
    return found


def unquote_bytes(text: str) -> bytes:
    try:
        found = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        raise IrError(f"{text} is not a byte string, expected Python's escapes") from None
    assert isinstance(found, bytes)
    return found


def float_text(number: float) -> str:
    return float.__repr__(number)


def elements_text(dtype: DType, array: Array) -> str:
    """`1.0` for a scalar, `[1.0, 2.0]` for anything else."""
    tokens = _tokens(dtype, array.reshape(-1))
    return tokens[0] if array.ndim == 0 and len(tokens) == 1 else f"[{', '.join(tokens)}]"


def _tokens(dtype: DType, flat: Array) -> list[str]:
    if flat.dtype == object:
        return [_string_text(item) for item in flat.tolist()]
    flat, part = _real(dtype, flat)
    tokens = _number_tokens(part, flat)
    again = _numbers(part, tokens)
    if again.tobytes() == flat.tobytes():
        return tokens
    bits, same = _bits(flat), _bits(again) == _bits(flat)
    return [token if ok else hex(bit) for token, bit, ok in zip(tokens, bits.tolist(), same.tolist(), strict=True)]


def _string_text(item: bytes) -> str:
    try:
        return quote(item.decode())
    except UnicodeDecodeError:
        return quote_bytes(item)


def _real(dtype: DType, flat: Array) -> tuple[Array, DType]:
    """Complex elements as pairs of reals."""
    if not dtype.is_complex:
        return flat, dtype
    part = DType("float32" if dtype.removesuffix("_ref") == "complex64" else "float64")
    return flat.view(part.numpy), part


def _number_tokens(dtype: DType, flat: Array) -> list[str]:
    if flat.dtype.kind == "b":
        return ["true" if item else "false" for item in flat.tolist()]
    if not dtype.is_floating:
        return [str(item) for item in flat.astype(np.uint64 if flat.dtype == np.uint64 else np.int64).tolist()]
    exact = flat.astype(np.float64)
    if flat.dtype not in (np.float32, np.float16):
        return [float_text(item) for item in exact.tolist()]
    tokens = [_shortest(item) for item in flat]
    wrong = np.array([float(t) for t in tokens], np.float64).astype(flat.dtype) != flat
    return [float_text(float(e)) if w else t for t, e, w in zip(tokens, exact, wrong, strict=True)]


def _shortest(item: np.generic) -> str:
    """numpy's shortest decimal for its own width: 0.1 for a float32 whose double is 0.10000000149011612."""
    text = str(item)
    return text if any(c in text for c in ".en") else f"{text}.0"


def _bits(array: Array) -> Array:
    return array.view(f"u{array.dtype.itemsize}")


def parse_elements(dtype: DType, tokens: Sequence[str], shape: tuple[int, ...]) -> Array:
    """The array; IrError where a token is no element of `dtype`, does not fit it, or their number is wrong."""
    if dtype.numpy.kind == "O":
        flat = np.empty(len(tokens), object)
        flat[:] = [_string(token) for token in tokens]
    else:
        flat = _numbers(DType(f"float{dtype.bits // 2}") if dtype.is_complex else dtype, tokens)
        flat = flat.view(dtype.numpy) if dtype.is_complex and flat.size % 2 == 0 else flat
    if flat.size != math.prod(shape):
        raise IrError(f"{flat.size} elements for the shape {list(shape)}, expected {math.prod(shape)}")
    return flat.reshape(shape)


def _string(token: str) -> bytes:
    if token.startswith('b"'):
        return unquote_bytes(token)
    if not token.startswith('"'):
        raise IrError(f"{token} is not an element of a string tensor, expected it quoted")
    return unquote(token).encode()


def _numbers(dtype: DType, tokens: Sequence[str]) -> Array:
    raw = {i: token for i, token in enumerate(tokens) if token.startswith("0x")}
    try:
        flat = _plain_numbers(dtype, ["0" if i in raw else token for i, token in enumerate(tokens)])
        for i, token in raw.items():
            _bits(flat)[i] = int(token, 16)
    except (ValueError, OverflowError):
        raise IrError(f"[{', '.join(tokens[:5])}{', ...' if len(tokens) > 5 else ''}] are not all elements of {dtype.short}") from None
    return flat


def _plain_numbers(dtype: DType, tokens: Sequence[str]) -> Array:
    if dtype.numpy.kind == "b":
        return np.array([_boolean(token) for token in tokens], bool)
    if dtype.is_floating:
        with np.errstate(over="ignore"):
            return np.array([float(token) for token in tokens], np.float64).astype(dtype.numpy)
    integers = [int(token) for token in tokens]
    flat = np.array(integers, np.uint64 if dtype.numpy == np.uint64 else np.int64)
    narrow = flat.astype(dtype.numpy)
    if narrow.astype(flat.dtype).tolist() != integers:
        raise OverflowError
    return narrow


def _boolean(token: str) -> bool:
    if token not in ("true", "false", "0"):
        raise ValueError
    return token == "true"
