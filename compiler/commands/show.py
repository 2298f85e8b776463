"""Printing what a compilation did: splits, places, refusals, predicted and measured time, bytes, the verdict."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping

import click

from compiler.commands.options import console, print_json, table
from compiler.driver.compile import Compiled

MOST_ROWS = 40


def print_compiled(compiled: Compiled, measured: Mapping[str, float], output: str | None, as_json: bool) -> None:
    if as_json:
        data = {"plan": json.loads(compiled.plan.to_json()), "report": json.loads(compiled.report.to_json()), "output": output}
        print_json({**data, "valid": compiled.report.valid, "measured_seconds": dict(measured)})
        return
    out, plan, report = console(), compiled.plan, compiled.report
    out.print(table("Passes", ["pass", "seconds", "nodes"], [(p.name, f"{p.seconds:.3f}", p.nodes) for p in report.passes]))
    splits = plan.table()
    if splits:
        out.print()
        rows = splits[:MOST_ROWS]
        out.print(table(f"Split operators ({len(splits)})", ["from", "op", "split by", "devices"], rows))
        if len(splits) > MOST_ROWS:
            out.print(f"... and {len(splits) - MOST_ROWS} more (--plan FILE has all)")
    whole = Counter(d.refusal or "splitting it would not pay" for d in plan.decisions if d.chosen == "whole")
    if whole:
        out.print()
        out.print(table("Left whole", ["operators", "because"], [(n, why) for why, n in whole.most_common()]))
    refused = report.refusal_counts()
    if refused:
        out.print()
        out.print(table("Rewrites refused", ["times", "pass", "because"], [(n, name, why) for name, why, n in refused[:MOST_ROWS]]))
    out.print()
    rows = [(u.device, f"{u.busy_seconds * 1e3:.3f} ms", f"{u.weight_bytes:,}", f"{u.peak_bytes:,}") for u in plan.loads]
    out.print(table("Devices", ["device", "predicted busy", "weight bytes", "peak bytes"], rows))
    out.print(_times(compiled, measured))
    if report.verdicts and any("/device:CPU:" not in load.device for load in plan.loads):
        click.echo("checked on this machine's CPUs, whatever device a node is placed on")
    for entry, verdict in report.verdicts.items():
        click.echo(f"{entry}: {verdict}")
    if report.dropped:
        click.echo(f"not carried over (no compiled function computes them): {', '.join(report.dropped)}")
    click.echo(f"wrote {output}" if output else "nothing was written: the result is not the same function as the original")


def _times(compiled: Compiled, measured: Mapping[str, float]) -> str:
    plan = compiled.plan
    lines = [f"predicted: {plan.predicted_seconds * 1e3:.3f} ms a call, {plan.unsplit_seconds * 1e3:.3f} ms unsplit on one device"]
    if plan.bound_gap:
        lines.append(f"the splits cost at most {max(plan.bound_gap.values()):.2%} more than the best there are, by the cost model")
    if measured:
        lines.append("measured: " + ", ".join(f"{name} {seconds * 1e3:.3f} ms" for name, seconds in measured.items()))
    return "\n".join(lines)
