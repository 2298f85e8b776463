"""Only times at which memory can bind stay, and of those that say the same only the tightest.

t goes  if  the most that can be used at t is within slack[t]                                        `Network.room`
        or  everything live at t is live at t+1 or t-1 too, and there is no more slack there          `_covered`
        or  the same terms are live at some t' with no more slack (a layer like the one before)       `_repeated`
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from passes.split.problem import Mask, Vector
from passes.split.solver.network import Network

_SEED = 0


_ROUNDS = 3


def compress(network: Network) -> list[int]:
    """Drop times and number the rest anew; the nodes that lost terms by it.  A few rounds find nearly all."""
    before = {node: len(terms) for node, terms in network.terms.items()}
    for _ in range(_ROUNDS):
        start = len(network.slack)
        network.retime(network.room() < 0)
        network.retime(~_covered(network))
        network.retime(~_repeated(network))
        if len(network.slack) == start:
            break
    return [node for node, terms in sorted(network.terms.items()) if len(terms) < before[node]]


def _covered(network: Network) -> Mask:
    """Times next to one at which at least the same is live, with no more slack."""
    count = len(network.slack)
    begins, ends = np.zeros(count + 1, dtype=bool), np.zeros(count + 1, dtype=bool)
    for terms in network.terms.values():
        for start, end in terms:
            begins[start] = ends[end] = True
    slack = np.concatenate([[np.inf], network.slack, [np.inf]])
    by_next = ~ends[1 : count + 1] & (slack[2:] <= network.slack)
    by_next[-1:] = False
    # A chain of reasons that all point one way ends at a time that stays; so the other way may only point at what the first way left.
    stays = np.concatenate([[False], ~by_next])
    return np.asarray(by_next | (~begins[:count] & (slack[:-2] <= network.slack) & stays[:-1]))


def _repeated(network: Network) -> Mask:
    """A sum of random words, one for each (node, usage): equal sums are equal sets of live terms."""
    words = np.random.default_rng(_SEED)
    change = np.zeros(len(network.slack) + 1, dtype=np.uint64)
    known: dict[tuple[int, bytes], np.uint64] = {}
    with np.errstate(over="ignore"):
        for node in sorted(network.terms):
            for (start, end), usage in sorted(network.terms[node].items(), key=lambda term: term[0]):
                key = (node, usage.tobytes())
                if key not in known:
                    known[key] = words.integers(0, 2**64, dtype=np.uint64)
                change[start] += known[key]
                change[end] -= known[key]
        live = np.cumsum(change[:-1], dtype=np.uint64)
    return _all_but_least(live, network.slack)


def _all_but_least(groups: npt.NDArray[np.uint64], values: Vector) -> Mask:
    """True except at the first least value of each group."""
    order = np.lexsort((np.arange(len(values)), values, groups))
    first = np.ones(len(values), dtype=bool)
    first[1:] = groups[order][1:] != groups[order][:-1]
    dropped = np.ones(len(values), dtype=bool)
    dropped[order[first]] = False
    return dropped
