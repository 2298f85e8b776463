"""GraphDef and FunctionDef protos => graphs of a module: the one importer, at which all doors meet.

    PartitionedCall, StatefulPartitionedCall, a call by a function's own name   =>  Call {f=@body}
    @__inference_serve_1234                                                     =>  @serve
    VarHandleOp; VariableV2 where nothing writes it                             =>  Variable {ref="name"}; ReadVariableOp of one
    any other source of a resource at the top                                   =>  Resource {ref="name"}
    Placeholder at the top, an argument of a function                           =>  Input

Nothing is executed.  Functions are imported when something refers to them, one after another (no recursion); nodes are added producers
first, and only an edge from NextIteration to Merge may close a cycle.  Shapes are left unknown: `infer-types` finds them.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tensorflow.core.framework import function_pb2, graph_pb2, node_def_pb2

from compiler.frontend.attributes import attrs_of, normal
from compiler.frontend.devices import canonical_device
from compiler.frontend.element_types import dtype_of
from compiler.frontend.kernels import refuse_without_kernel
from compiler.frontend.names import Names
from compiler.frontend.references import Reference, function_reference, graph_reference, output_ranges
from compiler.ir.errors import CleaveError, IrError
from compiler.ir.graph import Attr, FunctionRef, Graph, Value, attr_key
from compiler.ir.module import Module
from compiler.ir.types import DType, TensorType
from compiler.ir.weights import Splat, Tensor, WeightRef, literal_type
from compiler.ops import opdefs

_RUNNING_NUMBER = re.compile(r"_\d+(___redundant_placeholder\d+)$")
CALLS = ("PartitionedCall", "StatefulPartitionedCall")
REFERENCES = ("VariableV2", "Variable")
VARIABLES = ("VarHandleOp", *REFERENCES)
_CALL_ATTRS = ("config_proto", "executor_type")
_DERIVED = ("Tin", "Tout", "T", "Tcond", "output_shapes")
_BODIES = ("If", "StatelessIf", "While", "StatelessWhile", "Case", "StatelessCase")
_FUNCTION_ATTRS = ("_noinline", "_XlaMustCompile", "_implements")


@dataclass
class Importer:
    """Imports graphs into one module, whose library of bodies it fills."""

    module: Module
    library: Mapping[str, function_pb2.FunctionDef]
    producer: Mapping[str, Mapping[str, Attr]] = field(default_factory=dict)
    """Defaults of attributes as the program that wrote the model knew them, by op."""
    entries: tuple[str, ...] = ()
    """Names that no function may have."""
    pending: list[str] = field(default_factory=list)
    requested: set[str] = field(default_factory=set)
    names: Names = field(init=False)

    def __post_init__(self) -> None:
        self.names = Names(self.library, self.entries)

    def request(self, function: str, where: str) -> function_pb2.FunctionDef:
        """Have a function imported in its turn."""
        if function not in self.library:
            raise CleaveError(f"{where}: function {function!r} is not in the model's library")
        if function not in self.requested:
            self.requested.add(function)
            self.pending.append(function)
        return self.library[function]

    def finish(self) -> None:
        """Import every function asked for, and those they ask for."""
        while self.pending:
            name = self.pending.pop()
            self.module.functions[self.names.of(name)] = self._function(self.library[name])
        self.module.functions = dict(sorted(self.module.functions.items()))

    def _function(self, proto: function_pb2.FunctionDef) -> Graph:
        name = proto.signature.name
        attrs = attrs_of(name, proto.attr, self.module.stores, name)
        graph = Graph(self.names.of(name), {k: a for k, a in attrs.items() if k in _FUNCTION_ATTRS})
        renamed = _argument_names(proto)
        for arg in proto.signature.input_arg:
            graph.add_input(renamed[arg.name], TensorType(dtype_of(arg.type)))
        read = {node.name: self._read(node, name) for node in proto.node_def}
        ranges = {node.name: node.ranges for node in read.values()}

        def resolve(text: str, where: str) -> Reference:
            reference = function_reference(text, ranges, where)
            return Reference(renamed.get(reference.node, reference.node), reference.port)

        self.add_nodes(graph, list(read.values()), resolve)
        outputs = []
        for arg in proto.signature.output_arg:
            if arg.name not in proto.ret:
                raise CleaveError(f"function {name!r} does not say what its output {arg.name!r} is")
            outputs.append((arg.name, resolve(proto.ret[arg.name], f"function {name!r}").value))
        graph.set_outputs(outputs)
        return graph

    def read_nodes(self, protos: Iterable[node_def_pb2.NodeDef], where: str) -> list[ReadNode]:
        return [self._read(proto, where) for proto in protos]

    def _read(self, proto: node_def_pb2.NodeDef, where: str) -> ReadNode:
        at = f"{where}: node {proto.name!r}"
        attrs = attrs_of(proto.op, proto.attr, self.module.stores, at)
        callee = self._callee(proto, attrs, at)
        outputs = None if callee is None else tuple(a.name for a in callee.signature.output_arg)
        ranges = output_ranges(proto.op, attrs, outputs, at)
        if callee is not None:
            dtypes = tuple(dtype_of(a.type) for a in callee.signature.output_arg)
            kept: dict[str, Attr] = {"f": FunctionRef(self.names.of(callee.signature.name))}
            kept.update({k: attrs[k] for k in _CALL_ATTRS if attrs.get(k)})
            kept.update({k: a for k, a in attrs.items() if k.startswith("_")})
            return ReadNode(proto, "Call", kept, tuple(TensorType(d) for d in dtypes), ranges)
        refuse_without_kernel(proto.op, at)
        return ReadNode(proto, proto.op, self._normal(proto.op, attrs, at), self._types(proto.op, attrs, at), ranges)

    def _callee(self, proto: node_def_pb2.NodeDef, attrs: Mapping[str, Attr], where: str) -> function_pb2.FunctionDef | None:
        if proto.op in CALLS:
            f = attrs.get("f")
            if not isinstance(f, FunctionRef):
                raise CleaveError(f"{where}: {proto.op} names no function")
            return self.request(f.name, where)
        if proto.op in self.library and opdefs.get(proto.op) is None:
            return self.request(proto.op, where)
        return None

    def _normal(self, op: str, attrs: Mapping[str, Attr], where: str) -> dict[str, Attr]:
        if op == "Const":
            return {"value": attrs["value"]} if "value" in attrs else {}
        dropped = _DERIVED if op in _BODIES else ()
        known = {k: self._referred(a, where) for k, a in attrs.items() if k not in dropped and self._is_known(op, k, a, where)}
        return normal(op, known)

    def _is_known(self, op: str, name: str, value: Attr, where: str) -> bool:
        """False for an attribute of a later TensorFlow at its default, which may be left out; CleaveError at any other value."""
        definition = opdefs.get(op)
        if definition is None or name in definition.attrs or name.startswith("_"):
            return True
        default = self.producer.get(op, {}).get(name)
        if default is None or attr_key(default) != attr_key(value):
            raise CleaveError(f"{where}: TensorFlow {opdefs.tensorflow_version()} has no attribute {name!r} of {op}; a later one wrote it")
        return False

    def _referred(self, attr: Attr, where: str) -> Attr:
        """Functions that an attribute names are imported in their turn, and called as they are here."""
        if isinstance(attr, tuple):
            return tuple(self._referred(a, where) for a in attr)
        if not isinstance(attr, FunctionRef):
            return attr
        self.request(attr.name, where)
        return FunctionRef(self.names.of(attr.name))

    def _types(self, op: str, attrs: Mapping[str, Attr], where: str) -> tuple[TensorType, ...]:
        value = attrs.get("value")
        if op == "Const":
            if not isinstance(value, Tensor | Splat | WeightRef):
                raise CleaveError(f"{where}: a constant has no value")
            return (literal_type(value),)
        try:
            return tuple(TensorType(DType(d)) for d in opdefs.output_dtypes(op, attrs))
        except (opdefs.OpDefError, IrError) as error:
            raise CleaveError(f"{where}: {error}") from None

    def add_nodes(self, graph: Graph, nodes: Sequence[ReadNode], resolve: Callable[[str, str], Reference]) -> None:
        """Add nodes, producers first; names the graph has already (inputs, variables) are producers too."""
        _check_names(graph, nodes)
        by_name = {node.name: node for node in nodes}
        references = {n.name: [resolve(text, f"{graph.name}: node {n.name!r}") for text in n.proto.input] for n in nodes}
        late: list[tuple[str, int, Value]] = []
        for name in _ordered(graph, by_name, references):
            node = by_name[name]
            data = [r.value for r in references[name] if not r.is_control]
            controls = sorted({r.node for r in references[name] if r.is_control})
            missing = [slot for slot, value in enumerate(data) if value.node not in graph]
            if missing:
                present = [v for v in data if v.node in graph]
                if not present:
                    raise CleaveError(f"{graph.name}: node {name!r} reads only what comes after it")
                late += [(name, slot, data[slot]) for slot in missing]
                data = [present[0] if slot in missing else value for slot, value in enumerate(data)]
            device = canonical_device(node.proto.device)
            try:
                graph.add(node.op, data, node.attrs, node.types, name=name, device=device, origin=(name,), controls=controls)
            except IrError as error:
                raise CleaveError(f"{graph.name}: {error}") from None
        for name, slot, value in late:
            graph.set_operand(name, slot, value, back=True)


def _argument_names(proto: function_pb2.FunctionDef) -> dict[str, str]:
    """Arguments by their own names, less the running number of the trace, which differs from process to process."""
    taken = {node.name for node in proto.node_def} | {arg.name for arg in proto.signature.input_arg}
    found: dict[str, str] = {}
    for arg in proto.signature.input_arg:
        plain = _RUNNING_NUMBER.sub(r"\1", arg.name)
        found[arg.name] = arg.name if plain == arg.name or plain in taken else plain
        taken.add(found[arg.name])
    return found


@dataclass(frozen=True)
class ReadNode:
    """A NodeDef read: the IR's op, attributes and types, and the ports of its output arguments."""

    proto: node_def_pb2.NodeDef
    op: str
    attrs: dict[str, Attr]
    types: tuple[TensorType, ...]
    ranges: Mapping[str, range]

    @property
    def name(self) -> str:
        return str(self.proto.name)


def _check_names(graph: Graph, nodes: Sequence[ReadNode]) -> None:
    seen: set[str] = set()
    for node in nodes:
        if node.name in seen or node.name in graph or not node.name:
            raise CleaveError(f"{graph.name}: the name {node.name!r} is given to two nodes, expected unique names")
        seen.add(node.name)


def _ordered(graph: Graph, nodes: Mapping[str, ReadNode], references: Mapping[str, Sequence[Reference]]) -> Iterable[str]:
    """Producers first, in the file's order where that leaves a choice; edges from NextIteration into Merge are left out."""
    position = {name: i for i, name in enumerate(nodes)}
    users: dict[str, list[str]] = {}
    waiting: dict[str, int] = {}
    for name, node in nodes.items():
        needed = set()
        for reference in references[name]:
            if reference.node not in nodes:
                if reference.node not in graph:
                    raise CleaveError(f"{graph.name}: node {name!r} reads {reference.node!r}, which is not in the graph")
                continue
            closes = nodes[reference.node].op in ("NextIteration", "RefNextIteration") and node.op in ("Merge", "RefMerge")
            if not closes:
                needed.add(reference.node)
        waiting[name] = len(needed)
        for source in needed:
            users.setdefault(source, []).append(name)
    names = list(nodes)
    ready = [position[name] for name, count in waiting.items() if not count]
    heapq.heapify(ready)
    done: list[str] = []
    while ready:
        name = names[heapq.heappop(ready)]
        done.append(name)
        for user in users.get(name, ()):
            waiting[user] -= 1
            if not waiting[user]:
                heapq.heappush(ready, position[user])
    if len(done) != len(names):
        stuck = next(name for name in names if waiting[name])
        raise CleaveError(f"{graph.name}: node {stuck!r} is on a cycle, expected only the back edges of v1 loops")
    return done


def library_of(graph_def: graph_pb2.GraphDef) -> dict[str, function_pb2.FunctionDef]:
    return {f.signature.name: f for f in graph_def.library.function}


def reached(graph_def: graph_pb2.GraphDef, roots: Iterable[str], stop: Iterable[str] = ()) -> list[node_def_pb2.NodeDef]:
    """The nodes that `roots` depend on, by data or control, in the file's order; nothing behind `stop` (what is fed)."""
    by_name = {node.name: node for node in graph_def.node}
    fed, found = frozenset(stop), set()
    stack = list(roots)
    while stack:
        name = stack.pop()
        if name in found:
            continue
        if name not in by_name:
            raise CleaveError(f"the graph has no node {name!r}, which something refers to")
        found.add(name)
        if name not in fed:
            stack.extend(graph_reference(text, name).node for text in by_name[name].input)
    return [node for node in graph_def.node if node.name in found]


def import_entry(
    importer: Importer,
    key: str,
    graph_def: graph_pb2.GraphDef,
    inputs: Mapping[str, tuple[str, TensorType]],
    outputs: Mapping[str, str],
    handles: Mapping[str, tuple[str, str, TensorType]],
    targets: Iterable[str] = (),
) -> Graph:
    """The part of a top-level graph between `inputs` (key -> tensor name, type) and `outputs` (key -> tensor name).

    `handles`: node -> (`Variable` or `Resource`, ref, handle type) for the nodes that yield the model's state.
    `targets`: nodes that run whether or not an output needs them.
    """
    graph = Graph(key)
    where = f"signature {key!r}"
    fed = {}
    for name, (tensor, type_) in inputs.items():
        reference = graph_reference(tensor, where)
        graph.add_input(name, type_)
        fed[reference.node, max(reference.port, 0)] = Value(name)
    ends = {name: graph_reference(tensor, where) for name, tensor in outputs.items()}
    fed_nodes = {node for node, _ in fed}
    roots = [*(r.node for r in ends.values()), *targets]
    nodes = [n for n in reached(graph_def, roots, fed_nodes | handles.keys()) if n.name not in fed_nodes]
    renamed: dict[str, str] = {}
    for node in nodes:
        if node.name in handles:
            op, ref, type_ = handles[node.name]
            renamed[node.name] = graph.fresh_name(node.name)
            graph.add(op, attrs={"ref": ref}, types=(type_,), name=renamed[node.name], device=canonical_device(node.device))
            if node.op in REFERENCES:
                renamed[node.name] = _read_once(graph, renamed[node.name])
    rest = [n for n in nodes if n.name not in handles]
    _refuse_unfed(rest, inputs, where)
    _refuse_reference_writes(rest, {n.name for n in nodes if n.op in REFERENCES}, where)
    read = importer.read_nodes(_clear_of(graph, rest, renamed), where)

    def resolve(text: str, at: str) -> Reference:
        reference = graph_reference(text, at)
        value = fed.get((reference.node, reference.port))
        if value is not None:
            return Reference(value.node, value.port)
        if reference.is_control and any(name == reference.node for name, _ in fed):
            return Reference(next(v.node for (n, _), v in fed.items() if n == reference.node), -1)
        return Reference(renamed.get(reference.node, reference.node), reference.port)

    importer.add_nodes(graph, read, resolve)
    graph.set_outputs((name, _existing(graph, resolve(text, where).value, text, where)) for name, text in outputs.items())
    return graph


def _existing(graph: Graph, value: Value, text: str, where: str) -> Value:
    count = len(graph.node(value.node).types)
    if not 0 <= value.port < count:
        raise CleaveError(f"{where}: {text!r} does not exist, {graph.node(value.node).op} {value.node!r} has {count} outputs")
    return value


def _refuse_unfed(nodes: Iterable[node_def_pb2.NodeDef], inputs: Iterable[str], where: str) -> None:
    for node in nodes:
        if node.op in ("Placeholder", "PlaceholderV2"):
            raise CleaveError(f"{where}: placeholder {node.name!r} is needed but is not among the inputs ({', '.join(inputs) or 'none'})")


def _read_once(graph: Graph, variable: str) -> str:
    """The value of a reference variable of TensorFlow 1, for all who read it: nobody writes it meanwhile."""
    held = graph.node(variable).type.handle
    assert held is not None
    name = graph.fresh_name(f"{variable}/value")
    return graph.add("ReadVariableOp", [Value(variable)], {"dtype": held.dtype}, (held,), name=name, origin=(variable,)).name


def _refuse_reference_writes(nodes: Iterable[node_def_pb2.NodeDef], references: set[str], where: str) -> None:
    for node in nodes:
        definition = opdefs.get(node.op)
        if not references or definition is None or not any(arg.is_ref for arg in definition.inputs):
            continue
        held = sorted(references & {graph_reference(text, where).node for text in node.input})
        if held:
            raise CleaveError(
                f"{where}: {node.op} {node.name!r} writes {held[0]!r}, a reference variable of TensorFlow 1; only reads are known"
            )


def _clear_of(graph: Graph, nodes: Sequence[node_def_pb2.NodeDef], renamed: dict[str, str]) -> list[node_def_pb2.NodeDef]:
    """Nodes whose names inputs have taken get others."""
    taken = {n.name for n in nodes}
    made = []
    for node in nodes:
        if node.name in graph:
            fresh, count = node.name, 0
            while fresh in graph or fresh in taken:
                count += 1
                fresh = f"{node.name}_{count}"
            twin = node_def_pb2.NodeDef()
            twin.CopyFrom(node)
            twin.name = renamed[node.name] = fresh
            made.append(twin)
        else:
            made.append(node)
    return made
