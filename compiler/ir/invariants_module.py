"""The rules a module keeps as a whole.  Each function yields what breaks one rule; its docstring is the rule."""

from __future__ import annotations

from collections.abc import Iterator

from compiler.ir.invariant import Fault
from compiler.ir.invariants_graph import literal_faults, sharding_faults
from compiler.ir.module import Module, function_refs
from compiler.ir.types import compatible
from compiler.ir.weights import literal_type


def graph_names(module: Module) -> Iterator[Fault]:
    """A graph is kept under its own name, and no function has the name of an entry."""
    for name, graph in [*module.entries.items(), *module.functions.items()]:
        if graph.name != name:
            yield Fault(f"@{name} holds the graph {graph.name!r}, expected one of that name", graph=name)
    for name in sorted(module.entries.keys() & module.functions.keys()):
        yield Fault(f"@{name} is both an entry and a function, expected two names", graph=name)


def state_names(module: Module) -> Iterator[str]:
    """A variable or resource is kept under its own name."""
    for kind, states in (("variable", module.variables), ("resource", module.resources)):
        for name, state in states.items():
            if state.name != name:
                yield f"{kind} {name!r} holds {state.name!r}, expected one of that name"


def initial_values(module: Module) -> Iterator[str]:
    """A variable's initial value is of its type and lies within its store."""
    sizes = {name: module.stores.size(name) for name in module.stores.files}
    for name, variable in module.variables.items():
        if variable.initial is None:
            continue
        if not compatible(literal_type(variable.initial), variable.type):
            yield f"variable {name!r} is {variable.type}, its initial value {literal_type(variable.initial)}, expected the same type"
        for message in literal_faults(variable.initial, sizes):
            yield f"variable {name!r}: {message}"


def variable_shardings(module: Module) -> Iterator[str]:
    """A variable's sharding uses axes of the mesh, fits its rank, and leaves nothing to combine."""
    axes = frozenset(axis.name for axis in module.mesh.axes) if module.mesh is not None else frozenset[str]()
    for name, variable in module.variables.items():
        if variable.sharding is None:
            continue
        for message in sharding_faults(variable.sharding, variable.type, axes):
            yield f"variable {name!r} {message}"
        if variable.sharding.partial:
            yield f"variable {name!r} is partial, {variable.sharding}, expected whole values in stored state"


def calls(module: Module) -> Iterator[Fault]:
    """No function calls itself, directly or through others: TensorFlow inlines and would not end."""
    done: set[str] = set()
    for root in module.functions:
        cycle = _cycle(module, root, done)
        if cycle:
            done.update(cycle)
            yield Fault(f"functions call each other in a cycle, {' -> '.join('@' + c for c in cycle)}, expected none", graph=cycle[0])


def _cycle(module: Module, root: str, done: set[str]) -> list[str]:
    """Depth first from `root`, without recursion: the first cycle met, its first function repeated at the end.  Adds to `done`."""
    path = {} if root in done else {root: iter(_callees(module, root))}
    while path:
        name = next(reversed(path))
        callee = next((c for c in path[name] if c not in done), None)
        if callee is None:
            del path[name]
            done.add(name)
        elif callee in path:
            names = list(path)
            return [*names[names.index(callee) :], callee]
        else:
            path[callee] = iter(_callees(module, callee))
    return []


def _callees(module: Module, name: str) -> list[str]:
    found = dict.fromkeys(ref.name for node in module.functions[name] for ref in function_refs(node))
    return [callee for callee in found if callee in module.functions]
