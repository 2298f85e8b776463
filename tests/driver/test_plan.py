"""Plans that explain themselves, entries that are one function, sizes to plan with."""

import pytest

from compiler.driver.aliases import aliases_of
from compiler.driver.plan import Plan
from compiler.driver.planning import make_plan, representative_sizes
from compiler.ir.errors import CleaveError
from compiler.ir.module import Module
from compiler.ir.text import parse_module
from compiler.pipeline.base import Context
from compiler.pipeline.manager import run_pipeline
from compiler.pipeline.text import parse_pipeline
from cost_model.cluster import Cluster
from passes import PASSES
from passes.split.choose import Objective, SplitPlan

TEXT = """module "m" facts(typed)
size b = 1

entry @f(%x: f32[b,1024]) -> (y = %y) {
  %w1 = Const() {value=splat(f32[1024,4096], 0.001)} : f32[1024,4096] from(net/hidden_1/MatMul)
  %w2 = Const() {value=splat(f32[4096,1024], 0.002)} : f32[4096,1024] from(net/out/MatMul)
  %h = MatMul(%x, %w1) : f32[b,4096] from(net/hidden_1/MatMul)
  %r = Relu(%h) : f32[b,4096] from(net/hidden_1/Relu)
  %y = MatMul(%r, %w2) : f32[b,1024] from(net/out/MatMul)
}
"""


def plan_of(text: str = TEXT) -> Plan:
    module, splits, cluster = parse_module(text), SplitPlan(), Cluster.parse("cpu:2")
    before = module.copy()
    context = Context(services={Cluster: cluster, SplitPlan: splits, Objective: Objective.LATENCY})
    run_pipeline(module, parse_pipeline("choose,partition,infer-types,reorder-ranks,place", PASSES), context)
    return make_plan(module, before, cluster, Objective.LATENCY, splits)


def test_explain_lists_every_strategy_with_its_price_and_marks_the_chosen() -> None:
    text = plan_of().explain("hidden")
    assert "MatMul 'h' (from net/hidden_1/MatMul): split by n over mesh axis d" in text
    assert "-> n:d" in text and "whole" in text and "k:d" in text and "Relu 'r'" in text
    assert "runs on /device:CPU:0" in text


def test_explain_of_nothing_names_what_there_is() -> None:
    with pytest.raises(CleaveError, match="no operator or layer 'nope' in the plan, expected one such as h, r, y"):
        plan_of().explain("nope")


def test_a_plan_is_the_same_text_twice_and_predicts_a_gain() -> None:
    plan = plan_of()
    assert plan.to_json() == plan_of().to_json()
    assert plan.predicted_seconds < plan.unsplit_seconds
    held = [load.weight_bytes for load in plan.loads]
    assert max(held) <= 0.51 * sum(held)


TWO = """module "m"

entry @serve(%x: f32[b]) -> (y = %a) {
  %a = Call(%x) {f=@one} : f32[b] from(a)
}
entry @serving_default(%x: f32[b]) -> (y = %b) {
  %b = Call(%x) {f=@two} : f32[b] from(b)
}
entry @other(%x: f32[b]) -> (y = %c) {
  %c = Neg(%x) : f32[b] from(c)
}
function @one(%p: f32[*]) -> (r = %r) {
  %r = Exp(%p) : f32[*] from(r)
}
function @two(%p: f32[*]) -> (r = %q) {
  %q = Exp(%p) : f32[*] from(q)
}
"""


def test_entries_that_differ_in_names_only_are_aliases() -> None:
    assert aliases_of(parse_module(TWO)) == {"serve": "serving_default"}
    assert aliases_of(parse_module(TWO.replace("%q = Exp(%p)", "%q = Neg(%p)"))) == {}


def module(shape: str) -> Module:
    return parse_module(f'module "m"\n\nentry @f(%x: f32[{shape}]) -> (y = %y) {{\n  %y = Neg(%x) : f32[{shape}] from(y)\n}}\n')


def test_sizes_come_from_the_request_or_the_place() -> None:
    assert representative_sizes(module("b,n,3"), Objective.LATENCY, {}) == {"b": 8, "n": 128}
    assert representative_sizes(module("b,n,3"), Objective.THROUGHPUT, {"x": (None, 7, 3)}) == {"b": 32, "n": 7}


@pytest.mark.parametrize(
    ("given", "message"),
    [({"q": (1,)}, "'q' is no input"), ({"x": (1,)}, "has 1 dimensions"), ({"x": (1, 1, 4)}, "size 4 is given where the model fixes 3")],
)
def test_sizes_that_do_not_fit_are_refused(given: dict[str, tuple[int | None, ...]], message: str) -> None:
    with pytest.raises(CleaveError, match=message):
        representative_sizes(module("b,n,3"), Objective.LATENCY, given)
