"""Printing what a compilation did: splits, places, refusals, predicted and measured time, bytes, the verdict."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence

import click
from rich.console import Console

from compiler.commands.options import console, print_json, table
from compiler.driver.compile import Compiled
from compiler.driver.plan import Plan
from compiler.driver.remote import MemoryRow

MOST_ROWS = 40


def print_compiled(compiled: Compiled, measured: Mapping[str, float], output: str | None, as_json: bool) -> None:
    if as_json:
        data = {"plan": json.loads(compiled.plan.to_json()), "report": json.loads(compiled.report.to_json()), "output": output}
        print_json({**data, "valid": compiled.report.valid, "measured_seconds": dict(measured)})
        return
    out, plan, report = console(), compiled.plan, compiled.report
    out.print(table("Passes", ["pass", "seconds", "nodes"], [(p.name, f"{p.seconds:.3f}", p.nodes) for p in report.passes]))
    _print_splits(out, plan)
    refused = report.refusal_counts()
    if refused:
        out.print()
        out.print(table("Rewrites refused", ["times", "pass", "because"], [(n, name, why) for name, why, n in refused[:MOST_ROWS]]))
    _print_devices(out, plan)
    if measured:
        out.print("measured: " + ", ".join(f"{name} {seconds * 1e3:.3f} ms" for name, seconds in measured.items()))
    if report.verdicts and any("/device:CPU:" not in load.device for load in plan.loads):
        click.echo("checked on this machine's CPUs, whatever device a node is placed on")
    for entry, verdict in report.verdicts.items():
        click.echo(f"{entry}: {verdict}")
    if report.absent:
        click.echo(f"not run on the cluster: {report.absent}; checked here, on as many logical devices")
    print_memory(compiled.memory() if not report.absent and report.verdicts else ())
    if report.dropped:
        click.echo(f"not carried over (no compiled function computes them): {', '.join(report.dropped)}")
    click.echo(f"wrote {output}" if output else "nothing was written: the result is not the same function as the original")


def print_memory(rows: Sequence[MemoryRow]) -> None:
    """Predicted against measured, where tasks tell."""
    told = [(r.task, f"{r.predicted_bytes:,}", f"{r.measured_bytes:,}") for r in rows if r.measured_bytes is not None]
    if told:
        console().print(table("Peak bytes of tasks", ["task", "predicted", "measured"], told))


def print_plan(plan: Plan, texts: Sequence[str], as_json: bool) -> None:
    """The plan, then what was asked about it."""
    if as_json:
        print_json({"plan": json.loads(plan.to_json()), "answers": list(texts)})
        return
    out = console()
    if not texts:
        _print_splits(out, plan)
        _print_devices(out, plan)
    click.echo("\n\n".join(texts), nl=bool(texts))


def _print_splits(out: Console, plan: Plan) -> None:
    splits = plan.table()
    if splits:
        out.print()
        out.print(table(f"Split operators ({len(splits)})", ["from", "op", "split by", "devices"], splits[:MOST_ROWS]))
        if len(splits) > MOST_ROWS:
            out.print(f"... and {len(splits) - MOST_ROWS} more (--save-plan FILE has all)")
    whole = Counter(d.refusal or "splitting it would not pay" for d in plan.decisions if d.chosen == "whole")
    if whole:
        out.print()
        out.print(table("Left whole", ["operators", "because"], [(n, why) for why, n in whole.most_common()]))


def _print_devices(out: Console, plan: Plan) -> None:
    out.print()
    rows = [(u.device, f"{u.busy_seconds * 1e3:.3f} ms", f"{u.weight_bytes:,}", f"{u.peak_bytes:,}") for u in plan.loads]
    out.print(table("Devices", ["device", "predicted busy", "weight bytes", "peak bytes"], rows))
    out.print(f"predicted: {plan.predicted_seconds * 1e3:.3f} ms a call, {plan.unsplit_seconds * 1e3:.3f} ms unsplit on one device")
    if plan.bound_gap:
        out.print(f"the splits cost at most {max(plan.bound_gap.values()):.2%} more than the best there are, by the cost model")
    if plan.derivations:
        out.print("every shard and every transfer is proven from the operators' sharding rules")
