"""Which ways of dividing an operator were not considered, and why; and where each factor is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from compiler.ir.dims import Expr
from compiler.ops import queries
from compiler.ops.spec import Factor, Kind, Operation, ShardingRule
from cost_model.analytic import size_of_dim


def refusals(
    operation: Operation, labels: tuple[str, ...], devices: int, static_only: bool, sizes: Mapping[str, int]
) -> Iterator[tuple[str, str]]:
    """(factor and where it is, why not) for each factor of the op's rule that no strategy divides by."""
    rule = queries.rule(operation)
    offered = {part.partition(":")[0] for label in labels for part in label.split(",")}
    for factor in () if rule is None else rule.factors:
        if factor.name not in offered and factor.size != 1:
            yield f"{factor.name} ({place(rule, factor.name)})", _why_not(rule, factor, devices, static_only, sizes)  # type: ignore[arg-type]


def place(rule: ShardingRule, factor: str) -> str:
    """`dimension 1 of operand 1, dimension 1 of the result`."""
    many = len(rule.results) > 1
    values = [(f"operand {i}", dims) for i, dims in enumerate(rule.operands)]
    values += [(f"result {i}" if many else "the result", dims) for i, dims in enumerate(rule.results)]
    found = [f"dimension {d} of {what}" for what, dims in values for d, names in enumerate(dims or ()) if factor in names]
    return ", ".join(found)


def places(operation: Operation, label: str) -> list[str]:
    """One line for each factor of a strategy."""
    rule = queries.rule(operation)
    names = [part.partition(":")[0] for part in label.split(",") if ":" in part]
    known = {f.name for f in rule.factors} if rule is not None else set()
    return [f"{name} is {place(rule, name)}" for name in names if rule is not None and name in known]


def _why_not(rule: ShardingRule, factor: Factor, devices: int, static_only: bool, sizes: Mapping[str, int]) -> str:
    if factor.kind is Kind.WHOLE:
        return "the operator needs all of it" if factor.size is not None else "its size is not known"
    if factor.kind is not Kind.STEPS and factor.name not in {f.name for f in rule.splits()}:
        return "it is a minor part of a dimension"
    if isinstance(factor.size, Expr) and factor.kind is Kind.HALO:
        return f"its shards need neighbours' rows, and its size {factor.size} is known at run time only"
    if isinstance(factor.size, Expr) and static_only:
        return f"its size {factor.size} is known at run time only, and may be 1; the throughput objective divides it"
    if size_of_dim(factor.size, sizes) < devices:
        return f"{factor.size} are too few for {devices} devices"
    if not factor.divides_into(devices):
        return f"each of {devices} shards would need {factor.least} of its {factor.size}"
    if not rule.divides_evenly(factor.name, devices):
        return f"it is a part of a dimension, and {devices} devices do not divide its size {factor.size}"
    return "its shards would have to know where they begin" if factor.kind is Kind.OFFSET else "no strategy divides it here"
