"""A program on its way: a graph, and for each value what is true of it.

A value has two types: the one the graph records, which may not know its sizes, and the true one, by which operands are chosen so that they
fit.  What else is known decides which ops a value may meet, so that the right answer is one answer:

    grade     EXACT: the same bits whatever is divided or reordered; SIGNLESS: but for the sign of zero; ROUGH: rounds differently.
              A decision (floor, compare, argmax, cast to int) is made on what does not round differently.
    low..high  ordinary values lie between: no overflow, no logarithm of what is negative
    clean     no NaN and no infinity even where the inputs have them: may be cast to integers, or sorted
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum

import numpy as np

from compiler.ir.dims import Dim
from compiler.ir.graph import Attr, Graph, Value
from compiler.ir.module import Module
from compiler.ir.types import DType, TensorType
from compiler.ops.queries import contents_of, infer, operation
from compiler.ops.spec import Content, Operation
from compiler.rewrite.emitter import Emitter
from tests.programs.source import Choices

FLOATS = ("float32", "float64", "float16", "bfloat16")
INTEGERS = ("int32", "int64", "int8", "int16", "uint8")
LIMITS = {"float16": 30.0, "bfloat16": 1e3}
"""Above this a float is clipped before it grows further."""
MOST = 1e4
INFINITE = float("inf")


class Grade(IntEnum):
    ROUGH = 0
    SIGNLESS = 1
    EXACT = 2


@dataclass(frozen=True)
class Known:
    type: TensorType
    grade: Grade = Grade.EXACT
    low: float = -INFINITE
    high: float = INFINITE
    clean: bool = True

    @property
    def shape(self) -> tuple[Dim, ...]:
        assert self.type.shape is not None, "true shapes have a rank"
        return self.type.shape

    @property
    def largest(self) -> float:
        return max(abs(self.low), abs(self.high))


@dataclass
class State:
    """One variable of the program: who wrote it last in this graph, who has read it since."""

    handle: Value
    type: TensorType
    writer: str | None = None
    readers: list[str] = field(default_factory=list)


@dataclass
class Body:
    """A function drawn before, and the true types it was drawn for."""

    name: str
    inputs: tuple[TensorType, ...]
    knowns: tuple[Known, ...]
    stateful: bool


@dataclass
class World:
    """What the graphs of one program share."""

    module: Module
    choose: Choices
    bodies: list[Body] = field(default_factory=list)
    serial: int = 0
    steps_left: int = 20

    def next(self) -> int:
        self.serial += 1
        return self.serial


@dataclass
class Drawn:
    """One graph and its values; `depth` counts the bodies around it."""

    world: World
    graph: Graph
    depth: int = 0
    values: list[Value] = field(default_factory=list)
    known: dict[Value, Known] = field(default_factory=dict)
    states: dict[str, State] = field(default_factory=dict)
    effects: list[str] = field(default_factory=list)
    controls: tuple[str, ...] = ()
    contents: dict[Value, Content] = field(default_factory=dict)
    true_contents: dict[Value, Content] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.emitter = Emitter(self.world.module, self.graph, self.contents)

    @property
    def choose(self) -> Choices:
        return self.world.choose

    @property
    def module(self) -> Module:
        return self.world.module

    # ---- choosing operands

    def fits(self, wanted: Callable[[Known], bool]) -> list[Value]:
        return [v for v in self.values if wanted(self.known[v])]

    def pick(self, *dtypes: str, rank: int | None = None, least: int = 0, where: Callable[[Known], bool] | None = None) -> Value | None:
        """A value of one of these element types; None where there is none.  Late values are as likely as all others together."""

        def fit(k: Known) -> bool:
            ranks = len(k.shape) == rank if rank is not None else len(k.shape) >= least
            return ranks and (not dtypes or k.type.dtype in dtypes) and (where is None or where(k))

        found = self.fits(fit)
        if not found:
            return None
        return self.choose.of(found[-3:] if self.choose.flag() else found)

    def shape(self, value: Value) -> tuple[Dim, ...]:
        return self.known[value].shape

    def static(self, value: Value, axis: int) -> int | None:
        """The size of a dimension where it is a number."""
        size = self.shape(value)[axis]
        return size if isinstance(size, int) else None

    # ---- constants

    def constant(self, array: np.ndarray, low: float | None = None, high: float | None = None) -> Value:
        value = self.emitter.constant(self.module.stores.constant(array), name="c", origin=("c",))
        bounds = (float(array.min()), float(array.max())) if array.size and array.dtype.kind in "fiu" else (0.0, 0.0)
        if array.size and array.dtype.kind not in "OUSbcfiu":
            wide = array.astype(np.float64)
            bounds = float(wide.min()), float(wide.max())
        self.known[value] = Known(self.graph.type_of(value), Grade.EXACT, *bounds)
        return value

    def ints(self, *numbers: int, dtype: str = "int32") -> Value:
        return self.constant(np.array(numbers, dtype))

    def scalar(self, number: float, dtype: str = "int32") -> Value:
        return self.constant(np.array(number, DType(dtype).numpy))

    def weight(self, *shape: int, dtype: str = "float32", low: float = -1.0, high: float = 1.0) -> Value:
        """Random numbers, a splat, or small whole numbers, for which every order of addition gives the same bits."""
        rng = np.random.default_rng([self.choose.integer(0, 3), *shape])
        kind = self.choose.integer(0, 5)
        if kind < 4:
            array = rng.uniform(low, high, shape)
        else:
            array = np.full(shape, (low + high) / 2 + 0.25 * (high - low)) if kind == 4 else np.round(rng.uniform(low, high, shape))
        return self.constant(array.astype(DType(dtype).numpy))

    def random_ints(self, low: int, high: int, *shape: int, dtype: str = "int32") -> Value:
        rng = np.random.default_rng([self.choose.integer(0, 3), *shape])
        return self.constant(rng.integers(low, high, shape, endpoint=True).astype(dtype))

    # ---- adding

    def add(
        self,
        op: str,
        operands: Sequence[Value],
        attrs: dict[str, Attr] | None = None,
        *,
        true: Sequence[TensorType] | None = None,
        controls: Sequence[str] = (),
        hidden: bool = False,
        **known: object,
    ) -> Value:
        """Adds a node; its true types are inferred from the true types of its operands, or told.  `known` overrides what follows from them.

        Its results can be read by later steps unless `hidden`."""
        name = self.graph.fresh_name(f"{op.lower()}_{self.world.next()}")
        origin = (name,)
        self.emitter.add(op, operands, attrs, name=name, origin=origin, controls=dict.fromkeys((*self.controls, *controls)))
        weak = operation(self.module, self.graph, name, self.contents)
        types = tuple(true) if true is not None else infer(self._true(weak, operands))
        self._remember(name, weak, operands, types)
        base = self._follow(operands)
        for port, type_ in enumerate(types):
            value = Value(name, port)
            self.known[value] = replace(base, type=type_, **known)  # type: ignore[arg-type]
            if type_.shape is not None and not hidden and type_.dtype not in ("resource", "variant"):
                self.values.append(value)
        return Value(name)

    def _true(self, weak: Operation, operands: Sequence[Value]) -> Operation:
        types = tuple(self.known[v].type for v in operands)
        return replace(weak, operands=types, contents=tuple(self.true_contents.get(v) for v in operands))

    def _remember(self, name: str, weak: Operation, operands: Sequence[Value], types: tuple[TensorType, ...]) -> None:
        """What is known of shape arithmetic, by the recorded types and by the true ones."""
        recorded = replace(weak, results=self.graph.node(name).types)
        true = replace(self._true(weak, operands), results=types)
        for kept, whose in ((self.contents, recorded), (self.true_contents, true)):
            for port, content in enumerate(contents_of(whose)):
                if content is not None:
                    kept[Value(name, port)] = content

    def _follow(self, operands: Sequence[Value]) -> Known:
        """What holds of results as long as nobody says better: the worst of the operands."""
        found = [self.known[v] for v in operands] or [Known(TensorType(DType("float32"), ()))]
        return Known(
            found[0].type,
            min(k.grade for k in found),
            min(k.low for k in found),
            max(k.high for k in found),
            all(k.clean for k in found),
        )

    # ---- making operands fit

    def tame(self, value: Value, most: float | None = None) -> Value:
        """The value, clipped where it may have grown large: x => Minimum(Maximum(x, -a), a)."""
        k = self.known[value]
        limit = most if most is not None else LIMITS.get(k.type.dtype, MOST)
        if k.type.dtype not in FLOATS or k.largest <= limit:
            return value
        low = self.add("Maximum", (value, self.scalar(-limit, k.type.dtype)), low=-limit, high=limit, grade=min(k.grade, Grade.SIGNLESS))
        return self.add("Minimum", (low, self.scalar(limit, k.type.dtype)), low=-limit, high=limit)

    def away_from_zero(self, value: Value) -> Value:
        """|x| + 1/2"""
        k = self.known[value]
        size = self.add("Abs", (value,), low=0.0, high=k.largest, grade=Grade.EXACT if k.grade else Grade.ROUGH)
        return self.add("AddV2", (size, self.scalar(0.5, k.type.dtype)), low=0.5, high=k.largest + 0.5)

    def within(self, value: Value, low: float, high: float) -> Value:
        """The value where it lies in the open interval, else one computed from it that does."""
        k = self.known[value]
        if low <= k.low and k.high <= high:
            return value
        if high == INFINITE:
            return self.away_from_zero(self.tame(value)) if low >= 0 else self.tame(value, -low)
        middle, half = (low + high) / 2, (high - low) / 2 * 0.75
        bounded = self.add("Tanh", (value,), low=-1.0, high=1.0, grade=Grade.ROUGH)
        scaled = self.add("Mul", (bounded, self.scalar(half, k.type.dtype)), low=-half, high=half)
        return self.add("AddV2", (scaled, self.scalar(middle, k.type.dtype)), low=middle - half, high=middle + half)

    def cleaned(self, value: Value) -> Value:
        """Where(IsFinite(x), x, 0): no NaN, no infinity."""
        k = self.known[value]
        if k.clean or k.type.dtype not in FLOATS:
            return value
        finite = self.add("IsFinite", (value,), hidden=True, low=0.0, high=1.0, clean=True)
        nothing = self.add("ZerosLike", (value,), hidden=True, low=0.0, high=0.0, clean=True, grade=Grade.EXACT)
        return self.add("SelectV2", (finite, value, nothing), low=min(k.low, 0), high=max(k.high, 0), clean=True, grade=k.grade)


Step = Callable[[Drawn], None]


def broadcast_fits(left: tuple[Dim, ...], right: tuple[Dim, ...]) -> bool:
    """May the second be broadcast to the first, or both to what they give together?"""
    return all(a == b or a == 1 or b == 1 for a, b in zip(left[::-1], right[::-1], strict=False)) and None not in (*left, *right)
