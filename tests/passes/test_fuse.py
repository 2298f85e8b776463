"""Fusing: what becomes one function and what must not, with the values of each case that compilers get wrong."""

import numpy as np
import pytest

from compiler.ir.module import Module
from compiler.ir.text import parse_module, print_module
from tests.checks import RunModule, assert_refuses, assert_same_function, run

HEAD = 'module "m" facts(typed)\n\n'
CONV = """  %w = Const() {{value=tensor(f32[1,2,1,2], [1.0, 2.0, -1.0, 0.5])}} : f32[1,2,1,2] from(w)
  %c = Conv2D(%x, %w) {{padding="{padding}", strides=[1, 1, 1, 1]{more}}} : f32[1,3,{width},2] from(c)
"""
VALID = CONV.format(padding="VALID", width=3, more="")
BIAS = "  %b = Const() {value=tensor(f32[2], [-1.5, 0.25])} : f32[2] from(b)\n"
BIASED = VALID + BIAS + "  %a = BiasAdd(%c, %b) : f32[1,3,3,2] from(a)\n"


def entry(body: str, inputs: str = "%x: f32[1,3,4,1]", outputs: str = "y = %y") -> str:
    return f"{HEAD}entry @f({inputs}) -> ({outputs}) {{\n{body}}}\n"


def chain(*lines: str, shape: str = "[b,3]") -> str:
    """Elementwise statements `y = Exp(x)` of one shape."""
    return "".join(f"  %{line.split(' ')[0]} = {line.split(' = ')[1]} : f32{shape} from({line.split(' ')[0]})\n" for line in lines)


FUSED: dict[str, tuple[str, str, list[str]]] = {
    "convolution, bias, activation": (
        "fuse-bias-activation",
        entry(BIASED + "  %y = Relu(%a) : f32[1,3,3,2] from(y)\n"),
        ["Conv2D", "BiasAdd", "Relu"],
    ),
    "leaky relu keeps its alpha": (
        "fuse-bias-activation",
        entry(BIASED + "  %y = LeakyRelu(%a) {alpha=0.3} : f32[1,3,3,2] from(y)\n"),
        ["Conv2D", "BiasAdd", "LeakyRelu"],
    ),
    "dilations and explicit paddings are carried": (
        "fuse-bias-activation",
        entry(
            CONV.format(padding="EXPLICIT", width=4, more=", dilations=[1, 1, 2, 1], explicit_paddings=[0, 0, 0, 0, 1, 1, 0, 0]")
            + BIAS
            + "  %y = BiasAdd(%c, %b) : f32[1,3,4,2] from(a)\n"
        ),
        ["Conv2D", "BiasAdd"],
    ),
    "groups are carried": (
        "fuse-bias-activation",
        entry(VALID.replace("[1,3,4,1]", "[1,3,4,2]") + BIAS + "  %y = BiasAdd(%c, %b) : f32[1,3,3,2] from(a)\n", "%x: f32[1,3,4,2]"),
        ["Conv2D", "BiasAdd"],
    ),
    "an added constant with one value for each channel": (
        "fuse-bias-activation",
        entry(VALID + BIAS + "  %a = AddV2(%b, %c) : f32[1,3,3,2] from(a)\n  %y = Tanh(%a) : f32[1,3,3,2] from(y)\n"),
        ["Conv2D", "AddV2", "Tanh"],
    ),
    "a chain": (
        "fuse-elementwise",
        entry(chain("a = Exp(%x)", "c = Mul(%a, %x)", "y = Sub(%c, %z)"), "%x: f32[b,3], %z: f32[b,3]"),
        ["Exp", "Mul", "Sub"],
    ),
    "a diamond inside": (
        "fuse-elementwise",
        entry(chain("a = Exp(%x)", "c = Neg(%a)", "y = Mul(%c, %a)"), "%x: f32[b,3]"),
        ["Exp", "Neg", "Mul"],
    ),
}


@pytest.mark.parametrize("case", FUSED)
def test_one_function_of_the_nodes_as_they_are(case: str) -> None:
    name, text, ops = FUSED[case]
    module, _ = run(text, f"{name},dce")
    (graph,) = module.entries.values()
    assert [n.op for n in graph if n.op not in ("Input", "Const")] == ["Call"]
    (body,) = module.functions.values()
    assert body.attrs["kind"] == "fused"
    assert [n.op for n in map(body.node, body.order()) if n.op not in ("Input", "Const")] == ops
    (whole,) = parse_module(text).entries.values()
    kept = {n.op: n.attrs for n in body if n.op != "Const"}
    assert all(kept[n.op] == n.attrs for n in whole if n.op in kept), "an attribute was lost"
    assert print_module(run(print_module(module), f"{name},dce")[0]) == print_module(module), "twice is once"
    assert print_module(run(text, name, fuel=0)[0]) == print_module(parse_module(text))


@pytest.mark.tf
@pytest.mark.parametrize("case", FUSED)
@pytest.mark.parametrize("undo", ["", ",inline-kinds"])
def test_bit_for_bit_the_same(case: str, undo: str, run_module: RunModule) -> None:
    name, text, _ = FUSED[case]
    assert_same_function(text, run(text, f"{name},dce{undo}")[0], run_module)


REFUSED: dict[str, tuple[str, str, str]] = {
    "a bias that is fetched": (
        "fuse-bias-activation",
        entry(BIASED + "  %y = Relu(%c) : f32[1,3,3,2] from(y)\n", outputs="y = %y, a = %a"),
        "is also needed by",
    ),
    "only its shape is read": (
        "fuse-bias-activation",
        entry(
            VALID + BIAS + "  %a = BiasAdd(%c, %b) : f32[1,3,3,2] from(a)\n  %y = Shape(%c) : i32[4] from(y)\n", outputs="y = %y, z = %a"
        ),
        "Conv2D is also needed by 'y'",
    ),
    "waited for": (
        "fuse-bias-activation",
        entry(VALID + BIAS + "  %y = BiasAdd(%c, %b) : f32[1,3,3,2] from(a)\n  %n = NoOp() : () from(n) after(%c)\n"),
        "Conv2D is also needed by 'n'",
    ),
    "a constant that varies over the image": (
        "fuse-bias-activation",
        entry(
            VALID + "  %b = Const() {value=tensor(f32[1,1,3,2], [1.0, 2.0, 3.0, 4.0, 5.0, 6.0])} : f32[1,1,3,2] from(b)\n"
            "  %y = AddV2(%c, %b) : f32[1,3,3,2] from(a)\n"
        ),
        "is not one value for each of 2 channels",
    ),
    "a constant of a higher rank": (
        "fuse-bias-activation",
        entry(
            VALID
            + "  %b = Const() {value=splat(f32[1,1,1,1,2], 1.5)} : f32[1,1,1,1,2] from(b)\n  %y = AddV2(%c, %b) : f32[1,1,3,3,2] from(a)\n"
        ),
        "is not one value for each of 2 channels",
    ),
    "a residual": (
        "fuse-bias-activation",
        entry(VALID + "  %y = AddV2(%c, %z) : f32[1,3,3,2] from(a)\n", "%x: f32[1,3,4,1], %z: f32[1,3,3,2]"),
        "",
    ),
    "pinned apart": (
        "fuse-bias-activation",
        entry(VALID.replace(" from(c)", ' on "/device:CPU:0" from(c)') + BIAS + "  %y = BiasAdd(%c, %b) : f32[1,3,3,2] from(a)\n"),
        "Conv2D is on /device:CPU:0",
    ),
    "an intermediate that is fetched": (
        "fuse-elementwise",
        entry(chain("a = Exp(%x)", "y = Neg(%a)"), "%x: f32[b,3]", "y = %y, a = %a"),
        "is also needed by output 'a'",
    ),
    "two readers": (
        "fuse-elementwise",
        entry(chain("a = Exp(%x)", "y = Neg(%a)", "z = Log(%a)"), "%x: f32[b,3]", "y = %y, z = %z"),
        "is also needed by",
    ),
    "it waits": (
        "fuse-elementwise",
        entry(chain("a = Exp(%x)", "y = Neg(%a)").replace("from(a)", "from(a) after(%z)"), "%x: f32[b,3], %z: f32[b,3]"),
        "waits by a control edge",
    ),
    "it grows": (
        "fuse-elementwise",
        entry("  %a = Exp(%x) : f32[1] from(a)\n  %y = Mul(%a, %z) : f32[2,1] from(y)\n", "%x: f32[1], %z: f32[2,1]"),
        "Exp is f32[1], y is f32[2,1]",
    ),
    "sizes that may differ": (
        "fuse-elementwise",
        entry(chain("a = Exp(%x)", "y = Neg(%a)", shape="[?,3]"), "%x: f32[?,3]"),
        "Exp is f32[?,3]",
    ),
    "random": (
        "fuse-elementwise",
        entry(
            "  %s = Shape(%x) : i32[2] from(s)\n  %a = RandomUniform(%s) {dtype=f32} : f32[b,3] from(a)\n"
            "  %y = Neg(%a) : f32[b,3] from(y)\n",
            "%x: f32[b,3]",
        ),
        "",
    ),
    "on another device": (
        "fuse-elementwise",
        entry(chain("a = Exp(%x)", "y = Neg(%a)").replace(" from(a)", ' on "/device:CPU:1" from(a)'), "%x: f32[b,3]"),
        "Exp is on /device:CPU:1, y on none",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_left_alone(case: str) -> None:
    name, text, reason = REFUSED[case]
    assert_refuses(text, name, reason)


def test_a_group_has_a_largest_size() -> None:
    lines = [f"a{i} = Neg(%{'x' if i == 0 else f'a{i - 1}'})" for i in range(10)]
    module, _ = run(entry(chain(*lines), "%x: f32[b,3]", "y = %a9"), "fuse-elementwise{max-ops=4}")
    assert sorted(len([n for n in body if n.op == "Neg"]) for body in module.functions.values()) == [2, 4]
    assert [n.op for n in module.entries["f"] if n.op != "Input"] == ["Call"] * 3


def test_a_deep_chain_is_fused_in_linear_time() -> None:
    lines = [f"a{i} = Neg(%{'x' if i == 0 else f'a{i - 1}'})" for i in range(4000)]
    module, context = run(entry(chain(*lines), "%x: f32[b,3]", "y = %a3999"), "fuse-elementwise")
    assert sum(note.kind == "change" for note in context.notes) == 250
    assert len(module.functions) == 1


PADS = """  %p = Const() {{value=tensor(i32[4,2], {pads})}} : i32[4,2] from(p)
  %w = Const() {{value=splat(f32[2,2,{depth}], 0.5)}} : f32[2,2,{depth}] from(w)
"""


def padded(pads: str, after: str, depth: str = "1,1", pad: str = "Pad(%x, %p)", shape: str = "[1,3,3,1]", extra: str = "") -> str:
    body = PADS.format(pads=pads, depth=depth) + extra + f"  %q = {pad} : f32{shape} from(q)\n" + after
    return entry(body, "%x: f32[1,2,2,1]")


CONVOLVED = '  %y = Conv2D(%q, %w) {padding="VALID", strides=[1, 1, 1, 1]} : f32[1,2,2,1] from(y)\n'
AROUND = "[0, 0, 1, 0, 1, 0, 0, 0]"
PADDED = {
    "Pad": padded(AROUND, CONVOLVED),
    "PadV2 of zero": padded(
        AROUND, CONVOLVED, pad="PadV2(%x, %p, %z)", extra="  %z = Const() {value=tensor(f32[], 0.0)} : f32[] from(z)\n"
    ),
    "depthwise": padded(AROUND, CONVOLVED.replace("Conv2D", "DepthwiseConv2dNative").replace("2,2,1] from(y)", "2,2,2] from(y)"), "1,2"),
    "strided, dilated": padded(
        "[0, 0, 2, 1, 0, 2, 0, 0]",
        '  %y = Conv2D(%q, %w) {padding="VALID", strides=[1, 2, 1, 1], dilations=[1, 1, 2, 1]} : f32[1,2,2,1] from(y)\n',
        shape="[1,5,4,1]",
    ),
}
NOT_PADDED = {
    "SAME already": (padded(AROUND, CONVOLVED.replace("VALID", "SAME").replace("1,2,2,1]", "1,3,3,1]")), "the convolution pads by itself"),
    "pads with three": (
        padded(AROUND, CONVOLVED, pad="PadV2(%x, %p, %z)", extra="  %z = Const() {value=tensor(f32[], 3.0)} : f32[] from(z)\n"),
        "it pads with 3.0",
    ),
    "channels": (padded("[0, 0, 1, 0, 1, 0, 0, 1]", CONVOLVED, "2,1", shape="[1,3,3,2]"), "it pads the batch or the channels"),
    "a mirror": (padded(AROUND, CONVOLVED, pad='MirrorPad(%x, %p) {mode="REFLECT"}'), ""),
    "read twice": (padded(AROUND, CONVOLVED).replace("(y = %y)", "(y = %y, q = %q)"), "Pad is also needed by output 'q'"),
    "a pooling": (
        padded(AROUND, '  %y = MaxPool(%q) {ksize=[1, 2, 2, 1], padding="VALID", strides=[1, 1, 1, 1]} : f32[1,2,2,1] from(y)\n'),
        "",
    ),
}


@pytest.mark.parametrize("case", PADDED)
def test_a_pad_of_zeros_becomes_the_convolutions_own(case: str) -> None:
    module, _ = run(PADDED[case], "pad-into-conv,dce")
    assert not any("Pad" in node.op for node in module.entries["f"])
    assert module.entries["f"].node("y").attrs["padding"] == "EXPLICIT"


@pytest.mark.tf
@pytest.mark.parametrize("case", PADDED)
def test_and_computes_the_same(case: str, run_module: RunModule) -> None:
    assert_same_function(PADDED[case], run(PADDED[case], "pad-into-conv,dce")[0], run_module)


@pytest.mark.parametrize("case", NOT_PADDED)
def test_other_pads_stay(case: str) -> None:
    text, reason = NOT_PADDED[case]
    assert_refuses(text, "pad-into-conv", reason)


EVERY = "fold-batch-norm,fold-transpose,pad-into-conv,fuse-bias-activation,fuse-elementwise,outline"


def value(module: Module, run_module: RunModule, **inputs: list[float]) -> np.ndarray:
    shapes = {name: module.entries["f"].node(name).type.shape or () for name in module.entries["f"].inputs}
    request = {n: np.reshape(np.array(inputs[n], np.float32), [int(d) for d in shapes[n]]) for n in inputs}  # type: ignore[arg-type]
    (result,) = run_module(module, [request])
    assert result.error is None, result.error
    return result.outputs["y"]


@pytest.mark.tf
@pytest.mark.parametrize(("pool", "expected"), [("MaxPool", [0.0, 0.0, 0.0, -1.0]), ("AvgPool", [-0.25, -0.5, -0.5, -1.0])])
def test_padding_before_a_pooling_is_read_as_zeros(pool: str, expected: list[float], run_module: RunModule) -> None:
    text = padded(AROUND, f'  %y = {pool}(%q) {{ksize=[1, 2, 2, 1], padding="VALID", strides=[1, 1, 1, 1]}} : f32[1,2,2,1] from(y)\n')
    np.testing.assert_array_equal(value(run(text, EVERY)[0], run_module, x=[-1.0] * 4).reshape(-1), expected)


@pytest.mark.tf
def test_a_product_with_scales_and_sums_is_what_it_was(run_module: RunModule) -> None:
    text = entry(
        """  %w = Const() {value=tensor(f32[2,2], [1.0, 2.0, 3.0, 4.0])} : f32[2,2] from(w)
  %b = Const() {value=tensor(f32[2], [0.5, -0.5])} : f32[2] from(b)
  %k = Const() {value=tensor(f32[1,1], [3.0])} : f32[1,1] from(k)
  %g = Const() {value=tensor(f32[3,1,1], [1.0, 2.0, 3.0])} : f32[3,1,1] from(g)
  %m = MatMul(%x, %w) : f32[2,2] from(m)
  %a = AddV2(%m, %b) : f32[2,2] from(a)
  %s = Mul(%a, %k) : f32[2,2] from(s)
  %t = AddV2(%s, %k) : f32[2,2] from(t)
  %y = Mul(%t, %g) : f32[3,2,2] from(y)
""",
        "%x: f32[2,2]",
    )
    found = value(run(text, EVERY)[0], run_module, x=[1.0, 0.0, 0.0, 1.0])
    base = np.array([[7.5, 7.5], [13.5, 13.5]], np.float32)
    np.testing.assert_array_equal(found, np.stack([base, 2 * base, 3 * base]))
