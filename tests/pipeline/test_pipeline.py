"""The manager, pipelines as text, the instruments; and deliberately wrong passes, which must be caught and named."""

from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from compiler.ir.errors import CleaveError
from compiler.ir.graph import Value
from compiler.ir.module import Module
from compiler.ir.text import parse_module, print_module, read_document
from compiler.ir.types import DType
from compiler.pipeline.base import CANONICAL, TYPED, Context, Pass
from compiler.pipeline.instruments import Dump, Limit, Reproducer, Timing, ValidateEach, VerifyEach
from compiler.pipeline.manager import Repeat, run_pipeline
from compiler.pipeline.text import parse_pipeline, print_pipeline
from passes import PASSES
from passes.pipelines import PIPELINES

TEXT = """module "m" facts(typed)

variable @v : f32[3] = splat(f32[3], 1.0)

entry @f(%x: f32[3]) -> (y = %y) {
  %h = Variable() {ref="v"} : resource<f32[3]>[] from(h)
  %a = AssignVariableOp(%h, %x) {dtype=f32} : () from(a)
  %r = ReadVariableOp(%h) {dtype=f32} : f32[3] from(r) after(%a)
  %y = Sub(%r, %x) : f32[3] from(y)
}
"""


@dataclass(frozen=True)
class DropsControl(Pass):
    """Wrong: a read no longer waits for the write."""

    name = "drops-control"

    def run(self, module: Module, context: Context) -> None:
        module.entries["f"].set_control("r", ())


@dataclass(frozen=True)
class SwapsOperands(Pass):
    """Wrong: a - b becomes b - a."""

    name = "swaps-operands"

    def run(self, module: Module, context: Context) -> None:
        graph = module.entries["f"]
        graph.set_operands("y", graph.operands("y")[::-1])


@dataclass(frozen=True)
class WrongType(Pass):
    """Wrong: a float32 is said to be an int32."""

    name = "wrong-type"

    def run(self, module: Module, context: Context) -> None:
        graph = module.entries["f"]
        graph.set_types("y", [replace(graph.node("y").type, dtype=DType("int32"))])


@dataclass(frozen=True)
class StaleShape(Pass):
    """Wrong: a shape that the operands contradict."""

    name = "stale-shape"

    def run(self, module: Module, context: Context) -> None:
        graph = module.entries["f"]
        graph.set_types("y", [graph.node("y").type.with_shape((4,))])


@dataclass(frozen=True)
class SlightlyOff(Pass):
    """Wrong: the result is multiplied by 1.001."""

    name = "slightly-off"

    def run(self, module: Module, context: Context) -> None:
        import numpy as np

        graph = module.entries["f"]
        literal = module.stores.constant(np.float32(1.001))
        graph.add("Const", (), {"value": literal}, [graph.node("y").type.with_shape(())], name="c", origin=("c",))
        graph.add("Mul", [Value("y"), Value("c")], {}, graph.node("y").types, name="off", origin=("y",))
        graph.set_outputs([("y", Value("off"))])


@pytest.mark.parametrize("wrong", [DropsControl(), WrongType(), StaleShape()], ids=lambda p: p.name)
def test_the_verifier_names_a_pass_that_breaks_a_rule(wrong: Pass) -> None:
    with pytest.raises(CleaveError, match=f"after pass '{wrong.name}'"):
        run_pipeline(parse_module(TEXT), [wrong], Context(), [VerifyEach()])


@pytest.mark.tf
@pytest.mark.parametrize("wrong", [SwapsOperands(), SlightlyOff()], ids=lambda p: p.name)
def test_validating_each_names_a_pass_that_changes_the_function(wrong: Pass) -> None:
    import numpy as np

    from compiler.backend.executor import GraphExecutor
    from compiler.backend.pool import Pool

    text = TEXT.replace("%y = Sub(%r, %x)", "%two = AddV2(%r, %r) : f32[3] from(t)\n  %y = Sub(%two, %x)")
    request = {"x": np.array([1.0, 2.0, 4.0], np.float32)}
    with Pool() as pool:
        executor = GraphExecutor(pool)
        (expected,) = executor.run_module(parse_module(text), "f", [request])

        def check(module: Module) -> str:
            (found,) = executor.run_module(module, "f", [request])
            return "" if np.array_equal(found.outputs["y"], expected.outputs["y"]) else f"{found.outputs['y']}"

        run_pipeline(parse_module(text), [PASSES["cse"]()], Context(), [ValidateEach(check)])
        with pytest.raises(CleaveError, match=f"pass '{wrong.name}' changed what the module computes"):
            run_pipeline(parse_module(text), [wrong], Context(), [ValidateEach(check)])


@pytest.mark.parametrize(
    "text",
    [
        *PIPELINES.values(),
        "choose{iterations=5},cse",
        "repeat(cse,dce)",
        "repeat{most=3}(cse,dce)",
        "serialise{gain=0.5}",
        "serialise{gain=1e+20}",
    ],
)
def test_text_round_trips(text: str) -> None:
    steps = parse_pipeline(text, PASSES)
    assert print_pipeline(steps) == text
    assert parse_pipeline(print_pipeline(steps), PASSES) == steps


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cs", "no pass 'cs'; did you mean 'cse'?"),
        ("choose{iteration=3}", "has no option 'iteration'; did you mean 'iterations'?"),
        ("choose{iterations=many}", "is 'many', expected int"),
        ("cse dce", "found 'dce', expected ','"),
        ("cse{fast=true}", "has no option 'fast'; expected one of none"),
        ("repeat{mist=3}(cse)", "'repeat' has no option 'mist'; did you mean 'most'?"),
        ("repeat()", "has nothing to repeat"),
        ("repeat(cse", "found 'the end', expected ')'"),
        ("cse;dce", "cannot read ';dce'"),
    ],
)
def test_text_errors_say_what_was_expected(text: str, message: str) -> None:
    with pytest.raises(CleaveError) as error:
        parse_pipeline(text, PASSES)
    assert message in str(error.value)


def test_a_pass_without_its_facts_is_refused() -> None:
    module = parse_module(TEXT.replace(" facts(typed)", ""))
    with pytest.raises(CleaveError, match="pass 'simplify' needs a module that is typed"):
        run_pipeline(module, parse_pipeline("simplify", PASSES), Context())


def test_facts_are_established_and_broken() -> None:
    module = parse_module(TEXT)
    run_pipeline(module, parse_pipeline("simplify", PASSES), Context())
    assert module.facts == {TYPED, CANONICAL}
    run_pipeline(module, parse_pipeline("inline-calls", PASSES), Context())
    assert module.facts == frozenset()


def test_repeat_stops_when_the_module_stands_still() -> None:
    timing = Timing()
    run_pipeline(parse_module(TEXT), [Repeat((PASSES["cse"](), PASSES["dce"]()))], Context(), [timing])
    assert [name for name, _, _ in timing.rows] == ["cse", "dce"]


def test_dumps_are_numbered_and_say_what_changed(tmp_path: Path) -> None:
    text = TEXT.replace("%y = Sub(%r, %x)", "%z = Sub(%r, %x) : f32[3] from(z)\n  %y = Sub(%r, %x)")
    run_pipeline(parse_module(text), parse_pipeline("cse,dce", PASSES), Context(), [Dump(tmp_path)])
    assert sorted(p.name for p in tmp_path.iterdir()) == ["00-imported.ir", "01-cse.diff", "01-cse.ir", "02-dce.diff", "02-dce.ir"]
    assert "z" in (tmp_path / "02-dce.diff").read_text()


def test_a_failing_pass_leaves_a_reproducer(tmp_path: Path) -> None:
    with pytest.raises(CleaveError, match="reproduce with: cleave opt"):
        run_pipeline(parse_module(TEXT), [StaleShape()], Context(), [Reproducer(tmp_path), VerifyEach()])
    pipeline, module = read_document(tmp_path / "reproducer.ir")
    assert pipeline == "stale-shape"
    assert print_module(module) == print_module(parse_module(TEXT))


def test_a_reproducer_that_cannot_be_written_hides_no_failure(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(CleaveError, match=r"(?s)pass 'stale-shape' failed: .*no reproducer: cannot write"):
        run_pipeline(parse_module(TEXT), [StaleShape()], Context(), [Reproducer(tmp_path / "file"), VerifyEach()])


def test_a_limit_stops_rewriting_and_names_the_pass_of_a_rewrite() -> None:
    text = TEXT.replace("%y = Sub(%r, %x)", "%z = Sub(%r, %x) : f32[3] from(z)\n  %i = Identity(%r) : f32[3] from(i)\n  %y = Sub(%i, %x)")
    steps = parse_pipeline("simplify,cse,dce", PASSES)
    whole, context = parse_module(text), Context()
    limit = Limit(context, 99)
    run_pipeline(whole, steps, context, [limit])
    assert [limit.pass_of(number) for number in range(1, context.spent + 2)] == ["simplify", "dce", ""]
    stopped, context = parse_module(text), Context()
    run_pipeline(stopped, steps, context, [Limit(context, 1)])
    (graph,) = stopped.entries.values()
    assert "i" not in graph and "z" in graph


@pytest.mark.tf
def test_a_reproducer_runs_again_as_the_command_it_names(tmp_path: Path) -> None:
    from compiler.driver.passes import optimise

    text = TEXT.replace("%y = Sub(%r, %x)", "%c = Const() {value=splat(f32[3], 2.0)} : f32[3] from(c)\n  %y = Sub(%r, %c)")
    missing = text.replace(" facts(typed)", "")

    class Fails(Reproducer):
        """Fails after the pass, as a verifier would."""

        def after_pass(self, position: int, step: Pass, module: Module) -> None:
            raise CleaveError("something is wrong")

    with pytest.raises(CleaveError, match=r"reproducer\.ir --pipeline fold-constants"):
        run_pipeline(parse_module(text), parse_pipeline("fold-constants", PASSES), Context(), [Fails(tmp_path)])
    pipeline, module = read_document(tmp_path / "reproducer.ir")
    assert pipeline is not None and print_module(module) == print_module(parse_module(text))
    optimise(module, pipeline, "cpu:1", dump=tmp_path / "again")
    assert sorted(p.name for p in (tmp_path / "again").iterdir()) == ["00-imported.ir", "01-fold-constants.diff", "01-fold-constants.ir"]
    with pytest.raises(CleaveError, match=r"needs a module that is typed"):
        optimise(parse_module(missing), pipeline, "cpu:1")
