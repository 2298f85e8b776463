"""Running the original and the candidate side by side and judging the difference.

The original runs with Grappler off, the candidate with it on and off.  Each draw is run in order on one loaded model, and the first draw
again at the end, so that state and second calls are compared; variables are compared after every call.
The original's own spread (other thread counts, oneDNN on and off, other batches of the same rows) is measured only when its error against
float64 does not already cover the candidate's: measuring more can only widen the bound.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from compiler.execution import Array, Artefact, Executor, ModuleExecutor, RunResult, RuntimeConfig
from compiler.ir.errors import CleaveError
from compiler.ir.module import Module
from compiler.ir.types import TensorType
from compiler.ops.registry import has
from compiler.ops.spec import Trait
from compiler.validate import compare
from compiler.validate.batches import LABELS, batched, other_batches
from compiler.validate.compare import Difference
from compiler.validate.double import to_double
from compiler.validate.draw import SCHEMES, Draw, draws, schemes
from compiler.validate.texts import kinds_of_text
from compiler.validate.verdict import Verdict

SPREAD_CONFIGS: tuple[tuple[str, Mapping[str, int]], ...] = (
    ("1 thread", {"intra_threads": 1, "inter_threads": 1}),
    ("2 threads", {"intra_threads": 2, "inter_threads": 2}),
    ("4 threads", {"intra_threads": 4, "inter_threads": 4}),
    ("oneDNN on", {"onednn": True}),
    ("oneDNN off", {"onednn": False}),
)


@dataclass(frozen=True)
class Subject:
    """One side: the artefact, its input types (unknown dimensions symbolic), and its typed module where there is one (for float64)."""

    artefact: Artefact
    inputs: Mapping[str, TensorType]
    module: Module | None = None
    entry: str = "serving_default"
    random: bool = False
    """Draws from a hidden random stream: values can't be compared, only structure."""


def subject(artefact: Artefact, module: Module, entry: str) -> Subject:
    """The side that `artefact` runs, with what `module` says of its entry: nothing that only other entries reach counts."""
    graph = module.entries[entry]
    functions = {name: module.functions[name] for name in module.reachable_functions((graph,))}
    part = replace(module, entries={entry: graph}, functions=functions)
    random = any(has(node, Trait.RANDOM) for g in part.graphs.values() for node in g)
    return Subject(artefact, {name: graph.node(name).type for name in graph.inputs}, part, entry, random)


@dataclass
class Validator:
    """Compares under one numerics level, at most `timeout_seconds` a run."""

    executor: Executor
    modules: ModuleExecutor | None = None
    numerics: str = "reassociate"
    devices: int = 1
    seed: int = 0
    timeout_seconds: float = 300.0
    progress: Callable[[str], None] = field(default=lambda _: None)
    grappler: tuple[bool, ...] = (False, True)
    """The candidate is run so; a graph that carries no settings of its own is only itself with Grappler off."""
    spreads: tuple[tuple[str, Mapping[str, int]], ...] = SPREAD_CONFIGS

    def check(self, original: Subject, candidate: Artefact, inputs: Sequence[Draw] | None = None) -> Verdict:
        """The verdict on one signature; `inputs` replaces the drawn ones."""
        # Bits are compared at one thread: kernels that share work between threads may round differently from call to call.
        threads = 1 if self.numerics == "exact" else 0
        config = RuntimeConfig(devices=self.devices, grappler=False, intra_threads=threads, inter_threads=threads)
        self.progress("original")
        chosen, truth = self._originals(original, config, inputs)
        if not chosen:
            return Verdict(self.numerics, faults=(f"the original fails on every input drawn: {truth[0].error}",))
        accepted = [(draw, result) for draw, result in zip(chosen, truth, strict=True) if result.error is None]
        refused = [(draw, result) for draw, result in zip(chosen, truth, strict=True) if result.error is not None]
        if refused and any(result.variables for _, result in accepted):
            accepted = self._undisturbed(original, config, [draw for draw, _ in accepted])
        return _Session(self, original, candidate, config, accepted).verdict(refused)

    def _undisturbed(self, original: Subject, config: RuntimeConfig, accepted: Sequence[Draw]) -> list[tuple[Draw, RunResult]]:
        """The original once more without what it refuses: a call that fails half-way leaves some of its writes behind."""
        results = self.run(original.artefact, accepted, config)
        return [(draw, result) for draw, result in zip(accepted, results, strict=True) if result.error is None]

    def _originals(self, original: Subject, config: RuntimeConfig, given: Sequence[Draw] | None) -> tuple[list[Draw], list[RunResult]]:
        """Draws that the original accepts, and what it answers; other lengths and texts are tried until it accepts one."""
        results: list[RunResult] = []
        for scheme in schemes(original.inputs, kinds_of_text(original.module)) if given is None else SCHEMES[:1]:
            found = list(given) if given is not None else draws(original.inputs, scheme, self.seed)
            found.append(replace(found[0], label=f"{found[0].label}, again"))
            results = self.run(original.artefact, found, config)
            if any(r.error is None for r in results):
                return found, results
        return [], results

    def run(self, artefact: Artefact, chosen: Sequence[Draw], config: RuntimeConfig) -> list[RunResult]:
        requests = [draw.inputs for draw in chosen]
        return self.executor.run(artefact, requests, config=config, timeout_seconds=self.timeout_seconds, want_variables=True)


@dataclass
class _Session:
    """One comparison, with what it has measured so far."""

    validator: Validator
    original: Subject
    candidate: Artefact
    config: RuntimeConfig
    accepted: list[tuple[Draw, RunResult]]
    notes: list[str] = field(default_factory=list)
    _doubles: list[dict[str, Array] | None] | None = None
    _spreads: list[list[RunResult]] = field(default_factory=list)
    _configs_left: list[tuple[str, Mapping[str, int]]] = field(init=False)
    _rows: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        self._configs_left = list(self.validator.spreads)
        self._rows = batched(self.original.inputs)
        if (
            self._configs_left
            and self._rows
            and self.accepted
            and not any(self._is_written(name) for name in self.accepted[0][1].variables or {})
        ):
            self._configs_left += [(label, {}) for label in LABELS]

    def verdict(self, refused: Sequence[tuple[Draw, RunResult]]) -> Verdict:
        differences: list[Difference] = []
        faults: list[str] = []
        for grappler in self.validator.grappler:
            self.validator.progress(f"candidate, Grappler {'on' if grappler else 'off'}")
            everything = [*(d for d, _ in self.accepted), *(d for d, _ in refused)]
            results = self.validator.run(self.candidate, everything, replace(self.config, grappler=grappler))
            where = "" if not grappler else ", Grappler on"
            for k, ((draw, truth), result) in enumerate(zip(self.accepted, results, strict=False)):
                if result.error is not None:
                    faults.append(f"{draw.label}{where}: the candidate fails: {result.error}")
                else:
                    differences += self._compare(k, draw, truth, self._under_its_old_names(truth, result), where)
            for (draw, truth), result in zip(refused, results[len(self.accepted) :], strict=True):
                if result.error is None:
                    faults.append(f"{draw.label}{where}: the original refuses this input ({truth.error}), the candidate does not")
        return Verdict(self.validator.numerics, tuple(differences), tuple(faults), tuple(dict.fromkeys(self.notes)), len(self.accepted))

    def _compare(self, k: int, draw: Draw, truth: RunResult, result: RunResult, where: str) -> Iterator[Difference]:
        label = draw.label + where
        if set(truth.outputs) != set(result.outputs):
            yield Difference("outputs", label, fault=f"are {sorted(result.outputs)}, expected {sorted(truth.outputs)}")
            return
        for name in sorted(truth.outputs):
            yield self._judge(k, name, label, draw, truth.outputs[name], result.outputs[name])
        before, after = truth.variables or {}, result.variables or {}
        for name in sorted(before):
            if name in result.unchanged and name not in truth.unchanged:
                fault = "is as it was before the call, and the original changes it"
            elif name in after:
                fault = compare.structure_fault(before[name], after[name]) or self._state_fault(before[name], after[name])
            else:
                fault = "is gone, and the original writes it" if self._is_written(name) else ""
            if fault:
                yield Difference(f"variable {name}", label, fault=fault)
        for name in sorted(set(after) & set(truth.unchanged)):
            yield Difference(f"variable {name}", label, fault="is changed by the call, and the original leaves it")

    def _under_its_old_names(self, truth: RunResult, result: RunResult) -> RunResult:
        """A namesake that became a constant takes the need for a path with it: `n@counter` and `n@weight` leave `n`, the one written."""
        known = dict(result.variables or {})
        for name in truth.variables or {}:
            bare = name.partition("@")[0]
            if name not in known and bare in known and self._is_written(name):
                known[name] = known[bare]
        return replace(result, variables=known) if result.variables is not None else result

    def _is_written(self, name: str) -> bool:
        """Does the variable change from call to call?  One that never does may have become a constant."""
        states = [r.variables[name] for _, r in self.accepted if r.variables and name in r.variables]
        return any(compare.exact_fault(states[0], state) for state in states[1:])

    def _state_fault(self, before: Array, after: Array) -> str:
        if self.original.random and compare.is_float(before):
            return ""
        if self.validator.numerics == "exact" or not compare.is_float(before):
            return compare.exact_fault(before, after)
        apart = compare.distance(before, after)
        differs = f"differs by {apart:.2e} after the call" if apart > compare.result_floor(before) else ""
        return compare.special_fault(before, after) or differs

    def _judge(self, k: int, name: str, label: str, draw: Draw, truth: Array, found: Array) -> Difference:
        fault = compare.structure_fault(truth, found)
        if fault or self.original.random or truth.size == 0:
            if self.original.random:
                self.notes.append("the model draws random numbers: structure compared, values not")
            return Difference(name, label, fault=fault)
        if self.validator.numerics == "exact":
            return Difference(name, label, fault=compare.exact_fault(truth, found))
        if not compare.is_float(truth) and truth.dtype.kind != "c":
            return self._judge_discrete(k, name, label, truth, found)
        fault, note = self._special_fault(k, name, truth, found)
        if fault:
            return Difference(name, label, fault=fault)
        return replace(self._judge_float(k, name, label, truth, found), note=note)

    def _special_fault(self, k: int, name: str, truth: Array, found: Array) -> tuple[str, str]:
        """NaN and infinities are where the original has them, under its own settings or, then with a note, under others."""
        first = fault = compare.special_fault(truth, found)
        while fault and self._configs_left:
            self._measure_spread()
            fault = compare.special_fault(truth, found, self._others(k, name))
        return fault, "the original's own NaN and infinities depend on its settings" if first and not fault else ""

    def _judge_float(self, k: int, name: str, label: str, truth: Array, found: Array) -> Difference:
        reference = self._double(k).get(name, truth)
        floor = compare.result_floor(truth)
        own = compare.distance(truth, reference)
        difference = Difference(name, label, compare.distance(found, reference), own, 0.0, floor)
        while not difference.passes and self._configs_left:
            self._measure_spread()
            difference = replace(difference, spread=self._spread(k, name, truth))
        return replace(difference, spread=max(difference.spread, self._spread(k, name, truth)))

    def _judge_discrete(self, k: int, name: str, label: str, truth: Array, found: Array) -> Difference:
        """Integers, bools and strings are equal, unless the original itself decides otherwise under other settings."""
        fault = compare.exact_fault(truth, found)
        while fault and self._configs_left:
            self._measure_spread()
        if not fault:
            return Difference(name, label)
        wavering = np.zeros(truth.shape, bool)
        for results in self._spreads:
            other = results[k].outputs.get(name) if results[k].error is None else None
            if other is not None and other.shape == truth.shape:
                wavering |= np.asarray(other != truth)
        excused = bool(np.all(wavering[np.asarray(found != truth)]))
        note = "a float decision lies within the original's own spread"
        return Difference(name, label, note=note) if excused else Difference(name, label, fault=fault)

    def _double(self, k: int) -> dict[str, Array]:
        """The float64 run of draw k, {} where there is none."""
        if self._doubles is None:
            self._doubles = self._run_double()
        return self._doubles[k] or {}

    def _run_double(self) -> list[dict[str, Array] | None]:
        nothing: list[dict[str, Array] | None] = [None] * len(self.accepted)
        module, runner = self.original.module, self.validator.modules
        if module is None or runner is None:
            self.notes.append("no float64 run (no module to convert): measured against the original")
            return nothing
        self.validator.progress("original in float64")
        twin = to_double(module)
        if isinstance(twin, str):
            self.notes.append(f"no float64 run ({twin}): measured against the original")
            return nothing
        requests = [{n: a.astype(np.float64) if a.dtype == np.float32 else a for n, a in d.inputs.items()} for d, _ in self.accepted]
        try:
            results = runner.run_module(
                twin, self.original.entry, requests, config=self.config, timeout_seconds=self.validator.timeout_seconds
            )
        except CleaveError as error:
            self.notes.append(f"no float64 run ({error}): measured against the original")
            return nothing
        failed = next((r.error for r in results if r.error is not None), None)
        if failed is not None:
            self.notes.append(f"no float64 run ({failed.message}): measured against the original")
        return [None if r.error is not None else r.outputs for r in results]

    def _measure_spread(self) -> None:
        label, settings = self._configs_left.pop(0)
        self.validator.progress(f"original, {label}")
        if label in LABELS:
            self._spreads.append(
                other_batches(
                    label, self._rows, self.accepted, lambda draws: self.validator.run(self.original.artefact, draws, self.config)
                )
            )
            return
        config = RuntimeConfig(devices=self.config.devices, grappler=False, **settings)  # type: ignore[arg-type]
        self._spreads.append(self.validator.run(self.original.artefact, [d for d, _ in self.accepted], config))

    def _spread(self, k: int, name: str, truth: Array) -> float:
        return max((compare.distance(a, truth) for a in self._others(k, name) if a.shape == truth.shape), default=0.0)

    def _others(self, k: int, name: str) -> list[Array]:
        """The original's output under the other settings measured so far."""
        return [r[k].outputs[name] for r in self._spreads if r[k].error is None and name in r[k].outputs]
