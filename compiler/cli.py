"""The command line: `cleave compile | plan | inspect | opt | diff | validate | run | bisect | reduce | passes | ops`.

Exit status 0, 1 for a check that failed, 2 for a bad request or a fault of ours, 130 when interrupted.  Whatever goes wrong is one line on
stderr; the hidden `--debug`, anywhere on the line, shows the traceback and TensorFlow's own messages instead.
"""

from __future__ import annotations

import os
import sys
import traceback
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import click

from compiler.commands import build, hunt, look, servers, work
from compiler.ir.errors import CleaveError

DEBUG = "--debug"
BAD_REQUEST, INTERRUPTED = 2, 130


class OneLineErrors(click.Group):
    """A group whose every error is one line and a status."""

    def main(  # type: ignore[override]  # one overload of click's two: it always exits
        self, args: Sequence[str] | None = None, prog_name: str | None = None, **extra: Any
    ) -> NoReturn:
        given = list(sys.argv[1:] if args is None else args)
        debug = DEBUG in given
        given = [argument for argument in given if argument != DEBUG]
        try:
            status = super().main(given, prog_name or "cleave", standalone_mode=False, **extra)
        except BrokenPipeError:
            # The reader went away, as `head` does; what is left in the buffer must not be tried again when the process ends.
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            sys.exit(0)
        except click.exceptions.NoArgsIsHelpError as error:
            click.echo(error.format_message(), err=True)
            sys.exit(BAD_REQUEST)
        except (Exception, KeyboardInterrupt) as error:
            if debug:
                traceback.print_exc()
            click.echo(f"cleave: error: {' '.join(_in_words(error).split())}", err=True)
            sys.exit(INTERRUPTED if isinstance(error, KeyboardInterrupt | click.Abort) else BAD_REQUEST)
        sys.exit(status if isinstance(status, int) else 0)


@click.group(cls=OneLineErrors, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="tf-cleave", prog_name="cleave")
def cli() -> None:
    """Split a TensorFlow model's operators over devices, fuse them, place them, and prove that it is still the same function."""


for command in (*build.COMMANDS, *look.COMMANDS, *work.COMMANDS, *hunt.COMMANDS, *servers.COMMANDS):
    cli.add_command(command)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if DEBUG not in given:
        _silence_tensorflow()
    cli.main(given)


def _in_words(error: BaseException) -> str:
    match error:
        case CleaveError():
            return str(error)
        case click.ClickException():
            return error.format_message()
        case KeyboardInterrupt() | click.Abort():
            return "interrupted"
        case MemoryError():
            return "out of memory"
        case OSError() if error.filename is not None and error.strerror:
            return f"{error.filename}: {error.strerror}"
    frames = traceback.extract_tb(error.__traceback__)
    where = f" at {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    return f"unexpected {type(error).__name__}{where}: {error}; this is a fault of cleave's, {DEBUG} shows where"


def _silence_tensorflow() -> None:
    """stderr is for our lines only: descriptor 2 goes nowhere, and `sys.stderr` to where descriptor 2 went.

    TensorFlow's C++ writes to descriptor 2 as it is imported, whatever its log level.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    warnings.simplefilter("ignore")
    sys.stderr.flush()
    theirs = os.dup(2)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    sys.stderr = os.fdopen(theirs, "w", buffering=1, encoding=sys.stderr.encoding, errors="backslashreplace")
