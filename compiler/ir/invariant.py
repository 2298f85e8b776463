"""What an invariant is: a rule with a name, the fact it belongs to, and a check that yields what breaks it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias

from compiler.ir.graph import Graph
from compiler.ir.module import Module


@dataclass(frozen=True)
class Fault:
    """A broken rule: what was found and expected, and at which node of which graph ("" where it is of none)."""

    message: str
    node: str = ""
    graph: str = ""
    rule: str = ""

    def __str__(self) -> str:
        place = " ".join(part for part in (f"graph {self.graph!r}" if self.graph else "", self.node and f"node {self.node!r}") if part)
        return f"{place or 'module'} breaks the rule {self.rule!r}: {self.message}"


Found: TypeAlias = "Iterable[str | Fault]"


@dataclass(frozen=True)
class Invariant:
    """Holds for each graph of a module that has `fact` (None: always).  The check yields a message, or a `Fault` that names the node."""

    name: str
    fact: str | None
    check: Callable[[Module, Graph], Found]

    def faults(self, module: Module) -> Iterator[Fault]:
        for key, graph in [*module.entries.items(), *module.functions.items()]:
            for found in self.check(module, graph):
                yield replace(_fault(found), graph=key, rule=self.name)


@dataclass(frozen=True)
class ModuleInvariant:
    """Holds for the module as a whole."""

    name: str
    fact: str | None
    check: Callable[[Module], Found]

    def faults(self, module: Module) -> Iterator[Fault]:
        for found in self.check(module):
            yield replace(_fault(found), rule=self.name)


def _fault(found: str | Fault) -> Fault:
    return found if isinstance(found, Fault) else Fault(found)
