"""Laws over random programs: every pass alone, the pipelines, and random orders keep the function, the invariants and the bytes.

`make fuzz` explores thousands; in the suite a few dozen are drawn, the same ones each time.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler.backend.executor import GraphExecutor
from compiler.backend.graphdef import emit_flat, serialize
from compiler.backend.pool import Pool
from compiler.backend.profiles import PROFILES
from compiler.ir.graph import Graph
from compiler.ir.module import Module
from compiler.ir.node import attr_key
from compiler.ir.text import print_module
from compiler.pipeline.manager import run_pipeline
from compiler.pipeline.text import parse_pipeline
from passes import PASSES
from passes.pipelines import PIPELINES
from passes.split.choose import Objective
from tests.backend.test_round_trip import content, imported
from tests.programs import programs
from tests.properties.judge import Judge
from tests.properties.laws import IDEMPOTENT, alone, assert_law, context, random_order

pytestmark = [pytest.mark.tf, pytest.mark.timeout(3000)]
POOL = Pool(max_children=4)
JUDGE = Judge(GraphExecutor(POOL))
STATELESS = ("StatelessIf", "StatelessWhile", "StatelessCase")
SEEDS = st.integers(0, 10_000)


@pytest.fixture(scope="module", autouse=True)
def _children() -> Iterator[None]:
    yield
    POOL.close()


def few(count: int) -> settings:
    """So many examples in the suite, all of the profile's when exploring."""
    most = settings.default.max_examples if settings.default is not None else 0
    return settings(max_examples=most if most > 1000 else count)


@given(programs(), st.integers(1, 3), st.sampled_from(list(Objective)), SEEDS)
@few(12)
def test_the_default_order_keeps_the_function(module: Module, devices: int, objective: Objective, seed: int) -> None:
    assert_law(JUDGE, module, parse_pipeline(PIPELINES["default"], PASSES), devices, objective=objective, seed=seed)


@given(programs(), SEEDS)
@few(6)
def test_the_exact_order_keeps_every_bit(module: Module, seed: int) -> None:
    assert_law(JUDGE, module, parse_pipeline(PIPELINES["exact"], PASSES), 2, seed=seed)


@given(programs(), SEEDS)
@few(6)
def test_the_outlining_order_keeps_the_function(module: Module, seed: int) -> None:
    assert_law(JUDGE, module, parse_pipeline(PIPELINES["outline"], PASSES), 2, seed=seed)


@given(programs(), SEEDS, st.integers(1, 3))
@few(12)
def test_any_order_that_the_facts_allow_keeps_the_function(module: Module, seed: int, devices: int) -> None:
    assert_law(JUDGE, module, parse_pipeline(random_order(seed), PASSES), devices, seed=seed)


@given(programs(), st.integers(0, 25))
@few(6)
def test_a_pipeline_that_stops_after_any_rewrite_keeps_the_function(module: Module, fuel: int) -> None:
    assert_law(JUDGE, module, parse_pipeline(PIPELINES["default"], PASSES), 2, fuel=fuel)


@pytest.mark.parametrize("name", sorted(PASSES))
@given(module=programs())
@few(2)
def test_each_pass_alone_keeps_the_function(name: str, module: Module) -> None:
    assert_law(JUDGE, module, parse_pipeline(alone(name), PASSES), 2)


@pytest.mark.parametrize("name", IDEMPOTENT)
@given(module=programs())
@few(4)
def test_twice_is_once(name: str, module: Module) -> None:
    steps = parse_pipeline(alone(name), PASSES)
    run_pipeline(module, steps, context(JUDGE, 2))
    once = print_module(module)
    run_pipeline(module, parse_pipeline(name, PASSES), context(JUDGE, 2))
    assert print_module(module) == once


@given(programs())
@few(15)
def test_what_is_emitted_is_read_back_as_it_was(module: Module) -> None:
    """A flat graph is read by its outputs: what is read back, emitted again and read again, is the same."""
    module.entries["main"] = module.entries.pop("f").copy("main")
    once = imported(module, serialize(emit_flat(module, "main", PROFILES["native"]).graph_def))
    once.variables = module.variables
    twice = imported(once, serialize(emit_flat(once, "main", PROFILES["native"]).graph_def))
    assert content(twice.entries["main"]) == content(once.entries["main"])
    assert told(once.entries["main"]) == {n: t for n, t in told(module.entries["main"]).items() if n in once.entries["main"]}
    for name, body in once.functions.items():
        assert told(body) == told(module.functions[name]), name
        assert content(twice.functions[name]) == content(body), name


def told(graph: Graph) -> dict[str, object]:
    """Each node but for what the emitter decides: settings in calls that keep Grappler away, the stateful form of what TensorFlow calls
    stateful within, and no waiting for arguments, which are always there."""
    return {
        n.name: (
            n.op.removeprefix("Stateless") if n.op in STATELESS else n.op,
            {k: attr_key(v) for k, v in n.attrs.items() if k != "config_proto"},
            [t.dtype for t in n.types],
            graph.operands(n.name),
            [c for c in graph.controls(n.name) if c not in graph.inputs],
        )
        for n in graph
    }
