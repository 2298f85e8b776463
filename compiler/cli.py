"""The command line: `cleave compile | inspect | opt | diff | validate | run | passes | ops`.

Exit status 0, 1 for a check that failed, 2 for a bad request.  A user's mistake is one line on stderr, never a traceback.
"""

from __future__ import annotations

import sys

import click

from compiler.commands import build, look, work
from compiler.ir.errors import CleaveError


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="tf-cleave", prog_name="cleave")
def cli() -> None:
    """Split a TensorFlow model's operators over devices, fuse them, place them, and prove that it is still the same function."""


for command in (*build.COMMANDS, *look.COMMANDS, *work.COMMANDS):
    cli.add_command(command)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit."""
    try:
        status = cli.main(args=arguments, prog_name="cleave", standalone_mode=False)
    except CleaveError as error:
        _fail(str(error))
    except click.ClickException as error:
        _fail(error.format_message())
    except click.Abort:
        _fail("interrupted")
    except BrokenPipeError:
        sys.exit(0)
    sys.exit(status if isinstance(status, int) else 0)


def _fail(message: str) -> None:
    click.echo(f"cleave: error: {' '.join(message.split())}", err=True)
    sys.exit(2)
