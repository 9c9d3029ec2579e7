"""How much is measured: enough for stable medians, or a quick look."""

from __future__ import annotations

import msgspec


class Sizes(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of tokens, samples and repetitions; durations in seconds."""

    repeats: int
    """How often floor and daemon take turns, where one turn gives one figure."""
    saturated_tokens: int
    """Tokens of one turn, over all streams."""
    paced_seconds: float
    """How long one turn streams."""
    first_tokens: int
    decode_cancels: int
    prefill_cancels: int
    prefill_share: float
    """How far into the prompt it is cancelled, at most, as a share of its time."""
    stopped_cancels: int
    starts: int
    idle_seconds: float
    http_requests: int
    """Of one turn, at least."""
    http_seconds: float
    """For how long first bytes are timed."""
    http_fast: int
    """Requests of the fast client in one turn."""


FULL = Sizes(
    repeats=5,
    saturated_tokens=1_000_000,
    paced_seconds=10.0,
    first_tokens=1000,
    decode_cancels=1000,
    prefill_cancels=100,
    prefill_share=0.9,
    stopped_cancels=20,
    starts=10,
    idle_seconds=20.0,
    http_requests=2000,
    http_seconds=20.0,
    http_fast=1000,
)

QUICK = Sizes(
    repeats=3,
    saturated_tokens=200_000,
    paced_seconds=3.0,
    first_tokens=100,
    decode_cancels=50,
    prefill_cancels=5,
    prefill_share=0.3,
    stopped_cancels=3,
    starts=3,
    idle_seconds=3.0,
    http_requests=300,
    http_seconds=4.0,
    http_fast=200,
)
