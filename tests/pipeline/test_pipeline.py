"""The manager, pipelines as text, the instruments; and deliberately wrong passes, which must be caught and named."""

from pathlib import Path

import pytest

from compiler.ir.errors import CleaveError
from compiler.ir.module import Module
from compiler.ir.text import parse_module, print_module, read_document
from compiler.pipeline.base import CANONICAL, TYPED, Context, Pass
from compiler.pipeline.instruments import Dump, Reproducer, Timing, Trail, ValidateEach, VerifyEach
from compiler.pipeline.manager import Limited, Repeat, run_pipeline
from compiler.pipeline.text import parse_pipeline, print_pipeline
from passes import PASSES
from passes.pipelines import PIPELINES
from tests.pipeline.wrong import DropsControls, Raises, SlightlyOff, StaleShape, SwapsOperands, WrongType

TEXT = """module "m" facts(typed)

variable @v : f32[3] = splat(f32[3], 1.0)

entry @f(%x: f32[3]) -> (y = %y) {
  %h = Variable() {ref="v"} : resource<f32[3]>[] from(h)
  %a = AssignVariableOp(%h, %x) {dtype=f32} : () from(a)
  %r = ReadVariableOp(%h) {dtype=f32} : f32[3] from(r) after(%a)
  %y = Sub(%r, %x) : f32[3] from(y)
}
"""


@pytest.mark.parametrize("wrong", [DropsControls(), WrongType(), StaleShape()], ids=lambda p: p.name)
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
        "limit{most=3}(cse,repeat(simplify,dce))",
        "validate-each(limit{most=0}(cse),dce)",
        "verify-each(validate-each(cse))",
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
        ("repeat()", "a repeat has nothing to run"),
        ("repeat(repeat(cse))", "another block stands inside a repeat"),
        ("limit(cse)", "a limit says no number, expected limit{most=N}(...)"),
        ("verify-each()", "a verify-each has nothing to run"),
        ("verify-each{most=3}(cse)", "'verify-each' has no option 'most'; expected one of none"),
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
    context = Context()
    with pytest.raises(CleaveError, match="reproduce with: cleave opt"):
        run_pipeline(parse_module(TEXT), [StaleShape()], context, [Reproducer(context, directory=tmp_path), VerifyEach()])
    pipeline, module = read_document(tmp_path / "reproducer.ir")
    assert pipeline == "stale-shape"
    assert print_module(module) == print_module(parse_module(TEXT))


def test_a_reproducer_that_cannot_be_written_hides_no_failure(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    context = Context()
    with pytest.raises(CleaveError, match=r"(?s)after pass 'stale-shape': .*no reproducer: cannot write"):
        run_pipeline(parse_module(TEXT), [StaleShape()], context, [Reproducer(context, directory=tmp_path / "file"), VerifyEach()])


def test_a_limit_stops_rewriting_and_names_the_pass_of_a_rewrite() -> None:
    text = TEXT.replace("%y = Sub(%r, %x)", "%z = Sub(%r, %x) : f32[3] from(z)\n  %i = Identity(%r) : f32[3] from(i)\n  %y = Sub(%i, %x)")
    steps = parse_pipeline("simplify,cse,dce", PASSES)
    whole, context = parse_module(text), Context()
    trail = Trail(context)
    run_pipeline(whole, steps, context, [trail])
    assert [trail.pass_of(number) for number in range(1, context.spent + 2)] == ["simplify", "dce", ""]
    stopped, context = parse_module(text), Context()
    run_pipeline(stopped, parse_pipeline("limit{most=1}(simplify,cse,dce)", PASSES), context)
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

    context = Context()
    with pytest.raises(CleaveError, match=r"reproducer\.ir --pipeline fold-constants"):
        run_pipeline(parse_module(text), parse_pipeline("fold-constants", PASSES), context, [Fails(context, directory=tmp_path)])
    pipeline, module = read_document(tmp_path / "reproducer.ir")
    assert pipeline is not None and print_module(module) == print_module(parse_module(text))
    optimise(module, pipeline, "cpu:1", dump=tmp_path / "again")
    assert sorted(p.name for p in (tmp_path / "again").iterdir()) == ["00-imported.ir", "01-fold-constants.diff", "01-fold-constants.ir"]
    with pytest.raises(CleaveError, match=r"needs a module that is typed"):
        optimise(parse_module(missing), pipeline, "cpu:1")


def test_a_crash_without_a_dump_leaves_a_reproducer_of_the_module_before_the_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    text = TEXT.replace("%y = Sub(%r, %x)", "%i = Identity(%r) : f32[3] from(i)\n  %y = Sub(%i, %x)")
    context = Context()
    with pytest.raises(CleaveError, match=r"pass 'raises' failed: KeyError: 'y'; reproduce with: cleave opt .*reproducer\.ir") as error:
        run_pipeline(parse_module(text), [PASSES["simplify"](), Raises()], context, [Reproducer(context), VerifyEach()])
    assert "\n" not in str(error.value)
    (file,) = tmp_path.rglob("reproducer.ir")
    pipeline, module = read_document(file)
    assert pipeline == "raises"
    assert "%y = Sub(%r, %x)" in print_module(module)


def test_a_reproducer_keeps_to_the_limit_the_pass_had(tmp_path: Path) -> None:
    text = TEXT.replace("%y = Sub(%r, %x)", "%i = Identity(%r) : f32[3] from(i)\n  %y = Sub(%i, %x)")
    context, steps = Context(), Limited((PASSES["simplify"](), SwapsOperands(), StaleShape()), 3)
    with pytest.raises(CleaveError, match="reproduce with"):
        run_pipeline(parse_module(text), [steps], context, [Reproducer(context, directory=tmp_path), VerifyEach()])
    pipeline, module = read_document(tmp_path / "reproducer.ir")
    assert pipeline == "limit{most=1}(stale-shape)"
    assert "%y = Sub(%x, %r)" in print_module(module)


def test_a_request_that_a_pass_refuses_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    context = Context()
    with pytest.raises(CleaveError, match="needs a Cluster, none was given"):
        run_pipeline(parse_module(TEXT), parse_pipeline("reorder-ranks", PASSES), context, [Reproducer(context)])
    assert not list(tmp_path.iterdir())


def test_a_watcher_that_does_not_exist_is_refused() -> None:
    with pytest.raises(CleaveError, match="asks for 'validate-each', which does not exist here"):
        run_pipeline(parse_module(TEXT), parse_pipeline("validate-each(cse)", PASSES), Context())
