"""Commands for when a result is wrong: `bisect` names the rewrite, `reduce` makes the case small."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from compiler.commands import options
from compiler.ir.errors import CleaveError

if TYPE_CHECKING:
    from compiler.driver.compile import Options
    from compiler.pipeline.bisect import Culprit

KINDS = {"crash": "it raises", "rule": "it leaves a module that breaks a rule", "meaning": "it changes what is computed"}
MOST_PRINTED = 20
"""A module of so many nodes is shown."""

check = click.option(
    "--check", type=click.Choice(["any", "numeric", "verify", "crash"]), default="any", show_default=True, help="what counts as wrong"
)
pipeline = click.option(
    "--pipeline", metavar="P", help="a pipeline's text or name (default: the one FILE begins with, or the default order)"
)
overwrite = click.option("--overwrite", is_flag=True, help="replace a file that is already there")


@click.command()
@click.argument("model")
@pipeline
@options.cluster
@options.objective
@options.numerics
@options.inputs
@check
@click.option("-o", "--output", default="bisected.ir", show_default=True, metavar="FILE", help="the module before the wrong rewrite")
@overwrite
@options.allow_files
@options.as_json
def bisect(
    model: str, pipeline: str | None, cluster: str, objective: str, numerics: str, inputs: tuple[str, ...],
    check: str, output: str, overwrite: bool, allow_files: bool, as_json: bool,
) -> int:  # fmt: skip
    """Name the first wrong pass and its first wrong rewrite; exit status 1 if there is one.

    MODEL is a model or an .ir file.  Wrong is a pass that raises, a module that breaks a rule of the verifier's, or one that computes
    something else than MODEL beyond the numerics declared.
    """
    wanted = _options(cluster, objective, numerics, inputs)
    _refuse_taken(output, overwrite)
    from compiler.driver.hunt import bisect_model
    from compiler.ir.text import write_module

    with options.progress(f"bisecting {model}") as progress:
        found = bisect_model(model, pipeline, wanted, check, progress, allow_files=allow_files)
    if found is None:
        options.print_json({"culprit": None}) if as_json else click.echo(f"nothing is wrong: every pass leaves what {model} computes")
        return 0
    write_module(found.before, Path(output), pipeline=found.pipeline)
    options.print_json({"culprit": _data(found), "output": output}) if as_json else _print(
        found, f"{output}: {_again(output, cluster, numerics)}"
    )
    return 1


@click.command()
@click.argument("model")
@pipeline
@options.cluster
@options.objective
@options.numerics
@options.inputs
@check
@click.option("-o", "--output", required=True, metavar="OUT.ir", help="where the small module goes")
@click.option("--tries", type=click.IntRange(1), default=2000, show_default=True, help="run no more than so many candidates")
@overwrite
@options.allow_files
def reduce(
    model: str, pipeline: str | None, cluster: str, objective: str, numerics: str, inputs: tuple[str, ...],
    check: str, output: str, tries: int, overwrite: bool, allow_files: bool,
) -> None:  # fmt: skip
    """Make MODEL (an .ir file or a model) as small as it can be with the same fault still showing under the pipeline."""
    wanted = _options(cluster, objective, numerics, inputs)
    _refuse_taken(output, overwrite)
    from compiler.driver.hunt import reduce_model
    from compiler.ir.text import print_module, write_module

    with options.progress(f"reducing {model}") as progress:
        found = reduce_model(model, pipeline, wanted, check, tries, progress, allow_files=allow_files)
    write_module(found.module, Path(output), pipeline=found.pipeline)
    who = f"{found.fault.pass_name}: " if found.fault.pass_name else ""
    limit = ", where the limit stopped it" if found.stopped else ""
    click.echo(f"{who}{KINDS[found.fault.kind]}, in {found.nodes[1]} nodes of {found.nodes[0]}, after {found.tries} runs{limit}")
    click.echo("".join(f"  {line}\n" for line in found.fault.words.splitlines()), nl=False)
    if found.nodes[1] <= MOST_PRINTED:
        click.echo("\n" + print_module(found.module))
    click.echo(f"wrote {output}: {_again(output, cluster, numerics)}")


def _options(cluster: str, objective: str, numerics: str, inputs: tuple[str, ...]) -> Options:
    """The request, checked before any model is read."""
    from compiler.driver.compile import Options
    from cost_model.cluster import Cluster
    from passes.split.choose import Objective

    return Options(Cluster.parse(cluster), Objective(objective), numerics, None, options.input_shapes(inputs))


def _refuse_taken(output: str, overwrite: bool) -> None:
    options.refuse_unwritable(output)
    if Path(output).exists() and not overwrite:
        raise CleaveError(f"{output} exists; choose another file with -o or pass --overwrite")


def _print(found: Culprit, written: str) -> None:
    click.echo(f"first wrong pass: {found.pass_name}, {found.position} of {found.passes} ({KINDS[found.fault.kind]})")
    if found.rewrite is None:
        click.echo("it is wrong without a single rewrite")
    else:
        who = "" if found.rewrite.pass_name == found.pass_name else f", made by {found.rewrite.pass_name} and carried out here"
        click.echo(f"first wrong rewrite: {found.rewrite.number} of {found.rewrite.total}{who}")
        for line in (*(f"{note.where}: {note.what}" for note in found.rewrite.notes), *found.rewrite.changes):
            click.echo(f"  {line}")
    click.echo("what is wrong:")
    for line in found.fault.words.splitlines():
        click.echo(f"  {line}")
    click.echo(f"wrote {written}")


def _again(output: str, cluster: str, numerics: str) -> str:
    """The command that shows the fault again."""
    said = (*(("--cluster", cluster) if cluster != "cpu:1" else ()), *(("--numerics", numerics) if numerics != "reassociate" else ()))
    return shlex.join(["cleave", "opt", output, *said])


def _data(found: Culprit) -> dict[str, object]:
    rewrite = None if found.rewrite is None else {**vars(found.rewrite), "notes": [vars(note) for note in found.rewrite.notes]}
    return {
        "pass": found.pass_name,
        "position": found.position,
        "passes": found.passes,
        "kind": found.fault.kind,
        "fault": found.fault.words,
        "rewrite": rewrite,
        "pipeline": found.pipeline,
    }


COMMANDS = (bisect, reduce)
