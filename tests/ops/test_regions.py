"""Frames of v1 loops: what the verifier says of nodes that left theirs, and of a Merge with a side that is always alive."""

from __future__ import annotations

import pytest

from compiler.ir.text import parse_module
from compiler.ir.verify import faults
from compiler.ops.invariants import OPERATIONS
from compiler.ops.regions import frames

LOOP = """module "m"

entry @f(%n: i32[], %x: f32[]) -> (y = %exit) {
  %zero = Const() {value=tensor(i32[], 0)} : i32[] from(a)
  %enter = Enter(%zero) {frame_name="outer"} : i32[] from(a)
  %merge = Merge(%enter, ~%next) : (i32[], i32[]) from(a)
  %limit = Enter(%n) {frame_name="outer", is_constant=true} : i32[] from(a)
  %less = Less(%merge, %limit) : bool[] from(a)
  %cond = LoopCond(%less) : bool[] from(a)
  %switch = Switch(%merge, %cond) : (i32[], i32[]) from(a)
  %pivot = Identity(%switch:1) : i32[] from(a)
  %enter_x = Enter(%x) {frame_name="outer"} : f32[] from(a)
  %merge_x = Merge(%enter_x, ~%next_x) : (f32[], i32[]) from(a)
  %switch_x = Switch(%merge_x, %cond) : (f32[], f32[]) from(a)
  %exit = Exit(%switch_x) : f32[] from(a)
  %one = Const() {value=tensor(i32[], 1)} : i32[] from(a) after(%pivot)
  %add = AddV2(%pivot, %one) : i32[] from(a)
  %half = Const() {value=tensor(f32[], 0.5)} : f32[] from(a) after(%pivot)
  %scaled = Mul(%switch_x:1, %half) : f32[] from(a)
  %next = NextIteration(%add) : i32[] from(a)
  %next_x = NextIteration(%scaled) : f32[] from(a)
}
"""
BRANCH = """module "m"

entry @f(%p: bool[], %x: f32[]) -> (y = %merge) {
  %pick = Switch(%p, %p) : (bool[], bool[]) from(a)
  %otherwise = Identity(%pick) : bool[] from(a)
  %switch = Switch(%x, %p) : (f32[], f32[]) from(a)
  %zero = Const() {value=tensor(f32[], 0.0)} : f32[] from(a) after(%otherwise)
  %neg = Neg(%switch:1) : f32[] from(a)
  %merge = Merge(%zero, %neg) : (f32[], i32[]) from(a)
}
"""
HALF = "{value=tensor(f32[], 0.5)} : f32[] from(a)"
WRONG = {
    "a constant without its control edge": (LOOP, f"{HALF} after(%pivot)", HALF, "scaled"),
    "a value from outside": (LOOP, "Mul(%switch_x:1, %half)", "Mul(%switch_x:1, %x)", "scaled"),
    "a way out that is none": (LOOP, "Exit(%switch_x)", "Identity(%switch_x)", None),
    "a turn that begins outside": (LOOP, "NextIteration(%scaled)", "NextIteration(%x)", "merge_x"),
    "a side that is always alive": (BRANCH, "f32[] from(a) after(%otherwise)", "f32[] from(a)", "merge"),
}  # fmt: skip


def test_a_node_stands_where_its_operands_do() -> None:
    found = parse_module(LOOP)
    where = frames(found.entries["f"])
    inside = {"enter", "merge", "limit", "less", "cond", "switch", "pivot", "one", "add", "half", "scaled", "next", "next_x"}
    assert {name for name, frame in where.items() if frame == ("outer",)} == inside | {"enter_x", "merge_x", "switch_x"}
    assert where["exit"] == where["x"] == ()
    assert faults(found, OPERATIONS) == [] == faults(parse_module(BRANCH), OPERATIONS)


@pytest.mark.parametrize("case", WRONG)
def test_what_leaves_its_frame_is_named(case: str) -> None:
    text, old, new, node = WRONG[case]
    assert old in text
    found = faults(parse_module(text.replace(old, new)), OPERATIONS)
    assert [(f.rule, f.node) for f in found] == ([("frames", node)] if node else []), found
