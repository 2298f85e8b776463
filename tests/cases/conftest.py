"""One suite for all test processes: what the first one made, the others find."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.cases.suite import Suite


@pytest.fixture(scope="session")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Suite:
    from tests.cases.suite import Suite

    base = tmp_path_factory.getbasetemp()
    root = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "cases"
    root.mkdir(exist_ok=True)
    return Suite(root)
