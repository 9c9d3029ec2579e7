"""Effects that more than one machine asks for."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Arm(msgspec.Struct, frozen=True):
    """Wake the machine with an ``Elapsed`` of this timer and state when the clock reaches ``at``.

    Arming a timer again replaces its deadline. ``armed_in`` is the state kind that asked; the
    machine ignores an ``Elapsed`` that comes after it has left that state.
    """

    timer: StrEnum
    at: float
    armed_in: StrEnum


class Elapsed(msgspec.Struct, frozen=True):
    """A timer reached its deadline."""

    timer: StrEnum
    armed_in: StrEnum
    now: float
