"""Hypothesis profiles, and the flag that makes importing TensorFlow an error."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import HealthCheck, settings

FORBIDDEN = ("tensorflow", "keras", "tf_keras")
ALL_TENSORFLOW = re.compile(r"^pytestmark\s*=.*\bmark\.tf\b", re.MULTILINE)

# Slow machines make deadlines and the too-slow check random; what is drawn must not depend on the clock.
settings.register_profile(
    "ci", derandomize=True, database=None, print_blob=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("explore", max_examples=5000, print_blob=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("ci")


class ForbidTensorFlow:
    """A finder that goes first and refuses: the unit suite passes only if nothing under test asks for TensorFlow."""

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name.partition(".")[0] in FORBIDDEN:
            raise ImportError(
                f"'{name}' was imported under --forbid-tensorflow; mark the test `tf`, or import it in compiler/frontend only"
            )
        return None


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--forbid-tensorflow", action="store_true", help="make importing TensorFlow or Keras an error")


def pytest_configure(config: pytest.Config) -> None:
    if not config.getoption("--forbid-tensorflow"):
        return
    loaded = [name for name in FORBIDDEN if name in sys.modules]
    if loaded:
        raise pytest.UsageError(f"{', '.join(loaded)} already imported before the tests started")
    sys.meta_path.insert(0, ForbidTensorFlow())


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """A module whose `pytestmark` names `tf` is not imported at all under --forbid-tensorflow."""
    if not config.getoption("--forbid-tensorflow") or collection_path.suffix != ".py":
        return None
    return True if ALL_TENSORFLOW.search(collection_path.read_text(encoding="utf-8")) else None
