"""Purity is never guessed, state is followed through handles and bodies, and unordered effects are found."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from compiler.ir.dims import symbol
from compiler.ir.graph import FunctionRef, Graph, Value
from compiler.ir.module import Module, Variable
from compiler.ir.types import DType, TensorType
from compiler.ir.verify import faults
from compiler.ops import effects, queries
from compiler.ops.invariants import OPERATIONS
from compiler.ops.kinds import compose_rule
from compiler.ops.spec import Kind

F = TensorType(DType("float32"), (3,))
HANDLE = TensorType(DType("resource"), (), handle=F)
BOOL = TensorType(DType("bool"), ())


def module(*, writer: bool) -> Module:
    """x -> If(p, body, body)(w, x); the body reads its variable, and assigns x to it if `writer`."""
    found = Module("m", variables={"w": Variable("w", F)})
    body = Graph("body")
    handle, value = body.add_input("h", HANDLE), body.add_input("v", F)
    body.add("ReadVariableOp", [handle], {"dtype": F.dtype}, [F], name="read")
    if writer:
        body.add("AssignVariableOp", [handle, value], {"dtype": F.dtype}, [], name="assign", controls=["read"])
    body.set_outputs([("y", Value("read"))])
    found.functions["body"] = body
    graph = Graph("main")
    p, x = graph.add_input("p", BOOL), graph.add_input("x", F)
    graph.add("Variable", (), {"ref": "w"}, [HANDLE], name="w")
    ref = FunctionRef("body")
    graph.add("If", [p, Value("w"), x], {"then_branch": ref, "else_branch": ref}, [F], name="if")
    graph.set_outputs([("y", Value("if"))])
    found.entries["main"] = graph
    return found


def single(op: str, operands: Sequence[TensorType] = (), types: Sequence[TensorType] = (F,)) -> tuple[Module, Graph]:
    found, graph = Module("m"), Graph("main")
    values = [graph.add_input(f"x{i}", t) for i, t in enumerate(operands)]
    graph.add(op, values, {}, types, name="n")
    found.entries["main"] = graph
    return found, graph


@pytest.mark.parametrize(
    ("op", "operands", "pure", "effect"),
    [
        ("AddV2", (F, F), True, False),
        ("NoSuchOp", (), False, True),
        ("StringSplit", (), True, False),
        ("RandomUniform", (F,), False, True),
        ("StatelessRandomUniform", (F, F), True, False),
        ("Assert", (BOOL,), False, True),
        ("ReadVariableOp", (HANDLE,), False, False),
        ("AssignVariableOp", (HANDLE, F), False, True),
        ("QueueEnqueueV2", (HANDLE, F), False, True),
        ("Merge", (F, F), False, False),
        ("Placeholder", (), False, True),
        ("TensorListSetItem", (), True, False),
        ("CheckNumerics", (F,), False, True),
    ],
)
def test_purity_and_effects(op: str, operands: Sequence[TensorType], pure: bool, effect: bool) -> None:
    found, graph = single(op, operands)
    assert effects.is_pure(found, graph.node("n")) is pure
    assert effects.has_effect(found, graph.node("n")) is effect


def test_a_branch_that_reads_is_not_pure_and_has_no_effect() -> None:
    found = module(writer=False)
    graph = found.entries["main"]
    assert not effects.is_pure(found, graph.node("if"))
    assert not effects.has_effect(found, graph.node("if"))
    assert effects.reads(found, graph, "if") == {"@w"}
    assert effects.writes(found, graph, "if") == frozenset()


def test_a_branch_that_writes_writes_the_variable_it_was_given() -> None:
    found = module(writer=True)
    graph = found.entries["main"]
    assert effects.has_effect(found, graph.node("if"))
    assert effects.writes(found, graph, "if") == {"@w"}
    assert effects.writes(found, found.functions["body"], "assign") == {"%h"}


def test_unordered_effects_are_faults_and_ordered_ones_are_not() -> None:
    found = module(writer=True)
    graph = found.entries["main"]
    assert faults(found, OPERATIONS) == []
    graph.add("ReadVariableOp", [Value("w")], {"dtype": F.dtype}, [F], name="late")
    assert [(f.rule, f.node) for f in faults(found, OPERATIONS)] == [("effects", "late")]
    graph.set_control("late", ["if"])
    assert faults(found, OPERATIONS) == []


def test_a_body_of_pure_ops_is_pure_and_a_deep_chain_of_calls_is_no_recursion() -> None:
    found = Module("m")
    for i in range(3000):
        body = Graph(f"f{i}")
        x = body.add_input("x", F)
        if i == 0:
            body.add("Neg", [x], {}, [F], name="y")
        else:
            body.add("Call", [x], {"f": FunctionRef(f"f{i - 1}")}, [F], name="y")
        body.set_outputs([("y", Value("y"))])
        found.functions[body.name] = body
    assert effects.is_pure(found, found.functions["f2999"].node("y"))
    found.functions["f0"].add("RandomUniform", [Value("x")], {"dtype": F.dtype}, [F], name="r")
    assert not effects.is_pure(found, found.functions["f2999"].node("y"))


@pytest.mark.parametrize(
    ("op", "operands", "types", "rule"),
    [
        ("AddV2", (F, BOOL), (F,), "operands"),
        ("MatMul", (F,), (F,), "operands"),
        ("AddV2", (F, F), (TensorType(DType("float32"), (4,)),), "results"),
        ("AddV2", (F, F), (BOOL,), "results"),
        ("Neg", (F,), (F, F), "results"),
        ("AssignVariableOp", (HANDLE, TensorType(DType("float32"), (4,))), (), "held values"),
    ],
)
def test_what_does_not_fit_is_a_fault(op: str, operands: Sequence[TensorType], types: Sequence[TensorType], rule: str) -> None:
    found, _ = single(op, operands, types)
    assert rule in {f.rule for f in faults(found, OPERATIONS)}


def test_calls_bind_the_symbols_of_a_body() -> None:
    found = module(writer=False)
    b, s = symbol("b"), symbol("s")
    body = Graph("double")
    x = body.add_input("x", TensorType(DType("float32"), (b, 3)))
    axis = body.add("Const", (), {"value": found.stores.constant(np.int32(0))}, [TensorType(DType("int32"), ())], name="axis")
    body.add("ConcatV2", [x, x, Value(axis.name)], {}, [TensorType(DType("float32"), (2 * b, 3))], name="y")
    body.set_outputs([("y", Value("y"))])
    found.functions["double"] = body
    graph = found.entries["main"]
    graph.add_input("z", TensorType(DType("float32"), (s, 3)))
    graph.add("Call", [Value("z")], {"f": FunctionRef("double")}, [TensorType(DType("float32"), (2 * s, 3))], name="call")
    assert queries.infer(queries.operation(found, graph, "call")) == (TensorType(DType("float32"), (2 * s, 3)),)
    assert faults(found, OPERATIONS) == []


def layer_norm() -> tuple[Module, Graph]:
    """(x - mean(x)) * scale over the last axis of [b, s, 8]."""
    found, graph = Module("m"), Graph("layer_norm")
    b, s = symbol("b"), symbol("s")
    whole, reduced = (TensorType(DType("float32"), (b, s, n)) for n in (8, 1))
    x, scale = graph.add_input("x", whole), graph.add_input("scale", TensorType(DType("float32"), (8,)))
    graph.add("Const", (), {"value": found.stores.constant(np.int32([-1]))}, [TensorType(DType("int32"), (1,))], name="axes")
    graph.add("Mean", [x, Value("axes")], {"keep_dims": True}, [reduced], name="mean")
    graph.add("Sub", [x, Value("mean")], {}, [whole], name="centred")
    graph.add("Mul", [Value("centred"), scale], {}, [whole], name="y")
    graph.set_outputs([("y", Value("y"))])
    found.functions[graph.name] = graph
    return found, graph


def test_a_layer_norm_divides_over_all_but_what_it_normalises() -> None:
    found, graph = layer_norm()
    rule = compose_rule(found, graph)
    assert rule is not None
    assert [(f.size, f.kind) for f in rule.splits()] == [(symbol("b"), Kind.PARALLEL), (symbol("s"), Kind.PARALLEL)]
    assert rule.operands[1] == (rule.operands[0][2],)  # type: ignore[index]
    assert rule.results[0] == rule.operands[0]


def test_a_partial_sum_may_leave_a_body_but_not_be_squared_in_it() -> None:
    for last, expected in (("Neg", [Kind.PARALLEL, Kind.REDUCTION, Kind.PARALLEL]), ("Square", [Kind.PARALLEL, Kind.PARALLEL])):
        found, graph = Module("m"), Graph("f")
        a, b = (graph.add_input(n, TensorType(DType("float32"), s)) for n, s in (("a", (4, 6)), ("b", (6, 5))))
        graph.add("MatMul", [a, b], {}, [TensorType(DType("float32"), (4, 5))], name="m")
        graph.add(last, [Value("m")], {}, [TensorType(DType("float32"), (4, 5))], name="y")
        graph.set_outputs([("y", Value("y"))])
        found.functions["f"] = graph
        rule = compose_rule(found, graph)
        assert rule is not None
        assert [f.kind for f in rule.splits()] == expected


def test_a_loop_that_grows_its_value_has_an_unknown_size() -> None:
    found, b = Module("m"), symbol("b")
    kept, grown = TensorType(DType("float32"), (b, 3)), TensorType(DType("float32"), (2 * b, 3))
    body, condition = Graph("body"), Graph("condition")
    x, y = body.add_input("x", kept), body.add_input("y", kept)
    body.add("Const", (), {"value": found.stores.constant(np.int32(0))}, [TensorType(DType("int32"), ())], name="axis")
    body.add("ConcatV2", [x, x, Value("axis")], {}, [grown], name="xx")
    body.add("Neg", [y], {}, [kept], name="ny")
    body.set_outputs([("x", Value("xx")), ("y", Value("ny"))])
    found.functions.update(body=body, condition=condition)
    graph = Graph("main")
    start = TensorType(DType("float32"), (5, 3))
    values = [graph.add_input("x", start), graph.add_input("y", start)]
    graph.add("While", values, {"body": FunctionRef("body"), "cond": FunctionRef("condition")}, [start, start], name="w")
    inferred = queries.infer(queries.operation(found, graph, "w"))
    assert list(map(str, inferred)) == ["f32[?,3]", "f32[5,3]"]
