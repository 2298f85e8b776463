"""An operator annotated to be divided where its shards meet on the way becomes the operators that it is made of, each annotated by itself.

%y = Softmax(%x) {_factors=["d1:d"]} : f32[b,8]@[_,d]
=>  %max = Max(%x, 1) {_factors=["d1:d"], keep_dims=true} : f32[b,1]@[_,_]+max(d)       %shifted = Sub(%x, %max) {_factors=["d1:d"]}
    %exp = Exp(%shifted) ...        %total = Sum(%exp, 1) ... @[_,_]+sum(d)              %y = RealDiv(%exp, %total) ...

What meets is combined where `partition` reads it: a partial maximum that is wanted everywhere is an all-reduce.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from compiler.ir.graph import Graph, Node, Value
from compiler.ir.module import Module
from compiler.ir.weights import Tensor
from compiler.ops.queries import infer_graph, operation
from compiler.ops.registry import spec
from compiler.ops.spec import PARTIAL, Kind, Operation, ShardingRule, Size, Step
from compiler.pipeline.base import ANNOTATED, TYPED, Context, Numerics, Pass
from compiler.rewrite.emitter import Emitter
from passes.split.factors import ATTRIBUTE, Assignment, assignment_of, attribute


@dataclass(frozen=True)
class ExpandSplits(Pass):
    """Expand every annotated node whose factors take steps."""

    name = "expand-splits"
    requires = frozenset({TYPED, ANNOTATED})
    numerics = Numerics.REASSOCIATES

    def run(self, module: Module, context: Context) -> None:
        for graph in module.entries.values():
            divided = [node for node in graph if assignment_of(node)]
            contents = infer_graph(module, graph).contents if divided else {}
            for node in divided:
                whole, assignment = operation(module, graph, node.name, contents), assignment_of(node) or {}
                if takes_steps(whole, assignment):
                    self._expand(module, graph, node, whole, assignment)
                    context.change(node.name, f"{node.op} in {len(steps_of(whole))} steps")

    def _expand(self, module: Module, graph: Graph, node: Node, whole: Operation, assignment: Assignment) -> None:
        emitter = Emitter(module, graph)
        made = emit(emitter, steps_of(whole), graph.operands(node.name), node.name, node.origin, graph.controls(node.name))
        for step, value in zip(steps_of(whole), made, strict=True):
            annotate(module, graph, value.node, step, assignment)
        last = made[-1].node
        graph.replace_uses(Value(node.name), made[-1])
        for waiting in sorted(graph.needs(node.name).control):
            graph.set_control(waiting, [last if source == node.name else source for source in graph.controls(waiting)])
        graph.remove(node.name)


def steps_of(whole: Operation) -> tuple[Step, ...]:
    known = spec(whole.op)
    return known.expand(whole) if known is not None and known.expand is not None else ()


def takes_steps(whole: Operation, assignment: Assignment) -> bool:
    """Is a factor divided that the op's shards can only divide in steps?"""
    known = spec(whole.op)
    if known is None or known.expand is None or known.rule is None:
        return False
    rule = known.rule(whole)
    return rule is not None and any(f != PARTIAL and rule.factor(f).kind is Kind.STEPS for f in assignment)


def emit(
    emitter: Emitter, steps: Sequence[Step], operands: Sequence[Value], name: str, origin: Iterable[str] = (), controls: Iterable[str] = ()
) -> list[Value]:
    """A node for each step, named after the node that they expand."""
    made: dict[str, Value] = {}
    controls, origin = tuple(controls), tuple(origin)

    def value(what: int | str | Tensor | Size) -> Value:
        assert not isinstance(what, Size), "an op is expanded before its shards have sizes"
        if isinstance(what, Tensor):
            return emitter.constant(what, name=f"{name}/const", origin=origin)
        return made[what] if isinstance(what, str) else operands[what]

    for step in steps:
        values = [value(operand) for operand in step.operands]
        made[step.name] = emitter.add(step.op, values, step.attrs, name=f"{name}/{step.name}", origin=origin, controls=controls)
    return list(made.values())


def annotate(module: Module, graph: Graph, name: str, step: Step, assignment: Assignment) -> None:
    """Give a step's node its factors, and its values their shardings."""
    node = graph.node(name)
    rule, divided = divided_by(operation(module, graph, name), step, assignment)
    graph.set_attrs(name, {**node.attrs, ATTRIBUTE: attribute(divided)})
    graph.set_types(name, [t.with_sharding(s) for t, s in zip(node.types, rule.shardings(divided)[1], strict=True)])


def divided_by(op: Operation, step: Step, assignment: Assignment) -> tuple[ShardingRule, dict[str, str]]:
    """A step's rule, and the whole op's assignment as this step's: what is of size 1 here is not divided."""
    known = spec(op.op)
    rule = known.rule(op) if known is not None and known.rule is not None else None
    assert rule is not None, "what an op expands to has rules"
    able = {factor.name for factor in rule.splits()}
    return rule, {step.factors[f]: axes for f, axes in assignment.items() if step.factors.get(f) in able}
