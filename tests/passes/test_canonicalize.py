"""State keeps its order through inlining, constants are TensorFlow's own, bodies learn from their one caller, and nothing is quadratic."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
import pytest

from compiler.execution import ModuleExecutor
from compiler.ir.errors import IrError
from compiler.ir.graph import Graph, Value
from compiler.ir.module import Module
from compiler.ir.types import DType, TensorType
from compiler.pipeline.base import Context
from passes.canonicalize.cse import CommonSubexpressions
from tests.checks import RunModule, assert_refuses, assert_rewrites, assert_same_function, run

HEAD = 'module "m" facts(typed)\n\n'
STATE = """variable @g : f32[2] = splat(f32[2], 1.0)
variable @k : f32[2] = splat(f32[2], 1.0)

"""

REWRITES: dict[str, tuple[str, str, str]] = {
    "inlined: what reads constants only still waits": (
        "inline-calls",
        STATE
        + """entry @f(%x: f32[2]) -> (y = %r) {
  %h = Variable() {ref="g"} : resource<f32[2]>[] from(h)
  %first = AssignVariableOp(%h, %x) {dtype=f32} : () from(first)
  %c = Call(%h) {f=@b} : () from(c) after(%first)
  %r = ReadVariableOp(%h) {dtype=f32} : f32[2] from(r) after(%c)
}
function @b(%a: resource<f32[2]>[]) -> () {
  %z = Const() {value=splat(f32[2], 5.0)} : f32[2] from(z)
  %s = AssignVariableOp(%a, %z) {dtype=f32} : () from(s)
}""",
        STATE
        + """entry @f(%x: f32[2]) -> (y = %r) {
  %h = Variable() {ref="g"} : resource<f32[2]>[] from(h)
  %first = AssignVariableOp(%h, %x) {dtype=f32} : () from(first)
  %c/z = Const() {value=splat(f32[2], 5.0)} : f32[2] from(c/z)
  %c/s = AssignVariableOp(%h, %c/z) {dtype=f32} : () from(c/s) after(%first)
  %r = ReadVariableOp(%h) {dtype=f32} : f32[2] from(r) after(%c/s)
}""",
    ),
    "inlined: a later write waits for the body's read, too": (
        "inline-calls",
        STATE
        + """entry @f(%x: f32[2]) -> (y = %c) {
  %h = Variable() {ref="g"} : resource<f32[2]>[] from(h)
  %k = Variable() {ref="k"} : resource<f32[2]>[] from(k)
  %c = Call(%h, %k, %x) {f=@b} : f32[2] from(c)
  %last = AssignVariableOp(%h, %x) {dtype=f32} : () from(l) after(%c)
}
function @b(%a: resource<f32[2]>[], %k: resource<f32[2]>[], %v: f32[2]) -> (r = %r) {
  %r = ReadVariableOp(%a) {dtype=f32} : f32[2] from(r)
  %s = AssignVariableOp(%k, %v) {dtype=f32} : () from(s)
}""",
        STATE
        + """entry @f(%x: f32[2]) -> (y = %c/r) {
  %h = Variable() {ref="g"} : resource<f32[2]>[] from(h)
  %k = Variable() {ref="k"} : resource<f32[2]>[] from(k)
  %c/r = ReadVariableOp(%h) {dtype=f32} : f32[2] from(c/r)
  %c/s = AssignVariableOp(%k, %x) {dtype=f32} : () from(c/s)
  %last = AssignVariableOp(%h, %x) {dtype=f32} : () from(l) after(%c/r, %c/s)
}""",
    ),
    "inlined: a body that gives back its argument passes on what the call waited for": (
        "inline-calls",
        STATE
        + """entry @f(%x: f32[2]) -> (y = %r) {
  %h = Variable() {ref="g"} : resource<f32[2]>[] from(h)
  %first = AssignVariableOp(%h, %x) {dtype=f32} : () from(first)
  %c = Call(%x) {f=@b} : f32[2] from(c) after(%first)
  %r = ReadVariableOp(%h) {dtype=f32} : f32[2] from(r) after(%c)
}
function @b(%a: f32[2]) -> (r = %a) {
}""",
        STATE
        + """entry @f(%x: f32[2]) -> (y = %r) {
  %h = Variable() {ref="g"} : resource<f32[2]>[] from(h)
  %first = AssignVariableOp(%h, %x) {dtype=f32} : () from(first)
  %r = ReadVariableOp(%h) {dtype=f32} : f32[2] from(r) after(%first, %x)
}""",
    ),
    "inlined: who waits for an argument waits for whoever makes it": (
        "inline-calls",
        """entry @f(%x: f32[2]) -> (y = %c) {
  %e = Exp(%x) : f32[2] from(e)
  %c = Call(%x, %e) {f=@b} : f32[2] from(c)
}
function @b(%a: f32[2], %w: f32[2]) -> (r = %r) {
  %r = Neg(%a) : f32[2] from(r) after(%w)
}""",
        """entry @f(%x: f32[2]) -> (y = %c/r) {
  %e = Exp(%x) : f32[2] from(e)
  %c/r = Neg(%x) : f32[2] from(c/r) after(%e)
}""",
    ),
    "nested calls are inlined inside out": (
        "inline-calls",
        """entry @f(%x: f32[2]) -> (y = %c) {
  %c = Call(%x) {f=@outer} : f32[2] from(c)
}
function @outer(%a: f32[2]) -> (r = %r) {
  %i = Call(%a) {f=@inner} : f32[2] from(i)
  %r = Neg(%i) : f32[2] from(r)
}
function @inner(%a: f32[2]) -> (r = %r) {
  %r = Exp(%a) : f32[2] from(e)
}""",
        """entry @f(%x: f32[2]) -> (y = %c/r) {
  %c/i/r = Exp(%x) : f32[2] from(c/i/e)
  %c/r = Neg(%c/i/r) : f32[2] from(c/r)
}""",
    ),
    "order said by data only is said by control edges": (
        "order-effects",
        STATE
        + """entry @f(%x: f32[2]) -> (y = %x) {
  %h = Variable() {ref="g"} : resource<f32[2]>[] from(h)
  %w = AssignVariableOp(%h, %x) {dtype=f32} : () from(w)
  %r = ReadVariableOp(%h) {dtype=f32} : f32[2] from(r) after(%w)
  %n = Shape(%r) : i32[1] from(n)
  %z = Reshape(%x, %n) : f32[2] from(z)
  %v = AssignVariableOp(%h, %z) {dtype=f32} : () from(v)
}""",
        STATE
        + """entry @f(%x: f32[2]) -> (y = %x) {
  %h = Variable() {ref="g"} : resource<f32[2]>[] from(h)
  %w = AssignVariableOp(%h, %x) {dtype=f32} : () from(w)
  %r = ReadVariableOp(%h) {dtype=f32} : f32[2] from(r) after(%w)
  %n = Shape(%r) : i32[1] from(n)
  %z = Reshape(%x, %n) : f32[2] from(z)
  %v = AssignVariableOp(%h, %z) {dtype=f32} : () from(v) after(%r, %w)
}""",
    ),
    "a select that is all true is its first side": (
        "simplify,dce",
        """entry @f(%x: f32[3], %z: f32[]) -> (y = %y) {
  %t = Const() {value=splat(bool[3], true)} : bool[3] from(t)
  %s = SelectV2(%t, %x, %z) : f32[3] from(s)
  %y = Exp(%s) : f32[3] from(y)
}""",
        """entry @f(%x: f32[3], %z: f32[]) -> (y = %y) {
  %y = Exp(%x) : f32[3] from(y)
}""",
    ),
}

REFUSALS: dict[str, tuple[str, str, str]] = {
    "reads of what nobody writes have no order": (
        "order-effects",
        STATE
        + """entry @f(%x: f32[2]) -> (a = %a, b = %b) {
  %h = Variable() {ref="g"} : resource<f32[2]>[] from(h)
  %a = ReadVariableOp(%h) {dtype=f32} : f32[2] from(a)
  %b = ReadVariableOp(%h) {dtype=f32} : f32[2] from(b)
}""",
        "",
    ),
    "the value of a reference is not the reference, and assigning to one is an effect": (
        "simplify,dce",
        """entry @f(%x: f32[2]) -> (y = %i) {
  %v = VariableV2() {dtype=f32, shape=shape[2]} : f32_ref[2] from(v)
  %i = Identity(%v) : f32[2] from(i)
  %a = Assign(%v, %x) : f32_ref[2] from(a) after(%i)
}""",
        "it reads a reference",
    ),
    "a select whose chosen side is broadcast stays": (
        "simplify",
        """entry @f(%x: f32[3], %z: f32[]) -> (y = %y) {
  %t = Const() {value=splat(bool[3], false)} : bool[3] from(t)
  %y = SelectV2(%t, %x, %z) : f32[3] from(y)
}""",
        "",
    ),
    "a mixed condition stays": (
        "simplify",
        """entry @f(%x: f32[2], %z: f32[2]) -> (y = %y) {
  %t = Const() {value=tensor(bool[2], [true, false])} : bool[2] from(t)
  %y = SelectV2(%t, %x, %z) : f32[2] from(y)
}""",
        "",
    ),
    "a call in v1 control flow stays: it may be dead": (
        "inline-calls",
        """entry @f(%x: f32[2], %p: bool[]) -> (y = %m) {
  %s = Switch(%x, %p) : (f32[2], f32[2]) from(s)
  %c = Call(%s:1) {f=@b} : f32[2] from(c)
  %m = Merge(%c, %s) : (f32[2], i32[]) from(m)
}
function @b(%a: f32[2]) -> (r = %r) {
  %r = Neg(%a) : f32[2] from(r)
}""",
        "inside v1 control flow",
    ),
}


@pytest.mark.parametrize("case", REWRITES)
def test_rewrites(case: str) -> None:
    pipeline, before, after = REWRITES[case]
    assert_rewrites(HEAD + before, HEAD + after, pipeline)


@pytest.mark.parametrize("case", REFUSALS)
def test_refuses(case: str) -> None:
    pipeline, before, reason = REFUSALS[case]
    assert_refuses(HEAD + before, pipeline, reason)


@pytest.mark.tf
@pytest.mark.parametrize("case", REWRITES)
def test_both_sides_compute_the_same(case: str, run_module: RunModule) -> None:
    pipeline, before, _ = REWRITES[case]
    assert_same_function(HEAD + before, run(HEAD + before, pipeline)[0], run_module)


# ---- infer-types: what callers tell their bodies


def body_types(text: str) -> list[str]:
    (body,) = run(HEAD + text, "infer-types")[0].functions.values()
    return [str(body.type_of(Value(name))) for name in (*body.inputs, "r")]


CALLED = """entry @f(%x: f32[{given}]) -> (y = %c) {{
  %c = Call(%x) {{f=@g}} : f32[?,?] from(c){again}
}}
function @g(%a: f32[{dims}]) -> (r = %r) {{_noinline=true}} {{
  %r = Exp(%a) : f32[{dims}] from(r)
}}"""
AGAIN = "\n  %d = Call(%c) {f=@g} : f32[?,?] from(d)"


@pytest.mark.parametrize(
    ("given", "dims", "again", "expected"),
    [
        ("b,4", "?,?", "", "f32[b,4]"),  # one caller: all it knows
        ("b,4", "?,?", AGAIN, "f32[?,?]"),  # two callers: neither speaks for both
        ("b,4", "n,?", "", "f32[n,4]"),  # the body's own symbol stays, static sizes enter
        ("b,4", "?,b", "", "f32[b,4]"),  # the body's b is 4: no other b is left in it
        ("b,n", "?,b", "", "f32[?,b]"),  # the caller's b is another size than the body's b
    ],
)
def test_a_body_with_one_caller_learns_its_types(given: str, dims: str, again: str, expected: str) -> None:
    assert set(body_types(CALLED.format(given=given, dims=dims, again=again))) == {expected}


def test_what_a_body_learns_reaches_bodies_further_in() -> None:
    text = CALLED.format(given="b,4", dims="?,?", again="").replace("Exp(%a)", "Call(%a) {f=@h}")
    text += "\nfunction @h(%a: f32[?,?]) -> (r = %r) {_noinline=true} {\n  %r = Exp(%a) : f32[?,?] from(r)\n}"
    module = run(HEAD + text, "infer-types")[0]
    assert str(module.functions["h"].type_of(Value("r"))) == "f32[b,4]"
    assert str(module.entries["f"].type_of(Value("c"))) == "f32[b,4]"


# ---- cse at scale


def test_thousands_of_equal_nodes_become_one_in_linear_time() -> None:
    def seconds(count: int) -> float:
        type_ = TensorType(DType("float32"), (3,))
        graph = Graph("f")
        graph.add_input("x", type_)
        for k in range(count):
            graph.add("Relu", [Value("x")], {}, [type_], name=f"r{k}", origin=(f"r{k}",))
        graph.set_outputs([("y", Value("r0"))])
        module = Module("m", {"f": graph}, {})
        started = time.process_time()
        CommonSubexpressions().run(module, Context())
        assert len(graph) == 2
        assert len(graph.node("r0").origin) == count
        return time.process_time() - started

    assert seconds(8000) < 16 * max(seconds(1000), 0.01)  # 8 where it is linear, 64 where it is quadratic


# ---- inline-calls at scale


def test_functions_that_call_functions_twice_do_not_explode() -> None:
    deep = "".join(
        f"""function @g{k}(%x: f32[3]) -> (y = %b) {{
  %a = Call(%x) {{f=@g{k - 1}}} : f32[3] from(a)
  %b = Call(%a) {{f=@g{k - 1}}} : f32[3] from(b)
}}
"""
        for k in range(1, 41)
    )
    text = f"""{HEAD}entry @f(%x: f32[3]) -> (y = %y) {{
  %y = Call(%x) {{f=@g40}} : f32[3] from(y)
}}
function @g0(%x: f32[3]) -> (y = %y) {{
  %y = Relu(%x) : f32[3] from(r)
}}
{deep}"""
    module, context = run(text, "inline-calls{most-copies=1000}")
    assert sum(len(graph) for graph in module.graphs.values()) < 2000
    assert any("too many nodes were copied already" in note.what for note in context.notes)


def test_functions_that_call_each_other_are_an_error_in_words() -> None:
    text = "".join(
        f"""function @{name}(%x: f32[3]) -> (y = %y) {{
  %y = Call(%x) {{f=@{other}}} : f32[3] from(y)
}}
"""
        for name, other in (("g", "h"), ("h", "g"))
    )
    with pytest.raises(IrError, match="functions call each other in a cycle"):
        run(f"{HEAD}entry @f(%x: f32[3]) -> (y = %y) {{\n  %y = Call(%x) {{f=@g}} : f32[3] from(y)\n}}\n{text}", "inline-calls,cse,dce")


# ---- fold-constants, by TensorFlow's kernels


@pytest.fixture(scope="module")
def executor() -> Iterator[ModuleExecutor]:
    from compiler.backend.executor import GraphExecutor
    from compiler.backend.pool import Pool

    with Pool() as pool:
        yield GraphExecutor(pool)


FOLDED: dict[str, tuple[str, str]] = {
    "the sign of zero and the element type stay": (
        """entry @f(%x: f32[2]) -> (a = %a, b = %b, c = %c) {
  %z = Const() {value=tensor(f32[2], [0.0, -0.0])} : f32[2] from(z)
  %a = Neg(%z) : f32[2] from(a)
  %b = Cast(%z) {DstT=bf16} : bf16[2] from(b)
  %n = Const() {value=tensor(i32[], 2147483647)} : i32[] from(n)
  %c = AddV2(%n, %n) : i32[] from(c)
}""",
        """entry @f(%x: f32[2]) -> (a = %a, b = %b, c = %c) {
  %a = Const() {value=tensor(f32[2], [-0.0, 0.0])} : f32[2] from(a)
  %b = Const() {value=tensor(bf16[2], [0.0, -0.0])} : bf16[2] from(b)
  %c = Const() {value=tensor(i32[], -2)} : i32[] from(c)
}""",
    ),
    "one of many results, though another node waits for the whole": (
        """entry @f(%x: f32[2]) -> (y = %y) {
  %axis = Const() {value=tensor(i32[], 0)} : i32[] from(axis)
  %v = Const() {value=tensor(f32[4], [1.0, 2.0, 3.0, 4.0])} : f32[4] from(v)
  %s = Split(%axis, %v) {num_split=2} : (f32[2], f32[2]) from(s)
  %y = AddV2(%x, %s:1) : f32[2] from(y) after(%s)
}""",
        """entry @f(%x: f32[2]) -> (y = %y) {
  %axis = Const() {value=tensor(i32[], 0)} : i32[] from(axis)
  %v = Const() {value=tensor(f32[4], [1.0, 2.0, 3.0, 4.0])} : f32[4] from(v)
  %s = Split(%axis, %v) {num_split=2} : (f32[2], f32[2]) from(s)
  %s/1 = Const() {value=tensor(f32[2], [3.0, 4.0])} : f32[2] from(s)
  %y = AddV2(%x, %s/1) : f32[2] from(y) after(%s)
}""",
    ),
    "a node that fails is left alone, its neighbours are folded": (
        """entry @f(%x: f32[2]) -> (a = %a, b = %b) {
  %v = Const() {value=tensor(f32[2], [4.0, 9.0])} : f32[2] from(v)
  %seven = Const() {value=tensor(i32[], 7)} : i32[] from(seven)
  %axis = Const() {value=tensor(i32[], 0)} : i32[] from(axis)
  %a = Sqrt(%v) : f32[2] from(a)
  %b = GatherV2(%v, %seven, %axis) : f32[] from(b)
}""",
        """entry @f(%x: f32[2]) -> (a = %a, b = %b) {
  %v = Const() {value=tensor(f32[2], [4.0, 9.0])} : f32[2] from(v)
  %seven = Const() {value=tensor(i32[], 7)} : i32[] from(seven)
  %axis = Const() {value=tensor(i32[], 0)} : i32[] from(axis)
  %a = Const() {value=tensor(f32[2], [2.0, 3.0])} : f32[2] from(a)
  %b = GatherV2(%v, %seven, %axis) : f32[] from(b)
}""",
    ),
}

NOT_FOLDED = {
    "a result above 1 MB that is larger than its inputs": """entry @f(%x: f32[2]) -> (y = %y) {
  %d = Const() {value=tensor(i32[1], [300000])} : i32[1] from(d)
  %v = Const() {value=tensor(f32[], 2.0)} : f32[] from(v)
  %y = Fill(%d, %v) : f32[300000] from(y)
}""",
    "a random number": """entry @f(%x: f32[2]) -> (y = %y) {
  %d = Const() {value=tensor(i32[1], [3])} : i32[1] from(d)
  %y = RandomUniform(%d) {dtype=f32} : f32[3] from(y)
}""",
    "what waits for a write": STATE
    + """entry @f(%x: f32[2]) -> (y = %y) {
  %h = Variable() {ref="g"} : resource<f32[2]>[] from(h)
  %w = AssignVariableOp(%h, %x) {dtype=f32} : () from(w)
  %v = Const() {value=tensor(f32[2], [1.0, 2.0])} : f32[2] from(v) after(%w)
  %y = Exp(%v) : f32[2] from(y)
}""",
}


@pytest.mark.tf
@pytest.mark.parametrize("case", FOLDED)
def test_constants_are_folded(case: str, executor: ModuleExecutor) -> None:
    before, after = FOLDED[case]
    assert_rewrites(HEAD + before, HEAD + after, "repeat(fold-constants,dce)", executor)


@pytest.mark.tf
@pytest.mark.parametrize("case", NOT_FOLDED)
def test_constants_are_not_folded(case: str, executor: ModuleExecutor) -> None:
    assert_refuses(HEAD + NOT_FOLDED[case], "fold-constants", "", executor)


@pytest.mark.tf
def test_not_a_number_stays_one_bit_for_bit(executor: ModuleExecutor) -> None:
    text = """entry @f(%x: f32[2]) -> (y = %y) {
  %z = Const() {value=tensor(f32[2], [0.0, -0.0])} : f32[2] from(z)
  %y = RealDiv(%z, %z) : f32[2] from(y)
}"""
    module, _ = run(HEAD + text, "fold-constants", executor)
    (expected,) = executor.run_module(run(HEAD + text, "dce")[0], "f", [{"x": np.zeros(2, np.float32)}])
    assert expected.error is None and np.isnan(expected.outputs["y"]).all()
    literal = module.entries["f"].node("y").attrs["value"]
    assert module.stores.load(literal).tobytes() == expected.outputs["y"].tobytes()  # type: ignore[arg-type]
