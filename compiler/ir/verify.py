"""The verifier: `verify(module)` raises on the first broken rule of the list, and shows the nodes around it.

`STRUCTURE` is what every module keeps, whatever made it; what ops say of their operands is `compiler.ops.invariants`:
`verify(module, (*STRUCTURE, *OPERATIONS))`.  A rule with a fact is only checked in modules that have the fact.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

from compiler.ir import invariants_graph as in_graph
from compiler.ir import invariants_module as in_module
from compiler.ir.errors import IrError
from compiler.ir.graph import Graph
from compiler.ir.invariant import Fault, Invariant, ModuleInvariant
from compiler.ir.module import Module
from compiler.ir.text_print import print_node

__all__ = ["STRUCTURE", "Fault", "Invariant", "ModuleInvariant", "Rule", "faults", "verify"]

Rule: TypeAlias = Invariant | ModuleInvariant

STRUCTURE: tuple[Rule, ...] = (
    # always, the module
    ModuleInvariant("graph names", None, in_module.graph_names),
    ModuleInvariant("state names", None, in_module.state_names),
    ModuleInvariant("initial values", None, in_module.initial_values),
    ModuleInvariant("calls", None, in_module.calls),
    # always, each graph
    Invariant("node names", None, in_graph.node_names),
    Invariant("attributes", None, in_graph.attributes),
    Invariant("slots", None, in_graph.slots),
    Invariant("ports", None, in_graph.ports),
    Invariant("controls", None, in_graph.controls),
    Invariant("order", None, in_graph.order),
    Invariant("inputs", None, in_graph.inputs),
    Invariant("outputs", None, in_graph.outputs),
    Invariant("functions", None, in_graph.functions),
    Invariant("state", None, in_graph.state),
    Invariant("constants", None, in_graph.constants),
    Invariant("weights", None, in_graph.weights),
    Invariant("origins", None, in_graph.origins),
    Invariant("partial values", None, in_graph.partial_values),
    # by fact
    Invariant("shardings", "annotated", in_graph.shardings),
    ModuleInvariant("variable shardings", "annotated", in_module.variable_shardings),
    Invariant("no shardings", "partitioned", in_graph.no_shardings),
    Invariant("devices", "placed", in_graph.devices),
)

_NEIGHBOURS = 3


def faults(module: Module, invariants: Sequence[Rule] = STRUCTURE) -> list[Fault]:
    """Every broken rule, in the order of the list; where one is so broken that another cannot even be checked, the list ends there."""
    found: list[Fault] = []
    for invariant in invariants:
        if invariant.fact is not None and invariant.fact not in module.facts:
            continue
        try:
            for fault in invariant.faults(module):
                found.append(fault)
        except IrError as error:
            return [*found, Fault(str(error), rule=invariant.name)]
        except Exception:  # a rule may stumble over what an earlier one found broken, never over anything else
            if not found:
                raise
            return found
    return found


def verify(module: Module, invariants: Sequence[Rule] = STRUCTURE) -> None:
    """IrError with the first fault, the nodes around it, and how many more there are."""
    found = faults(module, invariants)
    if not found:
        return
    first, more = found[0], len(found) - 1
    lines = [str(first), *_surroundings(module, first)]
    lines += [f"(and {more} more {'fault' if more == 1 else 'faults'}, the next: {found[1]})"] if more else []
    raise IrError("\n".join(lines))


def _surroundings(module: Module, fault: Fault) -> Iterator[str]:
    """The node at fault, marked, between its producers and its users."""
    graph = module.entries.get(fault.graph) or module.functions.get(fault.graph)
    if graph is None or fault.node not in graph:
        return
    producers = [e.value.node for e in graph.edges(fault.node)] + list(graph.controls(fault.node))
    yield from _lines(graph, producers, "  ")
    yield from _lines(graph, [fault.node], "> ")
    yield from _lines(graph, (u for u in graph.users(fault.node) if u != fault.node), "  ")


def _lines(graph: Graph, names: Iterable[str], mark: str) -> Iterator[str]:
    unique = list(dict.fromkeys(names))
    for name in unique[:_NEIGHBOURS]:
        yield f"  {mark}{_line(graph, name)}"
    if len(unique) > _NEIGHBOURS:
        yield f"  {mark}... {len(unique) - _NEIGHBOURS} more"


def _line(graph: Graph, name: str) -> str:
    try:
        return print_node(graph, name)
    except IrError as error:  # the node at fault may be one that has no text
        return f"%{name} = {graph.node(name).op}(...)  # {error}"
