"""Commands that work on models and modules: `opt`, `validate`, `run`."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
import numpy as np

from compiler.commands import options
from compiler.execution import Array
from compiler.ir.errors import CleaveError
from compiler.validate import Verdict

if TYPE_CHECKING:
    from cost_model.cluster import Cluster


@click.command()
@click.argument("file")
@click.option("--pipeline", metavar="P", help="pass pipeline text, see `cleave passes` (default: the one FILE begins with)")
@click.option("-o", "--output", metavar="FILE", help="write the module there (default: print it)")
@options.cluster
@options.numerics
@options.limit
@options.verify_each
@options.validate_each
@click.option("--dump", metavar="DIR", help="write the IR after each pass")
def opt(
    file: str, pipeline: str | None, output: str | None, cluster: str, numerics: str,
    limit: int | None, verify_each: bool, validate_each: bool, dump: str | None,
) -> None:  # fmt: skip
    """Run passes over FILE.ir and print the module."""
    if not Path(file).is_file():
        raise CleaveError(f"{file}: no such file, expected an .ir file")

    from compiler.driver.passes import optimise
    from compiler.ir.text import print_module, read_document, write_module

    held, module = read_document(Path(file))
    steps = pipeline if pipeline is not None else held
    if steps is None:
        raise CleaveError(f"{file} does not begin with a pipeline, expected --pipeline")
    with options.progress(f"running passes over {file}") as progress:
        optimise(
            module, steps, cluster, None if dump is None else Path(dump), progress,
            numerics=numerics, limit=limit, verify_each=verify_each, validate_each=validate_each,
        )  # fmt: skip
    if output:
        write_module(module, Path(output))
    else:
        click.echo(print_module(module), nl=False)


@click.command()
@click.argument("a")
@click.argument("b")
@options.signature
@options.numerics
@click.option("--devices", type=click.IntRange(1, 1024), default=2, show_default=True, help="logical CPU devices to run on")
@options.allow_files
@options.as_json
def validate(a: str, b: str, signature: str | None, numerics: str, devices: int, allow_files: bool, as_json: bool) -> int:
    """Is model B the same function as model A?  Exit status 1 if not."""
    from compiler.driver.compare import validate as compare

    with options.progress(f"validating {b}") as progress:
        verdict = compare(a, b, signature=signature, numerics=numerics, devices=devices, allow_files=allow_files, progress=progress)
    options.refuse_unchecked({signature or "serving_default": verdict})
    if as_json:
        options.print_json({"passed": verdict.passed, "text": str(verdict), "only_grappler": _only_grappler(verdict)})
        return 0 if verdict.passed else 1
    click.echo(str(verdict))
    if _only_grappler(verdict):
        click.echo("  note: with Grappler off B is the same; it is TensorFlow's own graph rewrites that change what B computes")
    return 0 if verdict.passed else 1


def _only_grappler(verdict: Verdict) -> bool:
    """Is B wrong only where TensorFlow rewrites it?"""
    wrong = [d.draw for d in verdict.differences if not d.passes] + [f.partition(": ")[0] for f in verdict.faults]
    return bool(wrong) and all(where.endswith("Grappler on") for where in wrong)


@click.command()
@click.argument("model")
@click.option("--inputs", required=True, metavar="X.npz", help="arrays by input name")
@click.option("-o", "--output", required=True, metavar="Y.npz", help="where the outputs go")
@click.option("--cluster", metavar="C", help="plan for a cluster whose tasks have addresses, and run there")
@options.without
@options.deadline
@options.objective
@options.signature
@options.allow_files
def run(
    model: str, inputs: str, output: str, cluster: str | None, without: tuple[str, ...], deadline_seconds: float, objective: str,
    signature: str | None, allow_files: bool,
) -> None:  # fmt: skip
    """Run MODEL once on the arrays of a .npz file, as it is or divided over a cluster."""
    arrays = _read_arrays(Path(inputs))
    options.refuse_unwritable(output)
    found = None if cluster is None else _with_addresses(cluster, without)

    from compiler.commands.show import print_memory

    with options.progress(f"running {model}") as progress:
        if found is not None:
            from compiler.driver.remote_run import run_on_cluster

            there = run_on_cluster(
                model, arrays, found, deadline_seconds=deadline_seconds, objective=objective, signature=signature,
                allow_files=allow_files, progress=progress,
            )  # fmt: skip
            outputs, memory = there.outputs, there.memory
        else:
            from compiler.driver.compare import run_model

            outputs, memory = run_model(model, arrays, signature=signature, allow_files=allow_files).outputs, ()
    plain = {name: _plain(array) for name, array in outputs.items()}
    options.write_whole(Path(output), lambda file: np.savez(file, **plain))  # type: ignore[arg-type]
    for name, array in sorted(plain.items()):
        click.echo(f"{name}: {'string' if array.dtype.kind in 'SO' else array.dtype}{list(array.shape)}")
    print_memory(memory)


def _with_addresses(text: str, without: Sequence[str]) -> Cluster:
    from cost_model.cluster import Cluster

    found = Cluster.parse(text)
    if not found.tasks:
        raise CleaveError(f"cluster {found.name!r} gives no addresses, so nothing can be run on it; add a [[tasks]] entry for each task")
    return found.without(*without) if without else found


def _plain(array: Array) -> Array:
    """Strings as numpy's own, which need no pickle; those that end in NUL bytes would lose them, and stay objects."""
    if array.dtype != object or any(bytes(item).endswith(b"\0") for item in array.flat):
        return array
    return array.astype(np.bytes_)


def _read_arrays(path: Path) -> dict[str, Array]:
    if not path.is_file():
        raise CleaveError(f"{path}: no such file, expected a .npz of arrays by input name")
    if not zipfile.is_zipfile(path):
        raise CleaveError(f"{path} is not a .npz archive, expected one of arrays by input name, as numpy.savez writes it")
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise CleaveError(f"{path} is not a .npz of plain arrays: {error}") from None


COMMANDS = (opt, validate, run)
