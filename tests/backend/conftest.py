"""One pool for the room's tests: a child for each setting, started once."""

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session")
def pool() -> Iterator[object]:
    from compiler.backend.pool import Pool  # late: the unit suite reads this file too

    with Pool(max_children=3) as shared:
        yield shared
