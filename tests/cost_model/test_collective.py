"""Collectives by hand, over one level and two; reshards as the collectives they are."""

import pytest

from compiler.ir.sharding import Mesh, MeshAxis, Sharding, replicated
from cost_model.cluster import Cluster, LinkGroup
from cost_model.collective import all_gather_seconds, all_reduce_seconds, all_to_all_seconds, reduce_scatter_seconds
from cost_model.devices import Device, Link
from cost_model.model import CostModel
from cost_model.reshard import line, steps
from tests.cost_model.programs import f32

FAST = Link("fast", 1e-6, 1e9, scope="task")
SLOW = Link("slow", 1e-3, 1e8)


def test_one_level_is_alpas_formula() -> None:
    group = LinkGroup(((4, FAST, 1),))
    assert all_reduce_seconds(8e6, group) == pytest.approx(1e-6 + 2 * 3 / 4 * 8e6 / 1e9)
    assert all_gather_seconds(8e6, group) == reduce_scatter_seconds(8e6, group) == pytest.approx(1e-6 + 3 / 4 * 8e6 / 1e9)
    assert all_to_all_seconds(8e6, group) == pytest.approx(1e-6 + 3 / 16 * 8e6 / 1e9)


def test_alone_there_is_nothing_to_do() -> None:
    assert all_reduce_seconds(8e6, LinkGroup(())) == all_gather_seconds(8e6, LinkGroup(())) == all_to_all_seconds(8e6, LinkGroup(())) == 0


def test_two_levels_send_a_part_over_the_slow_link() -> None:
    group = LinkGroup(((4, FAST, 1), (2, SLOW, 1)))
    within = 2 * 1e-6 + 2 * 3 / 4 * 8e6 / 1e9
    across = 1e-3 + 2 * 1 / 2 * 2e6 / 1e8
    assert all_reduce_seconds(8e6, group) == pytest.approx(within + across)


def test_a_shared_port_carries_all_parts() -> None:
    own, shared = LinkGroup(((4, FAST, 1), (2, SLOW, 1))), LinkGroup(((4, FAST, 1), (2, SLOW, 4)))
    assert all_reduce_seconds(8e6, shared) - all_reduce_seconds(8e6, own) == pytest.approx(3 * 2 * 1 / 2 * 2e6 / 1e8)


def test_an_all_reduce_is_a_reduce_scatter_and_an_all_gather() -> None:
    for group in (LinkGroup(((8, FAST, 1),)), LinkGroup(((4, FAST, 1), (3, SLOW, 4)))):
        both = reduce_scatter_seconds(6e6, group) + all_gather_seconds(6e6, group)
        assert 0 <= both - all_reduce_seconds(6e6, group) <= 1.001e-3  # one latency of the outer link


MESH = Mesh((MeshAxis("x", 2), MeshAxis("y", 2)), tuple(f"/device:CPU:{i}" for i in range(4)))
X, Y = Sharding((("x",), ())), Sharding(((), ("x",)))
PARTIAL = Sharding(((), ()), (("x", "sum"),))


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        (X, X, []),
        (replicated(2), X, [("slice", "x", 4096)]),
        (X, replicated(2), [("all_gather", "x", 4096)]),
        (PARTIAL, replicated(2), [("all_reduce", "x", 4096)]),
        (PARTIAL, X, [("reduce_scatter", "x", 4096)]),
        (X, Y, [("all_to_all", "x", 4096)]),
        (replicated(2), PARTIAL, []),
        (Sharding((("x",), ("y",))), Sharding((("x",), ())), [("all_gather", "y", 2048)]),
        (Sharding((("x",), ()), (("y", "sum"),)), X, [("all_reduce", "y", 2048)]),
        (X, Sharding((("x",), ()), stage=1), [("send", "", 2048)]),
        (Sharding((("x", "y"), ())), Sharding((("y", "x"), ())), [("send", "", 1024)]),
        (PARTIAL, Sharding((("y",), ())), [("slice", "y", 4096), ("all_reduce", "x", 2048)]),
    ],
)
def test_reshards_are_collectives(source: Sharding, target: Sharding, expected: list[tuple[str, str, float]]) -> None:
    assert [(s.kind, s.axis, s.bytes) for s in steps(f32(32, 32), source, target, MESH, {})] == expected


def test_lines_of_a_mesh() -> None:
    assert line(MESH, "x") == ("/device:CPU:0", "/device:CPU:2")
    assert line(MESH, "y") == ("/device:CPU:0", "/device:CPU:1")


def test_local_memory_overlaps_with_the_link() -> None:
    def cluster(bandwidth: float) -> Cluster:
        return Cluster(tuple(Device(d, "CPU", {"float32": 1e9}, bandwidth) for d in MESH.devices), (FAST,))

    linked = 1e-6 + 2 * 1 / 2 * 4096 / 1e9
    assert CostModel(cluster(1e15)).reshard_seconds(f32(32, 32), PARTIAL, replicated(2), MESH, {}) == pytest.approx(linked)
    slow = CostModel(cluster(1e6)).reshard_seconds(f32(32, 32), PARTIAL, replicated(2), MESH, {})
    assert slow == pytest.approx(1e-6 + 3 * 4096 / 1e6)
