"""Steps with bodies: calls, If, While, Case, nested and called more than once; v1 loops and conditions; control edges."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from compiler.ir.graph import FunctionRef, Graph, Value
from compiler.ir.types import TensorType
from compiler.ops.effects import Bodies
from tests.programs.drawn import Body, Drawn, Grade, Known, State
from tests.programs.layout import kept

Run = Callable[[Drawn, int], None]
"""Runs so many steps on a graph."""
CARRIED = ("float32", "int32", "int64", "bool", "float64", "string", "bfloat16")
MOST_DEPTH = 2
LOOP_LIMIT = 10.0
"""Loop values are clipped to this, so that what holds of them before an iteration holds after it."""


def operands(d: Drawn, most: int = 3) -> list[Value]:
    found = [v for v in (d.pick(*CARRIED) for _ in range(d.choose.integer(1, most))) if v is not None]
    return [d.tame(v, LOOP_LIMIT) for v in dict.fromkeys(found)]


def shared_states(d: Drawn) -> list[str]:
    """The variables a body gets: none, or some."""
    return [ref for ref in sorted(d.states) if d.choose.chance(2)] if d.states and d.choose.flag() else []


def body_type(d: Drawn, value: Value) -> TensorType:
    """What the body is told of an operand: all that the caller knows, or not its unknown sizes, or nothing but its rank."""
    type_ = d.graph.type_of(value)
    if type_.shape is None or d.choose.flag():
        return TensorType(type_.dtype, type_.shape)
    return TensorType(type_.dtype, tuple(n if isinstance(n, int) else None for n in type_.shape))


def begin(d: Drawn, name: str, types: Sequence[TensorType], knowns: Sequence[Known], refs: Sequence[str]) -> Drawn:
    inner = Drawn(d.world, Graph(name), d.depth + 1)
    d.module.functions[name] = inner.graph
    for i, (type_, known) in enumerate(zip(types, knowns, strict=True)):
        value = inner.graph.add_input(f"a{i}", type_)
        inner.values.append(value)
        inner.known[value] = known
    for ref in refs:
        state = d.states[ref]
        handle = inner.graph.add_input(f"v_{ref}", TensorType("resource", (), handle=state.type))  # type: ignore[arg-type]
        inner.known[handle] = Known(TensorType("resource", ()))  # type: ignore[arg-type]
        inner.states[ref] = State(handle, state.type)
    return inner


def last_like(inner: Drawn, known: Known, fallback: Value) -> Value:
    """The latest value of the same true type."""
    found = inner.fits(lambda k: replace(k.type, sharding=None) == known.type)
    return found[-1] if found and not inner.choose.chance(6) else fallback


def fresh(d: Drawn, base: str) -> str:
    return d.module.fresh_function_name(f"{base}_{d.world.next()}")


def touch(d: Drawn, refs: Sequence[str], name: str) -> None:
    """The node counts as a write of each variable it is given."""
    for ref in refs:
        d.states[ref].writer, d.states[ref].readers = name, []


def waits(d: Drawn, refs: Sequence[str]) -> list[str]:
    found: list[str] = []
    for ref in refs:
        state = d.states[ref]
        found += [*([state.writer] if state.writer else []), *state.readers]
    return list(dict.fromkeys(found))


def handles(d: Drawn, refs: Sequence[str]) -> list[Value]:
    return [d.states[ref].handle for ref in refs]


def results(d: Drawn, node: Value, knowns: Sequence[Known]) -> None:
    """The node's outputs become values that are known as told."""
    for port, known in enumerate(knowns):
        value = Value(node.node, port)
        d.known[value] = known
        if known.type.dtype != "resource":
            d.values.append(value)


def call(d: Drawn, run: Run) -> None:
    """A new body, or one drawn before whose inputs fit."""
    given = operands(d)
    if not given:
        return
    wanted = tuple(replace(d.known[v].type, sharding=None) for v in given)
    fits = [b for b in d.world.bodies if not b.stateful and len(b.inputs) == len(wanted) and b.inputs == wanted and _holds(d, b, given)]
    if fits and d.choose.flag():
        body = d.choose.of(fits)
        results(d, d.add("Call", given, {"f": FunctionRef(body.name)}, true=[k.type for k in body.knowns], hidden=True), body.knowns)
        return
    refs = shared_states(d)
    name = fresh(d, "body")
    inner = begin(d, name, [body_type(d, v) for v in given], [_careful(d.known[v]) for v in given], refs)
    run(inner, d.choose.integer(1, 4))
    outputs = [inner.values[-1], *(inner.choose.of(inner.values) for _ in range(d.choose.integer(0, 1)))]
    inner.graph.set_outputs((f"r{i}", v) for i, v in enumerate(outputs))
    knowns = tuple(inner.known[v] for v in outputs)
    d.world.bodies.append(Body(name, wanted, knowns, bool(refs)))
    made = d.add("Call", (*given, *handles(d, refs)), {"f": FunctionRef(name)}, true=[k.type for k in knowns], hidden=True,
                 controls=waits(d, refs))  # fmt: skip
    touch(d, refs, made.node)
    results(d, made, knowns)


def _careful(known: Known) -> Known:
    """What a body may rely on whoever calls it."""
    if known.type.dtype not in ("float32", "float64", "bfloat16"):
        return replace(known, low=-float("inf"), high=float("inf"))
    return replace(known, grade=Grade.ROUGH, low=-LOOP_LIMIT, high=LOOP_LIMIT, clean=False)


def _holds(d: Drawn, body: Body, given: Sequence[Value]) -> bool:
    """May the operands stand for the body's inputs, as its graph records them?"""
    graph = d.module.functions[body.name]
    types = [graph.node(name).type for name in graph.inputs]
    return all(_weaker(t, d.graph.type_of(v)) for t, v in zip(types, given, strict=True))


def _weaker(wanted: TensorType, given: TensorType) -> bool:
    if wanted.shape is None:
        return True
    return given.shape is not None and all(not isinstance(a, int) or a == b for a, b in zip(wanted.shape, given.shape, strict=True))


def scalar_condition(d: Drawn) -> Value | None:
    """A bool: All or Any of what is at hand."""
    value = d.pick("bool")
    if value is None:
        number = d.pick("float32")
        if number is None:
            return None
        value = d.add("IsFinite", (number,), hidden=True, low=0.0, high=1.0, clean=True, grade=Grade.EXACT)
    rank = len(d.shape(value))
    if rank == 0:
        return value
    return d.add(d.choose.of(("Any", "All")), (value, d.ints(*range(rank))), hidden=d.choose.flag())


def scalar_index(d: Drawn, below: int) -> Value | None:
    value = d.pick("int32")
    if value is None:
        return d.scalar(d.choose.integer(0, below))
    whole = d.add("Max", (value, d.ints(*range(len(d.shape(value))))), hidden=True)
    return d.add("FloorMod", (whole, d.scalar(below)), hidden=True)


def branches(d: Drawn, run: Run) -> None:
    """If or Case: each branch of the same true types."""
    count = d.choose.integer(2, 3)
    index = scalar_condition(d) if count == 2 else scalar_index(d, count + 1)
    given = operands(d)
    if index is None or not given:
        return
    refs = shared_states(d)
    types, knowns = [body_type(d, v) for v in given], [_careful(d.known[v]) for v in given]
    names, ends = [], []
    for _ in range(count):
        name = fresh(d, "branch")
        inner = begin(d, name, types, knowns, refs)
        run(inner, d.choose.integer(0, 3))
        outputs = [last_like(inner, k, Value(n)) for k, n in zip(knowns, inner.graph.inputs, strict=False)]
        inner.graph.set_outputs((f"r{i}", v) for i, v in enumerate(outputs))
        names.append(name), ends.append([inner.known[v] for v in outputs])
    merged = [_either(*several) for several in zip(*ends, strict=True)]
    refs_of = tuple(FunctionRef(n) for n in names)
    stateless = not refs and not any(_stateful(d, n) for n in names) and d.choose.flag()
    if count == 2:
        op, attrs = "If", {"then_branch": refs_of[0], "else_branch": refs_of[1]}
    else:
        op, attrs = "Case", {"branches": refs_of}  # type: ignore[dict-item]
    made = d.add(("Stateless" if stateless else "") + op, (index, *given, *handles(d, refs)), attrs,  # type: ignore[arg-type]
                 true=[k.type for k in merged], hidden=True, controls=waits(d, refs))  # fmt: skip
    touch(d, refs, made.node)
    results(d, made, merged)


def _stateful(d: Drawn, name: str) -> bool:
    return not Bodies(d.module).summary(name).pure


def _either(*knowns: Known) -> Known:
    return Known(knowns[0].type, min(k.grade for k in knowns), min(k.low for k in knowns), max(k.high for k in knowns),
                 all(k.clean for k in knowns))  # fmt: skip


def loop(d: Drawn, run: Run) -> None:
    """While: a counter, values that change, values that do not, variables."""
    given = operands(d)
    if not given:
        return
    refs = shared_states(d)
    counter = d.scalar(0)
    limit = d.scalar(d.choose.integer(0, 3))
    every = [counter, limit, *given]
    types = [body_type(d, v) for v in every]
    knowns = [d.known[counter], d.known[limit], *(_careful(d.known[v]) for v in given)]
    knowns[0] = replace(knowns[0], low=0.0, high=4.0)
    cond = begin(d, fresh(d, "cond"), types, knowns, refs)
    again = cond.add("Less", (Value("a0"), Value("a1")), hidden=True)
    cond.graph.set_outputs([("r", again)])
    inner = begin(d, fresh(d, "loop"), types, knowns, refs)
    run(inner, d.choose.integer(1, 3))
    following = inner.add("AddV2", (Value("a0"), inner.scalar(1)), hidden=True)
    ends = [following, Value("a1")]
    for known, name in zip(knowns[2:], inner.graph.inputs[2:], strict=False):
        end = Value(name) if d.choose.chance(4) else last_like(inner, known, Value(name))
        ends.append(inner.tame(end, LOOP_LIMIT))
    inner.graph.set_outputs([*((f"r{i}", v) for i, v in enumerate(ends)), *((f"v_{ref}", inner.states[ref].handle) for ref in refs)])
    attrs = {"cond": FunctionRef(cond.graph.name), "body": FunctionRef(inner.graph.name)}
    made = d.add("While", (*every, *handles(d, refs)), attrs, hidden=True, controls=waits(d, refs),  # type: ignore[arg-type]
                 true=[*(d.known[v].type for v in every), *(d.graph.type_of(h) for h in handles(d, refs))])  # fmt: skip
    touch(d, refs, made.node)
    results(d, made, knowns)


# ---- v1


def v1_loop(d: Drawn, run: Run) -> None:
    """Enter, Merge, Switch, NextIteration, Exit around a few operations on one value."""
    value = d.pick("float32")
    if value is None or d.depth:
        return
    value = d.tame(value, LOOP_LIMIT)
    k = d.known[value]
    frame = {"frame_name": f"frame_{d.world.next()}"}
    constant = {**frame, "is_constant": True}

    def hidden(op: str, *operands: Value, attrs: dict[str, object] | None = None) -> Value:
        return d.add(op, operands, attrs, hidden=True)  # type: ignore[arg-type]

    counter, held = (hidden("Enter", v, attrs=frame) for v in (d.scalar(0), value))  # type: ignore[arg-type]
    limit, step, factor = (hidden("Enter", v, attrs=constant)  # type: ignore[arg-type]
                           for v in (d.scalar(d.choose.integer(0, 3)), d.scalar(1), d.scalar(0.5, "float32")))  # fmt: skip
    merged, merged_value = hidden("Merge", counter, counter), hidden("Merge", held, held)
    again = hidden("LoopCond", hidden("Less", merged, limit))
    switch, switch_value = hidden("Switch", merged, again), hidden("Switch", merged_value, again)
    current = Value(switch_value.node, 1)
    for _ in range(d.choose.integer(1, 3)):
        op = d.choose.of(("Mul", "Tanh", "Relu", "AddV2", "Neg"))
        current = hidden(op, current, factor) if op in ("Mul", "AddV2") else hidden(op, current)
    current = hidden("Tanh", current)
    following = hidden("NextIteration", hidden("AddV2", Value(switch.node, 1), step))
    following_value = hidden("NextIteration", current)
    d.graph.set_operand(merged.node, 1, following, back=True)
    d.graph.set_operand(merged_value.node, 1, following_value, back=True)
    hidden("Exit", switch)
    left = d.add("Exit", (switch_value,), true=(k.type,), hidden=True)
    results(d, left, [replace(k, grade=Grade.ROUGH, clean=False)])


def v1_condition(d: Drawn, run: Run) -> None:
    """Switch and Merge without a frame."""
    condition = scalar_condition(d)
    value = d.pick("float32")
    if condition is None or value is None or d.depth:
        return
    value = d.tame(value, LOOP_LIMIT)
    k = d.known[value]
    switch = d.add("Switch", (value, condition), hidden=True)
    no, yes = switch, Value(switch.node, 1)
    for _ in range(d.choose.integer(0, 2)):
        yes = d.add(d.choose.of(("Neg", "Tanh", "Relu")), (yes,), hidden=True)
    for _ in range(d.choose.integer(0, 2)):
        no = d.add(d.choose.of(("Abs", "Sigmoid", "Square")), (no,), hidden=True)
    made = d.add("Merge", (no, yes), true=(k.type, TensorType("int32", ())), hidden=True)  # type: ignore[arg-type]
    results(d, made, [replace(k, grade=Grade.ROUGH, low=-100.0, high=100.0), Known(TensorType("int32", ()))])  # type: ignore[arg-type]


def control_edge(d: Drawn, run: Run) -> None:
    """A node that waits for others, itself or through a NoOp."""
    value = d.pick()
    if value is None:
        return
    before = [d.choose.of(d.values).node for _ in range(d.choose.integer(1, 2))]
    if d.choose.flag():
        d.add("NoOp", (), {}, controls=before, hidden=True)
        before = [list(d.graph)[-1].name]
    d.add("Identity", (value,), controls=before, **kept(d, value))


STEPS: tuple[tuple[int, Callable[[Drawn, Run], None]], ...] = (
    (3, call),
    (3, branches),
    (3, loop),
    (1, v1_loop),
    (1, v1_condition),
    (2, control_edge),
)
