"""What a pattern fits, what every rule is spared, and how the engine ends."""

import pytest

from compiler.ir.text import parse_module
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
        return op.Neg(m.x)


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
