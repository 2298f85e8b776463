"""What a pattern fits, what every rule is spared, and how the engine ends."""

import time

import pytest

from compiler.ir.errors import IrError
from compiler.ir.graph import Graph, Value
from compiler.ir.module import Module
from compiler.ir.text import parse_module
from compiler.ir.types import DType, TensorType
from compiler.pipeline.base import Context
from compiler.rewrite.engine import apply_rules
from compiler.rewrite.rule import Refusal, Rule

HEAD = 'module "m" facts(typed)\n\n'


def body(statements: str, output: str = "y") -> str:
    return f"{HEAD}entry @f(%x: f32[3], %z: f32[3]) -> (y = %{output}) {{\n{statements}\n}}\n"


class SubToNegAdd(Rule):
    """Sub(x, z) => AddV2(x, Neg(z)): for tests only."""

    def pattern(self, op, x, z):  # type: ignore[no-untyped-def]
        return op.Sub(x, z)

    def rewrite(self, op, m):  # type: ignore[no-untyped-def]
        return op.AddV2(m.x, op.Neg(m.z))


class Back(Rule):
    """AddV2(x, Neg(z)) => Sub(x, z)"""

    def pattern(self, op, x, z):  # type: ignore[no-untyped-def]
        return op.AddV2(x, op.Neg(z))

    def rewrite(self, op, m):  # type: ignore[no-untyped-def]
        return op.Sub(m.x, m.z)


class Square(Rule):
    """Mul(x, x) => Square(x): a capture written twice is one value."""

    def pattern(self, op, x):  # type: ignore[no-untyped-def]
        return op.Mul(x, x)

    def rewrite(self, op, m):  # type: ignore[no-untyped-def]
        return op.Square(m.x)


class Leaky(Rule):
    """LeakyRelu with its default alpha only."""

    def pattern(self, op, x):  # type: ignore[no-untyped-def]
        return op.LeakyRelu(x)

    def rewrite(self, op, m):  # type: ignore[no-untyped-def]
        return op.Relu(m.x)


class SecondHalf(Rule):
    """An output port."""

    def pattern(self, op, axis, x):  # type: ignore[no-untyped-def]
        return op.Exp(op.Split(axis, x, num_split=2)[1])

    def rewrite(self, op, m):  # type: ignore[no-untyped-def]
        return op.Neg(op.Split(m.axis, m.x, num_split=2)._replace(port=1))


class Declines(Rule):
    def pattern(self, op, x):  # type: ignore[no-untyped-def]
        return op.Exp(x)

    def check(self, m):  # type: ignore[no-untyped-def]
        return Refusal("never", m.x)

    def rewrite(self, op, m):  # type: ignore[no-untyped-def]
        raise AssertionError("a refused rule is not asked")


def fired(text: str, *rules: Rule, fuel: int | None = None) -> tuple[list[str], Context]:
    module = parse_module(text)
    context = Context(fuel=fuel)
    apply_rules(module, rules, context)
    graph = module.entries["f"]
    return [graph.node(n).op for n in graph.order() if graph.node(n).op != "Input"], context


def test_a_rule_fires_and_takes_the_roots_name() -> None:
    module = parse_module(body("  %y = Sub(%x, %z) : f32[3] from(y)"))
    apply_rules(module, [SubToNegAdd()], Context())
    graph = module.entries["f"]
    assert graph.node("y").op == "AddV2" and graph.outputs[0].value.node == "y"
    assert graph.node("y").origin == ("y",)


def test_commutative_operands_match_both_ways_round() -> None:
    assert fired(body("  %n = Neg(%z) : f32[3] from(n)\n  %y = AddV2(%n, %x) : f32[3] from(y)"), Back())[0] == ["Sub"]


@pytest.mark.parametrize(("operands", "ops"), [("%x, %x", ["Square"]), ("%x, %z", ["Mul"])])
def test_a_repeated_capture_is_one_value(operands: str, ops: list[str]) -> None:
    assert fired(body(f"  %y = Mul({operands}) : f32[3] from(y)"), Square())[0] == ops


@pytest.mark.parametrize(("attrs", "ops"), [("", ["Relu"]), (" {alpha=0.3}", ["LeakyRelu"]), (" {_hint=true}", ["LeakyRelu"])])
def test_an_attribute_that_is_not_named_must_have_its_default(attrs: str, ops: list[str]) -> None:
    assert fired(body(f"  %y = LeakyRelu(%x){attrs} : f32[3] from(y)"), Leaky())[0] == ops


@pytest.mark.parametrize(("port", "last"), [("", "Exp"), (":1", "Neg")])
def test_a_port_must_be_the_patterns(port: str, last: str) -> None:
    text = f"""{HEAD}entry @f(%x: f32[4]) -> (y = %y) {{
  %a = Const() {{value=tensor(i32[], 0)}} : i32[] from(a)
  %s = Split(%a, %x) {{num_split=2}} : (f32[2], f32[2]) from(s)
  %y = Exp(%s{port}) : f32[2] from(y)
}}
"""
    assert fired(text, SecondHalf())[0][-1] == last


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("  %n = Neg(%z) : f32[3] from(n)\n  %o = Exp(%n) : f32[3] from(o)\n  %k = AddV2(%x, %n) : f32[3] from(k)\n"
         "  %y = Mul(%k, %o) : f32[3] from(y)", "also needed by 'o'"),
        ("  %n = Neg(%z) : f32[3] from(n)\n  %w = NoOp() : () from(w) after(%n)\n  %y = AddV2(%x, %n) : f32[3] from(y)", "also needed by"),
        ('  %n = Neg(%z) : f32[3] on "/device:CPU:1" from(n)\n  %y = AddV2(%x, %n) : f32[3] from(y)', "is on /device:CPU:1"),
    ],
    ids=["fan-out", "control user", "pin"],
)  # fmt: skip
def test_what_every_rule_is_spared(text: str, reason: str) -> None:
    ops, context = fired(body(text), Back())
    assert "AddV2" in ops
    assert any(reason in note.what for note in context.notes), [n.what for n in context.notes]


def test_control_inputs_are_carried_over() -> None:
    module = parse_module(body("  %w = NoOp() : () from(w)\n  %y = Sub(%x, %z) : f32[3] from(y) after(%w)"))
    apply_rules(module, [SubToNegAdd()], Context())
    graph = module.entries["f"]
    assert graph.controls("y") == ("w",)
    assert all(graph.controls(node.name) == ("w",) for node in graph if node.op == "Neg")


def test_rules_that_undo_each_other_are_stopped_and_named() -> None:
    _, context = fired(body("  %y = Sub(%x, %z) : f32[3] from(y)"), SubToNegAdd(), Back())
    assert any("seem to undo each other" in note.what for note in context.notes)


def test_fuel_stops_between_two_rewrites() -> None:
    text = body("  %a = Sub(%x, %z) : f32[3] from(a)\n  %b = Sub(%a, %z) : f32[3] from(b)\n  %y = Sub(%b, %z) : f32[3] from(y)")
    for fuel in range(4):
        assert fired(text, SubToNegAdd(), fuel=fuel)[0].count("Sub") == 3 - fuel


def test_a_rule_that_declines_is_not_asked_and_says_why() -> None:
    ops, context = fired(body("  %y = Exp(%x) : f32[3] from(y)"), Declines())
    assert ops == ["Exp"] and [n.what for n in context.notes] == ["declines: never: %x"]


def test_a_long_chain_is_rewritten_in_one_go() -> None:
    count = 3000
    lines = [f"  %n{i} = Sub(%{'x' if i == 0 else f'n{i - 1}'}, %z) : f32[3] from(n)" for i in range(count)]
    ops, _ = fired(body("\n".join(lines), f"n{count - 1}"), SubToNegAdd())
    assert ops.count("AddV2") == count and "Sub" not in ops


# ---- what a rule may answer


class Unpacked(Rule):
    """Unpack(Pack(x, z)), output 1 => z: the pattern speaks of one port."""

    def pattern(self, op, x, z):  # type: ignore[no-untyped-def]
        return op.Unpack(op.Pack(x, z), num=2)[1]

    def rewrite(self, op, m):  # type: ignore[no-untyped-def]
        return m.z


def test_a_rule_rooted_at_a_port_replaces_that_port_once() -> None:
    text = f"""{HEAD}entry @f(%x: f32[3], %z: f32[3]) -> (a = %u, b = %u:1) {{
  %p = Pack(%x, %z) : f32[2,3]
  %u = Unpack(%p) {{num=2}} : (f32[3], f32[3])
}}
"""
    module = parse_module(text)
    statistics = apply_rules(module, [Unpacked()], Context())
    assert [o.value for o in module.entries["f"].outputs] == [Value("u"), Value("z")]
    assert statistics.fired["unpacked"] == 1


class CastAway(Rule):
    """Wrong: the element type changes."""

    def pattern(self, op, x):  # type: ignore[no-untyped-def]
        return op.Cast(x)

    def rewrite(self, op, m):  # type: ignore[no-untyped-def]
        return m.x


class OneOfTwo(Rule):
    """Wrong: the root has two outputs."""

    def pattern(self, op, x):  # type: ignore[no-untyped-def]
        return op.IdentityN(x, x)

    def rewrite(self, op, m):  # type: ignore[no-untyped-def]
        return m.x


class Misfit(Rule):
    """Wrong: vectors have no matrix product."""

    def pattern(self, op, x, z):  # type: ignore[no-untyped-def]
        return op.Mul(x, z)

    def rewrite(self, op, m):  # type: ignore[no-untyped-def]
        return op.MatMul(m.x, m.z)


@pytest.mark.parametrize(
    ("statements", "rule", "message"),
    [
        ("  %y = Cast(%x) {DstT=i32} : i32[3]", CastAway(), r"rule 'cast-away' at 'y': it answers \(f32\[3\]\), expected \(i32\[3\]\)"),
        ("  %y = IdentityN(%x, %x) : (f32[3], f32[3])", OneOfTwo(), r"rule 'one-of-two' at 'y': it answers \(f32\[3\]\), expected"),
        ("  %y = Mul(%x, %z) : f32[3]", Misfit(), r"rule 'misfit' at 'y': MatMul"),
    ],
)
def test_a_wrong_rule_is_named(statements: str, rule: Rule, message: str) -> None:
    with pytest.raises(IrError, match=message):
        apply_rules(parse_module(body(statements)), [rule], Context())


class ThroughRelu(Rule):
    """Shape(Relu(x)) => Shape(x)"""

    def pattern(self, op, x):  # type: ignore[no-untyped-def]
        return op.Shape(op.Relu(x))

    def rewrite(self, op, m):  # type: ignore[no-untyped-def]
        return op.Shape(m.x)


@pytest.mark.parametrize(("attrs", "type_", "count"), [("", "i32[1]", 1), (" {out_type=i64}", "i64[1]", 0)])
def test_an_element_type_with_a_default_must_have_it(attrs: str, type_: str, count: int) -> None:
    module = parse_module(body(f"  %r = Relu(%x) : f32[3]\n  %y = Shape(%r){attrs} : {type_}"))
    assert apply_rules(module, [ThroughRelu()], Context()).fired["through-relu"] == count


class ThroughNeg(Rule):
    """Exp(Neg(x)) => Relu(x), the Neg left to others: for tests only."""

    def pattern(self, op, x):  # type: ignore[no-untyped-def]
        return op.Exp(op.Neg(x, shared=True))

    def rewrite(self, op, m):  # type: ignore[no-untyped-def]
        return op.Relu(m.x)


def test_a_shared_node_stays_and_its_control_inputs_are_carried_over() -> None:
    module = parse_module(body("  %n = Neg(%x) : f32[3] after(%z)\n  %e = Exp(%n) : f32[3]\n  %y = Mul(%e, %n) : f32[3]"))
    apply_rules(module, [ThroughNeg()], Context())
    graph = module.entries["f"]
    assert "n" in graph
    assert (graph.node("e").op, graph.operands("e"), graph.controls("e")) == ("Relu", (Value("x"),), ("z",))


class Same(Rule):
    def pattern(self, op, x):  # type: ignore[no-untyped-def]
        return op.Identity(x)

    def rewrite(self, op, m):  # type: ignore[no-untyped-def]
        return m.x


@pytest.mark.parametrize(
    ("made_on", "pinned_to", "count"),
    [("", "", 1), ("", "/device:CPU:1", 0), ("/device:CPU:1", "/device:CPU:1", 1), ("/device:CPU:0", "", 1)],
)
def test_a_device_pin_is_not_lost(made_on: str, pinned_to: str, count: int) -> None:
    on = [f' on "{device}"' if device else "" for device in (made_on, pinned_to)]
    context = Context()
    statistics = apply_rules(parse_module(body(f"  %r = Relu(%x) : f32[3]{on[0]}\n  %y = Identity(%r) : f32[3]{on[1]}")), [Same()], context)
    assert statistics.fired["same"] == count
    assert any("/device:CPU:1 would be lost" in note.what for note in context.notes) == (count == 0)


def test_a_node_of_thousands_of_operands_is_rewired_in_linear_time() -> None:
    def seconds(count: int) -> float:
        type_ = TensorType(DType("float32"), (3,))
        graph = Graph("f")
        graph.add_input("x", type_)
        for k in range(count):
            graph.add("Relu", [Value("x")], {}, [type_], name=f"r{k}")
            graph.add("Identity", [Value(f"r{k}")], {}, [type_], name=f"i{k}")
        graph.add("AddN", [Value(f"i{k}") for k in range(count)], {}, [type_], name="y")
        graph.set_outputs([("y", Value("y"))])
        started = time.process_time()
        assert apply_rules(Module("m", {"f": graph}), [Same()], Context()).fired["same"] == count
        return time.process_time() - started

    assert seconds(8000) < 24 * max(seconds(1000), 0.02)  # 8 where it is linear, 64 where it is quadratic
