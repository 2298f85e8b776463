"""What ops say of a module: rules for the verifier, beside the structure that every module keeps.

    verify(module, (*STRUCTURE, *OPERATIONS))

Operands and results against the OpDef, recorded types against what `infer` gives, bodies against their calls, what a handle holds
against what is assigned, and the order of effects on one piece of state.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from compiler.ir.dims import Dim
from compiler.ir.errors import IrError
from compiler.ir.graph import Graph, Node
from compiler.ir.invariant import Fault, Invariant
from compiler.ir.module import Module
from compiler.ir.types import DType, TensorType
from compiler.ops import opdefs
from compiler.ops.attributes import complete
from compiler.ops.effects import ANY_STATE, Bodies, reads, writes
from compiler.ops.queries import infer, operation
from compiler.ops.regions import one_frame
from compiler.ops.registry import has
from compiler.ops.spec import Trait

PSEUDO = frozenset({"Input", "Variable", "Resource", "Call"})


def operands(module: Module, graph: Graph) -> Iterator[Fault]:
    """A node's operands are as many, and of the element types, as its OpDef declares."""
    for node in graph:
        if node.op in PSEUDO or opdefs.get(node.op) is None:
            continue
        found = [_base(t.dtype) for t in graph.operand_types(node.name)]
        try:
            expected = opdefs.input_dtypes(node.op, complete(node.op, node.attrs, found))
        except (IrError, opdefs.OpDefError) as error:
            yield Fault(str(error), node.name)
            continue
        for slot, (dtype, wanted) in enumerate(zip(found, expected, strict=False)):
            if dtype != wanted:
                yield Fault(f"{node.op} {node.name!r}: operand {slot} is {dtype}, expected {wanted}", node.name)
        if len(found) != len(expected):
            yield Fault(f"{node.op} {node.name!r} has {len(found)} operands, expected {len(expected)}", node.name)


def _base(dtype: DType) -> DType:
    return DType(dtype.removesuffix("_ref"))


def results(module: Module, graph: Graph) -> Iterator[Fault]:
    """A node's recorded types agree with what `infer` gives for its operands; a body's with the call's."""
    for node in graph:
        try:
            inferred = infer(operation(module, graph, node.name))
        except (IrError, opdefs.OpDefError) as error:
            yield Fault(str(error), node.name)
            continue
        if len(inferred) != len(node.types):
            yield Fault(f"{node.op} {node.name!r} has {len(node.types)} results, expected {len(inferred)}", node.name)
            continue
        for port, (recorded, wanted) in enumerate(zip(node.types, inferred, strict=True)):
            if not _agree(recorded, wanted):
                yield Fault(f"{node.op} {node.name!r}: result {port} is recorded as {recorded}, its operands give {wanted}", node.name)


def _agree(recorded: TensorType, inferred: TensorType) -> bool:
    """Could both be right?  Element types are equal, ranks too where known, and static dimensions."""
    if _base(recorded.dtype) != _base(inferred.dtype):
        return False
    left, right = recorded.shape, inferred.shape
    if left is None or right is None:
        return True
    return len(left) == len(right) and not any(_differ(a, b) for a, b in zip(left, right, strict=True))


def _differ(left: Dim, right: Dim) -> bool:
    return isinstance(left, int) and isinstance(right, int) and left != right


def held_values(module: Module, graph: Graph) -> Iterator[Fault]:
    """What is assigned to a variable is of the type its handle holds."""
    for node in graph:
        if not has(node, Trait.STATE_WRITE) or not node.op.startswith("Assign"):
            continue
        handle, value = graph.operand_types(node.name)[:2]
        if handle.handle is not None and not _agree(value, handle.handle):
            yield Fault(f"{node.op} {node.name!r} assigns {value} to a variable of {handle.handle}, expected the same type", node.name)


def effects(module: Module, graph: Graph) -> Iterator[Fault]:
    """A write and any other access of the same state are ordered by a path of data or control edges.

    Graphs with v1 control flow are let be: their sessions may leave accesses unordered, and imported is not changed.
    """
    if any(has(node, Trait.LOOP) for node in graph):
        return
    accesses = _accesses(module, graph)
    before = _predecessors(graph, [name for name, _, _ in accesses])
    bit = {name: 1 << i for i, (name, _, _) in enumerate(accesses)}
    for key, touching in sorted(_by_state(accesses).items()):
        yield from _unordered(graph, key, touching, before, bit)


Access = tuple[str, frozenset[str], frozenset[str]]
"""(node, state read, state written)"""


def _accesses(module: Module, graph: Graph) -> list[Access]:
    """What touches state, in order; nothing where the graph writes none."""
    bodies = Bodies(module)
    candidates = [name for name in graph.order() if _may_touch(graph.node(name))]
    found = [(n, reads(module, graph, n, bodies), writes(module, graph, n, bodies)) for n in candidates]
    return [access for access in found if access[1] | access[2]] if any(w for _, _, w in found) else []


def _by_state(accesses: Sequence[Access]) -> dict[str, list[tuple[str, bool]]]:
    """State -> (node, does it write), in order.  Who may touch any state touches each; state that nobody writes is left out."""
    keys = {key for _, read, written in accesses for key in (*read, *written)}
    found: dict[str, list[tuple[str, bool]]] = {key: [] for key in keys}
    for name, read, written in accesses:
        for key in keys if ANY_STATE in read | written else read | written:
            found[key].append((name, bool(written & {key, ANY_STATE})))
    return {key: touching for key, touching in found.items() if any(w for _, w in touching)}


def _may_touch(node: Node) -> bool:
    return node.op not in PSEUDO - {"Call"} and not has(node, Trait.CONSTANT) and not has(node, Trait.ELEMENTWISE)


def _predecessors(graph: Graph, names: Sequence[str]) -> dict[str, int]:
    """For each accessing node the accesses it comes after, as bits: one sweep, one integer a node."""
    if not names:
        return {}
    index = {name: 1 << i for i, name in enumerate(names)}
    reached: dict[str, int] = {}
    for name in graph.order():
        mask = 0
        for source in (*(v.node for v in graph.operands(name)), *graph.controls(name)):
            mask |= reached.get(source, 0) | index.get(source, 0)
        reached[name] = mask
    return {name: reached[name] for name in names}


def _unordered(
    graph: Graph, key: str, touching: Sequence[tuple[str, bool]], before: dict[str, int], bit: dict[str, int]
) -> Iterator[Fault]:
    everyone = writers = 0
    for name, is_write in touching:
        missing = (everyone if is_write else writers) & ~before[name]
        if missing:
            other = next(n for n, _ in touching if bit[n] & missing)
            what = "writes" if is_write else "reads"
            node = graph.node(name)
            yield Fault(f"{node.op} {name!r} {what} {key} unordered with {other!r}, expected a path of data or control edges", name)
        everyone |= bit[name]
        writers |= bit[name] if is_write else 0


OPERATIONS: tuple[Invariant, ...] = (
    Invariant("operands", None, operands),
    Invariant("results", None, results),
    Invariant("held values", None, held_values),
    Invariant("effects", None, effects),
    Invariant("frames", None, one_frame),
)
