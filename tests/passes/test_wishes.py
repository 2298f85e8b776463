"""What users fix: pins by node, layer and kind; splits by factor; other choices solved anew; names that mean nothing, in one line."""

import pytest

from compiler.ir.errors import CleaveError
from compiler.ir.graph import Graph
from compiler.ir.module import Module
from compiler.ir.text import parse_module
from compiler.pipeline.base import TYPED, Context
from cost_model.cluster import Cluster
from passes.layers import nobody, speaks_of
from passes.place.pin import Pin, Pins
from passes.split.choose import Choose, SplitPlan
from passes.split.wishes import Wishes, is_meant

NET = """module "m" facts(typed)
size b = 1

entry @f(%x: f32[b,1024]) -> (y = %y) {
  %w1 = Const() {value=splat(f32[1024,4096], 0.001)} : f32[1024,4096] from(net/hidden_1/MatMul)
  %w2 = Const() {value=splat(f32[4096,1024], 0.002)} : f32[4096,1024] from(net/dense_2/MatMul)
  %h = MatMul(%x, %w1) : f32[b,4096] from(net/hidden_1/MatMul)
  %r = Relu(%h) : f32[b,4096] from(net/hidden_1/Relu)
  %y = MatMul(%r, %w2) : f32[b,1024] from(net/dense_2/MatMul)
}
"""


def context(cluster: str = "cpu:2", **services: object) -> Context:
    given = {type(service): service for service in services.values()}
    return Context(services={Cluster: Cluster.parse(cluster), SplitPlan: SplitPlan(), **given})


def split(wishes: Wishes, cluster: str = "cpu:2") -> tuple[dict[str, str], SplitPlan, Context]:
    module, made = parse_module(NET), context(cluster, wishes=wishes)
    Choose().run(module, made)
    plan = made.service(SplitPlan)
    return {d.node: d.chosen for d in plan.decisions}, plan, made


def pinned(pins: dict[str, str], text: str = NET) -> tuple[Graph, Context]:
    module, made = parse_module(text), context(pins=Pins(pins))
    Pin().run(module, made)
    return module.entries["f"], made


@pytest.mark.parametrize(
    ("name", "node", "origin", "op"),
    [
        ("h", "h", "net/hidden_1/MatMul", "MatMul"),
        ("hidden", "h", "net/hidden_1/MatMul", "MatMul"),
        ("net/hidden", "h", "net/hidden_1/MatMul", "MatMul"),
        ("net/hidden_1/MatMul", "h", "net/hidden_1/MatMul", "MatMul"),
        ("MatMul", "h", "net/hidden_1/x", "MatMul"),
        ("Dense", "h", "net/dense_2/x", "MatMul"),
        ("BatchNormalization", "h", "net/batch_normalization/mul", "Mul"),
        ("LSTM", "h", "net/lstm_3/mul", "Mul"),
        ("Conv2D", "h", "net/conv2d_4/BiasAdd", "BiasAdd"),
        ("MultiHeadAttention", "h", "net/multi_head_attention/x", "Mul"),
    ],
)
def test_a_name_means_a_node_a_layer_or_a_kind(name: str, node: str, origin: str, op: str) -> None:
    assert speaks_of(name, node, op, [origin])


@pytest.mark.parametrize("name", ["hid", "hidden_2", "net/MatMul", "Den", "x/h", "hidden/net"])
def test_a_name_does_not_mean_more(name: str) -> None:
    assert not speaks_of(name, "h", "MatMul", ["net/hidden_1/MatMul"])


def test_an_unknown_name_is_one_line_with_near_names() -> None:
    known = [("h", "MatMul", ("net/hidden_1/MatMul",)), ("c", "Conv2D", ("net/conv2d/x",))]
    assert str(nobody("Hiden_1", known)) == "no operator or layer 'Hiden_1'; did you mean 'hidden_1'?"
    assert str(nobody("qqqq", known)) == "no operator or layer 'qqqq'; expected one such as c, h"


def test_pins_are_put_on_nodes_and_keep_them_whole() -> None:
    graph, _ = pinned({"Dense": "CPU:1", "r": "/device:CPU:0"})
    assert {n.name: n.device for n in graph if n.device} == {"y": "/device:CPU:1", "r": "/device:CPU:0"}


def test_a_later_pin_wins_and_one_over_a_scope_is_said() -> None:
    text = NET.replace("%r = Relu(%h) : f32[b,4096]", '%r = Relu(%h) : f32[b,4096] on "/device:CPU:1"')
    graph, made = pinned({"MatMul": "CPU:1", "h": "CPU:0", "r": "CPU:0"}, text)
    assert [graph.node(n).device[-5:] for n in ("h", "y", "r")] == ["CPU:0", "CPU:1", "CPU:0"]
    assert [(n.where, n.what) for n in made.notes if n.kind == "refusal"] == [
        ("h", "it was on /device:CPU:1, --pin h puts it on /device:CPU:0"),
        ("r", "it was on /device:CPU:1, --pin r puts it on /device:CPU:0"),
    ]


@pytest.mark.parametrize(
    ("pins", "says"),
    [
        ({"hiden": "CPU:0"}, "no operator or layer 'hiden'; did you mean 'hidden_1'"),
        ({"h": "CPU:7"}, "cluster 'cpu:2' has no device that fits '/CPU:7'"),
        ({"h": "somewhere"}, "'/somewhere' is not a device name"),
    ],
)
def test_a_pin_that_cannot_be_is_refused(pins: dict[str, str], says: str) -> None:
    with pytest.raises(CleaveError, match=says):
        pinned(pins)


@pytest.mark.parametrize(
    ("wish", "label", "meant"),
    [
        ("n", "n:d", True),
        ("n:d", "n:d", True),
        ("whole", "whole", True),
        ("m,n", "m:x,n:y", True),
        ("n,m", "m:x,n:y", True),
        ("n", "m:x,n:y", False),
        ("n:y", "n:x", False),
        ("replica", "n:d", False),
        ("whole", "replica", False),
    ],
)
def test_a_wish_names_factors_or_a_whole_strategy(wish: str, label: str, meant: bool) -> None:
    assert is_meant(wish, label) is meant


def test_splits_are_fixed_and_the_rest_follows() -> None:
    assert split(Wishes())[0] == {"h": "n:d", "r": "d1:d", "y": "k:d"}
    found, plan, _ = split(Wishes({"h": "k"}))
    assert found["h"] == "k:d"
    study = plan.studies["f"]
    assert study.what_if({study.position["h"]: "n"}).difference < 0, "the user's word may be taken back"
    assert split(Wishes({"MatMul": "whole"}))[0] == {"h": "whole", "r": "whole", "y": "whole"}
    assert split(Wishes({"hidden": "n"}))[0]["h"] == "n:d", "Relu of that layer has no n, and is free"


@pytest.mark.parametrize(
    ("wishes", "cluster", "says"),
    [
        ({"hiden": "n"}, "cpu:2", "no operator or layer 'hiden'; did you mean 'hidden_1'"),
        ({"h": "q"}, "cpu:2", "'h' cannot be split by 'q'; expected one of whole, replica, k:d, n:d for MatMul 'h'"),
        ({"h": "n"}, "cpu:1", "'h' is to be split, but cluster 'cpu:1' has one device to split over"),
    ],
)
def test_a_split_that_cannot_be_is_refused(wishes: dict[str, str], cluster: str, says: str) -> None:
    with pytest.raises(CleaveError, match=says):
        split(Wishes(wishes), cluster)


def test_what_if_solves_the_rest_anew() -> None:
    _, plan, _ = split(Wishes())
    study = plan.studies["f"]
    found = study.what_if(study.meant("h", "k"))
    fixed, fixed_plan, _ = split(Wishes({"h": "k"}))
    assert found.difference > 0
    assert found.seconds == pytest.approx(fixed_plan.studies["f"].seconds(fixed_plan.solutions["f"].choice))
    assert {name: new for name, _, new in found.changes} == {n: c for n, c in fixed.items() if n != "h" and c != split(Wishes())[0][n]}
    assert str(found).startswith("with h k:d: ")


def test_a_plan_is_followed_and_what_is_gone_is_chosen_anew() -> None:
    chosen = {"f": {"h": "whole", "r": "nonsense", "y": "n:d"}}
    found, _, made = split(Wishes(chosen=chosen, devices=2))
    assert (found["h"], found["y"]) == ("whole", "n:d")
    assert [(n.where, n.what) for n in made.notes if n.kind == "refusal"] == [("r", "the plan has nonsense for it; Relu is chosen anew")]
    assert split(Wishes({"h": "n"}, chosen, 2))[0]["h"] == "n:d", "the user's word wins"


def test_a_plan_for_another_number_of_devices_is_a_start() -> None:
    assert split(Wishes(chosen={"f": {"h": "whole", "r": "whole", "y": "whole"}}, devices=2), "cpu:3")[0]["h"] == "n:d"


def test_the_module_is_only_annotated() -> None:
    module: Module = parse_module(NET)
    Choose().run(module, context(wishes=Wishes({"h": "n"})))
    assert TYPED in module.facts and module.entries["f"].node("h").attrs["_factors"] == ("n:d",)
