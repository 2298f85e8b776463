"""A plan in words: why an operator is as it is, and how two plans differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from passes.split.choose import Alternative, Decision
from passes.split.refusals import places, refusals
from passes.split.study import Neighbour, Study

if TYPE_CHECKING:
    from compiler.driver.plan import Plan

MOST_RESOLVED = 6
"""Operators explained at once for which every other choice is solved anew."""
MOST_NEIGHBOURS = 4


def explain(plan: Plan, decisions: list[Decision]) -> str:
    """Of each decision: the ways considered with their prices, the ways that were not and why, and what would follow from each."""
    resolve = len(decisions) <= MOST_RESOLVED
    return "\n\n".join("\n".join(_explain(plan, decision, resolve)) for decision in decisions)


def _explain(plan: Plan, decision: Decision, resolve: bool) -> Iterator[str]:
    study = plan.studies.get(decision.entry)
    yield f"{decision.op} {decision.node!r} (from {', '.join(decision.origin) or 'nothing'}): {in_words(decision.chosen)}"
    if decision.refusal:
        yield f"  not divided: {decision.refusal}"
    if study is not None:
        yield from (f"  {line}" for line in places(study.candidates[study.position[decision.node]].operation, decision.chosen))
    best = min((a.seconds + a.reshard_seconds for a in decision.alternatives), default=0.0)
    others = _solved_anew(study, decision) if resolve and study is not None else {}
    order = {a.label: i for i, a in enumerate(decision.alternatives)}
    for alternative in sorted(decision.alternatives, key=lambda a: (a.seconds + a.reshard_seconds, a.label)):
        yield _priced(alternative, alternative.label == decision.chosen, best, others)
        if study is not None:
            yield from _moves(study, decision, order[alternative.label])
    if study is not None:
        yield from _verdict(plan, study, decision, others)
    parts = Counter(p.device for p in plan.placed if made_from(p.entry, p.node, p.origin, decision))
    yield "  runs on " + (", ".join(f"{d} ({n} nodes)" for d, n in sorted(parts.items())) or "no device: it was folded or fused away")


def _priced(alternative: Alternative, chosen: bool, best: float, others: dict[str, float]) -> str:
    total = alternative.seconds + alternative.reshard_seconds
    line = (
        f"  {'->' if chosen else '  '} {alternative.label:<16} {total * 1e6:10.1f} us  (computing {alternative.seconds * 1e6:.1f}, "
        f"moving data to and from its neighbours {alternative.reshard_seconds * 1e6:.1f}; {(total - best) * 1e6:+.1f})"
    )
    if alternative.weight_bytes:
        line += f", {round(alternative.weight_bytes):,} bytes of weights a device"
    if alternative.label in others:
        line += f"; all else chosen anew {others[alternative.label] * 1e6:+.1f} us in all"
    return line


def _moves(study: Study, decision: Decision, option: int) -> Iterator[str]:
    moves = [n for n in study.neighbours(study.position[decision.node], option) if n.seconds > 0]
    moves.sort(key=lambda n: (-n.seconds, n.name))
    for move in moves[:MOST_NEIGHBOURS]:
        yield f"       {_move(move)}"
    if len(moves) > MOST_NEIGHBOURS:
        rest = sum(n.seconds for n in moves[MOST_NEIGHBOURS:])
        yield f"       {len(moves) - MOST_NEIGHBOURS} more neighbours: {rest * 1e6:.1f} us"


def _move(move: Neighbour) -> str:
    return f"{'from' if move.gives else 'to'} {move.name!r}, which is {move.label}: {move.seconds * 1e6:.1f} us"


def _solved_anew(study: Study, decision: Decision) -> dict[str, float]:
    """How much longer all would take if each other way were taken and the rest chosen for it."""
    position = study.position[decision.node]
    labels = [label for label in study.candidates[position].labels if label != decision.chosen]
    return {label: study.what_if({position: label}).difference for label in labels}


def _verdict(plan: Plan, study: Study, decision: Decision, others: dict[str, float]) -> Iterator[str]:
    position = study.position[decision.node]
    candidate = study.candidates[position]
    for factor, why in refusals(candidate.operation, candidate.labels, study.devices, study.static_only, plan.sizes):
        if not decision.refusal:
            yield f"     not considered: {factor}: {why}"
    if position in study.fixed:
        yield f"  fixed: {study.fixed[position]!r} was asked for"
    elif others:
        label, difference = min(others.items(), key=lambda item: (item[1], item[0]))
        if difference > 0:
            yield f"  chosen because every other way is dearer in all, {label} by the least, {difference * 1e6:.1f} us"
        elif plan.objective == "memory":
            yield f"  chosen for the memory of the fullest device, not for time: {label} would take {-difference * 1e6:.1f} us less"
        else:
            yield f"  {label} would do as well"


def made_from(entry: str, node: str, origin: tuple[str, ...], decision: Decision) -> bool:
    """Is a node of the final module one that the decided operator became?"""
    if entry != decision.entry:
        return False
    return node == decision.node or node.startswith(f"{decision.node}/") or bool(set(origin) & set(decision.origin))


def in_words(label: str) -> str:
    if label == "whole":
        return "left whole"
    if label == "replica":
        return "computed on every device"
    return "split by " + ", ".join(f"{part.split(':')[0]} over mesh axis {part.split(':')[1]}" for part in label.split(","))


def differences(old: Plan, new: Plan) -> Iterator[str]:
    """What `new` does otherwise, one line each."""
    for what, a, b in (("cluster", old.cluster, new.cluster), ("objective", old.objective, new.objective), ("sizes", old.sizes, new.sizes)):
        if a != b:
            yield f"{what}: {a} -> {b}"
    if old.predicted_seconds != new.predicted_seconds:
        change = new.predicted_seconds / old.predicted_seconds - 1 if old.predicted_seconds else 0.0
        yield f"predicted: {old.predicted_seconds * 1e3:.3f} ms -> {new.predicted_seconds * 1e3:.3f} ms ({change:+.1%})"
    was, now = ({(d.entry, d.node): d for d in plan.decisions} for plan in (old, new))
    for key in (*was, *(k for k in now if k not in was)):
        a, b = was[key].chosen if key in was else "not there", now[key].chosen if key in now else "not there"
        if a != b:
            yield f"{(was.get(key) or now[key]).op} {key[1]!r}: {a} -> {b}"
    loads = {load.device: load for load in old.loads}
    for load in new.loads:
        before = loads.get(load.device)
        if before is not None and (before.weight_bytes, before.peak_bytes) != (load.weight_bytes, load.peak_bytes):
            weights = f"weights {before.weight_bytes:,} -> {load.weight_bytes:,} bytes"
            yield f"{load.device}: {weights}, peak {before.peak_bytes:,} -> {load.peak_bytes:,}"
