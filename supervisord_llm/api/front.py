"""What every handler is given: the daemon's parts that the HTTP front shows and commands."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field

from supervisord_llm.api.keys import KeyRings
from supervisord_llm.api.templates import Templates
from supervisord_llm.events import Event
from supervisord_llm.runtime.reconfigure import Change
from supervisord_llm.runtime.supervisor import Supervisor
from supervisord_llm.telemetry.metrics import Metrics
from supervisord_llm.telemetry.ring import Ring
from supervisord_llm.telemetry.totals import Totals

Publish = Callable[[Event], int]
"""Records an event and returns its sequence number; never blocks, never raises."""


@dataclass(frozen=True, kw_only=True)
class Front:
    """The daemon as the HTTP front sees it; made once by the composition root."""

    supervisor: Supervisor
    ring: Ring
    totals: Totals
    metrics: Metrics
    publish: Publish
    reload_config: Callable[[], Change]
    """Reads the configuration file again and puts it in force; raises ``ConfigError``."""
    live: Callable[[], bool]
    """Whether the event loop's measured lag is within ``daemon.max_loop_lag``."""
    keys: KeyRings
    """The API keys that listeners ask for."""
    config_path: str
    version: str
    templates: Templates = field(default_factory=Templates)
    """The chat templates in use."""


def error_id() -> str:
    """Return a new id by which a client's 500 and the ``daemon.error`` event find each other."""
    return f"err_{secrets.token_hex(8)}"
