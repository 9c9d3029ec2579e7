"""Which cores each slot's worker computes on.

Threads that wait for a core spin in llama.cpp: on two cores, two workers with two threads each gave
a hundredth of the tokens that two with one thread each did. So a core belongs to one slot for as
long as there are enough.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from supervisord_llm.config.problems import ConfigWarning
from supervisord_llm.config.schema import Config
from supervisord_llm.config.units import format_cpus
from supervisord_llm.core.words import SlotName

Shares = dict[SlotName, tuple[int, ...]]


def share_cores(config: Config, cores: Sequence[int]) -> Shares:
    """Each slot's cores: those that its pool lists, or an even share of those that no list names.

    With fewer cores than slots, several slots share one; each slot has at least one. Pools of one
    exclusive group are never loaded together, so they use the same cores one after the other.
    Slots on standby have cores of their own: each may come to work beside all others.

    Args:
        config: a valid configuration.
        cores: the numbers of the cores that the daemon may use, at least one.
    """
    shares: Shares = {}
    automatic: dict[tuple[str, str, int], list[SlotName]] = {}
    for name, pool in config.pool.items():
        owner = ("group", pool.exclusive) if pool.exclusive else ("pool", name)
        for index in range(pool.slots):
            if pool.limits.cpus == "auto":
                automatic.setdefault((*owner, index), []).append(f"{name}.{index}")
            else:
                shares[f"{name}.{index}"] = tuple(sorted(set(pool.limits.cpus[index])))
    listed = {core for share in shares.values() for core in share}
    free = [core for core in cores if core not in listed] or list(cores)
    count = len(automatic)
    for position, slots in enumerate(automatic.values()):
        if len(free) < count:
            first, last = position % len(free), position % len(free) + 1
        else:
            # Neighbours in number are near each other in the machine on most.
            first, last = (step * len(free) // count for step in (position, position + 1))
        shares.update(dict.fromkeys(slots, tuple(free[first:last])))
    return shares


def core_warnings(config: Config, shares: Shares, cores: Sequence[int]) -> Iterator[ConfigWarning]:
    """What is wrong with the shares on these cores."""
    for slot, share in shares.items():
        if absent := set(share) - set(cores):
            yield ConfigWarning(
                "cpus",
                f"limits.cpus gives {slot} cores that this daemon may not use: "
                f"{format_cpus(sorted(absent))}",
                f"choose among {format_cpus(cores)}",
            )
    threads = _most_threads(config, shares)
    if threads > len(cores):
        yield ConfigWarning(
            "threads",
            f"the workers of all pools compute with {threads} threads on {len(cores)} "
            f"core{'s' if len(cores) > 1 else ''}, and threads that wait for a core spin",
            "lower workers, or give each slot cores of its own in limits.cpus",
        )


def _most_threads(config: Config, shares: Shares) -> int:
    """How many threads may come to compute at once; of an exclusive group one pool does."""
    alone = 0
    groups: dict[str, int] = {}
    for name, pool in config.pool.items():
        threads = sum(len(shares[f"{name}.{index}"]) for index in range(pool.slots))
        if pool.exclusive:
            groups[pool.exclusive] = max(threads, groups.get(pool.exclusive, 0))
        else:
            alone += threads
    return alone + sum(groups.values())
