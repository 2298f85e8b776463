"""Commands about clusters of TensorFlow's own servers: `worker` is a task, `bind` writes a model for them."""

from __future__ import annotations

import click

from compiler.commands import options
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


@click.command()
@click.argument("model")
@click.option("--cluster", required=True, metavar="C", help="a cluster .toml with tasks")
@click.option("-o", "--output", required=True, metavar="BOUND", help="directory of the SavedModel to write")
@click.option("--original", metavar="MODEL", help="what MODEL was compiled from: it is divided anew for this cluster")
@options.plan
@options.objective
@click.option("--overwrite", is_flag=True, help="replace a SavedModel that is already there")
def bind(
    model: str, cluster: str, output: str, original: str | None, plan_file: str | None, objective: str, overwrite: bool
) -> None:  # fmt: skip
    """Write a copy of the compiled MODEL whose operators name the tasks of a cluster."""
    from cost_model.cluster import Cluster

    found = Cluster.parse(cluster)
    if plan_file is not None and original is None:
        raise CleaveError("--plan divides the original anew, so it needs --original MODEL")

    from compiler.driver.bind import bind as bind_model
    from compiler.driver.plan import Plan

    with options.progress(f"binding {model}") as progress:
        earlier = None if plan_file is None else Plan.read(plan_file)
        bound = bind_model(
            model, output, found, original=original, plan=earlier, objective=objective, overwrite=overwrite, progress=progress
        )
    for device, count in bound.nodes.items():
        click.echo(f"{device}: {count} nodes")
    click.echo(f"wrote {output}")


def _cores(text: str | None) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in (text or "").split(",") if part.strip())
    except ValueError:
        raise CleaveError(f"--cores {text!r} is not a list of numbers, expected one such as 0,1") from None


COMMANDS = (worker, bind)
