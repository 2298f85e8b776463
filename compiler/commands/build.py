"""`cleave compile`: load, split, fuse, order, place, save, validate, and say what was done; `cleave plan`: only say what would be."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from compiler.commands import options
from compiler.ir.errors import CleaveError

if TYPE_CHECKING:
    from compiler.driver.plan import Plan


@click.command(name="compile")
@click.argument("model")
@click.option("-o", "--output", required=True, metavar="OUT", help="directory of the SavedModel to write")
@options.cluster
@options.objective
@options.numerics
@click.option("--pipeline", metavar="P", help="pass pipeline text (see `cleave passes`)")
@options.signature
@options.tags
@options.inputs
@options.pins
@options.splits
@options.plan
@options.save_plan
@click.option("--profile", default="tf", show_default=True, metavar="NAME", help="tf, serving, tflite, portable or native")
@click.option("--dump", metavar="DIR", help="write the IR after each pass, and a diff in words")
@options.limit
@options.verify_each
@options.validate_each
@click.option("--report", "report_file", metavar="FILE", help="write the report as JSON")
@click.option("--measure", is_flag=True, help="time the original and the result, interleaved")
@click.option("--no-validate", is_flag=True, help="do not check the result against the original")
@click.option("--overwrite", is_flag=True, help="replace a SavedModel that is already there")
@options.allow_files
@options.deadline
@options.as_json
def compile_command(
    model: str, output: str, cluster: str, objective: str, numerics: str, pipeline: str | None, signature: str | None,
    tags: str | None, inputs: tuple[str, ...], pins: tuple[str, ...], splits: tuple[str, ...], plan_file: str | None,
    save_plan: str | None, profile: str, dump: str | None, limit: int | None, verify_each: bool, validate_each: bool,
    report_file: str | None, measure: bool, no_validate: bool, overwrite: bool, allow_files: bool, deadline_seconds: float, as_json: bool,
) -> int:  # fmt: skip
    """Compile MODEL for a cluster and write an ordinary SavedModel."""
    shapes, pinned, split = options.input_shapes(inputs), pin_pairs(pins), split_pairs(splits)
    earlier = read_plan(plan_file)
    _check_request(cluster, pipeline)
    _refuse_taken(Path(output), overwrite)
    for file in filter(None, (report_file, save_plan)):
        options.refuse_unwritable(file)

    from compiler.commands.show import print_compiled
    from compiler.driver.compile import compile_model

    with options.progress(f"compiling {model}") as progress:
        compiled = compile_model(
            model, cluster, objective, numerics, pipeline, signature, shapes, not no_validate, dump,
            profile=profile, tags=None if tags is None else tuple(tags.split(",")), allow_files=allow_files,
            pins=pinned, splits=split, plan=earlier,
            limit=limit, verify_each=verify_each, validate_each=validate_each, deadline_seconds=deadline_seconds, progress=progress,
        )  # fmt: skip
        measured = compiled.measure() if measure else {}
    options.refuse_unchecked(compiled.report.verdicts)
    if report_file:
        options.write_text(Path(report_file), compiled.report.to_json() + "\n")
    if save_plan:
        options.write_text(Path(save_plan), compiled.plan.to_json())
    valid = compiled.report.valid is not False
    if valid:
        compiled.write(Path(output), overwrite)
    print_compiled(compiled, measured, output if valid else None, as_json)
    return 0 if valid else 1


@click.command(name="plan")
@click.argument("model")
@options.cluster
@options.objective
@options.numerics
@options.signature
@options.inputs
@options.pins
@options.splits
@options.plan
@options.save_plan
@click.option("--explain", "explained", multiple=True, metavar="WHAT", help="why an operator, layer or kind is as it is")
@click.option("--export-iopddl", "exported", metavar="FILE", help="write the choice of splits as an IOPDDL problem (.json, .json.gz)")
@click.option("--what-if", "asked", multiple=True, metavar="WHAT=HOW", help="the best plan with it divided so")
@options.allow_files
@options.as_json
def plan_command(
    model: str, cluster: str, objective: str, numerics: str, signature: str | None, inputs: tuple[str, ...],
    pins: tuple[str, ...], splits: tuple[str, ...], plan_file: str | None, save_plan: str | None,
    exported: str | None, explained: tuple[str, ...], asked: tuple[str, ...], allow_files: bool, as_json: bool,
) -> None:  # fmt: skip
    """Plan MODEL for a cluster and say why; nothing is written, nothing is run."""
    shapes, pinned, split = options.input_shapes(inputs), pin_pairs(pins), split_pairs(splits)
    questions, earlier = options.pairs("--what-if", asked, "dense=n"), read_plan(plan_file)
    for file in filter(None, (save_plan, exported)):
        options.refuse_unwritable(file)

    from compiler.commands.show import print_plan
    from compiler.driver.compile import plan
    from cost_model.cluster import Cluster

    found = Cluster.parse(cluster)
    with options.progress(f"planning {model}") as progress:
        made = plan(
            model, found, objective=objective, numerics=numerics, signature=signature, input_shapes=shapes,
            pins=pinned, splits=split, plan=earlier, allow_files=allow_files, progress=progress,
        )  # fmt: skip
        texts = [made.explain(name) for name in explained] + [str(made.what_if(name, how)) for name, how in questions.items()]
    if save_plan:
        options.write_text(Path(save_plan), made.to_json())
    if exported:
        options.write_whole(Path(exported), lambda file: file.write(made.iopddl(signature, compressed=exported.endswith(".gz"))))
    print_plan(made, texts, as_json)


def read_plan(file: str | None) -> Plan | None:
    from compiler.driver.plan import Plan  # late: reading a plan needs the splitter's data, other requests do not

    return None if file is None else Plan.read(file)


def pin_pairs(given: tuple[str, ...]) -> dict[str, str]:
    return options.pairs("--pin", given, "dense=CPU:0")


def split_pairs(given: tuple[str, ...]) -> dict[str, str]:
    return options.pairs("--split", given, "dense=n")


def _check_request(cluster: str, pipeline: str | None) -> None:
    """What can be known to be wrong before TensorFlow is imported."""
    from compiler.pipeline.text import parse_pipeline
    from cost_model.cluster import Cluster
    from passes import PASSES

    Cluster.parse(cluster)
    if pipeline is not None:
        parse_pipeline(pipeline, PASSES)


def _refuse_taken(target: Path, overwrite: bool) -> None:
    """Before hours of work, not after."""
    if target.exists() and not target.is_dir():
        raise CleaveError(f"{target} is a file, expected a directory to write a SavedModel into")
    if target.exists() and any(target.iterdir()) and not overwrite:
        raise CleaveError(f"{target} exists and is not empty; choose another directory or pass --overwrite")
    above = next(place for place in target.absolute().parents if place.exists())
    if not above.is_dir() or not os.access(above, os.W_OK | os.X_OK):
        raise CleaveError(f"cannot write {target}: {above} is not a directory that can be written to")


COMMANDS = (compile_command, plan_command)
