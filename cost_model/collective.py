"""What collectives cost over a group of n devices joined by links of latency a and b seconds per byte, B bytes in all.

    all_reduce      a + b * 2(n-1)/n * B        each device holds B bytes before and after
    all_gather      a + b * (n-1)/n * B         each device holds B/n before, B after
    reduce_scatter  a + b * (n-1)/n * B         each device holds B before, B/n after
    all_to_all      a + b * (n-1)/n^2 * B       each device holds B/n before and after
    send            a + b * B

Source: Zheng et al., "Alpa" (OSDI 2022), `alpa/device_mesh`.  A group over several tasks is hierarchical: an all-reduce is a reduce-scatter
within each task, an all-reduce of the parts between tasks, an all-gather within; where the devices of a task share one network port the
parts pass through it one after another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from cost_model.cluster import LinkGroup
from cost_model.devices import Link


def send_seconds(count: float, link: Link) -> float:
    """One transfer of `count` bytes."""
    return link.seconds(count)


def all_reduce_seconds(count: float, group: LinkGroup) -> float:
    """Every device holds `count` partial bytes, every device ends with their combination."""
    return _there_and_back(count, group, twice=True)


def reduce_scatter_seconds(count: float, group: LinkGroup) -> float:
    """Every device holds `count` partial bytes and ends with its n-th of their combination."""
    return _there_and_back(count, group, twice=False)


def all_gather_seconds(count: float, group: LinkGroup) -> float:
    """Every device holds an n-th of `count` bytes and ends with all."""
    return _there_and_back(count, group, twice=False)


def all_to_all_seconds(count: float, group: LinkGroup) -> float:
    """Every device holds an n-th of `count` bytes by one dimension and ends with an n-th by another."""
    size, seconds = group.size, 0.0
    for members, link, shared in group.levels:
        leaving = count / size * (members - 1) / members
        seconds += link.alpha_seconds + leaving * shared / link.bytes_per_second
    return seconds


def _there_and_back(count: float, group: LinkGroup, *, twice: bool) -> float:
    """Level by level outwards, each on an n-th of what the level within it worked on."""
    seconds, part = 0.0, count
    for level, (members, link, shared) in enumerate(group.levels):
        once = (members - 1) / members * part * shared / link.bytes_per_second
        inner = level < len(group.levels) - 1
        seconds += (2 * link.alpha_seconds if inner and twice else link.alpha_seconds) + (2 * once if twice else once)
        part /= members
    return seconds


COLLECTIVES: Mapping[str, Callable[[float, LinkGroup], float]] = MappingProxyType(
    {
        "all_reduce": all_reduce_seconds,
        "all_gather": all_gather_seconds,
        "reduce_scatter": reduce_scatter_seconds,
        "all_to_all": all_to_all_seconds,
    }
)
