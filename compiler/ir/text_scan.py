"""A cursor over IR text: skip blanks and comments, take what a pattern matches, or say what was expected, at which line and column."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NoReturn, TypeVar

from compiler.ir.errors import IrError
from compiler.ir.text_literal import NAME, STRING, WORD, unquote

T = TypeVar("T")

_BLANK = re.compile(r"(?:[ \t\r\n]+|#[^\n]*)*")
_BARE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_INTEGER = re.compile(r"-?[0-9]+")


class Scanner:
    """`position` always stands on the next character that matters."""

    def __init__(self, text: str, source: str = "") -> None:
        self.text = text
        self.source = source
        self.position = 0
        self.move(0)

    def move(self, position: int) -> None:
        found = _BLANK.match(self.text, position)
        self.position = position if found is None else found.end()

    @property
    def at_end(self) -> bool:
        return self.position >= len(self.text)

    def fail(self, expected: str) -> NoReturn:
        rest = self.text[self.position : self.position + 40].partition("\n")[0]
        raise self.error(f"found {rest!r}, expected {expected}" if rest else f"the text ends, expected {expected}", self.position)

    def error(self, message: str, position: int) -> IrError:
        line = self.text.count("\n", 0, position) + 1
        column = position - self.text.rfind("\n", 0, position)
        return IrError(f"{self.source + ': ' if self.source else ''}line {line}, column {column}: {message}")

    def call(self, position: int, function: Callable[[], T]) -> T:
        """Run `function`, and say where in the text an IrError of its comes from."""
        try:
            return function()
        except IrError as error:
            raise self.error(str(error), position) from None

    # ---- taking

    def accept(self, literal: str) -> bool:
        if not self.text.startswith(literal, self.position):
            return False
        self.move(self.position + len(literal))
        return True

    def expect(self, literal: str) -> None:
        if not self.accept(literal):
            self.fail(repr(literal))

    def match(self, pattern: re.Pattern[str]) -> str | None:
        found = pattern.match(self.text, self.position)
        if found is None:
            return None
        self.move(found.end())
        return found[0]

    def take(self, pattern: re.Pattern[str], expected: str) -> str:
        found = self.match(pattern)
        if found is None:
            self.fail(expected)
        return found

    def accept_word(self, word: str) -> bool:
        """The keyword `word`, whole."""
        found = _BARE.match(self.text, self.position)
        if found is None or found[0] != word:
            return False
        self.move(found.end())
        return True

    def peek_word(self) -> str:
        found = _BARE.match(self.text, self.position)
        return found[0] if found else ""

    def integer(self, expected: str) -> int:
        return int(self.take(_INTEGER, expected))

    def string(self, expected: str) -> str:
        start = self.position
        text = self.take(STRING, expected)
        return self.call(start, lambda: unquote(text))

    def name(self, expected: str) -> str:
        """After `%` or `@`: a plain or quoted name."""
        return self.match(NAME) or self.string(expected)

    def word(self, expected: str) -> str:
        return self.match(WORD) or self.string(expected)

    def listed(self, opening: str, closing: str, item: Callable[[], T]) -> list[T]:
        """`(a, b, c)`: items between brackets, separated by commas."""
        self.expect(opening)
        items: list[T] = []
        if self.accept(closing):
            return items
        while True:
            items.append(item())
            if self.accept(closing):
                return items
            if not self.accept(","):
                self.fail(f"',' or {closing!r}")
