"""Convolutions over rows stay divided by rows: neighbours exchange the rows a window lacks, nothing is gathered in between."""

import numpy as np
import pytest

from compiler.ir.graph import Graph
from compiler.ir.text import parse_module
from compiler.ir.types import size_of
from tests.passes.splitting import requests
from tests.passes.test_split import chosen, partition, split


def sequence(length: int, channels: int = 64, layers: int = 3, stride: int = 1) -> str:
    """A 1-D network as Keras emits it: ExpandDims, then Conv2D, BiasAdd and Relu of one row, then the mean over the sequence."""
    lines, last = ["%axis = Const() {value=tensor(i32[], 1)} : i32[]", f"%r = ExpandDims(%x, %axis) : f32[1,1,{length},{channels}]"], "r"
    for i in range(layers):
        length = -(-length // stride)
        image = f"f32[1,1,{length},{channels}]"
        lines += [
            f"%w{i} = Const() {{value=splat(f32[1,5,{channels},{channels}], 0.01)}} : f32[1,5,{channels},{channels}]",
            f"%b{i} = Const() {{value=splat(f32[{channels}], 0.5)}} : f32[{channels}]",
            f'%c{i} = Conv2D(%{last}, %w{i}) {{padding="SAME", strides=[1,1,{stride},1]}} : {image}',
            f"%a{i} = BiasAdd(%c{i}, %b{i}) : {image}",
            f"%r{i} = Relu(%a{i}) : {image}",
        ]
        last = f"r{i}"
    lines += ["%axes = Const() {value=tensor(i32[2], [1, 2])} : i32[2]", f"%y = Mean(%{last}, %axes) : f32[1,{channels}]"]
    return "".join(f"  {line} from(l)\n" for line in lines)


def network(length: int, **how: int) -> str:
    channels = how.get("channels", 64)
    return f'module "m" facts(typed)\n\nentry @f(%x: f32[1,{length},{channels}]) -> (y = %y) {{\n{sequence(length, **how)}}}\n'


def moved(graph: Graph) -> list[int]:
    """Rows of each piece that one device sends to another between convolutions."""
    sent = [n for n in graph if n.op == "Slice" and any(graph.node(u.user).device != n.device for u in graph.needs(n.name).data)]
    return [int(size_of((n.type.shape or ())[:3])) for n in sent]  # type: ignore[call-overload]


@pytest.mark.parametrize("cluster", ["cpu:2", "cpu:3"])
def test_a_long_sequence_at_batch_1_is_divided_by_rows(cluster: str) -> None:
    _, plan, _ = split(network(8191), cluster)
    ways = chosen(plan)
    assert {ways[name] for name in ("c0", "c1", "c2")} == {"s1:d"}
    assert {ways[f"{op}{i}"] for op in "ar" for i in range(3)} | {ways["y"]} == {"d2:d"}


def test_a_short_sequence_stays_whole() -> None:
    _, plan, _ = split(network(8, channels=4))
    assert set(chosen(plan).values()) == {"whole"}


def test_only_the_rows_that_windows_lack_are_moved() -> None:
    module, _, context = split(network(8191), "cpu:2")
    graph = partition(module, context)
    assert sorted(moved(graph)) == [2] * 4, "two rows each way before the second and the third convolution"
    assert [n.op for n in graph if n.op == "AddN"] == ["AddN"], "the mean is the only thing that is combined"


def test_the_price_of_rows_is_part_of_the_plan() -> None:
    _, plan, _ = split(network(8191), "cpu:2")
    (second,) = [d for d in plan.decisions if d.node == "c1"]
    rows = next(a for a in second.alternatives if a.label == second.chosen)
    assert 50e-6 < rows.reshard_seconds < 1e-3


@pytest.mark.tf
@pytest.mark.parametrize(("devices", "length", "stride"), [(2, 8191, 1), (3, 8191, 2), (8, 4099, 1)])
def test_a_network_divided_by_rows_computes_the_same(devices: int, length: int, stride: int, run_module) -> None:  # type: ignore[no-untyped-def]
    text = network(length, channels=32, stride=stride)
    module, plan, context = split(text, f"cpu:{devices}")
    assert "s1:" in " ".join(chosen(plan).values())
    partition(module, context)
    given = requests(module, (1,))
    (expected,), (found,) = run_module(parse_module(text), given, 8), run_module(module, given, 8)
    assert expected.error is None and found.error is None, (expected.error, found.error)
    np.testing.assert_allclose(found.outputs["y"], expected.outputs["y"], rtol=2e-6)
