"""The roofline by hand, what is free, what a shard costs, and that cost never falls as sizes grow."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compiler.ir.graph import Graph, Value
from compiler.ir.module import Module, Variable
from compiler.ir.sharding import Mesh, MeshAxis, Sharding
from compiler.ir.text import parse_module
from compiler.ir.types import DType, TensorType
from compiler.ops.queries import operation
from cost_model.analytic import UNKNOWN_SIZE, local_type, type_bytes
from cost_model.cluster import Cluster, local_cpus
from cost_model.devices import Device, Link
from cost_model.model import LOOP_ITERATIONS, CostModel, Prices
from tests.cost_model.programs import f32

DEVICE = Device(
    "/device:CPU:0", "CPU", {"float32": 1e9}, 1e9, overhead_seconds=1e-6, efficiency={"matmul": ((1.0, 0.5),), "elementwise": ((1.0, 0.5),)}
)
CLUSTER = Cluster((DEVICE,))


def module_of(body: str, head: str = "") -> Module:
    return parse_module(
        f'module "m" facts(typed)\n{head}\nentry @main(%x: f32[100,200], %w: f32[200,300], %b: f32[b,?]) -> (y = %y) {{\n{body}\n}}\n'
    )


def seconds(body: str, name: str = "y") -> float:
    module = module_of(body)
    return Prices(module, CostModel(CLUSTER)).seconds(module.entries["main"], name, DEVICE.name)


def test_a_matmul_is_bound_by_its_flops() -> None:
    assert seconds("%y = MatMul(%x, %w) : f32[100,300]") == pytest.approx(2 * 100 * 200 * 300 / 0.5e9 + 1e-6)


def test_elementwise_is_bound_by_its_bytes() -> None:
    assert seconds("%y = AddV2(%x, %x) : f32[100,200]") == pytest.approx(3 * 80_000 / 1e9 + 1e-6)


def test_movement_reads_and_writes_each_result_once() -> None:
    body = "%p = Const() {value=tensor(i32[2], [1, 0])} : i32[2]\n%y = Transpose(%x, %p) : f32[200,100]"
    assert seconds(body) == pytest.approx(2 * 80_000 / 1e9 + 1e-6)


def test_views_cost_their_overhead_and_constants_nothing() -> None:
    body = "%p = Const() {value=tensor(i32[1], [-1])} : i32[1]\n%y = Reshape(%x, %p) : f32[20000]"
    assert seconds(body) == 1e-6
    assert seconds(body, "p") == seconds(body, "x") == 0.0


def test_an_opaque_operator_costs_its_bytes() -> None:
    assert seconds("%y = NobodyKnowsThis(%x) : f32[100,200]") == pytest.approx(160_000 / 1e9 + 1e-6)


def test_reading_a_variable_is_free_of_copies() -> None:
    handle = TensorType(DType("resource"), (), None, f32(10, 10))
    graph = Graph("main")
    graph.add("Variable", attrs={"ref": "v"}, types=(handle,), name="v")
    graph.add("ReadVariableOp", [Value("v")], types=(f32(10, 10),), name="y")
    module = Module("m", {"main": graph}, variables={"v": Variable("v", f32(10, 10))})
    prices = Prices(module, CostModel(CLUSTER))
    assert prices.seconds(graph, "v", DEVICE.name) == 0.0
    assert prices.seconds(graph, "y", DEVICE.name) == 1e-6


def test_unknown_dimensions_count_as_stated() -> None:
    module = module_of("%y = Relu(%b) : f32[b,?]")
    type_ = module.entries["main"].node("b").type
    assert type_bytes(type_, {}) == 4 * UNKNOWN_SIZE * UNKNOWN_SIZE
    assert type_bytes(type_, {"b": 3}) == 4 * 3 * UNKNOWN_SIZE


def test_half_a_matmul_takes_half_its_seconds() -> None:
    module = module_of("%y = MatMul(%x, %w) : f32[100,300]")
    whole = operation(module, module.entries["main"], "y")
    model, local = CostModel(CLUSTER), ((f32(50, 200), f32(200, 300)), (f32(50, 300),))
    half = model.op_seconds(whole, DEVICE.name, {}, fraction=0.5, local=local)
    assert half - 1e-6 == pytest.approx((model.op_seconds(whole, DEVICE.name, {}) - 1e-6) / 2)


def test_the_largest_shard_is_what_counts() -> None:
    mesh = Mesh((MeshAxis("x", 3), MeshAxis("y", 2, (1, 3))), tuple(f"/device:CPU:{i}" for i in range(6)))
    type_ = f32(7, 8).with_sharding(Sharding((("x",), ("y",))))
    assert local_type(f32(7, 8), type_.sharding, mesh, {}).shape == (3, 6)
    assert type_bytes(type_, {}, mesh) == 4 * 3 * 6
    assert type_bytes(type_, {}) == 4 * 7 * 8


def test_calls_and_loops_cost_their_bodies() -> None:
    text = """module "m" facts(typed)
entry @main(%x: f32[64,64], %n: i32[]) -> (y = %y, z = %z) {
  %y = Call(%x) {f=@body} : f32[64,64]
  %z = StatelessWhile(%x) {cond=@cond, body=@body} : f32[64,64]
}
function @body(%a: f32[64,64]) -> (r = %r) {
  %s = Call(%a) {f=@inner} : f32[64,64]
  %r = MatMul(%s, %a) : f32[64,64]
}
function @inner(%a: f32[64,64]) -> (r = %r) { %r = Relu(%a) : f32[64,64] }
function @cond(%a: f32[64,64]) -> (r = %r) { %r = Const() {value=tensor(bool[], [true])} : bool[] }
"""
    module = parse_module(text)
    prices, main = Prices(module, CostModel(CLUSTER)), module.entries["main"]
    relu, matmul = prices.seconds(module.functions["inner"], "r", DEVICE.name), prices.seconds(module.functions["body"], "r", DEVICE.name)
    body = relu + 1e-6 + matmul
    assert prices.seconds(main, "y", DEVICE.name) == pytest.approx(body + 1e-6)
    assert prices.seconds(main, "z", DEVICE.name) == pytest.approx(LOOP_ITERATIONS * body + 1e-6)


@given(st.tuples(*[st.integers(1, 400)] * 3), st.tuples(*[st.integers(0, 400)] * 3))
def test_cost_is_monotone_in_size(small: tuple[int, ...], more: tuple[int, ...]) -> None:
    def cost(m: int, k: int, n: int) -> float:
        module = parse_module(
            f'module "m" facts(typed)\nentry @main(%x: f32[{m},{k}], %w: f32[{k},{n}]) -> (y = %y) {{ %y = MatMul(%x, %w) : f32[{m},{n}] }}'
        )
        return Prices(module, CostModel(local_cpus(1))).seconds(module.entries["main"], "y", "/device:CPU:0")

    assert cost(*small) <= cost(*(a + b for a, b in zip(small, more, strict=True)))


def test_links_cost_latency_and_bytes() -> None:
    assert Link("l", 1e-3, 1e6).seconds(500) == pytest.approx(1.5e-3)
