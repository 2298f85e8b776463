"""Graph's mutators against a model made of dictionaries, and the questions passes ask of a graph."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from compiler.ir.equal import equal_graphs
from compiler.ir.errors import IrError
from compiler.ir.graph import Graph, Node, Output, Use, Value
from compiler.ir.types import TensorType

F32 = TensorType("float32", ())


class GraphMachine(RuleBasedStateMachine):
    """The model: name -> [operands], name -> {controls}, name -> number of outputs, and the list of outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.graph = Graph("main")
        self.operands: dict[str, list[Value]] = {}
        self.controls: dict[str, set[str]] = {}
        self.count: dict[str, int] = {}
        self.outputs: list[Output] = []
        self.seen = 0

    def values(self) -> list[Value]:
        return [Value(name, port) for name, count in self.count.items() for port in range(count)]

    def needed(self, name: str) -> bool:
        in_data = any(v.node == name for operands in self.operands.values() for v in operands)
        return in_data or any(name in c for c in self.controls.values()) or any(o.value.node == name for o in self.outputs)

    @rule(data=st.data(), outputs=st.integers(0, 3))
    def add(self, data: st.DataObject, outputs: int) -> None:
        name = self.graph.fresh_name("n")
        operands = data.draw(st.lists(st.sampled_from(self.values()), max_size=3)) if self.values() else []
        controls = data.draw(st.sets(st.sampled_from(list(self.count)), max_size=2)) if self.count else set()
        self.graph.add("Op", operands, types=[F32] * outputs, name=name, controls=controls)
        self.operands[name], self.controls[name], self.count[name] = operands, controls, outputs

    @rule()
    def add_input(self) -> None:
        name = self.graph.fresh_name("in")
        self.graph.add_input(name, F32)
        self.operands[name], self.controls[name], self.count[name] = [], set(), 1

    @precondition(lambda self: self.count)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(list(self.count)))
        if self.needed(name):
            with pytest.raises(IrError, match="still needed by"):
                self.graph.remove(name)
            return
        self.graph.remove(name)
        del self.operands[name], self.controls[name], self.count[name]

    @precondition(lambda self: self.values())
    @rule(data=st.data())
    def replace_uses(self, data: st.DataObject) -> None:
        old, new = (data.draw(st.sampled_from(self.values())) for _ in range(2))
        spared = data.draw(st.sets(st.sampled_from(list(self.count)), max_size=2))
        uses = [(n, i) for n, ops in self.operands.items() if n not in spared for i, v in enumerate(ops) if v == old]
        in_outputs = sum(o.value == old for o in self.outputs)
        assert self.graph.replace_uses(old, new, except_by=spared) == len(uses) + in_outputs
        for name, slot in uses:
            self.operands[name][slot] = new
        self.outputs = [Output(o.name, new) if o.value == old else o for o in self.outputs]

    @precondition(lambda self: self.values())
    @rule(data=st.data())
    def set_operand(self, data: st.DataObject) -> None:
        name, value = data.draw(st.sampled_from(list(self.count))), data.draw(st.sampled_from(self.values()))
        slot = data.draw(st.integers(0, len(self.operands[name])))
        self.graph.set_operand(name, slot, value)
        self.operands[name][slot : slot + 1] = [value]

    @precondition(lambda self: self.values())
    @rule(data=st.data())
    def set_operands(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(list(self.count)))
        self.operands[name] = data.draw(st.lists(st.sampled_from(self.values()), max_size=4))
        self.graph.set_operands(name, self.operands[name])

    @precondition(lambda self: self.count)
    @rule(data=st.data())
    def set_control(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(list(self.count)))
        self.controls[name] = data.draw(st.sets(st.sampled_from(list(self.count)), max_size=3))
        self.graph.set_control(name, self.controls[name])

    @precondition(lambda self: self.values())
    @rule(data=st.data())
    def set_outputs(self, data: st.DataObject) -> None:
        values = data.draw(st.lists(st.sampled_from(self.values()), max_size=3))
        self.outputs = [Output(f"y{i}", value) for i, value in enumerate(values)]
        self.graph.set_outputs(self.outputs)

    @precondition(lambda self: self.values())
    @rule(data=st.data(), device=st.sampled_from(["", "/device:CPU:1"]))
    def set_device(self, data: st.DataObject, device: str) -> None:
        name, before = data.draw(st.sampled_from(list(self.count))), self.graph.version
        changes = self.graph.node(name).device != device
        self.graph.set_device(name, device)
        assert self.graph.node(name).device == device
        assert (self.graph.version > before) == changes

    @rule()
    def a_copy_is_equal_and_independent(self) -> None:
        twin = self.graph.copy()
        assert equal_graphs(twin, self.graph)
        twin.add("Op", name=twin.fresh_name("other"))
        assert len(self.graph) == len(self.count)

    @invariant()
    def structure_agrees(self) -> None:
        assert [node.name for node in self.graph] == list(self.count)
        assert self.graph.inputs == tuple(name for name in self.count if name.startswith("in"))
        assert list(self.graph.outputs) == self.outputs
        for name in self.count:
            assert list(self.graph.operands(name)) == self.operands[name]
            assert [edge.value for edge in self.graph.edges(name)] == self.operands[name]
            assert self.graph.controls(name) == tuple(sorted(self.controls[name]))
            assert self.graph.is_needed(name) == self.needed(name)

    @invariant()
    def needs_agree(self) -> None:
        for value in self.values():
            needs = self.graph.needs(value)
            assert needs.data == tuple(sorted(Use(n, i) for n, ops in self.operands.items() for i, v in enumerate(ops) if v == value))
            assert needs.control == tuple(sorted(n for n, controls in self.controls.items() if value.node in controls))
            assert needs.outputs == tuple(o.name for o in self.outputs if o.value == value)
            sole = self.graph.sole_use(value)
            alone = len(needs.data) == 1 and not needs.control and not needs.outputs
            assert sole == (needs.data[0] if alone else None)

    @invariant()
    def order_is_topological_or_there_is_a_cycle(self) -> None:
        before = {n: {v.node for v in self.operands[n]} | self.controls[n] for n in self.count}
        cycle = self.graph.cycle()
        if cycle:
            assert all(earlier in before[later] for earlier, later in zip(cycle, (*cycle[1:], cycle[0]), strict=True))
            with pytest.raises(IrError, match="has a cycle"):
                self.graph.order()
            return
        place = {name: i for i, name in enumerate(self.graph.order())}
        assert place.keys() == self.count.keys()
        assert all(place[producer] < place[name] for name, producers in before.items() for producer in producers)

    @invariant()
    def versions_only_grow(self) -> None:
        assert self.graph.version >= self.seen
        self.seen = self.graph.version


TestGraphMachine = GraphMachine.TestCase
TestGraphMachine.settings = settings(max_examples=40, stateful_step_count=25)


def chain() -> Graph:
    graph = Graph("main")
    x = graph.add_input("x", F32)
    a = graph.add("Op", [x, x], types=[F32, F32], name="a")
    graph.add("Op", [Value("a", 1)], types=[F32], name="b", controls=["x"])
    graph.set_outputs([("y", Value("b"))])
    assert a.name == "a"
    return graph


def test_parallel_edges_are_kept():
    graph = chain()
    assert graph.operands("a") == (Value("x"), Value("x"))
    assert graph.needs("x").data == (Use("a", 0), Use("a", 1))


def test_order_is_the_order_of_insertion_where_that_is_free():
    graph = Graph("main")
    for name in ("c", "a", "b"):
        graph.add("Op", types=[F32], name=name)
    assert graph.order() == ("c", "a", "b")


def test_refusals_name_the_node():
    graph = chain()
    with pytest.raises(IrError, match="already has a node 'a'"):
        graph.add("Op", name="a")
    with pytest.raises(IrError, match="has no node 'missing'"):
        graph.add("Op", [Value("missing")], name="z")
    with pytest.raises(IrError, match="%a:2 does not exist, Op 'a' has 2 outputs"):
        graph.set_outputs([("y", Value("a", 2))])
    with pytest.raises(IrError, match="two outputs share a name"):
        graph.set_outputs([("y", Value("a")), ("y", Value("b"))])
    with pytest.raises(IrError, match="has 1 operands, cannot set operand 2"):
        graph.set_operand("b", 2, Value("x"))
    with pytest.raises(IrError, match="cannot remove 'a', still needed by b"):
        graph.remove("a")
    assert "z" not in graph


def test_set_node_keeps_the_ports_in_use():
    graph = chain()
    with pytest.raises(IrError, match="port 1 is used"):
        graph.set_node(Node("a", "Other", types=(F32,)))
    graph.set_node(Node("a", "Other", types=(F32, F32, F32)))
    assert graph.node("a").op == "Other"
    assert graph.operands("b") == (Value("a", 1),)


def test_outsider_says_who():
    graph = chain()
    assert graph.outsider("b", {"a"}) == "output 'y'"
    assert graph.outsider("x", {"a"}) == "'b'"
    assert graph.outsider("x", {"a", "b"}) == "'b' (by control)"
    assert graph.outsider("a", {"b"}) is None


def test_depth_and_fan_out_do_not_matter():
    graph = Graph("main")
    x = value = graph.add_input("x", F32)
    for i in range(20_000):
        value = Value(graph.add("Op", [value, x], types=[F32], name=f"n{i}").name)
    assert len(graph.order()) == 20_001
    assert graph.cycle() == ()
    graph.set_operand("n0", 0, value)
    assert len(graph.cycle()) == 20_000
