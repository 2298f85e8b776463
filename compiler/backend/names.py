"""Names TensorFlow accepts, from the IR's: legal ones are kept, the others cleaned and told apart, by structure alone.

`é x/0` => `__x/0`, and `__x/0_1` where that is taken
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence

_LEGAL = re.compile(r"[A-Za-z0-9.][A-Za-z0-9_.\-/]*")
_FOREIGN = re.compile(r"[^A-Za-z0-9_.\-/]")
_ARGUMENT = re.compile(r"[a-z][a-z0-9_]*")


def legal_names(names: Iterable[str], taken: Collection[str] = ()) -> dict[str, str]:
    """Each name's legal form, no two alike and none of `taken`."""
    wanted = list(dict.fromkeys(names))
    kept = {name: name for name in wanted if _LEGAL.fullmatch(name) and name not in taken}
    used = {*kept, *taken}
    for name in wanted:
        if name not in kept:
            kept[name] = _claim(_cleaned(name), used)
    return {name: kept[name] for name in wanted}


def argument_names(names: Sequence[str], taken: Iterable[str] = ()) -> tuple[str, ...]:
    """A name for each, which a function's signature may use: lower case, letters, digits and underscores, begun by a letter."""
    used = set(taken)
    return tuple(_claim(_as_argument(name), used) for name in names)


def _cleaned(name: str) -> str:
    cleaned = _FOREIGN.sub("_", name)
    return cleaned if _LEGAL.fullmatch(cleaned) else f"n{cleaned}"


def _as_argument(name: str) -> str:
    cleaned = re.sub(r"[^a-z0-9_]", "_", name.lower())
    return cleaned if _ARGUMENT.fullmatch(cleaned) else f"arg_{cleaned}"


def _claim(base: str, used: set[str]) -> str:
    name, count = base, 0
    while name in used:
        count += 1
        name = f"{base}_{count}"
    used.add(name)
    return name
