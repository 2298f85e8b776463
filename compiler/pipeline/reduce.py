"""Delta debugging: the smallest module that still shows the same fault, by taking things out for as long as that can be done.

    a module of 700 nodes that `cse` crashes on   =>   one of 5 that it crashes on

Each family of moves (`edits.py`) is tried on all its items at once, then on halves, quarters, ... single ones; what still shows the fault
is gone on with.  Rounds of all families follow each other until one changes nothing.  A candidate that breaks a rule of the verifier's is
never asked about.  No clock and no random number decides anything: the same module gives the same result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from compiler.ir.errors import CleaveError, IrError
from compiler.ir.module import Module
from compiler.ir.verify import STRUCTURE, verify
from compiler.ops.invariants import OPERATIONS
from compiler.pipeline.edits import FAMILIES, sweep, without_stores
from compiler.pipeline.manager import Step, Watched
from compiler.pipeline.probe import MEANING, Fault, Probe, unwatched
from compiler.pipeline.sizes import Family, Item
from compiler.pipeline.text import VALIDATE_EACH, print_pipeline

MOST_TRIES = 2000


@dataclass(frozen=True)
class Reduction:
    """`module` shows `fault` under the steps, after `tries` runs; nothing more could be taken out, unless the limit `stopped` it."""

    module: Module
    fault: Fault
    pipeline: str
    tries: int
    stopped: bool
    rows: tuple[tuple[str, int], ...]
    """How many moves of each family were made."""
    nodes: tuple[int, int]
    """Before and after."""


def reduce(
    module: Module, steps: Sequence[Step], probe: Probe, most_tries: int = MOST_TRIES, say: Callable[[str], None] = lambda _: None
) -> Reduction:
    """CleaveError where the module shows no fault to begin with."""
    fault = probe.run(module, steps).fault
    if fault is None:
        raise CleaveError(f"nothing is wrong to begin with: no {' or '.join(probe.kinds)} fault shows")
    reducer = _Reducer(tuple(steps), probe, fault, most_tries, say, module.copy())
    reducer.run()
    made = without_stores(reducer.module)
    rows = tuple((name, count) for name, count in reducer.rows.items() if count)
    again = tuple(unwatched(steps))
    text = print_pipeline([Watched(again, VALIDATE_EACH)] if fault.kind == MEANING and again else again)
    nodes = _nodes(module), _nodes(made)
    return Reduction(made, reducer.fault, text, reducer.tries, reducer.tries >= most_tries, rows, nodes)


@dataclass
class _Reducer:
    steps: tuple[Step, ...]
    probe: Probe
    fault: Fault
    most_tries: int
    say: Callable[[str], None]
    module: Module
    tries: int = 0
    rows: dict[str, int] = field(default_factory=dict)

    def run(self) -> None:
        self._take(lambda module: True)  # what nobody needs goes first
        progress = True
        while progress and self.tries < self.most_tries:
            progress = False
            for family in FAMILIES:
                made = self._family(family)
                self.rows[family.name] = self.rows.get(family.name, 0) + made
                progress = progress or bool(made)

    def _family(self, family: Family) -> int:
        """How many moves were made: all at once, else in ever smaller pieces."""
        items, made = family.items(self.module), 0
        size = len(items)
        while size:
            place = 0
            while place < len(items) and self.tries < self.most_tries:
                chosen = items[place : place + size]
                count = self._move(family, chosen)
                made += count
                items = items[:place] + items[place + size :] if count else items
                place += 0 if count else size
            size = size // 2
        return made

    def _move(self, family: Family, chosen: Sequence[Item]) -> int:
        count = 0

        def edit(module: Module) -> bool:
            nonlocal count
            count = sum(family.apply(module, item) for item in chosen)
            return count > 0

        return count if self._take(edit) else 0

    def _take(self, edit: Callable[[Module], bool]) -> bool:
        """Edit a copy; keep it if it is a module that shows the fault."""
        candidate = self.module.copy()
        try:
            if not edit(candidate):
                return False
            sweep(candidate)
            verify(candidate, (*STRUCTURE, *OPERATIONS))
        except IrError:
            return False
        self.tries += 1
        fault = self._shown(candidate)
        if fault is None:
            return False
        self.module, self.fault = candidate, fault
        self.say(f"{_nodes(candidate)} nodes after {self.tries} runs")
        return True

    def _shown(self, candidate: Module) -> Fault | None:
        """The fault, if the candidate shows the one looked for."""
        try:
            fault = self.probe.run(candidate, self.steps).fault
        except CleaveError:  # facts that a pass asks for are gone, or the candidate itself cannot be run
            return None
        return fault if fault is not None and fault.resembles(self.fault) else None


def _nodes(module: Module) -> int:
    return sum(len(graph) for graph in module.graphs.values())
