"""Random programs: modules valid by construction, drawn op by op from the registry.

    programs()          a Hypothesis strategy; what fails is shrunk
    program(seed)       the same, from a seed: fast, for thousands
    requests(module)    inputs to run one on: two batch sizes, special values, and the first again

Every value's true type and more is known as it is drawn (`drawn.py`), so each op fits its operands and no program is thrown away.
"""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import strategies as st

from compiler.ir.dims import symbol
from compiler.ir.graph import Graph, Value
from compiler.ir.module import Module
from compiler.ir.types import DType, Shape, TensorType
from tests.programs import arithmetic, control, elementwise, gradients, indexing, keras, layout, state, windows
from tests.programs.drawn import Drawn, Grade, Known, World
from tests.programs.inputs import requests
from tests.programs.source import Choices, Hypothesis, Seeded

__all__ = ["program", "programs", "requests"]
Step = Callable[[Drawn], None]
FAMILIES: tuple[tuple[int, tuple[tuple[int, Step], ...]], ...] = (
    (9, elementwise.STEPS),
    (6, arithmetic.STEPS),
    (6, layout.STEPS),
    (3, windows.STEPS),
    (4, keras.STEPS),
    (3, indexing.STEPS),
    (2, gradients.STEPS),
)
CONTROL_ONE_IN, STATE_ONE_IN = 9, 7
MOST_OUTPUTS = 8


def flat(families: tuple[tuple[int, tuple[tuple[int, Step], ...]], ...]) -> tuple[Step, ...]:
    """Each step as often as it weighs."""
    return tuple(
        step for times, steps in families for weight, step in steps for _ in range(times * weight * 12 // sum(w for w, _ in steps))
    )


PURE = flat(FAMILIES)
STATEFUL = tuple(step for weight, step in state.STEPS for _ in range(weight))
BRANCHING = tuple(step for weight, step in control.STEPS for _ in range(weight))


def run(d: Drawn, count: int) -> None:
    """So many steps; those whose operands are not there do nothing."""
    for _ in range(count):
        if d.world.steps_left <= 0:
            return
        d.world.steps_left -= 1
        if d.choose.chance(CONTROL_ONE_IN) and d.depth < control.MOST_DEPTH:
            d.choose.of(BRANCHING)(d, run)
        elif d.states and d.choose.chance(STATE_ONE_IN if d.depth == 0 else 2):
            d.choose.of(STATEFUL)(d)
        else:
            d.choose.of(PURE)(d)


def declare_inputs(d: Drawn) -> None:
    """x [b, n], then any of: [b, m, n], images, integers, strings, other floats, another batch symbol, unknown sizes, unknown ranks."""
    b, other, choose = symbol("b"), symbol("b1"), d.choose
    width = choose.integer(1, 6)
    add_input(d, "x", "float32", (b, width))
    menu: tuple[tuple[str, str, Shape, Shape], ...] = (
        ("z", "float32", (b, choose.integer(1, 4), choose.integer(1, 5)), ()),
        ("image", "float32", (b, choose.integer(2, 6), choose.integer(2, 5), choose.integer(1, 4)), ()),
        ("count", choose.of(("int32", "int64")), (b,), ()),
        ("ids", choose.of(("int32", "int64", "int8", "uint8", "int16")), (b, choose.integer(1, 4)), ()),
        ("half", choose.of(("float16", "bfloat16", "float64")), (b, width), ()),
        ("mask", "bool", (b, width), ()),
        ("words", "string", (b,), ()),
        ("other", "float32", (other, width), ()),
        ("fixed", "float32", (3, 4), ()),
        ("number", "float32", (), ()),
        ("weak", "float32", (b, width), (None, width)),
        ("weaker", "float32", (b, 5), (None, None)),
        ("rankless", "float32", (b,), None),
    )
    for _ in range(choose.integer(0, 3)):
        name, dtype, true, recorded = choose.of(menu)
        if name not in d.graph:
            add_input(d, name, dtype, true, true if recorded == () else recorded)


def add_input(d: Drawn, name: str, dtype: str, true: Shape, recorded: Shape = ()) -> None:
    value = d.graph.add_input(name, TensorType(DType(dtype), true if recorded == () else recorded))
    floating = dtype in ("float32", "float64", "float16", "bfloat16")
    d.known[value] = Known(
        TensorType(DType(dtype), true), Grade.EXACT, -6.0 if floating else -99.0, 6.0 if floating else 99.0, not floating
    )
    d.values.append(value)


def entry(world: World, name: str, refs: list[str], count: int) -> Graph:
    d = Drawn(world, Graph(name))
    declare_inputs(d)
    state.open_states(d, refs)
    run(d, count)
    d.graph.set_outputs((f"y{i}", v) for i, v in enumerate(returned(d)))
    return d.graph


def returned(d: Drawn) -> list[Value]:
    """The last value, most of the others that nobody reads, once in a while one that is read too; what is left is a dead end."""
    outputs = [d.values[-1]]
    for value in d.values[-2::-1]:
        wanted = d.choose.chance(12) if d.graph.needs(value).data else not d.choose.chance(4)
        if wanted and len(outputs) < MOST_OUTPUTS:
            outputs.append(value)
    return outputs


def build(choose: Choices, most: int = 14) -> Module:
    module = Module("random")
    world = World(module, choose, steps_left=2 * most)
    refs = state.declare(world, choose)
    module.entries["f"] = entry(world, "f", refs, choose.integer(1, most))
    module.sizes = {"b": 8, "b1": 8}
    module.facts = frozenset({"typed"})
    return module


@st.composite
def programs(draw: st.DrawFn, most: int = 14) -> Module:
    """A module with one entry `f` of at most `most` steps, bodies aside."""
    return build(Choices(Hypothesis(draw)), most)


def program(seed: int, most: int = 14) -> Module:
    """The program of a seed."""
    return build(Choices(Seeded(seed)), most)
