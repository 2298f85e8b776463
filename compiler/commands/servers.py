"""Commands about clusters of TensorFlow's own servers: `worker` starts a task."""

from __future__ import annotations

import click

from compiler.ir.errors import CleaveError


@click.command()
@click.option("--cluster", required=True, metavar="C", help="a cluster .toml with addresses ([[tasks]])")
@click.option("--task", required=True, metavar="worker:K", help="the task that this process is")
@click.option("--memory-limit-mb", type=click.IntRange(16), metavar="N", help="cap the memory of its CPU's tensors (BFC allocator)")
@click.option("--threads", type=click.IntRange(0), default=0, metavar="N", help="threads inside operators (0: TensorFlow's choice)")
@click.option("--cores", metavar="0,1", help="run on these cores only")
def worker(cluster: str, task: str, memory_limit_mb: int | None, threads: int, cores: str | None) -> None:
    """Be one task of a cluster until SIGTERM or Ctrl-C."""
    numbers = _cores(cores)

    from compiler.backend.worker import Settings, become_worker
    from cost_model.cluster import Cluster

    settings = Settings(memory_limit_mb, threads, numbers)
    become_worker(Cluster.parse(cluster), task, settings, lambda text: click.echo(f"cleave: warning: {text}", err=True))


def _cores(text: str | None) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in (text or "").split(",") if part.strip())
    except ValueError:
        raise CleaveError(f"--cores {text!r} is not a list of numbers, expected one such as 0,1") from None


COMMANDS = (worker,)
