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
from passes.split.wishes import Wishes

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


def plan_of(text: str = TEXT, devices: int = 2, wishes: Wishes | None = None) -> Plan:
    module, splits, cluster = parse_module(text), SplitPlan(), Cluster.parse(f"cpu:{devices}")
    before = module.copy()
    context = Context(services={Cluster: cluster, SplitPlan: splits, Objective: Objective.LATENCY, Wishes: wishes or Wishes()})
    run_pipeline(module, parse_pipeline("choose,partition,infer-types,reorder-ranks,place", PASSES), context)
    return make_plan(module, before, cluster, Objective.LATENCY, splits)


def test_explain_lists_every_strategy_with_its_price_and_marks_the_chosen() -> None:
    text = plan_of().explain("hidden")
    assert "MatMul 'h' (from net/hidden_1/MatMul): split by n over mesh axis d" in text
    assert "-> n:d" in text and "whole" in text and "k:d" in text and "Relu 'r'" in text
    assert "runs on /device:CPU:0" in text


def test_explain_says_what_was_paid_to_whom_what_was_not_considered_and_why_the_chosen_won() -> None:
    text = plan_of().explain("h")
    assert "  n is dimension 1 of operand 1, dimension 1 of the result" in text
    assert "from 'x', which is whole" in text and "to 'r', which is d1:d" in text
    assert "8,388,608 bytes of weights a device" in text and "16,777,216 bytes of weights a device" in text
    assert "not considered: m (dimension 0 of operand 0, dimension 0 of the result): its size b is known at run time only" in text
    assert "all else chosen anew +" in text
    assert "chosen because every other way is dearer in all, k:d by the least" in text


def test_explain_says_what_was_asked_for() -> None:
    assert "  fixed: 'k' was asked for" in plan_of(wishes=Wishes({"hidden": "k"})).explain("h")


def test_what_if_is_the_plan_that_is_made_when_it_is_asked_for() -> None:
    plan = plan_of()
    found = plan.what_if("h", "k")
    asked = plan_of(wishes=Wishes({"h": "k"}))
    assert found.difference > 0
    assert {d.node: d.chosen for d in asked.decisions} == {**{d.node: d.chosen for d in plan.decisions}, "h": "k:d"} | {
        name: new for name, _, new in found.changes
    }
    assert plan.what_if("h", "n").difference == 0, "as it is"


@pytest.mark.parametrize(
    ("op", "strategy", "says"),
    [
        ("hiden", "n", "no operator or layer 'hiden'; did you mean 'hidden_1'"),
        ("h", "rows", "'h' cannot be split by 'rows'; expected one of whole, replica, k:d, n:d for MatMul 'h'"),
    ],
)
def test_what_if_of_nothing_is_one_line(op: str, strategy: str, says: str) -> None:
    with pytest.raises(CleaveError, match=says):
        plan_of().what_if(op, strategy)


def test_a_plan_goes_through_a_file_and_is_followed() -> None:
    plan = plan_of(wishes=Wishes({"hidden": "k"}))
    read = Plan.from_json(plan.to_json())
    assert read == plan and read.to_json() == plan.to_json()
    again = plan_of(wishes=read.follow)
    assert again.diff(plan) == "" and plan_of().diff(plan) != ""
    assert "MatMul 'h': n:d -> k:d" in plan_of().diff(plan)
    with pytest.raises(CleaveError, match="this plan keeps no prices: it was read from a file"):
        read.what_if("h", "n")
    assert "-> k:d" in read.explain("h")


def test_a_plan_for_two_is_a_start_for_three() -> None:
    three = plan_of(devices=3, wishes=plan_of(wishes=Wishes({"hidden": "whole"})).follow)
    assert {d.node: d.chosen for d in three.decisions} == {d.node: d.chosen for d in plan_of(devices=3).decisions}
    assert "cluster: cpu:2 -> cpu:3" in plan_of().diff(three)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"cluster": "cpu:2"}', "null"])
def test_what_is_no_plan_is_refused(text: str) -> None:
    with pytest.raises(CleaveError, match=r"p\.json is not a plan as to_json writes it"):
        Plan.from_json(text, "p.json")


def test_the_proof_is_written_with_the_plan() -> None:
    (proof,) = plan_of().derivations
    lines = proof["divided"]
    assert isinstance(lines, list)
    assert lines[0] == ("h = MatMul split by n:d -> h/0 on /device:CPU:0, h/1 on /device:CPU:1; h:0 lies as [_,d] in %h/0, %h/1")
    assert proof["moves"] == {"y/sum": "%y"} and len(proof["shares"]) == 4  # type: ignore[arg-type]


def test_explain_of_nothing_names_what_there_is() -> None:
    with pytest.raises(CleaveError, match="no operator or layer 'nope'; expected one such as h, r, y"):
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
