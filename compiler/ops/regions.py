"""Where v1 control flow is: nodes that may be dead, or run once for each turn of a loop.

A node without operands there is in its place by a control edge only, so nothing may be added, folded or merged beside it.

The frame of a node is the loops it stands in, outermost first: an Enter goes one deeper, an Exit comes out, all else is where its operands
are. What mixes frames TensorFlow refuses to run.
"""

from __future__ import annotations

from collections.abc import Iterator

from compiler.ir.graph import Graph
from compiler.ir.invariant import Fault
from compiler.ir.module import Module
from compiler.ops.registry import has
from compiler.ops.spec import Trait


def in_control_flow(graph: Graph) -> frozenset[str]:
    """The v1 control-flow nodes and everything downstream of one, by data or control."""
    found: set[str] = set()
    if not any(has(node, Trait.LOOP) for node in graph):
        return frozenset()
    for name in graph.order():
        sources = (*(v.node for v in graph.operands(name)), *graph.controls(name))
        if has(graph.node(name), Trait.LOOP) or any(source in found for source in sources):
            found.add(name)
    return frozenset(found)


Frame = tuple[str, ...]
_ENTERS, _EXITS, _MERGES = ("Enter", "RefEnter"), ("Exit", "RefExit"), ("Merge", "RefMerge")


def frames(graph: Graph) -> dict[str, Frame]:
    """Each node's frame, by its first source's."""
    found: dict[str, Frame] = {}
    for name in graph.order():
        node = graph.node(name)
        sources = _sources(graph, name)
        outer = found[sources[0]] if sources else ()
        if node.op in _ENTERS:
            found[name] = (*outer, str(node.attrs.get("frame_name", "")))
        else:
            found[name] = outer[:-1] if node.op in _EXITS else outer
    return found


def one_frame(module: Module, graph: Graph) -> Iterator[Fault]:
    """A node's sources are all of one frame, back edges included; no side of a Merge is alive whatever the branch."""
    guarded = in_control_flow(graph)
    if not guarded:
        return
    where = frames(graph)
    for name in graph.order():
        sources = [*_sources(graph, name), *(e.value.node for e in graph.edges(name) if e.back)]
        strange = next((s for s in sources if where[s] != where[sources[0]]), None)
        op = graph.node(name).op
        if strange is not None:
            first = f"{sources[0]!r} in {_text(where[sources[0]])}"
            yield Fault(f"{op} {name!r}: {first}, {strange!r} in {_text(where[strange])}, expected one frame", name)
        alive = next((s for s in sources if s not in guarded), None)
        if op in _MERGES and alive is not None and len(sources) > 1:
            yield Fault(f"{op} {name!r}: operand {alive!r} is alive in either branch, expected it behind a Switch", name)


def _sources(graph: Graph, name: str) -> list[str]:
    return [*(e.value.node for e in graph.edges(name) if not e.back), *graph.controls(name)]


def _text(frame: Frame) -> str:
    return f"frame {'/'.join(frame)!r}" if frame else "no frame"
