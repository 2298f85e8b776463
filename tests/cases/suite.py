"""Every case in one model, compiled once for each cluster and run once in each way, however many tests and test processes ask."""

from __future__ import annotations

import fcntl
import importlib
import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import compiler
from tests.cases.case import Case, assert_same, typed

KINDS = (
    "graph_structure",
    "only_consumer",
    "state",
    "interface",
    "float_algebra",
    "dtypes",
    "attributes",
    "broadcast",
    "constants",
    "shapes",
    "combine",
    "training_weights",
    "randomness",
    "placement",
    "scale",
)
EAGER = """
name = "eager"
[[devices]]
name = "/device:CPU:[0-{last}]"
peak_flops = {{ float32 = 1e6, float64 = 1e6, int32 = 1e6, int64 = 1e6 }}
memory_bandwidth = 1e6
overhead_seconds = 1e-12
[[links]]
name = "free"
scope = "task"
alpha_seconds = 1e-12
bytes_per_second = 1e18
"""
"""Slow devices and free links: whatever may be divided is."""
CLUSTERS: Mapping[str, tuple[str, int]] = {
    "cpu:1": ("cpu:1", 1),
    "cpu:2": ("cpu:2", 2),
    "2 eager": (EAGER.format(last=1), 2),
    "3 eager": (EAGER.format(last=2), 3),
}
ROUTES: Mapping[str, tuple[str, bool]] = {"load": ("v2", True), "session": ("v1", True), "original": ("v2", False)}
"""How it is run, and whether Grappler is on; "original" is how the model is run that all are compared with."""
_SESSION_KINDS = ("graph_structure", "state", "interface", "float_algebra", "scale")
"""Those run in a Session daily: it takes Grappler's time again for each signature."""


def runs(kind: str) -> list[Any]:
    """(cluster, route) pairs to test a kind with; most of them in the system tests."""
    daily = [("cpu:1", "load"), ("2 eager", "load"), *([("2 eager", "session")] if kind in _SESSION_KINDS else [])]
    every = [(cluster, route) for cluster in CLUSTERS for route in ("load", "session")]
    return [*daily, *(pytest.param(*run, marks=pytest.mark.system) for run in every if run not in daily)]


@dataclass(frozen=True)
class Suite:
    """Artefacts in `root`, each made by whoever asks first while the others wait."""

    root: Path

    @cached_property
    def cases(self) -> dict[str, Case]:
        return {f"{kind}_{name}": case for kind in KINDS for name, case in _cases_of(kind).items()}

    def model(self) -> Path:
        return self._once("model", self._save)

    def compiled(self, cluster: str) -> Path:
        def make(target: Path) -> None:
            found = compiler.compile_model(self.model(), cluster=CLUSTERS[cluster][0], validate=False, allow_files=True)
            found.write(target)
            (self.root / f"{cluster.replace(':', '_')}.txt").write_text(f"{found.report}\n{found.plan}\n{found.module}\n")

        return self._once(f"compiled {cluster}".replace(":", "_"), make)

    def results(self, kind: str, cluster: str, route: str) -> dict[str, list[Any]]:
        """Signature -> for each call the outputs by key, or the error's text; cluster "" is the original."""
        chosen = [k for k in KINDS if route != "session" or (k in _SESSION_KINDS) == (kind in _SESSION_KINDS)]
        model, devices = (self.compiled(cluster), CLUSTERS[cluster][1]) if cluster else (self.model(), 1)
        name = f"results {cluster} {route} of {len(chosen)}".replace(":", "_")
        calls = {f"{k}_{name}": [typed(case, call) for call in case.calls] for k in chosen for name, case in _cases_of(k).items()}
        path = self._once(name, lambda target: run_client(model, calls, route, devices, target))
        return dict(pickle.loads(path.read_bytes()))

    def _once(self, name: str, make: Callable[[Path], None]) -> Path:
        """One attempt: where it failed, all who ask later are told so at once."""
        target, part = self.root / name, self.root / f"{name}.part"
        with (self.root / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            assert target.exists() or not part.exists(), f"{name} could not be made, as an earlier test has reported"
            if not target.exists():
                part.mkdir()
                make(part / "made")
                (part / "made").rename(target)
                shutil.rmtree(part)
        return target

    def _save(self, target: Path) -> None:
        root, signatures = tf.Module(), {}
        for key, case in self.cases.items():
            function = _function(root, key, case)
            signatures[key] = function.get_concrete_function(*case.specs)
        tf.saved_model.save(root, str(target), signatures=signatures)

    def check(self, kind: str, name: str, cluster: str, route: str) -> None:
        """The case's outputs are the expected ones, and those of the original with Grappler off."""
        key = f"{kind}_{name}"
        case, original, found = self.cases[key], self.results(kind, "", "original")[key], self.results(kind, cluster, route)[key]
        for position, (call, want, got) in enumerate(zip(case.calls, original, found, strict=True)):
            where = f"{name}, call {position}"
            if call.fails:
                assert isinstance(got, str) and call.fails in got, f"{where}: {got}, expected the failure {call.fails!r}"
                continue
            assert not isinstance(want, str), f"{where}: the original fails: {want}"
            assert not isinstance(got, str), f"{where}: {got}"
            assert got.keys() == want.keys(), where
            for output, array in want.items():
                if output not in case.drawn:
                    assert_same(f"{where}, {output}", got[output], array, case.close)
            for output, answer in call.expected.items():
                assert_same(f"{where}, {output}", got[output], answer, case.close)
        if case.check is not None:
            case.check(found)


def _cases_of(kind: str) -> Mapping[str, Case]:
    return dict(importlib.import_module(f"tests.cases.test_{kind}").CASES)


def _function(root: Any, key: str, case: Case) -> Any:
    held = case.state() if case.state is not None else None
    setattr(root, f"state_{key}", held)

    def run(*inputs: Any) -> Mapping[str, Any]:
        return case.function(held, *inputs) if case.state is not None else case.function(*inputs)

    function = tf.function(run)
    setattr(root, f"function_{key}", function)
    return function


def run_client(model: Path, calls: Mapping[str, list[dict[str, np.ndarray]]], route: str, devices: int, target: Path) -> None:
    loader, grappler = ROUTES[route]
    job = {"model": str(model), "out": str(target), "devices": devices, "route": loader, "grappler": grappler, "calls": dict(calls)}
    file = target.with_name(f"{target.name}.job")
    file.write_bytes(pickle.dumps(job))
    command = [sys.executable, "-I", str(Path(__file__).with_name("client.py")), str(file)]
    done = subprocess.run(command, cwd=target.parent, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
