"""Outlining: each form of each kind is found, is the same function as a call and opened again, and is left alone where it must be."""

import pytest

from compiler.ir.module import Module
from compiler.ir.text import print_module
from tests.checks import RunModule, assert_refuses, assert_same_function, run

HEAD = 'module "m" facts(typed)\n\n'
MEAN = """  %axes = Const() {value=tensor(i32[1], [-1])} : i32[1] from(a)
  %eps = Const() {value=tensor(f32[], 0.001)} : f32[] from(a)
  %gamma = Const() {value=tensor(f32[3], [1.5, -0.5, 2.0])} : f32[3] from(g)
  %beta = Const() {value=tensor(f32[3], [0.5, 1.0, -1.0])} : f32[3] from(b)
  %mean = Mean(%x, %axes) {keep_dims=true} : f32[b,1] from(a)
  %d = SquaredDifference(%x, %mean) : f32[b,3] from(a)
  %v = Mean(%d, %axes) {keep_dims=true} : f32[b,1] from(a)
  %e = AddV2(%v, %eps) : f32[b,1] from(a)
  %r = Rsqrt(%e) : f32[b,1] from(a)
  %s = Mul(%r, %gamma) : f32[b,3] from(a)
  %xs = Mul(%x, %s) : f32[b,3] from(a)
"""
SCALARS = """  %half = Const() {value=tensor(f32[], 0.5)} : f32[] from(c)
  %one = Const() {value=tensor(f32[], 1.0)} : f32[] from(c)
  %root = Const() {value=tensor(f32[], 0.70710677)} : f32[] from(c)
  %sqrt2 = Const() {value=tensor(f32[], 1.4142135)} : f32[] from(c)
  %inner = Const() {value=tensor(f32[], 0.044715)} : f32[] from(c)
  %outer = Const() {value=tensor(f32[], 0.7978846)} : f32[] from(c)
  %three = Const() {value=tensor(f32[], 3.0)} : f32[] from(c)
  %h = Mul(%half, %x) : f32[b,3] from(a)
"""


def entry(body: str, inputs: str = "%x: f32[b,3]", output: str = "y") -> str:
    return f"{HEAD}entry @f({inputs}) -> (y = %{output}) {{\n{body}}}\n"


KINDS: dict[str, tuple[str, str, str]] = {
    "layer norm, shift added": (
        "outline", "layer_norm",
        entry(MEAN + """  %n = Neg(%mean) : f32[b,1] from(a)
  %ns = Mul(%n, %s) : f32[b,3] from(a)
  %t = AddV2(%ns, %beta) : f32[b,3] from(a)
  %y = AddV2(%xs, %t) : f32[b,3] from(a)
"""),
    ),
    "layer norm, mean subtracted": (
        "outline", "layer_norm",
        entry(MEAN + """  %ms = Mul(%mean, %s) : f32[b,3] from(a)
  %t = Sub(%beta, %ms) : f32[b,3] from(a)
  %y = AddV2(%xs, %t) : f32[b,3] from(a)
"""),
    ),
    "gelu, erfc": (
        "outline", "gelu",
        entry(SCALARS + """  %n = Neg(%x) : f32[b,3] from(a)
  %m = Mul(%n, %root) : f32[b,3] from(a)
  %c = Erfc(%m) : f32[b,3] from(a)
  %y = Mul(%h, %c) : f32[b,3] from(a)
"""),
    ),
    "gelu, erf": (
        "outline", "gelu",
        entry(SCALARS + """  %m = RealDiv(%x, %sqrt2) : f32[b,3] from(a)
  %c = Erf(%m) : f32[b,3] from(a)
  %p = AddV2(%one, %c) : f32[b,3] from(a)
  %y = Mul(%h, %p) : f32[b,3] from(a)
"""),
    ),
    "gelu, tanh": (
        "outline", "gelu_tanh",
        entry(SCALARS + """  %cube = Pow(%x, %three) : f32[b,3] from(a)
  %k = Mul(%inner, %cube) : f32[b,3] from(a)
  %i = AddV2(%x, %k) : f32[b,3] from(a)
  %o = Mul(%outer, %i) : f32[b,3] from(a)
  %t = Tanh(%o) : f32[b,3] from(a)
  %p = AddV2(%one, %t) : f32[b,3] from(a)
  %y = Mul(%h, %p) : f32[b,3] from(a)
"""),
    ),
    "swish": (
        "outline", "swish",
        entry("""  %g = Sigmoid(%x) : f32[b,3] from(a)
  %y = Mul(%g, %x) : f32[b,3] from(a)
"""),
    ),
    "attention, einsum with an added mask": (
        "outline", "attention",
        entry("""  %c = Const() {value=tensor(f32[], 0.5)} : f32[] from(c)
  %q = Einsum(%x, %x) {equation="btnh,bsnh->bnts"} : f32[2,2,3,3] from(a)
  %s = Mul(%q, %c) : f32[2,2,3,3] from(a)
  %k = AddV2(%s, %mask) : f32[2,2,3,3] from(a)
  %w = Softmax(%k) : f32[2,2,3,3] from(a)
  %y = Einsum(%w, %x) {equation="bnts,bsnh->btnh"} : f32[2,3,2,4] from(a)
""", "%x: f32[2,3,2,4], %mask: f32[3,3]"),
    ),
    "attention, products": (
        "outline", "attention",
        entry("""  %q = BatchMatMulV2(%x, %x) {adj_y=true} : f32[2,3,3] from(a)
  %w = Softmax(%q) : f32[2,3,3] from(a)
  %y = BatchMatMulV2(%w, %x) : f32[2,3,4] from(a)
""", "%x: f32[2,3,4]"),
    ),
}  # fmt: skip
NOTHING = {
    "gelu with another constant": ("outline", KINDS["gelu, erf"][2].replace("1.4142135", "2.0"), "constant sqrt2 is 2.0"),
    "a gate that is not its own": (
        "outline",
        entry("  %g = Sigmoid(%z) : f32[b,3] from(a)\n  %y = Mul(%g, %x) : f32[b,3] from(a)\n", "%x: f32[b,3], %z: f32[b,3]"),
        "",
    ),
    "a sigmoid that is an output": (
        "outline",
        KINDS["swish"][2].replace("(y = %y)", "(y = %y, g = %g)"),
        "also needed by output",
    ),
    "softmax over another axis is none of it": (
        "outline",
        KINDS["attention, products"][2].replace("Softmax(%q)", "LogSoftmax(%q)"),
        "",
    ),
}


def bodies(module: Module) -> list[object]:
    return [body.attrs["kind"] for body in module.functions.values()]


@pytest.mark.parametrize("case", KINDS)
def test_a_kind_becomes_one_call(case: str) -> None:
    name, kind, text = KINDS[case]
    module, _ = run(text, f"{name},dce")
    (graph,) = module.entries.values()
    assert bodies(module) == [kind]
    assert [node.op for node in graph if node.op not in ("Input", "Const")] == ["Call"]
    assert print_module(run(print_module(module), f"{name},dce")[0]) == print_module(module)


@pytest.mark.parametrize("case", NOTHING)
def test_what_is_left_alone(case: str) -> None:
    name, text, reason = NOTHING[case]
    assert_refuses(text, name, reason)


def test_equal_bodies_are_one() -> None:
    twice = KINDS["swish"][2].replace("}\n", "  %g2 = Sigmoid(%y) : f32[b,3] from(z)\n  %y2 = Mul(%g2, %y) : f32[b,3] from(z)\n}\n")
    module, _ = run(twice.replace("(y = %y)", "(y = %y2)"), "outline")
    assert bodies(module) == ["swish"]
    assert sum(node.op == "Call" for node in module.entries["f"]) == 2


@pytest.mark.tf
@pytest.mark.parametrize("case", KINDS)
@pytest.mark.parametrize("undo", ["", ",inline-kinds"])
def test_a_call_and_its_undoing_are_the_same_function(case: str, undo: str, run_module: RunModule) -> None:
    name, _, text = KINDS[case]
    assert_same_function(text, run(text, f"{name},dce{undo}")[0], run_module, exact=False)
