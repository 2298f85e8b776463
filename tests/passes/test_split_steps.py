"""What is normalised over divides too: two collectives, a maximum and a sum; opened forms and whole operators alike."""

import pytest

from compiler.ir.module import Module
from tests.passes.splitting import assert_same, divided, mesh
from tests.passes.test_split import chosen, split

AXIS = "  %axis = Const() {value=tensor(i32[], 1)} : i32[] from(a)\n"
OPENED = {
    "layer norm": f"""{AXIS}  %eps = Const() {{value=tensor(f32[], 0.001)}} : f32[] from(a)
  %mean = Mean(%x, %axis) {{keep_dims=true}} : f32[b,1] from(a)
  %apart = SquaredDifference(%x, %mean) : f32[b,7] from(a)
  %variance = Mean(%apart, %axis) {{keep_dims=true}} : f32[b,1] from(a)
  %safe = AddV2(%variance, %eps) : f32[b,1] from(a)
  %scale = Rsqrt(%safe) : f32[b,1] from(a)
  %centred = Sub(%x, %mean) : f32[b,7] from(a)
  %y = Mul(%centred, %scale) : f32[b,7] from(a)
""",
    "log of a sum of exponentials": f"""{AXIS}  %top = Max(%x, %axis) {{keep_dims=true}} : f32[b,1] from(a)
  %shifted = Sub(%x, %top) : f32[b,7] from(a)
  %exp = Exp(%shifted) : f32[b,7] from(a)
  %sum = Sum(%exp, %axis) {{keep_dims=true}} : f32[b,1] from(a)
  %log = Log(%sum) : f32[b,1] from(a)
  %y = AddV2(%log, %top) : f32[b,1] from(a)
""",
    "norms of order one and infinity": f"""{AXIS}  %size = Abs(%x) : f32[b,7] from(a)
  %one = Sum(%size, %axis) : f32[b] from(a)
  %infinity = Max(%size, %axis) : f32[b] from(a)
  %y = Mul(%one, %infinity) : f32[b] from(a)
""",
}


def program(body: str) -> str:
    return f'module "m" facts(typed)\n\nentry @f(%x: f32[b,7]) -> (y = %y) {{\n{body}}}\n'


@pytest.mark.tf
@pytest.mark.parametrize("devices", [2, 3])
@pytest.mark.parametrize("case", OPENED)
def test_opened_norms_divide_along_their_axis(case: str, devices: int, run_module) -> None:  # type: ignore[no-untyped-def]
    text = program(OPENED[case])
    names = [line.split()[0][1:] for line in OPENED[case].splitlines() if "Const" not in line and "f32[b,7]" in line]
    reduced = [line.split()[0][1:] for line in OPENED[case].splitlines() if any(f"{op}(" in line for op in ("Mean", "Max", "Sum"))]
    module = divided(text, mesh(devices), {name: {"d1": "d"} for name in names + reduced})
    assert sorted(combined(module)) == sorted({"Mean": "AddN", "Sum": "AddN", "Max": "Maximum"}[op] for op in reductions(OPENED[case]))
    assert_same(run_module, text, module)


def reductions(body: str) -> list[str]:
    return [op for line in body.splitlines() for op in ("Mean", "Max", "Sum") if f"{op}(" in line]


def combined(module: Module) -> list[str]:
    """The ops that combine partial results, one for each value that is combined."""
    (graph,) = module.entries.values()
    firsts = {}
    for node in graph:
        if node.op in ("AddN", "Maximum"):
            firsts.setdefault(node.name.rpartition("/")[0], node.op)
    return list(firsts.values())


@pytest.mark.tf
def test_a_softmax_over_both_axes_of_a_mesh(run_module) -> None:  # type: ignore[no-untyped-def]
    text = 'module "m" facts(typed)\n\nentry @f(%x: f32[b,7]) -> (y = %y) {\n  %y = Softmax(%x) : f32[b,7] from(a)\n}\n'
    assert_same(run_module, text, divided(text, mesh(2, 2), {"y": {"d1": "x*y"}}))
    assert_same(run_module, text, divided(text, mesh(2, 2), {"y": {"d0": "x", "d1": "y"}}))


def test_a_softmax_over_a_divided_vocabulary_stays_divided() -> None:
    text = """module "m" facts(typed)

entry @f(%x: f32[8,512]) -> (y = %y) {
  %w = Const() {value=splat(f32[512,50000], 0.001)} : f32[512,50000] from(l)
  %h = MatMul(%x, %w) : f32[8,50000] from(l)
  %axis = Const() {value=tensor(i32[], 1)} : i32[] from(l)
  %s = Softmax(%h) : f32[8,50000] from(l)
  %y = Max(%s, %axis) : f32[8] from(l)
}
"""
    assert chosen(split(text)[1]) == {"h": "n:d", "s": "d1:d", "y": "d1:d"}
