"""Every way in which an operator may be divided computes what the whole does: odd sizes, 2 and 3 devices, a 2x2 mesh, batches 1 and 9."""

import re
from dataclasses import dataclass

import numpy as np
import pytest

from tests.passes.splitting import assert_all_alike, divided, in_every_way, mesh, requests

MESHES = {"2": mesh(2), "3": mesh(3), "2x2": mesh(2, 2)}


@dataclass(frozen=True)
class Op:
    """`Name(types of the graph inputs it reads) -> result types`, and the factors that must be among those tried on two devices."""

    form: str
    attrs: str = ""
    factors: str = ""
    constants: tuple[str, ...] = ()
    """Lines before it; what it reads of them are its last operands."""
    tolerance: float = 2e-6
    special: bool = True
    """NaN and infinities too: not for Softmax, of whose rows oneDNN's kernel makes NaN in parts where Eigen's makes it in all of a row."""

    @property
    def text(self) -> str:
        op, inputs, results = re.fullmatch(r"(\w+)\((.*)\) -> (.*)", self.form).groups()  # type: ignore[union-attr]
        types = re.findall(r"\w+\[[^\]]*\]", inputs)
        ports = len(re.findall(r"\w+\[[^\]]*\]", results))
        given = ", ".join(f"%x{i}: {t}" for i, t in enumerate(types))
        operands = [f"%x{i}" for i in range(len(types))] + [line.partition(" = ")[0] for line in self.constants]
        lines = [*self.constants, f"%y = {op}({', '.join(operands)}) {{{self.attrs}}} : {results if ports == 1 else f'({results})'}"]
        outputs = ", ".join(f"y{i or ''} = %y{f':{i}' if i else ''}" for i in range(ports))
        return (
            f'module "m" facts(typed)\n\nentry @f({given}) -> ({outputs}) {{\n' + "".join(f"  {line} from(a)\n" for line in lines) + "}\n"
        )


ONES, SAME, VALID = "strides=[1,1,1,1]", 'padding="SAME"', 'padding="VALID"'
EXPLICIT = 'padding="EXPLICIT", explicit_paddings=[0,0,2,0,1,2,0,0], strides=[1,2,1,1]'
WINDOWS = {
    "conv, same, odd": Op("Conv2D(f32[b,9,7,3], f32[3,3,3,5]) -> f32[b,9,7,5]", f"{SAME}, {ONES}", "s0 s1 n ci co"),
    "conv, same, stride 2": Op("Conv2D(f32[2,11,8,2], f32[3,4,2,3]) -> f32[2,6,4,3]", f"{SAME}, strides=[1,2,2,1]", "s0 s1"),
    "conv, strides beyond": Op("Conv2D(f32[2,13,9,2], f32[2,2,2,3]) -> f32[2,4,3,3]", f"{VALID}, strides=[1,3,3,1]", "s0"),
    "conv, dilated": Op("Conv2D(f32[2,13,12,2], f32[3,3,2,4]) -> f32[2,13,12,4]", f"{SAME}, {ONES}, dilations=[1,3,2,1]", "s0 s1"),
    "conv, explicit": Op("Conv2D(f32[2,9,8,2], f32[3,5,2,4]) -> f32[2,5,7,4]", EXPLICIT, "s0 s1"),
    "conv, a long row": Op("Conv2D(f32[1,1,37,2], f32[1,9,2,4]) -> f32[1,1,37,4]", f"{SAME}, {ONES}", "s1"),
    "conv, longer than a shard": Op("Conv2D(f32[1,6,1,2], f32[5,1,2,4]) -> f32[1,6,1,4]", f"{SAME}, {ONES}", "s0"),
    "conv, grouped": Op("Conv2D(f32[b,5,6,8], f32[3,3,2,12]) -> f32[b,5,6,12]", f"{SAME}, {ONES}", "g s0 n"),
    "depthwise": Op("DepthwiseConv2dNative(f32[b,9,7,4], f32[3,3,4,2]) -> f32[b,9,7,8]", f"{SAME}, {ONES}", "s0 s1 c"),
    "depthwise, stride 2": Op("DepthwiseConv2dNative(f32[b,9,7,3], f32[3,3,3,1]) -> f32[b,5,4,3]", f"{SAME}, strides=[1,2,2,1]", "s0 s1"),
    "conv 3d": Op("Conv3D(f32[1,7,6,5,2], f32[3,2,3,2,3]) -> f32[1,5,5,3,3]", f"{VALID}, strides=[1,1,1,1,1]", "s0 s1 s2"),
    "max pool": Op("MaxPool(f32[b,9,7,3]) -> f32[b,5,4,3]", f"{SAME}, ksize=[1,3,2,1], strides=[1,2,2,1]", "s0 s1 c"),
    "max pool, valid": Op("MaxPool(f32[2,9,7,3]) -> f32[2,4,3,3]", f"{VALID}, ksize=[1,2,2,1], strides=[1,2,2,1]", "s0 s1"),
    "average pool, same": Op("AvgPool(f32[b,9,7,3]) -> f32[b,9,7,3]", f"{SAME}, ksize=[1,3,2,1], {ONES}", "s0 s1 c"),
    "average pool, stride 2": Op("AvgPool(f32[2,11,8,3]) -> f32[2,6,4,3]", f"{SAME}, ksize=[1,4,3,1], strides=[1,2,2,1]", "s0 s1"),
    "average pool, stride 3": Op("AvgPool(f32[2,17,8,3]) -> f32[2,6,8,3]", f"{SAME}, ksize=[1,5,1,1], strides=[1,3,1,1]", "s0"),
    "conv 3d, same": Op("Conv3D(f32[1,9,6,5,2], f32[3,4,3,2,3]) -> f32[1,5,6,5,3]", f"{SAME}, strides=[1,2,1,1,1]", "s0 s1 s2"),
    "max pool 3d, same": Op("MaxPool3D(f32[1,9,6,5,2]) -> f32[1,5,6,5,2]", f"{SAME}, ksize=[1,3,2,3,1], strides=[1,2,1,1,1]", "s0 s1 s2"),
    "average pool, valid": Op("AvgPool(f32[2,9,7,3]) -> f32[2,7,6,3]", f"{VALID}, ksize=[1,3,2,1], {ONES}", "s0 s1"),
}


LAST = ("%axis = Const() {value=tensor(i32[], -1)} : i32[]",)
STEPS = {
    "softmax": Op("Softmax(f32[b,2,7]) -> f32[b,2,7]", "", "d0 d2", special=False),
    "log softmax": Op("LogSoftmax(f32[b,7]) -> f32[b,7]", "", "d0 d1"),
    "position of the largest": Op("ArgMax(f32[b,7]) -> i64[b]", "", "d0 d1", LAST),
    "position of the least": Op("ArgMin(f32[5,b,2]) -> i32[b,2]", "output_type=i32", "d0 d1 d2", (LAST[0].replace("-1", "0"),)),
    "position, integers": Op("ArgMax(i32[b,7]) -> i64[b]", "", "d1", LAST),
    "norm": Op("EuclideanNorm(f32[b,5,7]) -> f32[b,7]", "", "d0 d1 d2", (LAST[0].replace("-1", "1"),)),
    "norm, kept": Op("EuclideanNorm(f32[b,5]) -> f32[b,1]", "keep_dims=true", "d0 d1", LAST),
}


BEGIN, SIZE = "%begin = Const() {value=tensor(i32[3], [0, 2, 1])} : i32[3]", "%size = Const() {value=tensor(i32[3], [-1, 5, 3])} : i32[3]"
PADS = "%pads = Const() {value=tensor(i32[3,2], [0, 0, 4, 1, 0, 3])} : i32[3,2]"
SPEC = (
    "%begin = Const() {value=tensor(i32[3], [0, 1, -9])} : i32[3]",
    "%end = Const() {value=tensor(i32[3], [0, -1, 9])} : i32[3]",
    "%stride = Const() {value=tensor(i32[3], [1, 3, 2])} : i32[3]",
)
CUTS = {
    "slice": Op("Slice(f32[b,9,4]) -> f32[b,5,3]", "", "d0 d1 d2", (BEGIN, SIZE)),
    "pad": Op("Pad(f32[b,3,4]) -> f32[b,8,7]", "", "d0 d1 d2", (PADS,)),
    "pad with a value": Op(
        "PadV2(f32[b,3,4]) -> f32[b,8,7]", "", "d0 d1 d2", (PADS, "%value = Const() {value=tensor(f32[], 3.5)} : f32[]")
    ),
    "strided slice": Op("StridedSlice(f32[b,13,4]) -> f32[b,4,2]", "begin_mask=1, end_mask=1", "d0 d1 d2", SPEC),
}


@pytest.mark.tf
@pytest.mark.parametrize("over", MESHES)
@pytest.mark.parametrize("case", CUTS)
def test_what_is_cut_and_padded_divides(case: str, over: str, run_module) -> None:  # type: ignore[no-untyped-def]
    op = CUTS[case]
    tried = assert_all_alike(run_module, op.text, "y", MESHES[over], 0.0, special=True)
    assert over != "2" or {f"{factor}:d" for factor in op.factors.split()} <= tried, tried


FIRST = ("%axis = Const() {value=tensor(i32[], 0)} : i32[]",)
HOT = (
    "%depth = Const() {value=tensor(i32[], 7)} : i32[]",
    "%on = Const() {value=tensor(f32[], 2.5)} : f32[]",
    "%off = Const() {value=tensor(f32[], -1.0)} : f32[]",
)
TABLES = {
    "embedding": Op("GatherV2(f32[5,7], i32[b,3]) -> f32[b,3,7]", "", "d0 d1 i0 i1", FIRST),
    "embedding of scalars, long indices": Op("GatherV2(f32[5], i64[b]) -> f32[b]", "", "d0 i0", FIRST),
    "gather of columns": Op("GatherV2(f32[4,5,2], i32[3]) -> f32[4,3,2]", "", "d0 d1 d2 i0", (FIRST[0].replace("0)", "1)"),)),
    "gather of integers": Op("Gather(i64[5,7], i32[b]) -> i64[b,7]", "", "d0 d1 i0"),
    "one hot": Op("OneHot(i32[b,3]) -> f32[b,3,7]", "", "d0 d1 depth", HOT),
    "one hot, first": Op("OneHot(i64[b]) -> f32[7,b]", "axis=0", "d0 depth", HOT),
}


@pytest.mark.tf
@pytest.mark.parametrize("over", MESHES)
@pytest.mark.parametrize("case", TABLES)
def test_tables_divide(case: str, over: str, run_module) -> None:  # type: ignore[no-untyped-def]
    op = TABLES[case]
    tried = assert_all_alike(run_module, op.text, "y", MESHES[over], 0.0)
    assert over != "2" or {f"{factor}:d" for factor in op.factors.split()} <= tried, tried


@pytest.mark.tf
@pytest.mark.parametrize("over", MESHES)
@pytest.mark.parametrize("case", STEPS)
def test_operators_whose_shards_meet_divide(case: str, over: str, run_module) -> None:  # type: ignore[no-untyped-def]
    op = STEPS[case]
    tried = assert_all_alike(run_module, op.text, "y", MESHES[over], op.tolerance, op.special)
    assert over != "2" or {f"{factor}:d" for factor in op.factors.split()} <= tried, tried


@pytest.mark.tf
@pytest.mark.parametrize("over", MESHES)
@pytest.mark.parametrize("case", WINDOWS)
def test_windowed_operators_divide(case: str, over: str, run_module) -> None:  # type: ignore[no-untyped-def]
    op = WINDOWS[case]
    tried = assert_all_alike(run_module, op.text, "y", MESHES[over], op.tolerance)
    assert over != "2" or {f"{factor}:d" for factor in op.factors.split()} <= tried, tried


def test_a_factor_may_run_over_both_axes_of_a_mesh() -> None:
    _, ways = in_every_way(WINDOWS["conv, same, odd"].text, "y", MESHES["2x2"])
    labels = {strategy.label for strategy in ways.values()}
    assert {"n:x,s0:y", "s0:x,s1:y", "co:x*y", "ci:x,co:y", "s0:x*y"} <= labels


@pytest.mark.tf
@pytest.mark.parametrize("index", [-1, 5])
def test_an_index_outside_the_table_still_fails(index: int, run_module) -> None:  # type: ignore[no-untyped-def]
    op = TABLES["embedding"]
    for factor in ("d0", "d1"):
        module = divided(op.text, MESHES["3"], {"y": {factor: "d"}})
        (given,) = requests(module, (2,))
        (found,) = run_module(module, [{**given, "x1": np.full((2, 3), index, np.int32)}], 4)
        assert found.error is not None and "not in [0, " in found.error.message
