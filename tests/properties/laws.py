"""What must hold whenever passes run on a module: the checks that property tests, and any longer exploration, put to each program.

assert_law(judge, module, steps, devices)   function, state, repeated calls, verification, determinism, parse . print = id
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from compiler.ir.module import Module
from compiler.ir.text import equal, parse_module, print_module
from compiler.ir.verify import STRUCTURE, verify
from compiler.ops.invariants import OPERATIONS
from compiler.pipeline.base import ANNOTATED, PLACED, TYPED, Context, Numerics
from compiler.pipeline.instruments import VerifyEach
from compiler.pipeline.manager import Repeat, Step, run_pipeline
from cost_model.cluster import Cluster
from passes import PASSES
from passes.split.choose import Objective
from tests.programs import requests
from tests.properties.judge import Judge

BEFORE = {ANNOTATED: "choose", PLACED: "place"}
"""The pass that gives a fact which a program does not begin with."""
IDEMPOTENT = (
    "order-effects",
    "inline-calls",
    "freeze-variables",
    "infer-types",
    "cse",
    "dce",
    "fold-transpose",
    "pad-into-conv",
    "fold-batch-norm",
    "gelu-by-erf",
    "outline",
    "reorder-ranks",
    "place",
    "serialise",
)
"""Twice is once.  (The passes that make work for one another are repeated by the pipelines until they stand still.)"""


def context(judge: Judge, devices: int, objective: Objective = Objective.MEMORY, fuel: int | None = None) -> Context:
    """Small operators are split only where a device's memory counts more than its transfers."""
    return Context(executor=judge.runner, services={Cluster: Cluster.parse(f"cpu:{devices}"), Objective: objective}, fuel=fuel)


def alone(name: str) -> str:
    """The pass, after what gives the facts it requires."""
    return ",".join([*(BEFORE[f] for f in sorted(PASSES[name].requires) if f != TYPED), name])


def random_order(seed: int, most: int = 14) -> str:
    """Passes in an order that their facts allow."""
    rng, facts, order = Random(seed), {TYPED}, []
    for _ in range(rng.randint(1, most)):
        name = rng.choice(sorted(n for n, p in PASSES.items() if p.requires <= facts))
        order.append(name)
        facts = (facts - PASSES[name].breaks) | PASSES[name].establishes
    return ",".join(order)


def is_exact(steps: Sequence[Step]) -> bool:
    passes = [p for step in steps for p in (step.passes if isinstance(step, Repeat) else (step,))]
    return all(p.numerics is Numerics.EXACT for p in passes)


def assert_law(
    judge: Judge,
    module: Module,
    steps: Sequence[Step],
    devices: int,
    *,
    objective: Objective = Objective.MEMORY,
    fuel: int | None = None,
    seed: int = 0,
) -> Module:
    """The module after the steps, which is still the same function and still a module."""
    changed, again = module.copy(), module.copy()
    run_pipeline(changed, steps, context(judge, devices, objective, fuel), [VerifyEach()])
    verify(changed, (*STRUCTURE, *OPERATIONS))
    run_pipeline(again, steps, context(judge, devices, objective, fuel))
    text = print_module(changed)
    assert print_module(again) == text, "two runs differ"
    assert equal(parse_module(text, stores=changed.stores), changed), "parse . print is not the identity"
    wrong = judge.differences(module, changed, requests(module, seed=seed), exact=is_exact(steps))
    assert not wrong, "\n".join([*wrong, text])
    return changed
