"""Laws over random programs: every pass alone, the default order, and random orders keep the function, the invariants and the bytes.

`make fuzz` explores thousands; in the suite a few dozen are drawn, the same ones each time.
"""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler.backend.executor import GraphExecutor
from compiler.backend.pool import Pool
from compiler.execution import Arrays, RunResult, RuntimeConfig
from compiler.ir.module import Module
from compiler.ir.text import equal, parse_module, print_module
from compiler.ir.verify import STRUCTURE, verify
from compiler.ops.invariants import OPERATIONS
from compiler.pipeline.base import Context
from compiler.pipeline.manager import Step, run_pipeline
from compiler.pipeline.text import parse_pipeline
from cost_model.cluster import Cluster
from passes import PASSES
from passes.pipelines import PIPELINES
from passes.split.choose import Objective
from tests.programs import programs

pytestmark = [pytest.mark.tf, pytest.mark.timeout(3000)]
POOL = Pool()
RUNNER = GraphExecutor(POOL)
CANONICAL = (
    "simplify",
    "resolve-shapes",
    "fold-constants",
    "infer-types",
    "cse",
    "dce",
    "fold-batch-norm",
    "fold-transpose",
    "gelu-by-erf",
)
# An entry of a few small operators is split only where a device weighs more than its transfers.
SPLIT = "choose,partition,infer-types"


def context(devices: int, objective: Objective = Objective.MEMORY) -> Context:
    return Context(executor=RUNNER, services={Cluster: Cluster.parse(f"cpu:{devices}"), Objective: objective})


def requests(module: Module) -> list[dict[str, np.ndarray]]:
    found = []
    for seed, batch in enumerate((1, 5)):
        rng = np.random.default_rng(seed)
        shapes = {n: module.entries["f"].node(n).type.shape or () for n in module.entries["f"].inputs}
        found.append(
            {n: rng.standard_normal([d if isinstance(d, int) else batch for d in shape]).astype(np.float32) for n, shape in shapes.items()}
        )
    return found


def run(module: Module, inputs: Sequence[Arrays]) -> list[RunResult]:
    results = RUNNER.run_module(module, "f", inputs, config=RuntimeConfig(devices=3, intra_threads=1))
    assert all(r.error is None for r in results), [r.error for r in results]
    return results


def assert_law(module: Module, steps: Sequence[Step], devices: int) -> None:
    """The function, the invariants, the text and the bytes."""
    inputs = requests(module)
    expected = run(module, inputs)
    changed, again = module.copy(), module.copy()
    run_pipeline(changed, steps, context(devices))
    run_pipeline(again, steps, context(devices))
    verify(changed, (*STRUCTURE, *OPERATIONS))
    text = print_module(changed)
    assert print_module(again) == text, "two runs differ"
    assert equal(parse_module(text, stores=changed.stores), changed)
    for whole, result in zip(expected, run(changed, inputs), strict=True):
        for name, array in whole.outputs.items():
            scale = max(1.0, float(np.nanmax(np.abs(array), initial=0.0))) if array.size else 1.0
            finite = np.isfinite(array)
            np.testing.assert_array_equal(np.isfinite(result.outputs[name]), finite, text)
            np.testing.assert_allclose(
                result.outputs[name][finite], array[finite], rtol=1e-4, atol=1e-5 * (scale if np.isfinite(scale) else 1.0), err_msg=text
            )


@given(programs())
@settings(max_examples=settings.default.max_examples if settings.default.max_examples > 1000 else 15)  # type: ignore[union-attr]
def test_the_default_order_keeps_the_function(module: Module) -> None:
    assert_law(module, parse_pipeline(PIPELINES["default"], PASSES), 2)


@given(programs(), st.permutations(CANONICAL), st.integers(2, 3))
@settings(max_examples=settings.default.max_examples if settings.default.max_examples > 1000 else 15)  # type: ignore[union-attr]
def test_any_order_of_rewrites_then_a_split_keeps_the_function(module: Module, order: Sequence[str], devices: int) -> None:
    assert_law(module, parse_pipeline(",".join((*order, "infer-types", SPLIT, "reorder-ranks,place")), PASSES), devices)


@pytest.mark.parametrize("name", [*CANONICAL, SPLIT, "outline", "outline,fuse-bias-activation,fuse-elementwise"])
@given(module=programs())
@settings(max_examples=settings.default.max_examples if settings.default.max_examples > 1000 else 5)  # type: ignore[union-attr]
def test_each_pass_alone_keeps_the_function(name: str, module: Module) -> None:
    assert_law(module, parse_pipeline(name, PASSES), 2)
