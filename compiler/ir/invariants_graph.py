"""The rules each graph keeps.  Each function yields what breaks one rule; its docstring is the rule."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from compiler.ir.errors import IrError
from compiler.ir.graph import INPUT, Attr, FunctionRef, Graph, Node, ShapeAttr
from compiler.ir.invariant import Fault
from compiler.ir.module import Module, function_refs
from compiler.ir.sharding import Sharding
from compiler.ir.types import DType, TensorType
from compiler.ir.weights import Splat, Tensor, WeightRef, literal_type

STATE_OPS = {"Variable": "variables", "Resource": "resources"}
_SIMPLE = (int, float, bool, str, bytes, DType, FunctionRef, ShapeAttr, Tensor, Splat, WeightRef)


def node_names(module: Module, graph: Graph) -> Iterator[Fault]:
    """A node is kept under its own name, which is not empty."""
    for name, data in graph.view.nodes(data=True):
        node = data.get("node")
        if node is None or node.name != name or not name:
            yield Fault(f"{name!r} holds {node and node.name!r}, expected a node of that name")


def attributes(module: Module, graph: Graph) -> Iterator[Fault]:
    """An attribute is an int, float, bool, str, bytes, an IR type or a tuple of these: no numpy scalar, list or None."""
    for node in graph:
        for name, attr in node.attrs.items():
            if not _is_attr(attr):
                yield Fault(f"attribute {name!r} is {attr!r}, a {type(attr).__name__}, expected an IR attribute", node.name)
    for name, attr in graph.attrs.items():
        if not _is_attr(attr):
            yield Fault(f"graph attribute {name!r} is {attr!r}, a {type(attr).__name__}, expected an IR attribute")


def _is_attr(attr: Attr) -> bool:
    return all(map(_is_attr, attr)) if type(attr) is tuple else type(attr) in _SIMPLE


def slots(module: Module, graph: Graph) -> Iterator[Fault]:
    """Operand slots are 0, 1, 2, ... without a gap."""
    for node in graph:
        found = [edge.slot for edge in graph.edges(node.name)]
        if found != list(range(len(found))):
            yield Fault(f"operand slots are {found}, expected {list(range(len(found)))}", node.name)


def ports(module: Module, graph: Graph) -> Iterator[Fault]:
    """An operand is an output its producer has."""
    for node in graph:
        for edge in graph.edges(node.name):
            count = len(graph.node(edge.value.node).types)
            if not 0 <= edge.value.port < count:
                yield Fault(f"operand {edge.slot} is output {edge.value.port} of {edge.value.node!r}, expected below {count}", node.name)


def controls(module: Module, graph: Graph) -> Iterator[Fault]:
    """No node waits for itself."""
    for node in graph:
        if node.name in graph.controls(node.name):
            yield Fault("it has a control edge to itself, expected none", node.name)


def order(module: Module, graph: Graph) -> Iterator[Fault]:
    """Nodes can be put in order: every cycle has an edge marked as a back edge of a v1 loop."""
    try:
        graph.order()
    except IrError:
        cycle = graph.cycle()
        shown = " -> ".join(map(repr, (*cycle[:6], "..." if len(cycle) > 6 else cycle[0])))
        yield Fault(f"it stands in a cycle, {shown}, expected none but through v1 loop back edges", cycle[0])


def inputs(module: Module, graph: Graph) -> Iterator[Fault]:
    """`graph.inputs` names exactly the Input nodes, once each; each has one output and no operand."""
    for name, count in Counter(graph.inputs).items():
        if name not in graph or graph.node(name).op != INPUT or count > 1:
            yield Fault(f"input {name!r} stands in the list of inputs {count} times, expected one {INPUT} node once", name)
    listed = frozenset(graph.inputs)
    for node in graph:
        if node.op == INPUT and node.name not in listed:
            yield Fault(f"an {INPUT} node is not in the graph's list of inputs, expected it there", node.name)
        elif node.op == INPUT and (len(node.types) != 1 or graph.edges(node.name)):
            yield Fault(f"an {INPUT} has {len(graph.edges(node.name))} operands, {len(node.types)} outputs, expected 0 and 1", node.name)


def outputs(module: Module, graph: Graph) -> Iterator[Fault]:
    """Outputs name values that exist, and no two share a name."""
    for name, count in Counter(o.name for o in graph.outputs).items():
        if count > 1:
            yield Fault(f"output name {name!r} is used {count} times, expected once")
    for name, value in graph.outputs:
        count = len(graph.node(value.node).types) if value.node in graph else 0
        if not 0 <= value.port < count:
            yield Fault(f"output {name!r} is {value}, which does not exist, expected one of {count} outputs of that node", value.node)


def functions(module: Module, graph: Graph) -> Iterator[Fault]:
    """A function attribute names a function of the module."""
    for node in graph:
        for ref in function_refs(node):
            if ref.name not in module.functions:
                yield Fault(f"it refers to @{ref.name}, expected a function of the module", node.name)


def state(module: Module, graph: Graph) -> Iterator[Fault]:
    """A Variable or Resource node refers to state the module has, and its type is a handle to it."""
    for node in graph:
        if node.op in STATE_OPS:
            yield from (Fault(message, node.name) for message in _state_faults(module, node))


def _state_faults(module: Module, node: Node) -> Iterator[str]:
    ref = node.attrs.get("ref")
    if node.op == "Variable":
        variable = module.variables.get(ref) if isinstance(ref, str) else None
        expected = None if variable is None else TensorType(DType("resource"), (), handle=_unplaced(variable.type))
    else:
        resource = module.resources.get(ref) if isinstance(ref, str) else None
        expected = None if resource is None else resource.type
    if expected is None:
        yield f"it refers to {ref!r}, expected one of the module's {STATE_OPS[node.op]}"
    elif len(node.types) != 1 or _unplaced(node.types[0]) != _unplaced(expected):
        yield f"its type is {', '.join(map(str, node.types))}, expected {expected} as {ref!r} is"


def _unplaced(type_: TensorType) -> TensorType:
    """The type without shardings, its own or its handle's."""
    handle = None if type_.handle is None else _unplaced(type_.handle)
    return TensorType(type_.dtype, type_.shape, None, handle)


def constants(module: Module, graph: Graph) -> Iterator[Fault]:
    """A Const holds one literal, `value`, of its output's dtype and shape."""
    for node in graph:
        if node.op != "Const":
            continue
        value = node.attrs.get("value")
        if not isinstance(value, Tensor | Splat | WeightRef):
            yield Fault(f"a Const's value is {value!r}, expected a literal", node.name)
        elif len(node.types) != 1 or _unplaced(node.types[0]) != literal_type(value):
            yield Fault(f"its type is {', '.join(map(str, node.types))}, expected {literal_type(value)} as its value is", node.name)


def weights(module: Module, graph: Graph) -> Iterator[Fault]:
    """A weight reference lies within a store of the module, its region within its shape; a splat repeats a scalar."""
    sizes = {name: module.stores.size(name) for name in module.stores.files}
    for node in graph:
        for attr in node.attrs.values():
            yield from (Fault(message, node.name) for message in literal_faults(attr, sizes))


def literal_faults(attr: Attr, sizes: dict[str, int | None]) -> Iterator[str]:
    """What is wrong with the literals in an attribute; `sizes` are the stores' bytes, None where the file is not there to be asked."""
    if isinstance(attr, tuple):
        for item in attr:
            yield from literal_faults(item, sizes)
    elif isinstance(attr, Splat) and attr.item.shape:
        yield f"a splat repeats an element of shape {attr.item.shape}, expected a scalar"
    elif isinstance(attr, WeightRef):
        yield from _reference_faults(attr, sizes)


def _reference_faults(reference: WeightRef, sizes: dict[str, int | None]) -> Iterator[str]:
    if reference.store not in sizes:
        yield f"it refers to the store {reference.store!r}, expected one of {sorted(sizes)}"
        return
    size = sizes[reference.store]
    end = reference.offset + WeightRef(reference.store, 0, reference.dtype, reference.full_shape).nbytes
    if reference.offset < 0 or (size is not None and end > size):
        yield f"it refers to bytes {reference.offset} to {end} of store {reference.store!r}, expected at most {size}"
    region = reference.region
    if region is not None and (
        len(region) != len(reference.full_shape)
        or any(start < 0 or rows < 0 or start + rows > whole for (start, rows), whole in zip(region, reference.full_shape, strict=True))
    ):
        yield f"it refers to the region {region} of a weight of shape {reference.full_shape}, expected one within it"


def origins(module: Module, graph: Graph) -> Iterator[Fault]:
    """In a graph that knows where its nodes come from, every node that computes says so."""
    exempt = (INPUT, *STATE_OPS)
    if not any(node.origin for node in graph if node.op not in exempt):
        return
    for node in graph:
        if not node.origin and node.op not in exempt:
            yield Fault("it has no origin, expected the layers or nodes it comes from", node.name)


def partial_values(module: Module, graph: Graph) -> Iterator[Fault]:
    """A value still to be combined over a mesh axis exists in annotated modules only."""
    if "annotated" not in module.facts:
        for node, port, sharding in _shardings(graph):
            if sharding.partial:
                yield Fault(f"output {port} is partial, {sharding}, expected that of annotated modules only", node.name)


def shardings(module: Module, graph: Graph) -> Iterator[Fault]:
    """A sharding uses axes of the module's mesh, and has one entry for each dimension of its value."""
    axes = frozenset(axis.name for axis in module.mesh.axes) if module.mesh is not None else frozenset[str]()
    for node, port, sharding in _shardings(graph):
        yield from (Fault(f"output {port} {m}", node.name) for m in sharding_faults(sharding, node.types[port], axes))


def sharding_faults(sharding: Sharding, type_: TensorType, axes: frozenset[str]) -> Iterator[str]:
    if not sharding.axes() <= axes:
        yield f"is {type_}, sharded {sharding}, over {sorted(sharding.axes() - axes)}, expected axes of the mesh, {sorted(axes)}"
    if type_.rank is not None and len(sharding.dims) != type_.rank:
        yield f"is {type_}, of rank {type_.rank}, sharded {sharding}, expected {type_.rank} dimensions there"


def _shardings(graph: Graph) -> Iterator[tuple[Node, int, Sharding]]:
    for node in graph:
        for port, type_ in enumerate(node.types):
            if type_.sharding is not None:
                yield node, port, type_.sharding


def no_shardings(module: Module, graph: Graph) -> Iterator[Fault]:
    """Partitioned: every value is whole where it is, so no type has a sharding."""
    for node, port, sharding in _shardings(graph):
        yield Fault(f"output {port} is sharded {sharding}, expected no sharding once the module is partitioned", node.name)


def devices(module: Module, graph: Graph) -> Iterator[Fault]:
    """Every node of an entry but its inputs has a device; a function's body may run where its caller does."""
    if module.entries.get(graph.name) is not graph:
        return
    for node in graph:
        if not node.device and node.op != INPUT:
            yield Fault("it has no device, expected one", node.name)
