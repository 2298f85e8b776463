"""Calls of outlined bodies are divided: the rule, a body for each shard's sizes, shared where they agree, the same values as whole."""

import numpy as np
import pytest

from compiler.ir.module import Module
from compiler.ir.text import parse_module
from compiler.ir.verify import verify
from compiler.pipeline.base import TYPED, Context
from cost_model.cluster import Cluster
from cost_model.model import CostModel, Prices
from passes.outline.inline_kinds import InlineKinds
from passes.outline.outline import Outline
from passes.split.choose import Choose, Objective, SplitPlan
from passes.split.factors import ATTRIBUTE
from passes.split.kinds import Kinds
from passes.split.partition import Partition
from tests.checks import RunModule
from tests.passes.test_outline import KINDS

SYMBOLIC = {
    case: text.replace("[2,3,2,4]", "[b,3,2,4]").replace("f32[2,2,3,3]", "f32[b,2,3,3]").replace("[2,3,", "[b,3,")
    for case, (_, _, text) in KINDS.items()
}


def outlined(text: str) -> Module:
    module = parse_module(text)
    Outline().run(module, Context())
    module.sizes = {"b": 8}
    return module


def divided(text: str, factor: str, devices: int = 2) -> Module:
    """The module with its call divided by hand and partitioned."""
    names = ", ".join(f'"/device:CPU:{i}"' for i in range(devices))
    module = outlined(text)
    module.mesh = parse_module(f'module "m"\nmesh [d={devices}] on ({names})\n').mesh
    (graph,) = module.entries.values()
    (call,) = (node for node in graph if node.op == "Call")
    graph.set_attrs(call.name, {**call.attrs, ATTRIBUTE: (f"{factor}:d",)})
    Partition().run(module, Context())
    module.facts = frozenset({TYPED, "partitioned"})
    verify(module)
    return module


def factor_of(module: Module, operand: int, axis: int) -> str:
    """The name of the factor that divides this dimension of the only call's operand; "" where nothing does."""
    from compiler.ops.queries import operation

    (graph,) = module.entries.values()
    (call,) = (node.name for node in graph if node.op == "Call")
    rule = Kinds(module).rule(operation(module, graph, call))
    names = () if rule is None else (rule.operands[operand] or ((),) * 9)[axis]
    return next((f.name for f in rule.splits() if f.name in names), "") if rule is not None else ""


@pytest.mark.parametrize(
    ("case", "operand", "axis", "may"),
    [
        ("gelu, erf", 0, 0, True),
        ("gelu, erf", 0, 1, True),
        ("layer norm, shift added", 0, 0, True),
        ("layer norm, shift added", 0, 1, False),  # a partial mean goes through a square
        ("attention, products", 0, 0, True),
        ("attention, products", 0, 1, False),  # query and key are one value here
        ("attention, einsum with an added mask", 0, 0, True),
        ("attention, einsum with an added mask", 0, 2, True),  # heads
        ("attention, einsum with an added mask", 0, 3, False),  # scores would be partial in a softmax
    ],
)
def test_what_a_body_divides_by(case: str, operand: int, axis: int, may: bool) -> None:
    assert bool(factor_of(outlined(SYMBOLIC[case]), operand, axis)) is may


def test_a_body_with_sizes_of_its_own_is_whole() -> None:
    assert not any(factor_of(outlined(KINDS["layer norm of tf_keras"][2]), 0, axis) for axis in (0, 1))


@pytest.mark.tf
@pytest.mark.parametrize("case", [case for case in KINDS if case != "layer norm of tf_keras"])
@pytest.mark.parametrize("devices", [2, 3])
@pytest.mark.parametrize("opened", [False, True])
def test_shards_of_a_batch_compute_the_whole(case: str, devices: int, opened: bool, run_module: RunModule) -> None:
    whole = parse_module(SYMBOLIC[case])
    parts = divided(SYMBOLIC[case], factor_of(outlined(SYMBOLIC[case]), 0, 0), devices)
    if opened:
        InlineKinds().run(parts, Context())
        assert not parts.functions
    rng = np.random.default_rng(0)
    (graph,) = whole.entries.values()
    for batch in (1, 7, 8):
        shapes = {name: [d if isinstance(d, int) else batch for d in graph.node(name).type.shape or ()] for name in graph.inputs}
        request = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
        expected, found = run_module(whole, [request], devices)[0], run_module(parts, [request], devices)[0]
        assert expected.error is None and found.error is None, (expected.error, found.error)
        np.testing.assert_allclose(found.outputs["y"], expected.outputs["y"], rtol=2e-6, atol=1e-6)


def test_equal_shards_share_a_body_and_unequal_ones_have_their_own() -> None:
    def bodies(size: int) -> int:
        text = KINDS["swish"][2].replace("[b,3]", f"[{size},3]")
        return len({n.attrs["f"] for n in divided(text, "g0").entries["f"] if n.op == "Call"})

    assert (bodies(8), bodies(7)) == (1, 2)


def test_a_call_costs_what_its_nodes_cost() -> None:
    for text in SYMBOLIC.values():
        whole, call = parse_module(text), outlined(text)
        whole.sizes = call.sizes
        model = CostModel(Cluster.parse("cpu:2"))
        costs = [sum(Prices(m, model).seconds(m.entries["f"], n, "/device:CPU:0") for n in m.entries["f"].order()) for m in (whole, call)]
        assert costs[0] == pytest.approx(costs[1])


def test_choosing_divides_a_large_call_and_says_why_it_does_not() -> None:
    def chosen(text: str) -> tuple[str, str]:
        module, plan = outlined(text), SplitPlan()
        services = {Cluster: Cluster.parse("cpu:2"), SplitPlan: plan, Objective: Objective.LATENCY}
        Choose().run(module, Context(services=services))
        (decision,) = (d for d in plan.decisions if d.op == "Call")
        return decision.chosen, decision.refusal

    large = KINDS["swish"][2].replace("[b,3]", "[4096,4096]")
    assert chosen(large)[0] in ("g0:d", "g1:d")
    assert chosen(large.replace("4096", "?"))[1] == "Call has no sharding rule here"
