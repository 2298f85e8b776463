"""Is one module still the function that another is?  Cheap where they agree in the last bits, thorough where they do not.

    differences(original, candidate, requests)  =>  [] or what is wrong, in words

Both run in children of a pool, state and repeated calls included.  Equal bits, or an error within a few ulps of the largest result, need
no more.  What is left is judged as `compiler/validate` does it: against a float64 run, and by what the original itself makes of other
thread counts, kernel libraries, and inputs half an ulp away.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from compiler.backend.executor import GraphExecutor
from compiler.execution import Array, Arrays, RunResult, RuntimeConfig
from compiler.ir.module import Module
from compiler.validate import compare
from compiler.validate.double import to_double

DEVICES = 4
PLAIN = RuntimeConfig(devices=DEVICES, intra_threads=1, inter_threads=2)
SPREADS = (RuntimeConfig(devices=DEVICES, intra_threads=1, inter_threads=2, onednn=False), RuntimeConfig(devices=DEVICES, intra_threads=2))
NUDGES = 3


@dataclass
class Judge:
    """`exact` compares bits, as for passes that declare it."""

    runner: GraphExecutor
    entry: str = "f"
    grappler: bool = False
    seconds: float = 60.0
    thorough: int = field(default=0)
    """How often a float64 run was needed."""

    def run(self, module: Module, requests: Sequence[Arrays], config: RuntimeConfig = PLAIN) -> list[RunResult]:
        return self.runner.run_module(module, self.entry, requests, config=config, timeout_seconds=self.seconds, want_variables=True)

    def differences(self, original: Module, candidate: Module, requests: Sequence[Arrays], *, exact: bool = False) -> list[str]:
        truth = self.run(original, requests)
        accepted = [i for i, r in enumerate(truth) if r.error is None]
        if len(accepted) < len(truth):  # a call that fails half-way leaves some of its writes behind
            requests = [requests[i] for i in accepted]
            truth = self.run(original, requests)
        if not requests or any(r.error for r in truth):
            return [f"the original fails: {next((str(r.error) for r in truth if r.error), 'on every input')}"]
        config = RuntimeConfig(devices=DEVICES, intra_threads=1, inter_threads=2, grappler=self.grappler)
        return list(self._compare(original, requests, truth, self.run(candidate, requests, config), exact))

    def _compare(
        self, original: Module, requests: Sequence[Arrays], truth: Sequence[RunResult], found: Sequence[RunResult], exact: bool
    ) -> Iterator[str]:
        bounds = _Bounds(self, original, requests, truth)
        for k, (before, after) in enumerate(zip(truth, found, strict=True)):
            if after.error is not None:
                yield f"call {k}: fails: {after.error}"
                return
            if before.outputs.keys() != after.outputs.keys():
                yield f"call {k}: outputs are {sorted(after.outputs)}, expected {sorted(before.outputs)}"
                return
            for name in sorted(before.outputs):
                fault = bounds.fault(k, name, before.outputs[name], after.outputs[name], exact)
                if fault:
                    yield f"call {k}: {name}: {fault}"
            yield from self._states(k, before.variables or {}, after.variables or {}, bounds, exact)

    def _states(self, k: int, before: Arrays, after: Arrays, bounds: _Bounds, exact: bool) -> Iterator[str]:
        """Variables that are gone were never written (frozen): their value must not have changed from the first call's."""
        for name in sorted(before):
            if name in after:
                fault = bounds.fault(k, f"state {name}", before[name], after[name], exact)
                if fault:
                    yield f"call {k}: state {name}: {fault}"
            elif compare.exact_fault(bounds.state(0, name), before[name]):
                yield f"call {k}: state {name} is gone, and it is written"


@dataclass
class _Bounds:
    """How far apart results may be; float64 and spreads are measured when first asked for."""

    judge: Judge
    original: Module
    requests: Sequence[Arrays]
    truth: Sequence[RunResult]
    _others: list[list[RunResult]] | None = None
    _double: list[RunResult] | None = None

    def state(self, k: int, name: str) -> Array:
        return (self.truth[k].variables or {})[name]

    def fault(self, k: int, name: str, before: Array, after: Array, exact: bool) -> str:
        fault = compare.exact_fault(before, after)
        if not fault or exact:
            return fault
        fault = compare.structure_fault(before, after)
        if fault:
            return fault
        if not compare.is_float(before) and before.dtype.kind != "c":
            return self._discrete(k, name, before, after)
        if compare.special_fault(before, after):
            others = [a for a in (_named(r[k], name) for r in self._measured()) if a is not None]
            fault = compare.special_fault(before, after, others)
            if fault:
                return fault
        apart = compare.distance(before, after)
        return "" if apart <= compare.result_floor(before) else self._far(k, name, before, after, apart)

    def _far(self, k: int, name: str, before: Array, after: Array, apart: float) -> str:
        others = [_named(r[k], name) for r in self._measured()]
        spread = max((compare.distance(a, before) for a in others if a is not None and a.shape == before.shape), default=0.0)
        double = _named(self._doubled()[k], name) if self._doubled() else None
        own = 0.0 if double is None or double.shape != before.shape else compare.distance(before, double)
        bound = max(compare.OWN_ERROR_FACTOR * own + own, compare.SPREAD_FACTOR * spread)
        if apart <= bound:
            return ""
        where = np.unravel_index(int(np.nanargmax(np.abs(_wide(before) - _wide(after)))), before.shape)
        size = f"differs by {apart:.3g} (own error {own:.3g}, spread {spread:.3g})"
        return f"{size}, at {[int(i) for i in where]}: {after[where]}, expected {before[where]}"

    def _discrete(self, k: int, name: str, before: Array, after: Array) -> str:
        """A decision on floats may go either way where the original itself wavers."""
        wavering = np.zeros(before.shape, bool)
        for results in self._measured():
            other = _named(results[k], name)
            if other is not None and other.shape == before.shape:
                wavering |= np.asarray(other != before)
        return "" if np.all(wavering[np.asarray(before != after)]) else compare.exact_fault(before, after)

    def _measured(self) -> list[list[RunResult]]:
        if self._others is None:
            nudged = [self.judge.run(self.original, [_nudged(r, seed) for r in self.requests]) for seed in range(NUDGES)]
            self._others = [*nudged, *(self.judge.run(self.original, self.requests, config) for config in SPREADS)]
        return self._others

    def _doubled(self) -> list[RunResult]:
        if self._double is None:
            self.judge.thorough += 1
            twin = to_double(self.original)
            wide = [{n: a.astype(np.float64) if a.dtype == np.float32 else a for n, a in r.items()} for r in self.requests]
            self._double = [] if isinstance(twin, str) else self.judge.run(twin, wide)
        return self._double


def _named(result: RunResult, name: str) -> Array | None:
    if result.error is not None:
        return None
    return (result.variables or {}).get(name.removeprefix("state ")) if name.startswith("state ") else result.outputs.get(name)


def _nudged(request: Arrays, seed: int) -> Arrays:
    """Each float half an ulp away, more or less."""
    rng = np.random.default_rng(seed)

    def near(array: Array) -> Array:
        if array.dtype.kind != "f":
            return array
        with np.errstate(all="ignore"):
            return (array * (1 + rng.uniform(-1, 1, array.shape) * np.finfo(array.dtype).eps)).astype(array.dtype)

    return {name: near(array) for name, array in request.items()}


def _wide(array: Array) -> Array:
    return array if array.dtype.kind == "c" else array.astype(np.float64)
