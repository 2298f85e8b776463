"""The checker: all that partition makes is proven, and planted errors are found without running anything, by name and by rule."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from compiler.ir.errors import CleaveError
from compiler.ir.graph import Graph, Node, Value
from compiler.ir.module import Module
from compiler.ir.sharding import Mesh, Sharding
from compiler.ir.text import parse_module
from compiler.ir.types import DType, TensorType
from compiler.ir.verify import verify
from compiler.ir.weights import Tensor, WeightRef
from compiler.pipeline.base import TYPED, Context
from compiler.pipeline.manager import run_pipeline
from compiler.pipeline.text import parse_pipeline
from cost_model.cluster import Cluster
from passes import PASSES
from passes.pipelines import PIPELINES
from passes.split.check import check
from passes.split.choose import Objective, SplitPlan
from passes.split.denote import Unproven
from passes.split.derivation import Derivation
from passes.split.partition import Partition
from tests.checks import RunModule
from tests.passes.mutants import mutants
from tests.passes.test_split import CASES, GRID, THREE, TWO

MORE = {
    "a bias after a split sum": (
        """entry @f(%x: f32[3,6]) -> (y = %y) {
  %w = Const() {value=weight(w0, 0, f32[6,5])} : f32[6,5] from(a)
  %b = Const() {value=weight(w0, 120, f32[5])} : f32[5] from(a)
  %m = MatMul(%x, %w) {_factors=["k:d"]} : f32[3,5]@[_,_]+sum(d) from(a)
  %a = BiasAdd(%m, %b) {_factors=["d1:d"]} : f32[3,5]@[_,d] from(a)
  %y = Relu(%a) {_factors=["d1:d"]} : f32[3,5]@[_,d] from(a)
}""",
        TWO,
    ),
    "column, then row, of referenced weights": (
        """entry @f(%x: f32[b,4]) -> (y = %y) {
  %v = Const() {value=weight(w0, 8, f32[4,7])} : f32[4,7] from(a)
  %w = Const() {value=weight(w0, 120, f32[7,3])} : f32[7,3] from(a)
  %h = MatMul(%x, %v) {_factors=["n:d"]} : f32[b,7]@[_,d] from(a)
  %r = Relu(%h) {_factors=["d1:d"]} : f32[b,7]@[_,d] from(a)
  %m = MatMul(%r, %w) {_factors=["k:d"]} : f32[b,3]@[_,_]+sum(d) from(a)
  %y = Tanh(%m) : f32[b,3] from(a)
}""",
        THREE,
    ),
    "channels of convolutions": (
        """entry @f(%x: f32[b,5,5,4]) -> (y = %d) {
  %v = Const() {value=weight(w0, 0, f32[3,3,4,6])} : f32[3,3,4,6] from(a)
  %w = Const() {value=weight(w0, 864, f32[1,1,6,4])} : f32[1,1,6,4] from(a)
  %c = Conv2D(%x, %v) {padding="SAME", strides=[1,1,1,1], _factors=["co:d"]} : f32[b,5,5,6]@[_,_,_,d] from(a)
  %r = Relu(%c) {_factors=["d3:d"]} : f32[b,5,5,6]@[_,_,_,d] from(a)
  %d = Conv2D(%r, %w) {padding="VALID", strides=[1,1,1,1], _factors=["ci:d"]} : f32[b,5,5,4]@[_,_,_,_]+sum(d) from(a)
}""",
        TWO,
    ),
    "rows of a convolution, with a halo": (
        """entry @f(%x: f32[1,9,4,2]) -> (y = %p) {
  %v = Const() {value=weight(w0, 0, f32[3,3,2,3])} : f32[3,3,2,3] from(a)
  %e = Exp(%x) {_factors=["d1:d"]} : f32[1,9,4,2]@[_,d,_,_] from(a)
  %c = Conv2D(%e, %v) {padding="SAME", strides=[1,1,1,1], _factors=["s0:d"]} : f32[1,9,4,3]@[_,d,_,_] from(a)
  %p = MaxPool(%c) {ksize=[1,2,2,1], padding="SAME", strides=[1,2,2,1], _factors=["s0:d"]} : f32[1,5,2,3]@[_,d,_,_] from(a)
}""",
        THREE,
    ),
    "one factor over both axes": (
        """entry @f(%x: f32[3,9]) -> (y = %a) {
  %w = Const() {value=weight(w0, 0, f32[9,5])} : f32[9,5] from(a)
  %m = MatMul(%x, %w) {_factors=["k:x*y"]} : f32[3,5]@[_,_]+sum(x)+sum(y) from(a)
  %a = Relu(%m) {_factors=["d1:x", "d0:y"]} : f32[3,5]@[y,x] from(a)
}""",
        GRID,
    ),
    "rows of a table": (
        """entry @f(%x: f32[4,3]) -> (y = %y) {
  %zero = Const() {value=tensor(i32[], 0)} : i32[] from(a)
  %p = Abs(%x) : f32[4,3] from(a)
  %i = Cast(%p) {DstT=i32} : i32[4,3] from(a)
  %t = Const() {value=weight(w0, 0, f32[9,2])} : f32[9,2] from(a)
  %g = GatherV2(%t, %i, %zero) {_factors=["d0:d"]} : f32[4,3,2]@[_,_,_]+sum(d) from(a)
  %y = Neg(%g) {_factors=["d0:d"]} : f32[4,3,2]@[d,_,_] from(a)
}""",
        TWO,
    ),
    "a pool that pads by SAME only": (
        """entry @f(%x: f32[1,9,4,2]) -> (y = %p) {
  %e = Exp(%x) {_factors=["d1:d"]} : f32[1,9,4,2]@[_,d,_,_] from(a)
  %p = AvgPool(%e) {ksize=[1,3,2,1], padding="SAME", strides=[1,2,2,1], _factors=["s0:d"]} : f32[1,5,2,2]@[_,d,_,_] from(a)
}""",
        TWO,
    ),
    "partial sums that are added first": (
        """entry @f(%x: f32[3,6]) -> (y = %t) {
  %u = Const() {value=weight(w0, 0, f32[6,5])} : f32[6,5] from(a)
  %v = Const() {value=weight(w0, 120, f32[6,5])} : f32[6,5] from(a)
  %m = MatMul(%x, %u) {_factors=["k:d"]} : f32[3,5]@[_,_]+sum(d) from(a)
  %n = MatMul(%x, %v) {_factors=["k:d"]} : f32[3,5]@[_,_]+sum(d) from(a)
  %a = AddV2(%m, %n) {_factors=["+:d"]} : f32[3,5]@[_,_]+sum(d) from(a)
  %t = Tanh(%a) {_factors=["d1:d"]} : f32[3,5]@[_,d] from(a)
}""",
        TWO,
    ),
    "a whole node between, and who waits for whom": (
        """entry @f(%x: f32[4,6]) -> (y = %z) {
  %y = Exp(%x) {_factors=["d0:d"]} : f32[4,6]@[d,_] from(a)
  %w = Neg(%y) : f32[4,6] from(a) after(%y)
  %z = Tanh(%w) {_factors=["d1:d"]} : f32[4,6]@[_,d] from(a) after(%y)
}""",
        TWO,
    ),
    "replicas of one value": (
        """entry @f(%x: f32[4,6]) -> (y = %z) {
  %y = Exp(%x) {_factors=["d0:x"]} : f32[4,6]@[x,_] from(a)
  %n = Neg(%x) {_factors=["d1:y"]} : f32[4,6]@[_,y] from(a)
  %z = Mul(%y, %n) {_factors=["d0:x", "d1:y"]} : f32[4,6]@[x,y] from(a)
}""",
        GRID,
    ),
}
ALL = {**CASES, **MORE}


def source(case: str, directory: Path) -> Module:
    """The annotated module, its weights in a file of 4096 different numbers."""
    body, mesh = ALL[case]
    path = directory / "weights"
    if not path.exists():
        np.arange(4096, dtype=np.float32).tofile(path)
    return parse_module(
        f'module "m" facts(typed, annotated)\n{mesh}\n' + ('store w0 = "weights"\n' if "w0" in body else "") + f"\n{body}\n", directory
    )


def proven(case: str, directory: Path) -> tuple[Module, Module, list[Derivation]]:
    """(before, after, derivations) of a case."""
    before = source(case, directory)
    after, plan = before.copy(), SplitPlan()
    Partition().run(after, Context(services={SplitPlan: plan}))
    after.facts = frozenset({TYPED, "partitioned"})
    verify(after)
    return before, after, list(plan.derivations)


def refusal(before: Module, mutant: Module, derivations: list[Derivation]) -> str:
    """What the checker says, "" where it finds nothing."""
    try:
        check(before, mutant, derivations)
    except CleaveError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("case", ALL)
def test_what_partition_makes_is_proven(case: str, tmp_path: Path) -> None:
    before, after, derivations = proven(case, tmp_path)
    assert refusal(before, after, derivations) == ""
    assert derivations[0].divided


HALO = "rows of a convolution, with a halo"
BIAS, ROW, WAIT = "a bias after a split sum", "column, then row, of referenced weights", "a whole node between, and who waits for whom"


def operands(names: str) -> list[Value]:
    return [Value(name) for name in names.split()]


PLANTS: dict[str, tuple[str, Callable[[Graph], object], str]] = {
    "a wrong combine": (
        BIAS,
        lambda g: g.set_node(replace(g.node("m/sum_0"), op="Maximum")),
        "Maximum 'm/sum_0' is not proven: terms .* is combined by max, expected sum",
    ),
    "a concatenation in the wrong order": (
        BIAS,
        lambda g: g.set_operands("y/gather", [*operands("y/1 y/0"), g.operands("y/gather")[-1]]),
        "ConcatV2 'y/gather' is not proven: %y.0:3, 0:3. is concatenated where rows from 5 are expected in dimension 1",
    ),
    "a missing reduction, before what is not linear": (
        BIAS,
        lambda g: g.set_operand("a/0", 0, Value("m/slice_0")),
        "BiasAdd 'a/0' is not proven: rule of BiasAdd 'a' split by d1:d: operand 0 is %m/slice_0 = .*terms .0. of the sum of 2 over 'k'",
    ),
    "a term added twice": (
        ROW,
        lambda g: g.set_operands("m/sum", operands("m/0 m/1 m/1")),
        "AddN 'm/sum' is not proven: terms .0, 1. .* and terms .1. .* expected different terms",
    ),
    "a term left out": (
        ROW,
        lambda g: g.set_operands("m/sum", operands("m/0 m/2")),
        "Tanh 'y' is not proven: rule 'kept': operand 0 is %m/sum",
    ),
    "a swapped shard": (
        ROW,
        lambda g: g.set_operand("r/1", 0, Value("h/2")),
        "Relu 'r/1' is not proven: rule of Relu 'r' split by d1:d: operand 0 is %h/2 = %h.0:b, 5:7., expected %h.0:b, 3:5.",
    ),
    "another device's slice of the weights": (
        ROW,
        lambda g: g.set_operand("m/1", 1, Value("w/2")),
        "MatMul 'm/1' is not proven: .*operand 1 is %w/2 = %w.5:7, 0:3., expected %w.3:5, 0:3.",
    ),
    "weights from a wrong offset": (
        ROW,
        lambda g: set_weight(g, "w/1", 132, ((3, 2), (0, 3))),
        "Const 'w/1' is not proven: rule 'share': it holds store 'w0' at byte 132, .* expected store 'w0' at byte 120",
    ),
    "weights of wrong rows": (
        ROW,
        lambda g: set_weight(g, "w/1", 120, ((4, 2), (0, 3))),
        "rule 'share': it holds .*rows ..4, 2., .0, 3.., expected .*rows ..3, 2., .0, 3..",
    ),
    "the bias added to each term": (
        BIAS,
        lambda g: g.set_operands("a/0", operands("m/slice_0 b/0")),
        "BiasAdd 'a/0' is not proven: .*operand 0 is %m/slice_0 = .*, terms .0. of the sum of 2 over 'k' of 'm', expected %m.0:3, 0:3.$",
    ),
    "a term read twice": (
        "partial sums that are added first",
        lambda g: g.set_operand("a/1", 0, Value("m/0")),
        "AddV2 'a/1' is not proven: .*operand 0 is %m/0 = .*, expected a term that no other shard reads",
    ),
    "a sum among terms": (
        "partial sums that are added first",
        lambda g: add_early(g),
        "AddV2 'a/1' is not proven: .*operand 1 is %early = %n.0:3, 0:5., expected one of 2 terms of a sum",
    ),
    "a stale halo": (
        HALO,
        lambda g: g.set_operand("c/1", 0, Value("e/1")),
        "Conv2D 'c/1' is not proven: rule of Conv2D 'c' split by s0:d: operand 0 is %e/1 = .*3:6.*, expected %e.0:1, 2:7, 0:4, 0:2.",
    ),
    "a halo from the wrong side": (
        HALO,
        lambda g: g.set_operand("c/1", 0, g.operands("c/2")[0]),
        "expected %e.0:1, 2:7, 0:4, 0:2.",
    ),
    "a slice from a wrong row": (
        WAIT,
        lambda g: g.set_operand("w/slice_1", 1, Value("size/const")),
        "Tanh 'z/1' is not proven: .* operand 0 is %w/slice_1 = %w.0:4, 0:6., expected %w.0:4, 3:6.",
    ),
    "a part as a result": (
        WAIT,
        lambda g: g.set_outputs([("y", Value("z/0"))]),
        "output 'y' is %z/0 = %z.0:4, 0:3., expected %z.0:4, 0:6.",
    ),
    "a wait that is lost": (
        WAIT,
        lambda g: g.set_control("z/0", ["y/0"]),
        "Tanh 'z/0' is not proven: rule 'control': it does not wait for 'y/1'",
    ),
    "a part for a whole": (WAIT, lambda g: g.set_operand("w", 0, Value("y/0")), "Neg 'w' is not proven: rule 'kept': operand 0 is %y/0"),
    "a mean that is not divided": (
        "mean of uneven shards",
        lambda g: g.set_operand("y/sum", 1, Value("y/1")),
        "AddN 'y/sum' is not proven: %y/1 is not finished, expected RealDiv of it first",
    ),
    "a mean divided by the shard's count": (
        "mean of uneven shards",
        lambda g: g.set_attrs("size/const_4", {"value": Tensor(DType("f32"), np.float32(2))}),
        "RealDiv 'y/realdiv_0' is not proven: rule 'finish': operand 1 is %size/const_4 with content 2, expected 3",
    ),
    "an attribute of its own": (
        "channels of convolutions",
        lambda g: g.set_attrs("d/1", {**g.node("d/1").attrs, "padding": "SAME"}),
        "Conv2D 'd/1' is not proven: rule 'part': it is Conv2D .*SAME.*, expected Conv2D .*VALID",
    ),
    "a reshape to the whole's size": (
        "reshape of a divided batch",
        lambda g: g.set_operand("r/0", 1, g.operands("r/1")[1]),
        "Reshape 'r/0' is not proven: rule of Reshape 'r' split by r0:d: operand 1 is .* with content",
    ),
    "a node of nobody's": (
        ROW,
        lambda g: g.add("Exp", operands("h/0"), {}, g.node("h/0").types, name="odd"),
        "Exp 'odd' is not proven: rule 'move'",
    ),
}


def add_early(graph: Graph) -> None:
    """One shard adds a whole sum where it has a term of the other."""
    graph.add("AddN", operands("n/0 n/1"), {}, graph.node("n/0").types, name="early")
    graph.set_operand("a/1", 1, Value("early"))


def set_weight(graph: Graph, name: str, offset: int, region: tuple[tuple[int, int], ...]) -> None:
    literal = graph.node(name).attrs["value"]
    assert isinstance(literal, WeightRef)
    graph.set_attrs(name, {"value": replace(literal, offset=offset, region=region)})


@pytest.mark.parametrize("plant", PLANTS)
def test_planted_errors_are_named(plant: str, tmp_path: Path) -> None:
    case, change, message = PLANTS[plant]
    before, after, derivations = proven(case, tmp_path)
    (graph,) = after.entries.values()
    version = graph.version
    change(graph)
    assert graph.version > version
    derivations[0].moves.update({"early": Value("n")} if "early" in graph else {})
    with pytest.raises(Unproven, match=message):
        check(before, after, derivations)


def test_only_what_is_linear_passes_partial_sums_through(tmp_path: Path) -> None:
    """Each shard of Tanh would compute the whole, and the whole would be counted twice."""
    module = parse_module(f"""module "m" facts(typed, annotated)
{TWO}

entry @f(%x: f32[3,6], %w: f32[6,5]) -> (y = %t) {{
  %m = MatMul(%x, %w) {{_factors=["k:d"]}} : f32[3,5]@[_,_]+sum(d) from(a)
  %t = Tanh(%m) {{_factors=["+:d"]}} : f32[3,5]@[_,_]+sum(d) from(a)
}}
""")
    with pytest.raises(Unproven, match="Tanh 't' passes partial sums through, expected an operator whose rule says that it is linear"):
        Partition().run(module, Context())


def test_partition_refuses_to_hand_on_what_is_not_proven(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows dealt out wrongly by the resharder alone: the checker knows where they belong from the rule."""
    wrong = {"0": (0, 1), "1": (1, 2)}

    def region(type_: TensorType, sharding: Sharding, at: dict[str, int], mesh: Mesh) -> tuple[tuple[int, int], ...]:
        return tuple(wrong[str(at["d"])] if axes else (0, size) for size, axes in zip(type_.shape, sharding.dims, strict=True))  # type: ignore[arg-type,misc]

    monkeypatch.setattr("passes.split.reshard.region", region)
    with pytest.raises(Unproven, match=r"Sum 'y/0' is not proven: rule of Mean 'y' split by d0:d: operand 0 is .*0:1.* expected .*0:2"):
        Partition().run(source("mean of uneven shards", tmp_path), Context())


@pytest.mark.tf
@pytest.mark.parametrize("case", ALL)
def test_a_mutant_that_is_accepted_computes_the_same(case: str, tmp_path: Path, run_module: RunModule) -> None:
    """Every systematic mutant is refused, or is no error: exchanged replicas, terms of a sum in another order."""
    before, after, derivations = proven(case, tmp_path)
    every = list(mutants(after, derivations))
    accepted = [(what, mutant) for what, mutant, told in every if not refusal(before, mutant, told)]
    (graph,) = before.entries.values()
    rng = np.random.default_rng(0)
    requests = [{"x": rng.standard_normal(tuple(d if isinstance(d, int) else n for d in graph.node("x").type.shape or ()))} for n in (3, 8)]
    requests = [{"x": r["x"].astype(np.float32)} for r in requests]
    expected = run_module(after, requests, 4)
    assert len(every) >= 60 and len(accepted) < len(every) / 4
    for what, mutant in accepted:
        for found, wanted in zip(run_module(mutant, requests, 4), expected, strict=True):
            assert found.error is None, (what, found.error)
            for name, array in wanted.outputs.items():
                np.testing.assert_allclose(found.outputs[name], array, rtol=2e-6, atol=1e-6, err_msg=what)


SWEPT = [pytest.param(name, marks=pytest.mark.system) for name in ("cnn", "digit_cnn", "digit_cnn_deep", "mlp", "rnn", "two_towers")]


@pytest.mark.tf
@pytest.mark.parametrize("name", ["transformer", *SWEPT])
def test_mutants_of_real_models_are_refused(name: str) -> None:
    """A sample of every kind of change, in models as Keras exports them, divided over three devices with all weights divided."""
    before, after, derivations = divided_model(name)
    assert refusal(before, after, derivations) == ""
    planted = list(real_plants(after, derivations[0]))
    assert len(planted) >= 10
    for what, mutant in planted:
        assert refusal(before, mutant, derivations), f"{name}: {what} is not noticed"


def divided_model(name: str) -> tuple[Module, Module, list[Derivation]]:
    from compiler.backend.executor import GraphExecutor
    from compiler.backend.pool import Pool
    from compiler.frontend.source import load

    source = load(importlib.import_module(f"fixtures.models.{name}").build())
    module = source.module.copy()
    module.entries = dict([next(iter(module.entries.items()))])
    module.stores.kept.append(source)
    module.sizes = {"b": 8, "b1": 8}
    services: dict[type, object] = {Cluster: Cluster.parse("cpu:3"), Objective: Objective.MEMORY, SplitPlan: SplitPlan()}
    with Pool() as pool:
        context = Context(executor=GraphExecutor(pool), services=services)
        run_pipeline(module, parse_pipeline(PIPELINES["default"].partition(",partition")[0], PASSES), context)
    after, plan = module.copy(), SplitPlan()
    Partition().run(after, Context(services={SplitPlan: plan}))
    return module, after, list(plan.derivations)


def real_plants(after: Module, derivation: Derivation) -> Iterator[tuple[str, Module]]:
    """For each move and each part: errors that change what is computed, whatever the model."""
    ((entry, graph),) = after.entries.items()

    def mutant(change: Callable[[Graph], object]) -> Module:
        made = after.copy()
        change(made.entries[entry])
        return made

    moves = [graph.node(name) for name in derivation.moves if graph.is_needed(name)]
    yield from ((what, mutant(change)) for node in moves for what, change in wrong_moves(node, graph.operands(node.name)))
    yield from ((what, mutant(change)) for what, change in wrong_parts(graph, derivation))


def wrong_moves(node: Node, values: tuple[Value, ...]) -> Iterator[tuple[str, Callable[[Graph], object]]]:
    name = node.name
    if node.op == "AddN":
        yield f"{name} lacks a term", lambda g: g.set_operands(name, values[1:])
        yield f"{name} has a term twice", lambda g: g.set_operands(name, (*values[1:], values[1]))
        yield f"{name} is a maximum", lambda g: g.set_node(replace(node, op="Maximum"))
    if node.op == "ConcatV2":
        yield f"{name} is in another order", lambda g: g.set_operands(name, (values[1], values[0], *values[2:]))
        yield f"{name} lacks a part", lambda g: g.set_operands(name, values[1:])
    if node.op in ("AddN", "Slice"):
        yield f"{name} is left out", lambda g: g.replace_uses(Value(name), values[0])


def wrong_parts(graph: Graph, derivation: Derivation) -> Iterator[tuple[str, Callable[[Graph], object]]]:
    for divided in derivation.divided:
        first, second = divided.parts[0], divided.parts[1]
        for port, layout in enumerate(divided.layouts):
            if not layout.is_replicated and graph.is_needed(first.results[port].node):
                a, b = first.results[port], second.results[port]
                yield f"{b} stands for {a}", lambda g, a=a, b=b: exchange(g, a, b)
    for name, share in derivation.shares.items():
        others = [n for n, s in derivation.shares.items() if s.constant == share.constant and s.bounds != share.bounds]
        for other in others[:1]:
            value = graph.node(other).attrs["value"]
            if value != graph.node(name).attrs["value"]:
                yield f"{name} holds the weights of {other}", lambda g, n=name, v=value: g.set_attrs(n, {"value": v})


def exchange(graph: Graph, a: Value, b: Value) -> None:
    """Whoever reads `a` reads `b`, as far as `b` comes before."""
    order = {name: i for i, name in enumerate(graph.order())}
    for use in graph.needs(a).data:
        if order[b.node] < order[use.user]:
            graph.set_operand(use.user, use.slot, b)
