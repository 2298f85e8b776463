"""What several commands take, and reading it: `NAME=2,28,28,1` shapes, progress on a terminal, JSON."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, TypeVar

import click
from rich.console import Console
from rich.table import Table

from compiler.ir.errors import CleaveError
from compiler.validate import Verdict

F = TypeVar("F", bound=Callable[..., object])

cluster = click.option("--cluster", default="cpu:1", show_default=True, metavar="C", help="cpu:N, or a cluster .toml")
deadline = click.option(
    "--deadline", "deadline_seconds", type=click.FloatRange(0.1), default=10.0, show_default=True, metavar="SECONDS",
    help="how long a task of the cluster may be silent in a call",
)  # fmt: skip
without = click.option("--without", multiple=True, metavar="TASK", help="a task of the cluster that is gone: plan for the others")
signature = click.option("--signature", metavar="S", help="one signature by name (default: all)")
tags = click.option("--tags", metavar="T,T", help="which graph, of a SavedModel that holds several")
as_json = click.option("--json", "as_json", is_flag=True, help="print JSON")
allow_files = click.option("--allow-files", is_flag=True, help="accept models that read or write files")
objective = click.option("--objective", type=click.Choice(["latency", "throughput", "memory"]), default="latency", show_default=True)
inputs = click.option("--input", "inputs", multiple=True, metavar="NAME=SHAPE", help="sizes to plan with")
pins = click.option("--pin", "pins", multiple=True, metavar="WHAT=DEVICE", help="an operator, layer or kind (Conv2D) runs there, undivided")
splits = click.option("--split", "splits", multiple=True, metavar="WHAT=HOW", help="is divided so: a factor, whole, or replica")
plan = click.option("--plan", "plan_file", metavar="FILE", help="follow an earlier plan; on another number of devices start from it")
save_plan = click.option("--save-plan", metavar="FILE", help="write the plan as JSON")
limit = click.option("--limit", type=click.IntRange(0), metavar="N", help="make the first N rewrites only")
verify_each = click.option("--verify-each/--no-verify-each", default=True, show_default=True, help="check the rules after each pass")
validate_each = click.option("--validate-each", is_flag=True, help="run the module after each pass, against what it was")
numerics = click.option("--numerics", type=click.Choice(["exact", "reassociate"]), default="reassociate", show_default=True)


def input_shapes(given: Iterable[str]) -> dict[str, tuple[int | None, ...]]:
    """`["x=8,28,28,1", "mask=?,128"]` as shapes."""
    found: dict[str, tuple[int | None, ...]] = {}
    for text in given:
        name, equals, dims = text.partition("=")
        try:
            if not equals or not name:
                raise ValueError
            found[name] = tuple(None if d.strip() in ("?", "None") else int(d) for d in dims.split(",") if d.strip())
        except ValueError:
            raise CleaveError(f"--input {text!r} is not NAME=SHAPE, expected one such as x=8,28,28,1") from None
        if any(d is not None and d < 0 for d in found[name]):
            raise CleaveError(f"--input {text!r} has a negative size, expected sizes or ?")
    return found


def pairs(option: str, given: Iterable[str], such: str) -> dict[str, str]:
    """`["dense=CPU:0"]` as a dictionary, in order; what is given twice counts once, as it was last said."""
    found: dict[str, str] = {}
    for text in given:
        name, equals, value = text.rpartition("=")
        if not equals or not name.strip() or not value.strip():
            raise CleaveError(f"{option} {text!r} is not of the form NAME=VALUE, expected one such as {such}")
        found.pop(name.strip(), None)
        found[name.strip()] = value.strip()
    return found


def refuse_unchecked(verdicts: Mapping[str, Verdict]) -> None:
    """A model that cannot be run was not found wrong: that is a request we cannot serve, not a failed check."""
    for entry, verdict in verdicts.items():
        if not verdict.draws:
            why = "; ".join(verdict.faults) or "no inputs could be drawn"
            raise CleaveError(f"signature {entry!r} cannot be checked: {why}")


def refuse_unwritable(file: str) -> None:
    """Before the work, not after."""
    path = Path(file).absolute()
    if path.is_dir() or not os.access(path.parent, os.W_OK | os.X_OK):
        raise CleaveError(f"cannot write {file}: expected a file name in a directory that exists and can be written to")


def write_text(path: Path, text: str) -> None:
    write_whole(path, lambda file: file.write(text.encode()))


def write_whole(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Through a temporary sibling, so that a reader never sees half."""
    sibling = path.with_name(f".{path.name}.part")
    try:
        with sibling.open("wb") as file:
            write(file)
        sibling.replace(path)
    except OSError as error:
        raise CleaveError(f"cannot write {path}: {error.strerror}") from None
    finally:
        sibling.unlink(missing_ok=True)


def print_json(data: object) -> None:
    click.echo(json.dumps(data, indent=1, sort_keys=True, default=str))


def table(title: str, columns: Iterable[str], rows: Iterable[Iterable[object]]) -> Table:
    made = Table(title=title, title_justify="left", show_edge=False, pad_edge=False, box=None)
    for column in columns:
        made.add_column(column, overflow="fold")
    for row in rows:
        made.add_row(*(str(cell) for cell in row))
    return made


def console() -> Console:
    """Standard output; lines as wide as they are where it is no terminal."""
    return Console(highlight=False, markup=False, soft_wrap=not sys.stdout.isatty(), width=None if sys.stdout.isatty() else 160)


@contextmanager
def progress(label: str) -> Iterator[Callable[[str], None]]:
    """A status line on stderr, only on a terminal; call the value to say what is being done."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    with Console(stderr=True).status(label) as status:
        yield lambda what: status.update(f"{label}: {what}")
