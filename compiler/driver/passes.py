"""Running a pipeline on a module by itself, as `cleave opt` does, and what pipelines may be watched by."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from compiler.backend.executor import GraphExecutor
from compiler.backend.pool import Pool
from compiler.driver.oracle import Oracle
from compiler.ir.module import Module
from compiler.pipeline.base import Context
from compiler.pipeline.instruments import Dump, Reproducer, ShowPass, VerifyEach
from compiler.pipeline.manager import Instrument, Limited, Step, Watched, Watchers, run_pipeline
from compiler.pipeline.text import VALIDATE_EACH, VERIFY_EACH, parse_pipeline
from cost_model.cluster import Cluster
from passes import PASSES
from passes.split.choose import Objective, SplitPlan


def optimise(
    module: Module,
    pipeline: str,
    cluster: str,
    dump: Path | None = None,
    progress: Callable[[str], None] = lambda _: None,
    *,
    numerics: str = "reassociate",
    limit: int | None = None,
    verify_each: bool = True,
    validate_each: bool = False,
) -> Context:
    """Run the passes in place; what they did and declined is in the context returned."""
    steps = with_checks(parse_pipeline(pipeline, PASSES), limit, validate_each)
    found = Cluster.parse(cluster)
    with Pool() as pool:
        context = Context(executor=GraphExecutor(pool), services=services_for(found))
        instruments: list[Instrument] = [ShowPass(progress), *([VerifyEach()] if verify_each else [])]
        instruments += [*([Dump(dump)] if dump is not None else []), Reproducer(context, directory=dump)]
        run_pipeline(module, steps, context, instruments, watchers(Oracle(pool, numerics, len(found.devices))))
    return context


def services_for(cluster: Cluster) -> dict[type, object]:
    """What passes ask for where nobody wished for anything; anew for each run, as some are filled."""
    return {Cluster: cluster, Objective: Objective.LATENCY, SplitPlan: SplitPlan()}


def watchers(oracle: Oracle) -> Watchers:
    """`verify-each(...)` and `validate-each(...)` of pipeline texts."""
    return {VERIFY_EACH: lambda _: VerifyEach(), VALIDATE_EACH: oracle.watch}


def with_checks(steps: tuple[Step, ...], limit: int | None, validate_each: bool) -> tuple[Step, ...]:
    """The steps under what `--limit` and `--validate-each` ask for, as a text would say it."""
    limited: tuple[Step, ...] = steps if limit is None else (Limited(steps, limit),)
    return (Watched(limited, VALIDATE_EACH),) if validate_each else limited
