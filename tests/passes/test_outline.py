"""Outlining: each form of each kind is found, is the same function as a call and opened again, and is left alone where it must be."""

import pytest

from compiler.ir.errors import CleaveError
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
    "layer norm without scale and shift": (
        "outline", "layer_norm",
        entry(MEAN.replace("Mul(%r, %gamma)", "Identity(%r)").split("  %s =")[0] + """  %xs = Mul(%x, %r) : f32[b,3] from(a)
  %n = Neg(%mean) : f32[b,1] from(a)
  %ns = Mul(%n, %r) : f32[b,1] from(a)
  %y = AddV2(%xs, %ns) : f32[b,3] from(a)
"""),
    ),
    "layer norm of tf_keras": (
        "outline", "layer_norm",
        entry("""  %rows = Const() {value=tensor(i32[4], [1, 2, 3, 1])} : i32[4] from(a)
  %shape = Const() {value=tensor(i32[2], [2, 3])} : i32[2] from(a)
  %one = Const() {value=splat(f32[2], 1.0)} : f32[2] from(a)
  %zero = Const() {value=splat(f32[2], 0.0)} : f32[2] from(a)
  %none = Const() {value=tensor(f32[0], [])} : f32[0] from(a)
  %gamma = Const() {value=tensor(f32[3], [1.5, -0.5, 2.0])} : f32[3] from(g)
  %beta = Const() {value=tensor(f32[3], [0.5, 1.0, -1.0])} : f32[3] from(b)
  %r = Reshape(%x, %rows) : f32[1,2,3,1] from(a)
  %n = FusedBatchNormV3(%r, %one, %zero, %none, %none) {data_format="NCHW", epsilon=0.001}
      : (f32[1,2,3,1], f32[2], f32[2], f32[2], f32[2], f32[?]) from(a)
  %q = Reshape(%n, %shape) : f32[2,3] from(a)
  %m = Mul(%q, %gamma) : f32[2,3] from(a)
  %y = AddV2(%m, %beta) : f32[2,3] from(a)
""", "%x: f32[2,3]"),
    ),
    "batch norm of given statistics": (
        "outline", "batch_norm",
        entry("""  %eps = Const() {value=tensor(f32[], 0.001)} : f32[] from(a)
  %abs = Abs(%v) : f32[3] from(v)
  %e = AddV2(%abs, %eps) : f32[3] from(a)
  %r = Rsqrt(%e) : f32[3] from(a)
  %s = Mul(%r, %g) : f32[3] from(a)
  %xs = Mul(%x, %s) : f32[b,3] from(a)
  %ms = Mul(%m, %s) : f32[3] from(a)
  %t = Sub(%o, %ms) : f32[3] from(a)
  %y = AddV2(%xs, %t) : f32[b,3] from(a)
""", "%x: f32[b,3], %m: f32[3], %v: f32[3], %g: f32[3], %o: f32[3]"),
    ),
    "batch norm of constants": (
        "outline", "batch_norm",
        entry("""  %s = Const() {value=tensor(f32[3], [1.5, -0.5, 2.0])} : f32[3] from(g)
  %t = Const() {value=tensor(f32[3], [0.5, 1.0, -1.0])} : f32[3] from(b)
  %xs = Mul(%x, %s) : f32[b,3] from(a)
  %y = AddV2(%xs, %t) : f32[b,3] from(a)
"""),
    ),
    "gelu, erfc of a quotient": (
        "outline", "gelu",
        entry(SCALARS + """  %n = Neg(%x) : f32[b,3] from(a)
  %m = RealDiv(%n, %sqrt2) : f32[b,3] from(a)
  %c = Erfc(%m) : f32[b,3] from(a)
  %y = Mul(%h, %c) : f32[b,3] from(a)
"""),
    ),
    "attention of keras-hub, masked before and after": (
        "outline", "attention",
        entry("""  %perm = Const() {value=tensor(i32[3], [0, 2, 1])} : i32[3] from(a)
  %zero = Const() {value=tensor(f32[], 0.0)} : f32[] from(c)
  %low = Const() {value=tensor(f32[], -1e+09)} : f32[] from(c)
  %keep = Greater(%mask, %zero) : bool[3,3] from(m)
  %q = BatchMatMulV2(%x, %x) {adj_y=true} : f32[2,3,3] from(a)
  %t = Transpose(%q, %perm) : f32[2,3,3] from(a)
  %k = SelectV2(%keep, %t, %low) : f32[2,3,3] from(a)
  %w = Softmax(%k) : f32[2,3,3] from(a)
  %s = SelectV2(%keep, %w, %zero) : f32[2,3,3] from(a)
  %y = BatchMatMulV2(%s, %x) : f32[2,3,4] from(a)
""", "%x: f32[2,3,4], %mask: f32[3,3]"),
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
    "a layer norm whose mean is fetched": (
        "outline",
        KINDS["layer norm, mean subtracted"][2].replace("(y = %y)", "(y = %y, m = %mean)"),
        "also needed by output",
    ),
    "a layer norm with computed axes": (
        "outline",
        KINDS["layer norm, mean subtracted"][2]
        .replace("(%x: f32[b,3])", "(%x: f32[b,3], %axes: i32[1])")
        .replace("  %axes = Const() {value=tensor(i32[1], [-1])} : i32[1] from(a)\n", "")
        .replace("f32[b,1]", "f32[?,?]")
        .replace("f32[b,3] from(a)", "f32[?,?] from(a)"),
        "the axes are not constant",
    ),
    "an inner value that someone waits for": (
        "outline",
        KINDS["swish"][2].replace("}\n", "  %n = NoOp() : () from(n) after(%g)\n}\n"),
        "Sigmoid is also needed by 'n'",
    ),
    "inner nodes on another device": (
        "outline",
        KINDS["swish"][2].replace(" from(a)", ' on "/device:CPU:1" from(a)', 1),
        "Sigmoid is on /device:CPU:1",
    ),
    "dropout inside attention": (
        "outline",
        KINDS["attention, products"][2].replace(
            "  %y = BatchMatMulV2(%w, %x)",
            "  %sh = Shape(%w) : i32[3] from(d)\n  %u = RandomUniform(%sh) {dtype=f32} : f32[2,3,3] from(d)\n"
            "  %d = Mul(%w, %u) : f32[2,3,3] from(d)\n  %y = BatchMatMulV2(%d, %x)",
        ),
        "",
    ),
    "softmax over another axis is none of it": (
        "outline",
        KINDS["attention, products"][2].replace("Softmax(%q)", "LogSoftmax(%q)"),
        "",
    ),
}


PREPARED = ("Abs", "Greater")
"""What some cases do before the function itself."""


def bodies(module: Module) -> list[object]:
    return [body.attrs["kind"] for body in module.functions.values()]


@pytest.mark.parametrize("case", KINDS)
def test_a_kind_becomes_one_call(case: str) -> None:
    name, kind, text = KINDS[case]
    module, _ = run(text, f"{name},dce")
    (graph,) = module.entries.values()
    assert bodies(module) == [kind]
    assert [node.op for node in graph if node.op not in ("Input", "Const", *PREPARED)] == ["Call"]
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


def test_control_edges_and_pins_move_to_the_call() -> None:
    text = (
        KINDS["swish"][2].replace("from(a)", 'on "/device:CPU:0" from(a) after(%z)').replace("(%x: f32[b,3])", "(%x: f32[b,3], %z: f32[])")
    )
    (graph,) = run(text, "outline")[0].entries.values()
    (call,) = (node for node in graph if node.op == "Call")
    assert (call.device, graph.controls(call.name)) == ("/device:CPU:0", ("z",))
    (opened,) = run(text, "outline,inline-kinds")[0].entries.values()
    assert {(n.device, opened.controls(n.name)) for n in opened if n.op == "Sigmoid"} == {("/device:CPU:0", ("z",))}


def test_opening_keeps_where_it_came_from_and_what_is_known() -> None:
    text = KINDS["gelu, erf"][2]
    (graph,) = run(text, "outline,inline-kinds")[0].entries.values()
    assert {n.origin for n in graph if n.op in ("Erf", "Mul")} == {("a",)}
    assert all(str(n.type) == "f32[b,3]" for n in graph if n.op in ("Erf", "Mul"))


def test_a_body_in_a_loop_is_outlined_and_opened_too() -> None:
    swish = KINDS["swish"][2].split("{\n", 1)[1].rstrip().rstrip("}")
    text = f"""{HEAD}entry @f(%c: bool[], %x: f32[2,3]) -> (y = %i) {{
  %i = StatelessIf(%c, %x) {{then_branch=@g, else_branch=@g}} : f32[2,3] from(i)
}}

function @g(%x: f32[2,3]) -> (y = %y) {{
{swish.replace("f32[b,3]", "f32[2,3]")}}}
"""
    assert sorted(bodies_of(text, "outline")) == ["g", "swish"]
    assert sorted(bodies_of(text, "outline,inline-kinds")) == ["g"]


def bodies_of(text: str, pipeline: str) -> list[str]:
    return [str(body.attrs.get("kind", name)) for name, body in run(text, pipeline)[0].functions.items()]


def test_an_unknown_kind_is_an_error_in_words() -> None:
    with pytest.raises(CleaveError, match="only is 'moe', expected one of layer_norm"):
        run(KINDS["swish"][2], 'outline{only="moe"}')
