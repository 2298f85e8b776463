"""Pipelines as text, both ways: `infer-types,repeat(fold-constants,cse,dce),choose{iterations=20}`.

repeat(a,b)   repeat{most=3}(a,b)     until the module stands still
limit{most=7}(a,b)                    the first 7 rewrites only
verify-each(a,b)   validate-each(a,b) the rules, or the function, checked after each pass
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields
from types import MappingProxyType

from compiler.ir.errors import CleaveError
from compiler.pipeline.base import Pass
from compiler.pipeline.manager import MOST_REPEATS, Limited, Repeat, Step, Watched

_TOKEN = re.compile(r"\s*([a-z][a-z0-9-]*|[(){},=]|-?\d+(?:\.\d+)?(?:e[+-]?\d+)?|\"[^\"]*\")\s*")
Option = bool | int | float | str
Table = Mapping[str, type[Pass]]

VERIFY_EACH, VALIDATE_EACH = "verify-each", "validate-each"
_UNLIMITED = -1
_BLOCKS: Mapping[str, dict[str, Option]] = MappingProxyType(
    {"repeat": {"most": MOST_REPEATS}, "limit": {"most": _UNLIMITED}, VERIFY_EACH: {}, VALIDATE_EACH: {}}
)
"""Names that take passes in parentheses, and their options."""


def parse_pipeline(text: str, table: Table) -> tuple[Step, ...]:
    """The steps; an unknown pass or option is one clear error."""
    parser = _Parser(_tokens(text), text, table)
    steps = parser.steps(end="")
    if parser.tokens:
        raise CleaveError(f"pipeline {text!r}: found {parser.tokens[0]!r}, expected ','")
    return steps


def print_pipeline(steps: Sequence[Step]) -> str:
    """The text that parses to the steps; options at their default are left out."""
    return ",".join(_print_step(step) for step in steps)


def options_of(cls: type[Pass]) -> dict[str, Option]:
    """A pass's options and their defaults."""
    return {f.name.replace("_", "-"): f.default for f in fields(cls) if f.default is not MISSING}  # type: ignore[arg-type]


def _print_step(step: Step) -> str:
    match step:
        case Repeat():
            most = "" if step.most == MOST_REPEATS else f"{{most={step.most}}}"
            return f"repeat{most}({print_pipeline(step.passes)})"
        case Limited():
            return f"limit{{most={step.most}}}({print_pipeline(step.steps)})"
        case Watched():
            return f"{step.watcher}({print_pipeline(step.steps)})"
    defaults = options_of(type(step))
    given = {n: getattr(step, n.replace("-", "_")) for n in defaults}
    changed = [f"{n}={_print_option(v)}" for n, v in given.items() if v != defaults[n]]
    return step.name + (f"{{{','.join(changed)}}}" if changed else "")


def _print_option(value: Option) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else str(value)


def _tokens(text: str) -> list[str]:
    found, position = [], 0
    text = text.strip()
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise CleaveError(f"pipeline {text!r}: cannot read {text[position : position + 10]!r}, expected pass names separated by ','")
        found.append(match[1])
        position = match.end()
    return found


class _Parser:
    def __init__(self, tokens: list[str], text: str, table: Table) -> None:
        self.tokens, self.text, self.table = tokens, text, table

    def steps(self, end: str) -> tuple[Step, ...]:
        found: list[Step] = []
        while self.tokens and self.tokens[0] != end:
            found.append(self._step())
            if self.tokens and self.tokens[0] == ",":
                self.tokens.pop(0)
            elif self.tokens and self.tokens[0] != end:
                raise CleaveError(f"pipeline {self.text!r}: found {self.tokens[0]!r}, expected ','")
        return tuple(found)

    def _step(self) -> Step:
        name = self.tokens.pop(0)
        if name in _BLOCKS:
            return self._block(name)
        if name not in self.table:
            close = difflib.get_close_matches(name, self.table, 1)
            hint = f"; did you mean {close[0]!r}?" if close else f", expected one of {', '.join(self.table)}"
            raise CleaveError(f"no pass {name!r}{hint}")
        cls = self.table[name]
        return cls(**self._options(name, options_of(cls)))

    def _block(self, name: str) -> Step:
        given = {**_BLOCKS[name], **self._options(name, _BLOCKS[name])}
        self._expect("(")
        inner = self.steps(end=")")
        self._expect(")")
        if not inner:
            raise CleaveError(f"pipeline {self.text!r}: a {name} has nothing to run, expected at least one pass")
        if name == "repeat":
            return self._repeat(inner, int(given["most"]))
        if name != "limit":
            return Watched(inner, name)
        if int(given["most"]) < 0:
            raise CleaveError(f"pipeline {self.text!r}: a limit says no number, expected limit{{most=N}}(...), N from 0")
        return Limited(inner, int(given["most"]))

    def _repeat(self, inner: tuple[Step, ...], most: int) -> Repeat:
        passes = tuple(p for p in inner if isinstance(p, Pass))
        if len(passes) != len(inner):
            raise CleaveError(f"pipeline {self.text!r}: another block stands inside a repeat, expected passes only")
        return Repeat(passes, most)

    def _options(self, step: str, known: Mapping[str, Option]) -> dict[str, Option]:
        found: dict[str, Option] = {}
        if not self.tokens or self.tokens[0] != "{":
            return found
        self.tokens.pop(0)
        while self.tokens and self.tokens[0] != "}":
            name = self.tokens.pop(0)
            if name not in known:
                close = difflib.get_close_matches(name, known, 1)
                hint = f"did you mean {close[0]!r}?" if close else f"expected one of {', '.join(known) or 'none'}"
                raise CleaveError(f"pass {step!r} has no option {name!r}; {hint}")
            self._expect("=")
            found[name.replace("-", "_")] = self._value(step, name, known[name])
            if self.tokens and self.tokens[0] == ",":
                self.tokens.pop(0)
        self._expect("}")
        return found

    def _value(self, step: str, name: str, default: Option) -> Option:
        text = self.tokens.pop(0) if self.tokens else ""
        try:
            if isinstance(default, bool):
                return {"true": True, "false": False}[text]
            return text.strip('"') if isinstance(default, str) else type(default)(text)
        except (KeyError, ValueError):
            wanted = "true or false" if isinstance(default, bool) else type(default).__name__
            raise CleaveError(f"option {name!r} of pass {step!r} is {text!r}, expected {wanted}") from None

    def _expect(self, token: str) -> None:
        found = self.tokens.pop(0) if self.tokens else "the end"
        if found != token:
            raise CleaveError(f"pipeline {self.text!r}: found {found!r}, expected {token!r}")
