"""Commands that work on models and modules: `opt`, `validate`, `run`."""

from __future__ import annotations

from pathlib import Path

import click
import numpy as np

from compiler.commands import options
from compiler.ir.errors import CleaveError


@click.command()
@click.argument("file")
@click.option("--pipeline", required=True, metavar="P", help="pass pipeline text (see `cleave passes`)")
@click.option("-o", "--output", metavar="FILE", help="write the module there (default: print it)")
@options.cluster
@click.option("--dump", metavar="DIR", help="write the IR after each pass")
def opt(file: str, pipeline: str, output: str | None, cluster: str, dump: str | None) -> None:
    """Run passes over FILE.ir and print the module."""
    from compiler.driver.passes import optimise
    from compiler.ir.text import print_module, read_module, write_module

    if not Path(file).is_file():
        raise CleaveError(f"{file}: no such file, expected an .ir file")
    module = read_module(Path(file))
    optimise(module, pipeline, cluster, None if dump is None else Path(dump))
    if output:
        write_module(module, Path(output))
    else:
        click.echo(print_module(module), nl=False)


@click.command()
@click.argument("a")
@click.argument("b")
@options.signature
@options.numerics
@click.option("--devices", default=2, show_default=True, help="logical CPU devices to run on")
@options.as_json
def validate(a: str, b: str, signature: str | None, numerics: str, devices: int, as_json: bool) -> int:
    """Is model B the same function as model A?  Exit status 1 if not."""
    from compiler.driver.compare import validate as compare

    verdict = compare(a, b, signature=signature, numerics=numerics, devices=devices)
    if as_json:
        options.print_json({"passed": verdict.passed, "text": str(verdict)})
    else:
        click.echo(str(verdict))
    return 0 if verdict.passed else 1


@click.command()
@click.argument("model")
@click.option("--inputs", required=True, metavar="X.npz", help="arrays by input name")
@click.option("-o", "--output", required=True, metavar="Y.npz", help="where the outputs go")
@options.signature
@options.allow_files
def run(model: str, inputs: str, output: str, signature: str | None, allow_files: bool) -> None:
    """Run MODEL once on the arrays of a .npz file."""
    from compiler.driver.compare import run_model

    result = run_model(model, _read_arrays(Path(inputs)), signature=signature, allow_files=allow_files)
    target = Path(output)
    sibling = target.with_name(f".{target.name}.part")
    try:
        with sibling.open("wb") as file:
            np.savez(file, **result.outputs)  # type: ignore[arg-type]
        sibling.replace(target)
    except OSError as error:
        raise CleaveError(f"cannot write {target}: {error.strerror}") from None
    finally:
        sibling.unlink(missing_ok=True)
    for name, array in sorted(result.outputs.items()):
        click.echo(f"{name}: {array.dtype}{list(array.shape)}")


def _read_arrays(path: Path) -> dict[str, np.ndarray]:
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except FileNotFoundError:
        raise CleaveError(f"{path}: no such file, expected a .npz of arrays by input name") from None
    except (OSError, ValueError, EOFError, AttributeError) as error:
        raise CleaveError(f"{path} is not a .npz of plain arrays: {error}") from None


COMMANDS = (opt, validate, run)
