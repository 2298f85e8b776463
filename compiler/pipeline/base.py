"""What a pass is: a frozen dataclass whose fields are its options, the facts it needs, gives and spoils, and one `run`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import ClassVar, TypeVar

from compiler.execution import ModuleExecutor
from compiler.ir.errors import CleaveError
from compiler.ir.module import Module

T = TypeVar("T")

TYPED = "typed"  # every value has the best type `infer` gives
CANONICAL = "canonical"  # folded, simplified, dead code gone
OUTLINED = "outlined"  # compound functions are calls of a kind
ANNOTATED = "annotated"  # every value has a sharding
PARTITIONED = "partitioned"  # one node per device and part; no sharding left
PLACED = "placed"  # every node has a device
SERIALISED = "serialised"  # each device's order is fixed where it pays
FACTS = (TYPED, CANONICAL, OUTLINED, ANNOTATED, PARTITIONED, PLACED, SERIALISED)


class Numerics(Enum):
    EXACT = "exact"
    REASSOCIATES = "reassociate"


@dataclass(frozen=True)
class Note:
    """One line of the report: what a pass did or declined to do, where and why."""

    pass_name: str
    kind: str  # "change" | "refusal"
    where: str  # a node or a layer
    what: str


@dataclass
class Context:
    """What a pass may ask for besides the module: an executor, services by type (cluster, cost model, objective), and where to report."""

    executor: ModuleExecutor | None = None
    services: Mapping[type, object] = field(default_factory=dict)
    notes: list[Note] = field(default_factory=list)
    pass_name: str = ""
    fuel: int | None = None
    """How many rewrites are still allowed; None is unlimited.  `spend` counts; bisection lowers it."""
    spent: int = 0

    def service(self, kind: type[T]) -> T:
        found = self.services.get(kind)
        if not isinstance(found, kind):
            raise CleaveError(f"pass {self.pass_name!r} needs a {kind.__name__}, none was given")
        return found

    def change(self, where: str, what: str) -> None:
        self.notes.append(Note(self.pass_name, "change", where, what))

    def refuse(self, where: str, why: str) -> None:
        self.notes.append(Note(self.pass_name, "refusal", where, why))

    def spend(self) -> bool:
        """May one more rewrite happen?  Every pass asks before each independent rewrite, so that bisection can stop between two."""
        if self.fuel is not None and self.spent >= self.fuel:
            return False
        self.spent += 1
        return True


class Pass(ABC):
    """Subclasses are frozen dataclasses; fields are options, printed as `name{option=value}`."""

    name: ClassVar[str]
    requires: ClassVar[frozenset[str]] = frozenset()
    establishes: ClassVar[frozenset[str]] = frozenset()
    breaks: ClassVar[frozenset[str]] = frozenset()
    numerics: ClassVar[Numerics] = Numerics.EXACT

    @abstractmethod
    def run(self, module: Module, context: Context) -> None:
        """Rewrite the module in place, through the graphs' mutators only."""
