"""Text => types, attributes and literals: the part of the grammar (`text_parse.py`) that stands inside a statement."""

from __future__ import annotations

import re

from compiler.ir.errors import IrError
from compiler.ir.graph import Attr, FunctionRef, ShapeAttr, Value
from compiler.ir.sharding import Sharding, parse_sharding
from compiler.ir.text_literal import BYTES, ELEMENT, NUMBER, parse_elements, unquote_bytes
from compiler.ir.text_scan import Scanner
from compiler.ir.types import LONG_NAMES, DType, TensorType, parse_shape
from compiler.ir.weights import Literal, Splat, Tensor, WeightRef

_DTYPE = re.compile(r"[a-z][a-z0-9]*(?:_ref)?")
_SHAPE = re.compile(r"\[[^\]\n]*\]")
_SHARDING = re.compile(r"\[[^\]\n]*\](?:\+\w+\(\w+\))*(?:/\d+)?")
_PLAIN_TYPE = re.compile(rf"({_DTYPE.pattern})\[([^\]\n]*)\](?:@({_SHARDING.pattern}))?")
_PORT = re.compile(r":[0-9]+")
_SHAPE_ATTR = re.compile(r"shape\[[^\]\n]*\]")


class ValueParser:
    """A cursor, and the types read so far (most repeat)."""

    def __init__(self, scanner: Scanner) -> None:
        self.at = scanner
        self._types: dict[str, TensorType] = {}

    # ---- small things

    def symbol(self, sigil: str) -> str:
        self.at.expect(sigil)
        return self.at.name(f"a name after {sigil!r}")

    def device(self) -> str:
        return self.at.string("a device in quotes") if self.at.accept_word("on") else ""

    def peek(self, literal: str) -> bool:
        return self.at.text.startswith(literal, self.at.position)

    def keyword(self, word: str) -> None:
        if not self.at.accept_word(word):
            self.at.fail(repr(word))

    def value(self) -> Value:
        name = self.symbol("%")
        port = self.at.match(_PORT)
        return Value(name, int(port[1:]) if port else 0)

    # ---- attributes and literals

    def attrs(self) -> dict[str, Attr]:
        start = self.at.position
        pairs = self.at.listed("{", "}", self._pair)
        if len(dict(pairs)) != len(pairs):
            raise self.at.error("an attribute stands here twice, expected each name once", start)
        return dict(pairs)

    def _pair(self) -> tuple[str, Attr]:
        name = self.at.word("an attribute's name")
        self.at.expect("=")
        return name, self.attr()

    def attr(self) -> Attr:
        start, text = self.at.position, self.at.text
        match text[start : start + 1]:
            case '"':
                return self.at.string("a string")
            case "@":
                return FunctionRef(self.symbol("@"))
            case "[":
                return tuple(self.at.listed("[", "]", self.attr))
            case "b" if (data := self.at.match(BYTES)) is not None:
                return self.at.call(start, lambda: unquote_bytes(data))
        number = self.at.match(NUMBER)
        if number is not None:
            return int(number) if number.lstrip("-").isdecimal() else self.at.call(start, lambda: _float(number))
        return self._word_attr()

    def _word_attr(self) -> Attr:
        word = self.at.peek_word()
        if word in ("true", "false"):
            self.at.accept_word(word)
            return word == "true"
        if word in ("tensor", "splat", "weight"):
            return self.literal()
        if word == "shape":
            return self._shape_attr()
        if word.removesuffix("_ref") in LONG_NAMES:
            self.at.accept_word(word)
            return DType(word)
        return self.at.fail("an attribute's value")

    def _shape_attr(self) -> ShapeAttr:
        start = self.at.position
        text = self.at.take(_SHAPE_ATTR, "shape[...]")
        shape = self.at.call(start, lambda: parse_shape(text[len("shape[") : -1]))
        if shape is None:
            return ShapeAttr(None)
        dims = tuple(d for d in shape if d is None or isinstance(d, int))
        if len(dims) != len(shape):
            raise self.at.error(f"{text} has a symbolic dimension, expected numbers and '?'", start)
        return ShapeAttr(dims)

    def literal(self) -> Literal:
        start = self.at.position
        word = self.at.peek_word()
        if word == "weight":
            return self._weight()
        if word not in ("tensor", "splat"):
            self.at.fail("tensor(...), splat(...) or weight(...)")
        self.at.accept_word(word)
        self.at.expect("(")
        dtype, shape = self._static_type()
        self.at.expect(",")
        tokens = self.at.listed("[", "]", self._element) if self.peek("[") else [self._element()]
        self.at.expect(")")
        item_shape = shape if word == "tensor" else ()
        item = self.at.call(start, lambda: Tensor(dtype, parse_elements(dtype, tokens, item_shape)))
        return item if word == "tensor" else Splat(item, shape)

    def _element(self) -> str:
        return self.at.take(ELEMENT, "an element")

    def _weight(self) -> WeightRef:
        self.keyword("weight")
        self.at.expect("(")
        store = self.at.word("a store")
        self.at.expect(",")
        offset = self.at.integer("the offset in bytes")
        self.at.expect(",")
        dtype, shape = self._static_type()
        region = self.at.listed("[", "]", self._range) if self.at.accept(",") else None
        self.at.expect(")")
        return WeightRef(store, offset, dtype, shape, None if region is None else tuple(region))

    def _range(self) -> tuple[int, int]:
        start = self.at.integer("the first row")
        self.at.expect("+")
        return start, self.at.integer("the number of rows")

    # ---- types

    def _static_type(self) -> tuple[DType, tuple[int, ...]]:
        start = self.at.position
        found = self.type()
        shape = tuple(d for d in found.shape or () if isinstance(d, int))
        if found.shape is None or len(shape) != len(found.shape) or found.dtype.removesuffix("_ref") in ("resource", "variant"):
            raise self.at.error(f"{found} is no constant's type, expected an array with a static shape", start)
        return found.dtype, shape

    def types_list(self) -> tuple[TensorType, ...]:
        return tuple(self.at.listed("(", ")", self.type)) if self.peek("(") else (self.type(),)

    def type(self) -> TensorType:
        start = self.at.position
        text = self.at.match(_PLAIN_TYPE)
        if text is None:
            return self._type_with_handle()
        if text not in self._types:
            self._types[text] = self.at.call(start, lambda: _plain_type(text))
        return self._types[text]

    def _type_with_handle(self) -> TensorType:
        start = self.at.position
        dtype = self.at.take(_DTYPE, "a type such as f32[b,28]")
        self.at.expect("<")
        handle = self.type()
        self.at.expect(">")
        shape = self.at.take(_SHAPE, "a shape such as [b,28]")
        sharding = self.sharding() if self.at.accept("@") else None
        return self.at.call(start, lambda: TensorType(DType(dtype), parse_shape(shape[1:-1]), sharding, handle))

    def sharding(self) -> Sharding:
        start = self.at.position
        text = self.at.take(_SHARDING, "a sharding such as [x,_]")
        return self.at.call(start, lambda: parse_sharding(text))


def _plain_type(text: str) -> TensorType:
    found = _PLAIN_TYPE.fullmatch(text)
    assert found is not None
    dtype, shape, sharding = found.groups()
    return TensorType(DType(dtype), parse_shape(shape), None if sharding is None else parse_sharding(sharding))


def _float(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise IrError(f"{text} is not a number here, expected digits, inf or nan") from None
