"""Stages for PipeDream's layer profiles: `python -m benchmarks.pipedream FILE.txt --devices 4 --bandwidth 1e10`.

Prints the stages and seconds a minibatch, piped and on one device.  Without a file: the profiles in `fixtures/pipedream`, against the
plans that PipeDream's own optimizer finds, exit status 1 if any differs in the fifth digit.  Like theirs, the plan counts no transfers
between stages unless `--transfers` is given.
"""

from __future__ import annotations

import json
import re
import sys
from math import isclose
from pathlib import Path

import click

from compiler.ir.errors import CleaveError
from passes.split.stages import Layer, Pipeline, StagePlan, plan_stages

FIXTURES = Path(__file__).parent.parent / "fixtures" / "pipedream"
KNOWN = {
    "vgg16.txt": (((0, 15, 3), (15, 40, 1)), 0.170179, 0.672535),
    "alexnet.txt": (((0, 6, 2), (6, 9, 1), (9, 22, 1)), 0.022186, 0.085321),
}
_NODE = re.compile(
    r"(?P<name>\S+) -- (?P<kind>.*) -- forward_compute_time=(?P<forward>[\d.]+), backward_compute_time=(?P<backward>[\d.]+), "
    r"activation_size=(?P<activation>[\d.]+), parameter_size=(?P<parameter>[\d.]+)"
)


def read_profile(path: Path) -> list[Layer]:
    """The layers in topological order, without the input, whose time is the reading of data."""
    nodes, edges = {}, []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        node = _NODE.fullmatch(line.strip())
        if node is not None:
            nodes[node["name"]] = node
        elif line.startswith("\t") and line.count(" -- ") == 1:
            edges.append(tuple(line.strip().split(" -- ")))
        elif line.strip():
            raise CleaveError(f"{path}:{number} is neither a node nor an edge of a PipeDream profile: {line.strip()[:60]!r}")
    chosen = [nodes[name] for name in _order(list(nodes), edges) if not nodes[name]["kind"].startswith("Input")]
    return [Layer((float(n["forward"]) + float(n["backward"])) / 1e3, float(n["activation"]), float(n["parameter"])) for n in chosen]


def _order(names: list[str], edges: list[tuple[str, ...]]) -> list[str]:
    waiting = dict.fromkeys(names, 0)
    for _, target in edges:
        waiting[target] += 1
    found = [name for name in names if waiting[name] == 0]
    for name in found:
        for source, target in edges:
            if source == name:
                waiting[target] -= 1
                if waiting[target] == 0:
                    found.append(target)
    return found


@click.command()
@click.argument("files", nargs=-1, type=click.Path(path_type=Path))
@click.option("--devices", default=4, show_default=True)
@click.option("--bandwidth", default=1e10, show_default=True, metavar="BYTES", help="bytes a second between devices")
@click.option("--transfers", is_flag=True, help="count the transfers between stages")
@click.option("--memory", type=float, metavar="BYTES", help="of one device")
@click.option("--json", "as_json", is_flag=True, help="print JSON, one line for each file")
def main(files: tuple[Path, ...], devices: int, bandwidth: float, transfers: bool, memory: float | None, as_json: bool) -> None:
    """Plan pipeline stages."""
    passed = True
    for file in files or tuple(FIXTURES / name for name in KNOWN):
        try:
            layers = read_profile(file)
            plan = plan_stages(layers, Pipeline(devices, bandwidth, True, transfers, memory))
        except (CleaveError, OSError) as error:
            click.echo(f"{file.name}: {error}", err=True)
            sys.exit(2)
        alone = sum(layer.seconds for layer in layers)
        stages = [(stage.start, stage.end, stage.devices) for stage in plan.stages]
        found = {"file": file.name, "stages": stages, "seconds": plan.slowest_seconds, "one_device_seconds": alone}
        click.echo(json.dumps(found) if as_json else _line(file.name, plan, alone))
        passed = passed and (bool(files) or _as_known(file.name, tuple(stages), plan.slowest_seconds, alone))
    sys.exit(0 if passed else 1)


def _line(name: str, plan: StagePlan, alone: float) -> str:
    stages = ", ".join(f"({stage.start},{stage.end})x{stage.devices}" for stage in plan.stages)
    return f"{name}: {stages} at {plan.slowest_seconds:.6g} s a minibatch, {alone:.6g} s on one device"


def _as_known(name: str, stages: tuple[tuple[int, int, int], ...], seconds: float, alone: float) -> bool:
    known, piped, single = KNOWN[name]
    same = stages == known and isclose(seconds, piped, rel_tol=1e-5) and isclose(alone, single, rel_tol=1e-5)
    if not same:
        click.echo(f"{name}: expected {known} at {piped} of {single}", err=True)
    return same


if __name__ == "__main__":
    main()
