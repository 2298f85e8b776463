"""From a model to a checked artefact: load, run the passes, emit, validate.

The validated artefact is the very folder that `save` hands out, not a twin of it.
"""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from compiler.backend import executor as execution_room
from compiler.backend.cluster import DEADLINE_SECONDS, ClusterExecutor
from compiler.backend.function import EntryFunction, build_callable
from compiler.backend.kernels import has_kernel
from compiler.backend.pool import Pool
from compiler.backend.profiles import profile_named
from compiler.backend.saved_model import Original, copy_saved_model, save
from compiler.driver.aliases import aliases_of
from compiler.driver.measure import measure
from compiler.driver.oracle import Oracle
from compiler.driver.original import with_original
from compiler.driver.passes import watchers, with_checks
from compiler.driver.plan import Plan
from compiler.driver.planning import GivenShapes, make_plan, representative_sizes
from compiler.driver.remote import MemoryRow, Remote
from compiler.driver.report import PassRun, Report
from compiler.driver.tasks import kept_pins, without_tasks
from compiler.execution import ModuleExecutor, SavedModelArtefact
from compiler.frontend.source import SourceModel, load
from compiler.ir.errors import CleaveError
from compiler.ir.module import Module
from compiler.pipeline.base import Context, Note, Pass
from compiler.pipeline.instruments import Dump, Reproducer, ShowPass, Timing, VerifyEach
from compiler.pipeline.manager import Instrument, Silent, Step, run_pipeline
from compiler.pipeline.text import parse_pipeline
from compiler.validate import Validator, Verdict, subject
from cost_model.cluster import Cluster
from passes import PASSES
from passes.pipelines import PIPELINES
from passes.place.kernels import Kernels
from passes.place.pin import Pins
from passes.split.choose import Objective, SplitPlan
from passes.split.wishes import Wishes

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Options:
    """How to compile; see `compile_model`."""

    cluster: Cluster
    objective: Objective = Objective.LATENCY
    numerics: str = "reassociate"
    pipeline: str | None = None
    input_shapes: GivenShapes = field(default_factory=dict)
    dump: Path | None = None
    pins: Mapping[str, str] = field(default_factory=dict)
    splits: Mapping[str, str] = field(default_factory=dict)
    follow: Plan | None = None
    limit: int | None = None
    verify_each: bool = True
    validate_each: bool = False
    deadline_seconds: float = DEADLINE_SECONDS

    @property
    def services(self) -> dict[type, object]:
        """What the passes ask for."""
        wishes = replace(self.follow.follow if self.follow is not None else Wishes(), splits=self.splits)
        asked = {Pins: Pins(self.pins), Wishes: wishes, Kernels: Kernels(has_kernel)}
        return {Cluster: self.cluster, Objective: self.objective, SplitPlan: SplitPlan(), **asked}


@dataclass
class Compiled:
    """A compiled model: call it, save it, ask for its plan and report; `print(compiled.module)` shows the final IR.

    `remote` is the model on its cluster's tasks, where these have addresses; calls then go there.
    """

    source: SourceModel
    module: Module
    plan: Plan
    report: Report
    pool: Pool
    artefact: Path
    options: Options
    aliases: dict[str, str] = field(default_factory=dict)
    remote: Remote | None = None
    _functions: dict[str, EntryFunction] = field(default_factory=dict)

    def __call__(self, *args: Any, signature: str | None = None, **inputs: Any) -> Any:
        """Run one signature (the only one, or `serving_default`): positional arguments in the signature's order, or by name."""
        entry = _entry_named(self.module, self.aliases.get(signature or "", signature))
        graph = self.module.entries[entry]
        order = self.source.arguments if set(self.source.arguments) == set(graph.inputs) else graph.inputs
        if len(args) == 1 and len(order) > 1 and isinstance(args[0], list | tuple | dict):
            args, inputs = ((), {**args[0], **inputs}) if isinstance(args[0], dict) else (tuple(args[0]), inputs)
        if len(args) > len(graph.inputs):
            raise CleaveError(f"signature {entry!r} takes {len(graph.inputs)} inputs ({', '.join(graph.inputs)}), {len(args)} were given")
        named = {**dict(zip(order, args, strict=False)), **inputs}
        if set(named) != set(graph.inputs):
            raise CleaveError(f"signature {entry!r} takes inputs {sorted(graph.inputs)}, {sorted(named)} were given")
        if entry not in self._functions:
            self._functions[entry] = self._callable(entry)
        return _packed(self.source.results, self._functions[entry](named))

    def _callable(self, entry: str) -> EntryFunction:
        if self.remote is not None:
            return self.remote.function(entry)
        return build_callable(self.local_module, entry, self.pool, original_of(self.source))

    @cached_property
    def local_module(self) -> Module:
        """The module as one process runs it: as it is saved."""
        return without_tasks(self.module, self.options.cluster)

    def without(self, *tasks: str) -> Compiled:
        """The same model on what is left of its cluster when `tasks` (`worker:1`) are gone: planned anew, not checked again."""
        rest = self.options.cluster.without(*tasks)
        splits = self.options.splits if len(rest.workers) > 1 else {}
        options = replace(self.options, cluster=rest, pins=kept_pins(self.options.pins, rest), splits=splits, follow=self.plan)
        return compile_source(self.source, options, validate=False)

    def memory(self) -> tuple[MemoryRow, ...]:
        """Of each task, the bytes predicted and those measured up to now; () where the model runs in this process."""
        return self.remote.memory(self.plan.loads) if self.remote is not None else ()

    def write(self, target: Path, overwrite: bool = False) -> None:
        """Put the validated artefact itself at `target`."""
        copy_saved_model(self.artefact, target, overwrite)

    def measure(self, repeat: int = 20) -> dict[str, float]:
        """Median seconds of a call of the original and of the result, run in turn in processes of the cluster's width.

        Keys: `original (N threads)`, TensorFlow as it is on all cores; `compiled`, one thread a device.
        """
        return measure(self, repeat)

    def save(self, out_dir: str | Path, profile: str = "tf", overwrite: bool = False) -> Path:
        """Write an ordinary SavedModel; an existing SavedModel is replaced only with `overwrite`."""
        saved = save(
            self.local_module,
            out_dir,
            original=original_of(self.source),
            aliases=self.aliases,
            profile=profile_named(profile),
            overwrite=overwrite,
        )
        return saved.path


def _packed(keys: Any, outputs: Mapping[str, Any]) -> Any:
    """The outputs in the structure the original returns them in; a dict where that is not known."""
    if keys is None:
        return dict(outputs)
    return _fill(keys, outputs)


def _fill(keys: Any, outputs: Mapping[str, Any]) -> Any:
    if isinstance(keys, str):
        return outputs[keys]
    if callable(keys):
        return keys(outputs)
    if isinstance(keys, Mapping):
        return {k: _fill(v, outputs) for k, v in keys.items()}
    if isinstance(keys, tuple) and hasattr(keys, "_fields"):
        return type(keys)(*(_fill(k, outputs) for k in keys))
    return type(keys)(_fill(k, outputs) for k in keys) if isinstance(keys, list | tuple) else None


def compile_source(
    source: SourceModel, options: Options, *, validate: bool = True, profile: str = "tf", progress: Progress = lambda _: None
) -> Compiled:
    """Compile a loaded model."""
    pool = Pool()
    executor = execution_room.GraphExecutor(pool)
    planned = planned_of(source, options, pool, progress)
    module, aliases, plan = planned.module, planned.aliases, planned.plan
    work = Path(tempfile.mkdtemp(prefix="cleave-compiled-"))
    weakref.finalize(pool, shutil.rmtree, work, ignore_errors=True)  # the pool goes with the compiled model, or with what fails below
    progress("saving")
    local, original = without_tasks(module, options.cluster), original_of(source)
    saved = save(local, work / "model", original=original, aliases=aliases, profile=profile_named(profile))
    verdicts = validate_entries(source, local, saved.path, options, pool, executor, progress) if validate else {}
    remote = remote_of(planned.module, options, pool)
    absent = remote.absent() if remote is not None and validate else ""
    if remote is not None and validate and not absent:
        verdicts |= check_on_cluster(source, remote, options, pool, executor, progress)
    report = Report(str(source.path), planned.passes, planned.notes, verdicts, saved.untouched, saved.dropped, absent=absent)
    return Compiled(source, module, plan, report, pool, saved.path, options, aliases, remote)


def remote_of(module: Module, options: Options, pool: Pool) -> Remote | None:
    """The module on its cluster, if that says where its tasks listen."""
    if not options.cluster.tasks:
        return None
    return Remote(ClusterExecutor(options.cluster, pool, options.deadline_seconds), module)


def check_on_cluster(
    source: SourceModel, remote: Remote, options: Options, pool: Pool, executor: ModuleExecutor, progress: Progress
) -> dict[str, Verdict]:
    """One verdict for each signature, on what the tasks compute."""
    found = {}
    for entry in remote.module.entries:
        progress(f"checking {entry} on {options.cluster.name}")
        original = subject(source.artefact_of(entry), source.module, entry)
        found[f"{entry} on {options.cluster.name}"] = remote.check(original, entry, pool, executor, options.numerics, source.locations)
    return found


@dataclass(frozen=True)
class Planned:
    """A module through all passes, its plan, and how it got there."""

    module: Module
    aliases: dict[str, str]
    plan: Plan
    passes: tuple[PassRun, ...]
    notes: tuple[Note, ...]


def planned_of(source: SourceModel, options: Options, pool: Pool, progress: Progress) -> Planned:
    module = source.module.copy()
    aliases = aliases_of(module)
    for alias in aliases:
        del module.entries[alias]
    module.sizes = representative_sizes(module, options.objective, options.input_shapes)
    context = Context(executor=execution_room.GraphExecutor(pool), services=options.services)
    timing, unsplit = Timing(), _Before("choose")
    oracle = Oracle(pool, options.numerics, len(options.cluster.devices), original_of(source))
    instruments = _instruments(options, context, timing, unsplit, progress)
    run_pipeline(module, _passes(options), context, instruments, watchers(oracle))
    before, splits = unsplit.module or module, context.service(SplitPlan)
    plan = make_plan(module, before, options.cluster, options.objective, splits, pins=options.pins, wishes=options.splits)
    passes = tuple(PassRun(name, seconds, nodes) for name, seconds, nodes in timing.rows)
    return Planned(module, aliases, plan, passes, tuple(context.notes))


@dataclass
class _Before(Silent):
    """An instrument that keeps a copy of the module as it was before one pass."""

    pass_name: str
    module: Module | None = None

    def before_pass(self, position: int, step: Pass, module: Module) -> None:
        if step.name == self.pass_name and self.module is None:
            self.module = module.copy()


def _passes(options: Options) -> tuple[Step, ...]:
    name = "exact" if options.numerics == "exact" else "default"
    steps = parse_pipeline(options.pipeline if options.pipeline is not None else PIPELINES[name], PASSES)
    return with_checks(steps, options.limit, options.validate_each)


def _instruments(options: Options, context: Context, timing: Timing, unsplit: _Before, progress: Progress) -> list[Instrument]:
    found: list[Instrument] = [ShowPass(progress), timing, unsplit, *([VerifyEach()] if options.verify_each else [])]
    return [*found, *([Dump(options.dump)] if options.dump is not None else []), Reproducer(context, directory=options.dump)]


def original_of(source: SourceModel) -> Original | None:
    """Where saving finds what a module does not hold: tables, assets, methods; None for what is no SavedModel."""
    if source.kind in ("frozen", "ir"):
        return None
    return Original(source.path, source.tags, source.kept, source.locations)


def validate_entries(
    source: SourceModel, module: Module, artefact: Path, options: Options, pool: Pool, executor: ModuleExecutor, progress: Progress
) -> dict[str, Verdict]:
    """One verdict for each signature."""
    devices = len(options.cluster.devices)
    validator = Validator(pool, executor, options.numerics, devices, progress=progress)
    verdicts = {}
    for entry in module.entries:
        original = subject(source.artefact_of(entry), source.module, entry)
        verdicts[entry] = validator.check(original, SavedModelArtefact(artefact, entry))
    return verdicts


def _entry_named(module: Module, signature: str | None) -> str:
    if signature is None:
        signature = "serving_default" if "serving_default" in module.entries else next(iter(module.entries))
    if signature not in module.entries:
        raise CleaveError(f"no signature {signature!r}, expected one of {sorted(module.entries)}")
    return signature


def compile_model(
    model: Any,
    cluster: str | Path | Cluster = "cpu:1",
    objective: str = "latency",
    numerics: str = "reassociate",
    pipeline: str | None = None,
    signature: str | None = None,
    input_shapes: Mapping[str, tuple[int | None, ...]] | None = None,
    validate: bool = True,
    dump: str | Path | None = None,
    *,
    profile: str = "tf",
    tags: tuple[str, ...] | None = None,
    allow_files: bool = False,
    pins: Mapping[str, str] | None = None,
    splits: Mapping[str, str] | None = None,
    plan: str | Path | Plan | None = None,
    limit: int | None = None,
    verify_each: bool = True,
    validate_each: bool = False,
    deadline_seconds: float = DEADLINE_SECONDS,
    progress: Progress = lambda _: None,
) -> Compiled:
    """Compile a model (a Keras model, a tf.function, or a path) for a cluster.

    `objective` latency | throughput | memory; `numerics` exact | reassociate; `pipeline` text, None for the default order;
    `input_shapes` sizes to plan with, by input name.  `pins` (operator, layer or kind -> device) and `splits` (-> factor, "whole" or
    "replica") are kept to; so is the earlier `plan`, strategy by strategy, on as many devices as it was made for, elsewhere as a start.
    `tags` choose among the graphs of a SavedModel that holds several.
    `deadline_seconds`: how long a task of a cluster with addresses may be silent in a call before it counts as lost.
    For debugging: no more than `limit` rewrites; the rules, and the function itself, checked after each pass.
    Raises CleaveError for a bad request; a failed validation is in the report.
    """
    dumped = None if dump is None else Path(dump)
    options = _options(cluster, objective, numerics, pipeline, input_shapes, dumped, pins, splits, plan)
    options = replace(options, limit=limit, verify_each=verify_each, validate_each=validate_each, deadline_seconds=deadline_seconds)
    profile_named(profile)
    progress("loading")
    source = model if isinstance(model, SourceModel) else load(model, signature=signature, tags=tags, allow_files=allow_files)
    if source.others:
        every = ", ".join(f"[{', '.join(t)}]" for t in sorted([tuple(sorted(source.tags)), *source.others]))
        raise CleaveError(f"{source.path} holds graphs with the tags {every}, and a result holds one: say which with `tags` (--tags)")
    return compile_source(with_original(source) if validate else source, options, validate=validate, profile=profile, progress=progress)


def plan(
    model: Any,
    cluster: str | Path | Cluster = "cpu:2",
    *,
    objective: str = "latency",
    numerics: str = "reassociate",
    signature: str | None = None,
    input_shapes: Mapping[str, tuple[int | None, ...]] | None = None,
    pins: Mapping[str, str] | None = None,
    splits: Mapping[str, str] | None = None,
    plan: str | Path | Plan | None = None,
    allow_files: bool = False,
    progress: Progress = lambda _: None,
) -> Plan:
    """The plan that `compile_model` would follow, and nothing more: no artefact is written, nothing is validated."""
    options = _options(cluster, objective, numerics, None, input_shapes, None, pins, splits, plan)
    progress("loading")
    source = model if isinstance(model, SourceModel) else load(model, signature=signature, allow_files=allow_files)
    with Pool() as pool:
        return planned_of(source, options, pool, progress).plan


def _options(
    cluster: str | Path | Cluster,
    objective: str,
    numerics: str,
    pipeline: str | None,
    input_shapes: GivenShapes | None,
    dump: Path | None,
    pins: Mapping[str, str] | None,
    splits: Mapping[str, str] | None,
    plan: str | Path | Plan | None,
) -> Options:
    """A request as the driver keeps it; what an earlier plan was asked for is asked for again, unless it is said otherwise."""
    try:
        wanted = Objective(objective)
    except ValueError:
        raise CleaveError(f"objective {objective!r} is not known, expected latency, throughput or memory") from None
    if numerics not in ("exact", "reassociate"):
        raise CleaveError(f"numerics {numerics!r} is not known, expected exact or reassociate")
    found = cluster if isinstance(cluster, Cluster) else Cluster.parse(cluster)
    earlier = plan if isinstance(plan, Plan) or plan is None else Plan.read(plan)
    kept_pins = earlier.pins if earlier is not None else {}
    kept_splits = earlier.wishes if earlier is not None and len(found.workers) > 1 else {}
    every_pin, every_split = {**kept_pins, **(pins or {})}, {**kept_splits, **(splits or {})}
    return Options(found, wanted, numerics, pipeline, dict(input_shapes or {}), dump, every_pin, every_split, earlier)
