"""Running a pipeline on a module by itself, as `cleave opt` does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from compiler.backend.executor import GraphExecutor
from compiler.backend.pool import Pool
from compiler.ir.module import Module
from compiler.pipeline.base import Context
from compiler.pipeline.instruments import Dump, Reproducer, ShowPass, VerifyEach
from compiler.pipeline.manager import Instrument, run_pipeline
from compiler.pipeline.text import parse_pipeline
from cost_model.cluster import Cluster
from passes import PASSES
from passes.split.choose import Objective, SplitPlan


def optimise(
    module: Module, pipeline: str, cluster: str, dump: Path | None = None, progress: Callable[[str], None] = lambda _: None
) -> Context:
    """Run the passes in place; what they did and declined is in the context returned."""
    steps = parse_pipeline(pipeline, PASSES)
    instruments: list[Instrument] = [ShowPass(progress), VerifyEach()]
    if dump is not None:
        instruments += [Dump(dump), Reproducer(dump)]
    with Pool() as pool:
        services: dict[type, object] = {Cluster: Cluster.parse(cluster), Objective: Objective.LATENCY, SplitPlan: SplitPlan()}
        context = Context(executor=GraphExecutor(pool), services=services)
        run_pipeline(module, steps, context, instruments)
    return context
