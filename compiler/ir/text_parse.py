"""Text => module, by recursive descent; the recursion is only as deep as a type or a list is nested.

    document  := ["pipeline" STRING] "module" STRING ["facts" "(" word,* ")"] statement*
    statement := "mesh" "[" axis "=" INT ["(" INT,* ")"],* "]" "on" "(" STRING,* ")"
               | "size" word "=" INT | "store" word "=" STRING
               | "variable" "@" name ":" type ["=" literal] flag* ["sharding" SHARDING] ["on" STRING]
               | "resource" "@" name ":" type "kind" STRING
               | ("entry" | "function") "@" name "(" input,* ")" "->" "(" (word "=" value),* ")" [attrs] "{" node* "}"
    input     := "%" name ":" types [attrs] place
    node      := "%" name "=" word "(" (["~"] value),* ")" [attrs] ":" types place
    place     := ["on" STRING] ["from" "(" name,* ")"] ["after" "(" ("%" name),* ")"]
    types     := type | "(" type,* ")"        type := dtype ["<" type ">"] "[" dim,* "]" ["@" SHARDING]
    value     := "%" name [":" INT]
    attrs     := "{" (word "=" attr),* "}"
    attr      := INT | FLOAT | "true" | "false" | STRING | BYTES | dtype | "shape[" dims "]" | "@" name | "[" attr,* "]" | literal
    literal   := "tensor(" type "," elements ")" | "splat(" type "," element ")"
               | "weight(" word "," INT "," type ["," "[" INT+INT,* "]"] ")"

`#` starts a comment.  A value may be used before the line that defines it: a graph is built after it was read whole.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from compiler.ir.errors import IrError
from compiler.ir.graph import INPUT, Attr, Edge, Graph, Node, Value
from compiler.ir.module import Module, Resource, Variable
from compiler.ir.sharding import Mesh, MeshAxis
from compiler.ir.text_scan import Scanner
from compiler.ir.text_values import ValueParser
from compiler.ir.types import TensorType
from compiler.ir.weights import Stores

_AXIS = re.compile(r"[A-Za-z_]\w*")


def parse_module(text: str, base_dir: Path | None = None, stores: Stores | None = None, source: str = "") -> Module:
    """The module, and not its pipeline.  `stores`: those of the module the text was printed from, whose scratch file no text names."""
    return parse_document(text, base_dir, stores, source)[1]


def parse_document(text: str, base_dir: Path | None = None, stores: Stores | None = None, source: str = "") -> tuple[str | None, Module]:
    """(pipeline text or None, module); store paths are relative to `base_dir`.  IrError says line, column and what was expected."""
    scanner = Scanner(text, source)
    pipeline = scanner.string("the pipeline in quotes") if scanner.accept_word("pipeline") else None
    return pipeline, _ModuleParser(scanner, base_dir, Stores() if stores is None else stores).module()


def parse_type(text: str) -> TensorType:
    """The inverse of `str(type)`."""
    scanner = Scanner(text)
    found = ValueParser(scanner).type()
    if not scanner.at_end:
        scanner.fail("the end of the type")
    return found


@dataclass(frozen=True)
class _Statement:
    """A node as it was read; its operands may not exist yet."""

    position: int
    node: Node
    edges: tuple[Edge, ...]
    controls: tuple[str, ...]

    def is_ready(self, graph: Graph) -> bool:
        return all(e.value.node in graph and not e.back for e in self.edges) and all(c in graph for c in self.controls)


class _ModuleParser(ValueParser):
    """The module under construction."""

    def __init__(self, scanner: Scanner, base_dir: Path | None, stores: Stores) -> None:
        super().__init__(scanner)
        self._base_dir = base_dir
        self._module = Module("", stores=stores)

    # ---- the module

    def module(self) -> Module:
        if not self.at.accept_word("module"):
            self.at.fail("'module'")
        self._module.name = self.at.string("the module's name in quotes")
        if self.at.accept_word("facts"):
            self._module.facts = frozenset(self.at.listed("(", ")", lambda: self.at.word("a fact")))
        statements: dict[str, Callable[[], None]] = {
            "mesh": self._mesh, "size": self._size, "store": self._store, "variable": self._variable, "resource": self._resource,
            "entry": lambda: self._graph(self._module.entries), "function": lambda: self._graph(self._module.functions),
        }  # fmt: skip
        while not self.at.at_end:
            word = self.at.peek_word()
            if word not in statements:
                self.at.fail(f"one of {', '.join(statements)}")
            self.at.accept_word(word)
            statements[word]()
        return self._module

    def _mesh(self) -> None:
        start = self.at.position
        axes = self.at.listed("[", "]", self._axis)
        self.keyword("on")
        devices = self.at.listed("(", ")", lambda: self.at.string("a device in quotes"))
        self._module.mesh = self.at.call(start, lambda: Mesh(tuple(axes), tuple(devices)))

    def _axis(self) -> MeshAxis:
        start = self.at.position
        name = self.at.take(_AXIS, "a mesh axis")
        self.at.expect("=")
        size = self.at.integer("the axis's size")
        shares = self.at.listed("(", ")", lambda: self.at.integer("a share")) if self.peek("(") else []
        return self.at.call(start, lambda: MeshAxis(name, size, tuple(shares)))

    def _size(self) -> None:
        name = self.at.word("a symbol")
        self.at.expect("=")
        self._module.sizes[name] = self.at.integer("its representative size")

    def _store(self) -> None:
        start = self.at.position
        name = self.at.word("the store's name")
        self.at.expect("=")
        path = Path(self.at.string("the file's path in quotes"))
        self.at.call(start, lambda: self._module.stores.add(name, path if self._base_dir is None else self._base_dir / path))

    def _variable(self) -> None:
        name, type_ = self._global(self._module.variables)
        variable = Variable(name, type_, self.literal() if self.at.accept("=") else None)
        while (word := self.at.peek_word()) in ("untrainable", "written_elsewhere", "read_elsewhere"):
            self.at.accept_word(word)
            variable = replace(
                variable,
                trainable=variable.trainable and word != "untrainable",
                written_elsewhere=variable.written_elsewhere or word == "written_elsewhere",
                read_elsewhere=variable.read_elsewhere or word == "read_elsewhere",
            )
        sharding = self.sharding() if self.at.accept_word("sharding") else None
        self._module.variables[name] = replace(variable, sharding=sharding, device=self.device())

    def _resource(self) -> None:
        name, type_ = self._global(self._module.resources)
        self.keyword("kind")
        self._module.resources[name] = Resource(name, type_, self.at.string("its kind in quotes"))

    def _global(self, taken: Mapping[str, object]) -> tuple[str, TensorType]:
        name = self._new(taken)
        self.at.expect(":")
        return name, self.type()

    def _new(self, taken: Mapping[str, object]) -> str:
        start = self.at.position
        name = self.symbol("@")
        if name in taken:
            raise self.at.error(f"@{name} is already defined, expected a new name", start)
        return name

    # ---- graphs

    def _graph(self, graphs: dict[str, Graph]) -> None:
        name = self._new(graphs)
        inputs = self.at.listed("(", ")", self._input)
        self.at.expect("->")
        outputs = self.at.listed("(", ")", self._output)
        start = self.at.position
        attrs = self.attrs() if self._has_attrs() else {}
        self.at.expect("{")
        statements = []
        while not self.at.accept("}"):
            statements.append(self._node())
        graph = Graph(name, attrs)
        self._connect(graph, inputs, statements)
        self.at.call(start, lambda: graph.set_outputs(outputs))
        graphs[name] = graph

    def _has_attrs(self) -> bool:
        """Both attributes and the body begin with `{`; a body goes on with a node or ends."""
        start = self.at.position
        if not self.at.accept("{"):
            self.at.fail("'{'")
        body = self.at.text.startswith(("%", "}"), self.at.position)
        self.at.move(start)
        return not body

    def _connect(self, graph: Graph, inputs: list[_Statement], statements: list[_Statement]) -> None:
        """Nodes whose operands all stand before them are added connected; the others are connected when every node is there."""
        late = [s for s in inputs if s.controls]
        for s in inputs:
            self._build(s, lambda s: _add_input(graph, s.node))
        for s in statements:
            if s.is_ready(graph):
                self._build(s, lambda s: graph.add_node(s.node, [e.value for e in s.edges], s.controls))
            else:
                self._build(s, lambda s: graph.add_node(s.node))
                late.append(s)
        for s in late:
            self._build(s, lambda s: _connect_late(graph, s))

    def _build(self, statement: _Statement, change: Callable[[_Statement], object]) -> None:
        """`change` a graph; an IrError of it gets the statement's place in the text."""
        try:
            change(statement)
        except IrError as error:
            raise self.at.error(str(error), statement.position) from None

    def _input(self) -> _Statement:
        start = self.at.position
        name = self.symbol("%")
        self.at.expect(":")
        types = self.types_list()
        return self._placed(start, name, INPUT, (), self.attrs() if self.peek("{") else {}, types)

    def _output(self) -> tuple[str, Value]:
        name = self.at.word("the output's name")
        self.at.expect("=")
        return name, self.value()

    def _node(self) -> _Statement:
        start = self.at.position
        name = self.symbol("%")
        self.at.expect("=")
        op = self.at.word("an op")
        operands = self.at.listed("(", ")", self._operand)
        attrs = self.attrs() if self.peek("{") else {}
        self.at.expect(":")
        edges = tuple(Edge(slot, value, back) for slot, (value, back) in enumerate(operands))
        return self._placed(start, name, op, edges, attrs, self.types_list())

    def _placed(
        self, start: int, name: str, op: str, edges: tuple[Edge, ...], attrs: dict[str, Attr], types: tuple[TensorType, ...]
    ) -> _Statement:
        device = self.device()
        origin = self.at.listed("(", ")", lambda: self.at.name("an origin")) if self.at.accept_word("from") else []
        controls = self.at.listed("(", ")", lambda: self.symbol("%")) if self.at.accept_word("after") else []
        return _Statement(start, Node(name, op, attrs, types, device, tuple(origin)), edges, tuple(controls))

    def _operand(self) -> tuple[Value, bool]:
        back = self.at.accept("~")
        return self.value(), back


def _add_input(graph: Graph, node: Node) -> None:
    graph.add_input(node.name, node.type, origin=node.origin, attrs=node.attrs)
    graph.set_device(node.name, node.device)


def _connect_late(graph: Graph, statement: _Statement) -> None:
    name = statement.node.name
    graph.set_operands(name, [e.value for e in statement.edges])
    for edge in statement.edges:
        if edge.back:
            graph.set_operand(name, edge.slot, edge.value, back=True)
    graph.set_control(name, statement.controls)
