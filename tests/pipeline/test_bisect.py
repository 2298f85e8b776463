"""Bisection: the wrong pass is named, and the wrong rewrite in it, and the file that is left gives the fault again."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from compiler.ir.errors import CleaveError
from compiler.ir.module import Module
from compiler.ir.text import parse_module, print_module
from compiler.pipeline.base import Context
from compiler.pipeline.bisect import Culprit, bisect
from compiler.pipeline.probe import CRASH, MEANING, RULE, Probe
from compiler.pipeline.text import parse_pipeline
from tests.pipeline.wrong import TABLE

TEXT = """module "m" facts(typed)

variable @v : f32[3] = splat(f32[3], 1.0)

entry @f(%x: f32[3], %z: f32[3]) -> (y = %y, w = %w) {
  %h = Variable() {ref="v"} : resource<f32[3]>[] from(h)
  %s = Mul(%x, %z) : f32[3] from(s)
  %t = AddV2(%s, %z) : f32[3] from(t) after(%x)
  %a = AssignVariableOp(%h, %t) {dtype=f32} : () from(a)
  %r = ReadVariableOp(%h) {dtype=f32} : f32[3] from(r) after(%a)
  %d = Sub(%r, %x) : f32[3] from(d)
  %i = Identity(%d) : f32[3] from(i)
  %y = Mul(%i, %z) : f32[3] from(y)
  %w = AddV2(%s, %x) : f32[3] from(w)
}
"""
AROUND = "simplify,cse,{},dce,simplify"


def subs(module: Module) -> list[str]:
    """What is subtracted from what, by name: a meaning that needs no kernel."""
    graph = module.entries["f"]
    return [str(graph.operands(n.name)) for n in graph if n.op == "Sub"]


def by_subs(original: Module, candidate: Module) -> str:
    return "" if subs(original) == subs(candidate) else f"subtractions are {subs(candidate)}"


def hunted(pipeline: str, kinds: tuple[str, ...] = (CRASH, RULE, MEANING), text: str = TEXT) -> Culprit:
    found = bisect(parse_module(text), parse_pipeline(pipeline, TABLE), Probe(Context, by_subs, kinds))
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("wrong", "kind", "number", "total", "note", "words"),
    [
        ("drops-controls", RULE, 2, 2, "r: it no longer waits for a", "breaks the rule"),
        ("wrong-type", RULE, 3, 5, "d: Sub: float32 is int32", "breaks the rule"),
        ("stale-shape", RULE, 3, 5, "d: Sub: its shape is (7,)", "breaks the rule"),
        ("raises", CRASH, 3, 3, "", "KeyError: 'd'"),
        ("swaps-operands", MEANING, 3, 5, "d: Sub: operands swapped", "subtractions are"),
    ],
)
def test_the_wrong_rewrite_of_the_wrong_pass(wrong: str, kind: str, number: int, total: int, note: str, words: str) -> None:
    found = hunted(AROUND.format(wrong))
    assert (found.pass_name, found.position, found.fault.kind) == (wrong, 3, kind)
    assert words in found.fault.words
    assert found.rewrite is not None
    assert (found.rewrite.pass_name, found.rewrite.number, found.rewrite.total) == (wrong, number, total)
    assert [f"{n.where}: {n.what}" for n in found.rewrite.notes] == ([note] if note else [])
    if kind != CRASH:
        assert len(found.rewrite.changes) == 1


@pytest.mark.parametrize("wrong", ["drops-controls", "wrong-type", "stale-shape", "raises", "swaps-operands"])
def test_what_is_left_gives_the_fault_again(wrong: str) -> None:
    found = hunted(AROUND.format(wrong))
    before = parse_module(print_module(found.before))
    again = Probe(Context, by_subs).run(before, parse_pipeline(found.pipeline, TABLE))
    assert again.fault is not None and again.fault.kind == found.fault.kind
    assert "limit{most=" in found.pipeline


def test_one_rewrite_is_enough_where_it_comes_first() -> None:
    """The module before the rewrite, rather than the module before the pass."""
    found = hunted("wrong-type", text=TEXT.replace("%s = Mul", "%p = Sub(%x, %z) : f32[3] from(p)\n  %s = Mul"))
    assert found.pipeline == "limit{most=1}(wrong-type)"
    assert found.rewrite is not None and found.rewrite.number == 1


def test_a_pass_in_a_repeat_is_named_by_the_round_it_was_wrong_in() -> None:
    found = hunted("repeat(simplify,cse,stale-shape)")
    assert (found.pass_name, found.position, found.passes) == ("stale-shape", 3, 3)


def test_a_limit_in_the_text_is_kept_to() -> None:
    assert bisect(parse_module(TEXT), parse_pipeline("limit{most=2}(swaps-operands)", TABLE), Probe(Context, by_subs)) is None
    found = hunted("cse,limit{most=3}(swaps-operands)")
    assert found.rewrite is not None and (found.rewrite.number, found.rewrite.total) == (3, 3)


def test_a_pass_that_carries_out_decisions_is_halved_by_them() -> None:
    found = hunted("cse,decides,simplify,carries-out,dce")
    assert (found.pass_name, found.position) == ("carries-out", 4)
    assert found.rewrite is not None
    assert (found.rewrite.pass_name, found.rewrite.number) == ("decides", 3)
    assert [n.what for n in found.rewrite.notes if n.pass_name == "decides"] == ["Sub: to be swapped"]
    assert found.pipeline == "validate-each(carries-out)"
    assert print_module(found.before).count("_swap") == 3


def test_a_pass_that_asks_for_no_fuel_is_named_alone() -> None:
    found = hunted("cse,carries-out", text=TEXT.replace("%d = Sub(%r, %x)", "%d = Sub(%r, %x) {_swap=true}"))
    assert (found.pass_name, found.rewrite) == ("carries-out", None)
    assert found.pipeline == "validate-each(carries-out)"


def test_nothing_wrong_is_none() -> None:
    assert bisect(parse_module(TEXT), parse_pipeline("simplify,cse,dce", TABLE), Probe(Context, by_subs)) is None


def test_kinds_that_are_not_asked_for_do_not_count() -> None:
    """With the verifier away, a later fault may be found; a crash that does not count is told of as it is."""
    assert bisect(parse_module(TEXT), parse_pipeline("stale-shape", TABLE), Probe(Context, by_subs, (MEANING,))) is None
    with pytest.raises(KeyError, match="d"):
        bisect(parse_module(TEXT), parse_pipeline("raises", TABLE), Probe(Context, by_subs, (MEANING,)))


def test_what_is_wrong_before_any_pass_is_no_pass_s_fault() -> None:
    with pytest.raises(CleaveError, match="wrong before any pass runs: nothing is right"):
        bisect(parse_module(TEXT), parse_pipeline("cse", TABLE), Probe(Context, lambda *_: "nothing is right"))


def test_few_runs_are_needed() -> None:
    """Halving: a pipeline of 64 passes and a pass of 33 rewrites take about twice the sum of their logarithms."""
    chain = "".join(f"  %n{k} = AddV2(%x, %z) : f32[3] from(n{k})\n" for k in range(30))
    says: list[str] = []
    steps = parse_pipeline(",".join(["cse"] * 50 + ["swaps-operands"] + ["dce"] * 13), TABLE)
    found = bisect(parse_module(TEXT.replace("  %h =", f"{chain}  %h =")), steps, Probe(Context, by_subs), says.append)
    assert found is not None and found.position == 51
    assert len(says) <= 20


@pytest.fixture(scope="module")
def judged() -> Iterator[Probe]:
    from compiler.backend.pool import Pool
    from compiler.driver.oracle import Oracle

    with Pool() as pool:
        yield Probe(Context, Oracle(pool, spreads=()).differs)


@pytest.mark.tf
@pytest.mark.parametrize(("wrong", "text"), [("swaps-operands", "Sub: operands swapped"), ("slightly-off", "Sub: times 1.001")])
def test_values_that_differ_are_told(judged: Probe, wrong: str, text: str) -> None:
    found = bisect(parse_module(TEXT), parse_pipeline(AROUND.format(wrong), TABLE), judged)
    assert found is not None
    assert (found.pass_name, found.position, found.fault.kind) == (wrong, 3, MEANING)
    assert found.rewrite is not None and (found.rewrite.number, [n.what for n in found.rewrite.notes]) == (3, [text])
    assert "@f: y (" in found.fault.words and "ABOVE" in found.fault.words
    assert "@f: w" not in found.fault.words


@pytest.mark.tf
def test_state_that_differs_is_told(judged: Probe) -> None:
    """A read that no longer waits breaks a rule; without the rules it is found by what it reads."""
    text = TEXT.replace("%t = AddV2(%s, %z)", "%t = Sub(%s, %z)")
    probe = Probe(Context, judged.differs, (MEANING,))
    found = bisect(parse_module(text), parse_pipeline("cse,swaps-operands", TABLE), probe)
    assert found is not None and found.rewrite is not None
    assert found.rewrite.number == 2
    assert "variable v" in found.fault.words
