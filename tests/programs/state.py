"""Steps with effects: variables read, written and updated in order, optimizers' updates, assertions, lists."""

from __future__ import annotations

from compiler.ir.graph import Value
from compiler.ir.module import Variable
from compiler.ir.types import DType, TensorType
from tests.programs.drawn import Drawn, Grade, Known, State, Step, World
from tests.programs.layout import after_batch, kept
from tests.programs.layout import numbers as sizes_of
from tests.programs.source import Choices

HELD = {"low": -1e3, "high": 1e3, "clean": False, "grade": Grade.ROUGH}
"""What is known of a float variable: anything may have been written to it."""


def declare(world: World, choose: Choices) -> list[str]:
    """Some variables of the module: vectors, matrices, counters."""
    import numpy as np

    refs = []
    for i in range(choose.integer(0, 3)):
        shape: tuple[int, ...] = choose.of(((3,), (4, 2), (), (5,)))
        dtype = "int64" if shape == () else "float32"
        array = np.random.default_rng([i, *shape]).uniform(-1, 1, shape).astype(dtype)
        ref = f"v{i}"
        initial = world.module.stores.constant(array)
        world.module.variables[ref] = Variable(ref, TensorType(DType(dtype), shape), initial)
        refs.append(ref)
    return refs


def open_states(d: Drawn, refs: list[str]) -> None:
    """The handles of an entry."""
    for ref in refs:
        type_ = d.module.variables[ref].type
        name = d.graph.fresh_name(ref)
        d.graph.add("Variable", (), {"ref": ref}, (TensorType(DType("resource"), (), handle=type_),), name=name, origin=(ref,))
        d.known[Value(name)] = Known(d.graph.type_of(Value(name)))
        d.states[ref] = State(Value(name), type_)


def chosen(d: Drawn, dtype: str | None = None, rank: int | None = None) -> State | None:
    fits = [s for _, s in sorted(d.states.items()) if dtype in (None, s.type.dtype) and (rank is None or len(s.type.shape or ()) == rank)]
    return d.choose.of(fits) if fits else None


def read(d: Drawn) -> None:
    state = chosen(d)
    if state is None:
        return
    dtype = state.type.dtype
    known = HELD if dtype == "float32" else {"low": -1e9, "high": 1e9, "clean": True, "grade": Grade.EXACT}
    kind = d.choose.integer(0, 4)
    after = [state.writer] if state.writer else []
    if kind == 4 and len(state.type.shape or ()) == 2:
        at = d.random_ints(0, 3, d.choose.integer(1, 3))
        rows = state.type.with_shape((*d.shape(at), 2))
        made = d.add("ResourceGather", (state.handle, at), {"dtype": dtype}, controls=after, true=(rows,),
                     **known)  # type: ignore[arg-type]  # fmt: skip
    else:
        made = d.add("ReadVariableOp", (state.handle,), {"dtype": dtype}, controls=after, true=(state.type,), **known)  # type: ignore[arg-type]
    state.readers.append(made.node)


def value_for(d: Drawn, state: State) -> Value:
    """Something of the variable's type."""
    found = d.fits(lambda k: k.type.dtype == state.type.dtype and k.shape == state.type.shape)
    if found and d.choose.integer(0, 2):
        return d.tame(d.choose.of(found[::-1]), 10.0)
    sizes = [n for n in state.type.shape or () if isinstance(n, int)]
    return d.weight(*sizes) if state.type.dtype == "float32" else d.scalar(d.choose.integer(1, 3), "int64")


def write(d: Drawn) -> None:
    state = chosen(d)
    if state is None:
        return
    value = value_for(d, state)
    kind = d.choose.integer(0, 3)
    before = [*([state.writer] if state.writer else []), *state.readers]
    if kind == 3 and len(state.type.shape or ()) == 2:
        at = d.ints(*range(d.choose.integer(1, 4)))
        op = d.choose.of(("ResourceScatterAdd", "ResourceScatterSub", "ResourceScatterUpdate"))
        operands = (state.handle, at, d.weight(d.static(at, 0) or 0, 2))
        attrs: dict[str, object] = {}
    else:
        op = ("AssignVariableOp", "AssignAddVariableOp", "AssignSubVariableOp")[kind % 3]
        operands, attrs = (state.handle, value), {}
    d.add(op, operands, attrs, controls=before, true=(), hidden=True)  # type: ignore[arg-type]
    state.writer, state.readers = list(d.graph)[-1].name, []


def optimise(d: Drawn) -> None:
    """An optimizer's step on a variable, its slots others of the same type."""
    state = chosen(d, "float32")
    if state is None:
        return
    slots = [s for s in d.states.values() if s is not state and s.type == state.type]
    gradient, rate = value_for(d, state), d.scalar(0.01, "float32")
    if slots and d.choose.flag():
        touched = [state, slots[0]]
        slot, momentum = slots[0].handle, d.scalar(0.9, "float32")
        op = d.choose.of(("ResourceApplyMomentum", "ResourceApplyKerasMomentum", "ResourceApplyAdagradV2"))
        operands = (state.handle, slot, rate, gradient, momentum)
        if op == "ResourceApplyAdagradV2":
            operands = (state.handle, slot, rate, d.scalar(0.1, "float32"), gradient)
        if len(slots) > 1 and d.choose.flag():
            touched.append(slots[1])
            op, numbers = "ResourceApplyAdam", [d.scalar(n, "float32") for n in (0.9, 0.99, 0.01, 0.9, 0.99, 0.001)]
            operands = (state.handle, slot, slots[1].handle, *numbers, gradient)
    else:
        touched = [state]
        op, operands = "ResourceApplyGradientDescent", (state.handle, rate, gradient)
    before = [n for s in touched for n in (*([s.writer] if s.writer else []), *s.readers)]
    d.add(op, operands, {}, controls=before, true=(), hidden=True)
    for s in touched:
        s.writer, s.readers = list(d.graph)[-1].name, []


def about(d: Drawn) -> None:
    state = chosen(d)
    if state is None:
        return
    known = {"grade": Grade.EXACT, "clean": True, "low": 0.0, "high": 9.0}
    after = [state.writer] if state.writer else []
    shape = TensorType(DType("int32"), (len(state.type.shape or ()),))
    op, type_ = d.choose.of((("VariableShape", shape), ("VarIsInitializedOp", TensorType(DType("bool"), ()))))
    state.readers.append(d.add(op, (state.handle,), {}, controls=after, true=(type_,), **known).node)  # type: ignore[arg-type]


def assertion(d: Drawn) -> None:
    """Assert(All(x == x), [x]) on integers: it always holds, and must stay."""
    value = d.pick("int32", "int64")
    if value is not None:
        same = d.add("Equal", (value, value), hidden=True)
        condition = d.add("All", (same, d.ints(*range(len(d.shape(value))))), hidden=True)
        d.add("Assert", (condition, value), {}, controls=d.effects[-1:], true=(), hidden=True)
        d.effects.append(list(d.graph)[-1].name)


def list_of_rows(d: Drawn) -> None:
    """TensorListFromTensor, SetItem, GetItem, Stack"""
    value = d.pick("float32", rank=2, where=after_batch)
    if value is None or d.choose.flag():
        return
    (columns,) = sizes_of(d, value)
    rows = d.add("TensorListFromTensor", (d.weight(3, columns), d.ints(columns)), {}, hidden=True)
    rows = d.add("TensorListSetItem", (rows, d.scalar(d.choose.integer(0, 2)), d.weight(columns)), {}, hidden=True)
    float32 = {"element_dtype": DType("float32")}
    row = d.weight(columns)
    d.add(
        "TensorListGetItem", (rows, d.scalar(1), d.ints(columns)), float32, true=(TensorType(DType("float32"), (columns,)),), **kept(d, row)
    )
    d.add("TensorListStack", (rows, d.ints(columns)), {**float32, "num_elements": 3},
          true=(TensorType(DType("float32"), (3, columns)),), **kept(d, row))  # fmt: skip


STEPS: tuple[tuple[int, Step], ...] = (
    (3, read),
    (3, write),
    (1, optimise),
    (1, about),
    (1, assertion),
    (1, list_of_rows),
)
