"""What all events have."""

from __future__ import annotations

from typing import ClassVar, Literal

import msgspec

Level = Literal["debug", "info", "warning", "error"]


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The root of the catalogue; ``level`` is the class's severity in the log."""

    level: ClassVar[Level] = "info"
