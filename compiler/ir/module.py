"""A module: entry graphs (one for each signature), a library of bodies, the model's state, and where its weights are."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from compiler.ir.errors import IrError
from compiler.ir.graph import FunctionRef, Graph, Node
from compiler.ir.sharding import Mesh, Sharding
from compiler.ir.types import TensorType
from compiler.ir.weights import Literal, Stores


@dataclass(frozen=True)
class Variable:
    """A named piece of state.  `initial` is its stored value, None where it is uninitialised.

    `written_elsewhere`, `read_elsewhere`: something outside this module (a signature kept as it is) writes or reads it.
    """

    name: str
    type: TensorType
    initial: Literal | None = None
    trainable: bool = True
    device: str = ""
    sharding: Sharding | None = None
    written_elsewhere: bool = False
    read_elsewhere: bool = False


@dataclass(frozen=True)
class Resource:
    """Any other state the model owns (a table, an asset path): opaque, created and initialised by the artefact it came from."""

    name: str
    type: TensorType
    kind: str = "table"


@dataclass
class Module:
    """`entries` and `functions` are graphs by name; a node refers to a function by a `FunctionRef` attribute.

    State is a fact of the module: a `Variable` node (pseudo-op, attribute `ref`) yields the handle of `variables[ref]`,
    a `Resource` node that of `resources[ref]`, in whatever graph it stands.
    """

    name: str
    entries: dict[str, Graph] = field(default_factory=dict)
    functions: dict[str, Graph] = field(default_factory=dict)
    variables: dict[str, Variable] = field(default_factory=dict)
    resources: dict[str, Resource] = field(default_factory=dict)
    stores: Stores = field(default_factory=Stores)
    mesh: Mesh | None = None
    facts: frozenset[str] = frozenset()
    sizes: dict[str, int] = field(default_factory=dict)
    """Representative sizes of symbolic dimensions, used by costs only."""

    @property
    def graphs(self) -> Mapping[str, Graph]:
        """Entries, then functions."""
        return {**self.entries, **self.functions}

    @property
    def version(self) -> int:
        """Changes whenever any graph does."""
        return sum(g.version for g in self.graphs.values()) + len(self.functions)

    def copy(self) -> Module:
        """Independent graphs; the stores are shared (weights are immutable)."""
        return Module(
            self.name,
            {n: g.copy() for n, g in self.entries.items()},
            {n: g.copy() for n, g in self.functions.items()},
            dict(self.variables),
            dict(self.resources),
            self.stores,
            self.mesh,
            self.facts,
            dict(self.sizes),
        )

    def fresh_function_name(self, base: str) -> str:
        name, count = base, 0
        while name in self.functions or name in self.entries:
            count += 1
            name = f"{base}_{count}"
        return name

    def function(self, ref: FunctionRef) -> Graph:
        if ref.name not in self.functions:
            raise IrError(f"function @{ref.name} is not in the module, expected one of {sorted(self.functions)[:5]}")
        return self.functions[ref.name]

    def reachable_functions(self, roots: Iterable[Graph] | None = None, known: Container[str] = ()) -> tuple[str, ...]:
        """Names of the functions that entries (or `roots`) refer to, directly or not, callees first; none that is `known` or behind it."""
        done: dict[str, None] = {}
        stack = [(graph, iter(_referenced(graph))) for graph in (self.entries.values() if roots is None else roots)]
        on_path: set[str] = set()
        while stack:
            graph, rest = stack[-1]
            for name in rest:
                if name not in done and name not in on_path and name not in known:
                    on_path.add(name)
                    body = self.function(FunctionRef(name))
                    stack.append((body, iter(_referenced(body))))
                    break
            else:
                stack.pop()
                if graph.name in self.functions and self.functions[graph.name] is graph:
                    done.setdefault(graph.name)
        return tuple(done)

    def __str__(self) -> str:
        from compiler.ir.text import print_module  # late: the text form knows modules, so this module cannot know it at import

        return print_module(self)


def function_refs(node: Node) -> Iterator[FunctionRef]:
    """Every function a node's attributes name, lists included."""
    for _, attr in sorted(node.attrs.items()):
        if isinstance(attr, FunctionRef):
            yield attr
        elif isinstance(attr, tuple):
            yield from (a for a in attr if isinstance(a, FunctionRef))


def _referenced(graph: Graph) -> list[str]:
    return list(dict.fromkeys(ref.name for node in graph for ref in function_refs(node)))
