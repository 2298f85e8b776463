"""Reduction: whatever stands around a fault goes, the fault stays the same, and what is left is short and is a module."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from compiler.ir.errors import CleaveError
from compiler.ir.module import Module
from compiler.ir.text import parse_module, print_module
from compiler.ir.verify import STRUCTURE, verify
from compiler.ops.invariants import OPERATIONS
from compiler.pipeline.base import Context, Pass
from compiler.pipeline.edits import FAMILIES
from compiler.pipeline.probe import CRASH, MEANING, RULE, Probe
from compiler.pipeline.reduce import Reduction, reduce
from compiler.pipeline.text import parse_pipeline
from tests.pipeline.wrong import TABLE
from tests.programs import program

BODY = """  %{p}n0 = Mul(%x, %x) : f32[b,8] from(a)
  %{p}n1 = AddV2(%{p}n0, %x) {{_note="kept"}} : f32[b,8] on "/device:CPU:0" from(a)
  %{p}n2 = Relu(%{p}n1) : f32[b,8] from(a)
"""
WIDE = (
    'module "m" facts(typed)\n\nvariable @v : f32[8] = splat(f32[8], 1.0)\nvariable @unused : f32[8] = splat(f32[8], 1.0)\n\n'
    "entry @f(%x: f32[b,8], %z: f32[8]) -> (y = %y, w = %w, {outs}) {{\n{chains}"
    '  %h = Variable() {{ref="v"}} : resource<f32[8]>[] from(h)\n'
    "  %a = AssignVariableOp(%h, %z) {{dtype=f32}} : () from(a) after(%p0n2)\n"
    "  %r = ReadVariableOp(%h) {{dtype=f32}} : f32[8] from(r) after(%a)\n"
    "  %c = Const() {{value=tensor(f32[8], [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0])}} : f32[8] from(c)\n"
    "  %m = AddV2(%p3n2, %c) : f32[b,8] from(m)\n"
    "  %d = Sub(%m, %r) : f32[b,8] from(d)\n"
    "  %y = Mul(%d, %p5n2) : f32[b,8] from(y)\n"
    "  %w = PartitionedThing(%x) : f32[b,8] from(w)\n}}\n\n"
    "entry @g(%q: f32[2]) -> (o = %o) {{\n  %o = Sub(%q, %q) : f32[2] from(o)\n}}\n"
)


def wide(count: int = 30) -> Module:
    """A module of some hundred nodes, one Sub among them."""
    chains = "".join(BODY.format(p=f"p{k}") for k in range(count))
    text = WIDE.format(outs=", ".join(f"o{k} = %p{k}n2" for k in range(count)), chains=chains)
    text = text.replace("  %w = PartitionedThing(%x)", "  %w = Neg(%x)").replace("%o = Sub(%q, %q)", "%o = Mul(%q, %q)")
    module = parse_module(text)
    verify(module, (*STRUCTURE, *OPERATIONS))
    return module


def nodes(module: Module) -> list[str]:
    return [node.op for graph in module.graphs.values() for node in graph]


def subs_turned(original: Module, candidate: Module) -> str:
    """A meaning that needs no kernel: some Sub has its operands the other way round."""

    def found(module: Module) -> list[str]:
        return [str(g.operands(n.name)) for g in module.graphs.values() for n in g if n.op == "Sub"]

    return "" if found(original) == found(candidate) else "turned"


def reduced(module: Module, wrong: str, kind: str) -> Reduction:
    found = reduce(module, parse_pipeline(wrong, TABLE), Probe(Context, subs_turned, (kind,)))
    verify(found.module, (*STRUCTURE, *OPERATIONS))
    again = Probe(Context, subs_turned).run(parse_module(print_module(found.module)), parse_pipeline(wrong, TABLE))
    assert again.fault is not None and again.fault.kind == kind
    return found


@pytest.mark.parametrize(
    ("wrong", "kind", "most"),
    [("raises", CRASH, 3), ("wrong-type", RULE, 4), ("stale-shape", RULE, 3), ("swaps-operands", MEANING, 3), ("drops-controls", RULE, 4)],
)
def test_a_fault_stands_alone(wrong: str, kind: str, most: int) -> None:
    found = reduced(wide(), wrong, kind)
    assert len(nodes(found.module)) <= most, print_module(found.module)
    assert found.tries < 300 and not found.stopped
    assert not [n for g in found.module.graphs.values() for n in g if n.origin or n.device]


def test_what_is_left_reads_like_something_written_by_hand() -> None:
    text = print_module(reduced(wide(), "stale-shape", RULE).module)
    head = 'module "m" facts(typed)\n\n'
    assert text == head + "entry @f(%x: f32[1], %x_1: f32[1,1]) -> (y = %sub) {\n  %sub = Sub(%x_1, %x) : f32[1,1]\n}\n"


def test_a_body_is_kept_where_the_fault_needs_them() -> None:
    text = """module "m" facts(typed)

entry @f(%x: f32[3]) -> (y = %c) {
  %c = Call(%x, %x) {f=@body} : f32[3]
}

function @body(%p: f32[3], %q: f32[3]) -> (r = %t) {
  %s = Sub(%p, %q) : f32[3]
  %u = Mul(%s, %q) : f32[3]
  %t = Exp(%u) : f32[3]
}
"""
    found = reduced(parse_module(text), "stale-shape", RULE)
    assert sorted(nodes(found.module)) == ["Call", "Input", "Input", "Input", "Sub"]


@dataclass(frozen=True)
class TwoFaults(Pass):
    """Raises for a Sub that reads a Mul; and, in another way, for any other."""

    name = "two-faults"

    def run(self, module: Module, context: Context) -> None:
        for graph in module.graphs.values():
            for node in graph:
                if node.op == "Sub" and any(graph.node(v.node).op == "Mul" for v in graph.operands(node.name)):
                    raise KeyError(node.name)
                if node.op == "Sub":
                    raise CleaveError("this Sub is in the way")


def test_one_fault_is_not_taken_for_another() -> None:
    text = """module "m" facts(typed)

entry @f(%x: f32[3], %z: f32[3]) -> (y = %y) {
  %s = Mul(%x, %z) : f32[3]
  %d = Sub(%s, %x) : f32[3]
  %y = Exp(%d) : f32[3]
}
"""
    found = reduce(parse_module(text), [TwoFaults()], Probe(Context, subs_turned))
    assert found.fault.words == "KeyError: 'sub'" and "KeyError" in found.fault.sort
    assert sorted(nodes(found.module)) == ["Input", "Mul", "Sub"]


@pytest.mark.parametrize(("wrong", "sort"), [("drops-controls", "effects"), ("stale-shape", "results")])
def test_a_broken_rule_stays_the_rule_it_was(wrong: str, sort: str) -> None:
    assert reduced(wide(6), wrong, RULE).fault.sort == sort


def test_nothing_wrong_is_a_bad_request() -> None:
    with pytest.raises(CleaveError, match="nothing is wrong to begin with: no crash fault shows"):
        reduce(wide(6), parse_pipeline("cse", TABLE), Probe(Context, subs_turned, (CRASH,)))


def test_the_limit_stops_it_with_what_it_has() -> None:
    steps, probe = parse_pipeline("raises", TABLE), Probe(Context, subs_turned, (CRASH,))
    found = reduce(wide(), steps, probe, most_tries=6)
    assert found.stopped and found.tries == 6
    assert 3 < len(nodes(found.module)) < len(nodes(wide()))
    assert probe.run(found.module, steps).fault is not None


def test_the_same_module_gives_the_same_result() -> None:
    texts = [print_module(reduced(wide(), "swaps-operands", MEANING).module) for _ in range(2)]
    assert texts[0] == texts[1]


def test_the_module_given_is_left_as_it_was() -> None:
    module = wide(6)
    before = print_module(module)
    reduced(module, "raises", CRASH)
    assert print_module(module) == before


@pytest.mark.parametrize("seed", range(12))
def test_every_move_that_verifies_leaves_a_module_and_every_family_is_finite(seed: int) -> None:
    """Moves on random programs: none raises anything but what makes it inapplicable, and none makes its own family longer for ever."""
    module = program(seed)
    found = reduce(module, (), Probe(Context, lambda original, candidate: "always", (MEANING,)), most_tries=400)
    assert not found.stopped, found.rows
    assert len(nodes(found.module)) <= 3, print_module(found.module)
    assert {name for name, _ in found.rows} <= {f.name for f in FAMILIES}


@pytest.fixture(scope="module")
def judged() -> Iterator[Probe]:
    from compiler.backend.pool import Pool
    from compiler.driver.oracle import Oracle

    with Pool() as pool:
        yield Probe(Context, Oracle(pool, spreads=()).differs, (MEANING,))


@pytest.mark.tf
@pytest.mark.parametrize("wrong", ["slightly-off", "swaps-operands"])
def test_a_difference_in_values_stands_alone(judged: Probe, wrong: str) -> None:
    found = reduce(wide(8), parse_pipeline(wrong, TABLE), judged)
    assert "ABOVE" in found.fault.words or "differ" in found.fault.words
    assert len(nodes(found.module)) <= 5, print_module(found.module)
