"""When the streams of a paced measurement begin."""

from __future__ import annotations

SPREAD_SECONDS = 1.0
"""Within these all of them begin."""
_GOLDEN = 0.6180339887498949


def spread(streams: int) -> list[float]:
    """Seconds after which each stream begins, for the daemon and its floor alike.

    Workers that are asked in the same moment write their tokens in the same moments for ever after,
    and whoever waits for them wakes once for many. The bare loop asks all of its workers within a
    millisecond and a daemon does not, so it would be measured how the streams began. Multiples of
    the golden ratio spread evenly whatever the pace.
    """
    return [number * _GOLDEN % 1 * SPREAD_SECONDS for number in range(streams)]
