"""`cleave compile`: load, split, fuse, order, place, save, validate, and say what was done."""

from __future__ import annotations

import os
from pathlib import Path

import click

from compiler.commands import options
from compiler.ir.errors import CleaveError


@click.command(name="compile")
@click.argument("model")
@click.option("-o", "--output", required=True, metavar="OUT", help="directory of the SavedModel to write")
@options.cluster
@click.option("--objective", type=click.Choice(["latency", "throughput", "memory"]), default="latency", show_default=True)
@options.numerics
@click.option("--pipeline", metavar="P", help="pass pipeline text (see `cleave passes`)")
@options.signature
@click.option("--input", "inputs", multiple=True, metavar="NAME=SHAPE", help="sizes to plan with")
@click.option("--profile", default="tf", show_default=True, metavar="NAME", help="tf, serving, tflite, portable or native")
@click.option("--dump", metavar="DIR", help="write the IR after each pass, and a diff in words")
@click.option("--report", "report_file", metavar="FILE", help="write the report as JSON")
@click.option("--plan", "plan_file", metavar="FILE", help="write the plan as JSON")
@click.option("--measure", is_flag=True, help="time the original and the result, interleaved")
@click.option("--no-validate", is_flag=True, help="do not check the result against the original")
@click.option("--overwrite", is_flag=True, help="replace a SavedModel that is already there")
@options.allow_files
@options.as_json
def compile_command(
    model: str, output: str, cluster: str, objective: str, numerics: str, pipeline: str | None, signature: str | None,
    inputs: tuple[str, ...], profile: str, dump: str | None, report_file: str | None, plan_file: str | None,
    measure: bool, no_validate: bool, overwrite: bool, allow_files: bool, as_json: bool,
) -> int:  # fmt: skip
    """Compile MODEL for a cluster and write an ordinary SavedModel."""
    shapes = options.input_shapes(inputs)
    _check_request(cluster, pipeline)
    _refuse_taken(Path(output), overwrite)
    for file in filter(None, (report_file, plan_file)):
        options.refuse_unwritable(file)

    from compiler.commands.show import print_compiled
    from compiler.driver.compile import compile_model

    with options.progress(f"compiling {model}") as progress:
        compiled = compile_model(
            model, cluster, objective, numerics, pipeline, signature, shapes, not no_validate, dump,
            profile=profile, allow_files=allow_files, progress=progress,
        )  # fmt: skip
        measured = compiled.measure() if measure else {}
    options.refuse_unchecked(compiled.report.verdicts)
    if report_file:
        options.write_text(Path(report_file), compiled.report.to_json() + "\n")
    if plan_file:
        options.write_text(Path(plan_file), compiled.plan.to_json())
    valid = compiled.report.valid is not False
    if valid:
        compiled.write(Path(output), overwrite)
    print_compiled(compiled, measured, output if valid else None, as_json)
    return 0 if valid else 1


def _check_request(cluster: str, pipeline: str | None) -> None:
    """What can be known to be wrong before TensorFlow is imported."""
    from compiler.pipeline.text import parse_pipeline
    from cost_model.cluster import Cluster
    from cost_model.devices import device_name
    from passes import PASSES

    tasks = {device_name(device.name)[:2] for device in Cluster.parse(cluster).devices}
    if len(tasks) > 1:
        raise CleaveError(f"cluster {cluster!r} has {len(tasks)} tasks, expected one: a SavedModel is run by one process")
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


COMMANDS = (compile_command,)
