"""Peak bytes by hand, and against counting step by step which values are live."""

from hypothesis import given

from compiler.ir.graph import Graph, Value
from compiler.ir.module import Module, Variable
from compiler.ir.text import parse_module
from compiler.ir.types import DType, TensorType
from cost_model.memory import Peak, peak_bytes
from tests.cost_model.programs import f32, placed_modules, prices_of

A, B = "/device:CPU:0", "/device:CPU:1"


def peaks(text: str) -> dict[str, Peak]:
    module = parse_module(text)
    return peak_bytes(module, module.entries["main"], prices_of(module))


def test_a_chain_holds_input_operand_and_result() -> None:
    found = peaks(f"""module "m"
entry @main(%x: f32[25] on "{A}") -> (y = %c) {{
  %a = Relu(%x) : f32[100] on "{A}"
  %b = Relu(%a) : f32[50] on "{A}"
  %c = Relu(%b) : f32[10] on "{A}"
}}""")
    assert found == {A: Peak(100 + 400 + 200, "b", 100)}


def test_a_view_keeps_its_operand_alive_and_adds_nothing() -> None:
    found = peaks(f"""module "m"
entry @main(%x: f32[1] on "{A}") -> (y = %c) {{
  %s = Const() {{value=tensor(i32[1], [-1])}} : i32[1] on "{A}"
  %a = Relu(%x) : f32[10,10] on "{A}"
  %v = Reshape(%a, %s) : f32[100] on "{A}"
  %b = Relu(%x) : f32[50] on "{A}"
  %c = AddN(%v, %b) : f32[100] on "{A}"
}}""")
    assert found == {A: Peak(4 + 4 + 400 + 200 + 400, "c", 8)}


def test_a_value_used_elsewhere_lives_there_too() -> None:
    found = peaks(f"""module "m"
entry @main(%x: f32[1] on "{A}") -> (y = %c) {{
  %a = Relu(%x) : f32[100] on "{A}"
  %b = Relu(%a) : f32[10] on "{B}"
  %d = Relu(%a) : f32[10] on "{B}"
  %c = Relu(%b) : f32[1] on "{B}"
}}""")
    assert found == {A: Peak(4 + 400, "a", 4), B: Peak(400 + 40 + 40, "d", 0)}


def test_variables_stay_and_reads_share_them() -> None:
    handle = TensorType(DType("resource"), (), None, f32(100))
    graph = Graph("main")
    graph.add("Variable", attrs={"ref": "v"}, types=(handle,), name="v", device=A)
    graph.add("ReadVariableOp", [Value("v")], types=(f32(100),), name="r", device=A)
    graph.add("Relu", [Value("r")], types=(f32(100),), name="y", device=A)
    graph.set_outputs([("y", Value("y"))])
    module = Module("m", {"main": graph}, variables={"v": Variable("v", f32(100))})
    assert peak_bytes(module, graph, prices_of(module)) == {A: Peak(800, "y", 400)}


def test_a_call_needs_what_its_body_needs_inside() -> None:
    found = peaks(f"""module "m"
entry @main(%x: f32[1] on "{A}") -> (y = %c) {{
  %c = Call(%x) {{f=@body}} : f32[1] on "{A}"
}}
function @body(%x: f32[1]) -> (y = %c) {{
  %a = Relu(%x) : f32[100]
  %b = Relu(%a) : f32[50]
  %c = Relu(%b) : f32[1]
}}""")
    assert found == {A: Peak(4 + 4 + 600, "c", 4)}


Buffer = tuple[str, str] | tuple[str, "Buffer", str]
"""(value, its device), or ("copy", the buffer copied, the device it is copied to)."""


def seen(graph: Graph, name: str, where: str) -> Buffer:
    """The buffer a reader on `where` reads this value from."""
    node = graph.node(name)
    own = seen(graph, graph.operands(name)[0].node, node.device) if node.op == "Reshape" else (name, node.device)
    return own if own[-1] == where else ("copy", own, where)


def lives(graph: Graph) -> dict[Buffer, set[int]]:
    """The steps at which each buffer is needed or made."""
    order = graph.order()
    found: dict[Buffer, set[int]] = {}
    for step, name in enumerate(order):
        node = graph.node(name)
        found.setdefault(seen(graph, name, node.device), set()).add(step)
        for value in graph.operands(name):
            found.setdefault(seen(graph, value.node, node.device), set()).update({step, order.index(value.node)})
        if node.op in ("Input", "Const"):
            found[name, node.device] |= {0, len(order) - 1}
    for output in graph.outputs:
        found[seen(graph, output.value.node, graph.node(output.value.node).device)].add(len(order) - 1)
    return found


def brute_force(graph: Graph) -> dict[str, int]:
    """At every step, the bytes of the buffers between their first step and their last."""
    peaks: dict[str, int] = {}
    for step in range(len(graph)):
        live: dict[str, int] = {}
        for buffer, steps in lives(graph).items():
            if min(steps) <= step <= max(steps):
                live[buffer[-1]] = live.get(buffer[-1], 0) + size(graph, buffer)
        peaks = {d: max(peaks.get(d, 0), live.get(d, 0)) for d in {*peaks, *live}}
    return peaks


def size(graph: Graph, buffer: Buffer) -> int:
    name = buffer[0] if len(buffer) == 2 else None
    if name is None:
        return size(graph, buffer[1])
    elements = graph.node(name).type.elements
    assert isinstance(elements, int)
    return elements * 4


@given(placed_modules())
def test_peaks_equal_brute_force(module: Module) -> None:
    graph = module.entries["main"]
    graph.set_device("x", A)
    found = {device: peak.bytes for device, peak in peak_bytes(module, graph, prices_of(module)).items()}
    assert found == brute_force(graph)
