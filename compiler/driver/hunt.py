"""Finding what makes a result wrong: `cleave bisect` and `cleave reduce`, on `.ir` files and on models.

bisect_model(MODEL)   first a check that the model as it was imported, saved again, is the model: if not, no pass is to blame
reduce_model(MODEL)   the smallest module that shows the fault under the pipeline
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from compiler.backend.executor import GraphExecutor
from compiler.backend.pool import Pool
from compiler.backend.saved_model import save
from compiler.driver.aliases import aliases_of
from compiler.driver.compile import Options, original_of, validate_entries
from compiler.driver.oracle import FEW_SPREADS, Oracle
from compiler.driver.planning import representative_sizes
from compiler.frontend.source import SourceModel, load
from compiler.ir.errors import CleaveError
from compiler.ir.module import Module
from compiler.ir.text import read_document
from compiler.pipeline.base import Context
from compiler.pipeline.bisect import Culprit, bisect
from compiler.pipeline.manager import Step
from compiler.pipeline.probe import CRASH, KINDS, MEANING, RULE, Probe
from compiler.pipeline.reduce import Reduction, reduce
from compiler.pipeline.text import parse_pipeline
from passes import PASSES
from passes.pipelines import PIPELINES

CHECKS = {"any": KINDS, "numeric": (MEANING,), "verify": (RULE,), "crash": (CRASH,)}
"""What `--check` may ask for, and the kinds of faults that count then."""
CHILDREN = 3
"""Under the settings of the oracle, and the two by which the original's movement is measured."""

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Case:
    """What is hunted in: a module, the steps, and where it is from (None for an `.ir` file)."""

    module: Module
    steps: tuple[Step, ...]
    source: SourceModel | None


def bisect_model(
    model: str, pipeline: str | None, options: Options, check: str, progress: Progress, *, allow_files: bool = False
) -> Culprit | None:
    """The wrong pass and its wrong rewrite, None where nothing is wrong.  CleaveError where the import already is."""
    case = _case(model, pipeline, options, allow_files)
    with Pool(CHILDREN) as pool:
        if case.source is not None and MEANING in CHECKS[check]:
            progress("is the import right")
            _check_import(case.source, options, pool)
        return bisect(case.module, case.steps, _probe(pool, case, options, check), progress)


def reduce_model(
    model: str, pipeline: str | None, options: Options, check: str, most_tries: int, progress: Progress, *, allow_files: bool = False
) -> Reduction:
    """The smallest module that shows the fault, from the one before the wrong rewrite on: one pass runs on it, not all."""
    case = _case(model, pipeline, options, allow_files)
    with Pool(CHILDREN) as pool:
        probe = _probe(pool, case, options, check)
        found = bisect(case.module, case.steps, probe, progress) if case.steps else None
        module, steps = (case.module, case.steps) if found is None else (found.before, parse_pipeline(found.pipeline, PASSES))
        return reduce(module, steps, probe, most_tries, progress)


def _case(model: str, pipeline: str | None, options: Options, allow_files: bool) -> Case:
    """An `.ir` file's own pipeline is run where none is given, a model's is the default order."""
    held, source = None, None
    if Path(model).suffix == ".ir":
        held, module = read_document(Path(model))
    else:
        source = load(model, allow_files=allow_files)
        module = source.module.copy()
        for alias in aliases_of(module):
            del module.entries[alias]
    sizes = representative_sizes(module, options.objective, options.input_shapes)
    module.sizes = {**sizes, **({} if options.input_shapes else module.sizes)}
    text = pipeline if pipeline is not None else held
    if text is None:
        text = PIPELINES["exact" if options.numerics == "exact" else "default"]
    return Case(module, parse_pipeline(PIPELINES.get(text, text), PASSES), source)


def _probe(pool: Pool, case: Case, options: Options, check: str) -> Probe:
    saved = None if case.source is None else original_of(case.source)
    oracle = Oracle(pool, options.numerics, len(options.cluster.devices), saved, FEW_SPREADS)
    executor = GraphExecutor(pool)
    return Probe(lambda: Context(executor=executor, services=options.services), oracle.differs, CHECKS[check])


def _check_import(source: SourceModel, options: Options, pool: Pool) -> None:
    """The module as it was imported, saved, against the model: faults from there on are the passes'."""
    with tempfile.TemporaryDirectory(prefix="cleave-import-") as directory:
        saved = save(source.module, Path(directory) / "model", original=original_of(source))
        verdicts = validate_entries(source, source.module, saved.path, options, pool, GraphExecutor(pool), lambda _: None)
    for entry, verdict in verdicts.items():
        if not verdict.passed:
            raise CleaveError(
                f"{source.path} is another function as soon as it is imported and saved, no pass is to blame: {entry}: {verdict}"
            )
