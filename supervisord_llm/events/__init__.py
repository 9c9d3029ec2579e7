"""The typed event catalogue: everything that happens is one of these, and nothing is told twice.

Each class is one event; its tag is the name that logs, followers and metrics see. The event log
adds ``ts`` (RFC 3339, UTC, microseconds), ``seq`` (monotonic, without gaps) and ``level`` when it
records one. Optional fields that do not apply are left out of the rendering.

No event carries a prompt, generated text, an environment value or a secret. Durations end in
``_ms`` or ``_seconds``; sizes are bytes.
"""

from __future__ import annotations

from supervisord_llm.events.base import (
    Event,
    Level,
)
from supervisord_llm.events.control import (
    ControlOperation,
    HttpRefused,
)
from supervisord_llm.events.daemon import (
    ConfigRejected,
    ConfigReloaded,
    DaemonError,
    DaemonListening,
    DaemonLoopLag,
    DaemonReady,
    DaemonStarted,
    DaemonStopped,
    DaemonStopping,
    DaemonWarning,
)
from supervisord_llm.events.requests import (
    GAP_BUCKETS,
    CancelDelivered,
    CancelEscalated,
    CancelRequested,
    CancelSettled,
    RequestAccepted,
    RequestFinished,
    RequestFirstToken,
    RequestLateTerminal,
    RequestRejected,
    RequestRetried,
    RequestStarted,
)
from supervisord_llm.events.workers import (
    WorkerActivated,
    WorkerAdded,
    WorkerDraining,
    WorkerExited,
    WorkerLog,
    WorkerParked,
    WorkerQuarantined,
    WorkerReady,
    WorkerReaped,
    WorkerRemoved,
    WorkerRestartScheduled,
    WorkerRested,
    WorkerResumed,
    WorkerSignalled,
    WorkerSpawned,
    WorkerState,
    WorkerUnreapable,
    WorkerUsage,
)

__all__ = [
    "GAP_BUCKETS",
    "CancelDelivered",
    "CancelEscalated",
    "CancelRequested",
    "CancelSettled",
    "ConfigRejected",
    "ConfigReloaded",
    "ControlOperation",
    "DaemonError",
    "DaemonListening",
    "DaemonLoopLag",
    "DaemonReady",
    "DaemonStarted",
    "DaemonStopped",
    "DaemonStopping",
    "DaemonWarning",
    "Event",
    "HttpRefused",
    "Level",
    "RequestAccepted",
    "RequestFinished",
    "RequestFirstToken",
    "RequestLateTerminal",
    "RequestRejected",
    "RequestRetried",
    "RequestStarted",
    "WorkerActivated",
    "WorkerAdded",
    "WorkerDraining",
    "WorkerExited",
    "WorkerLog",
    "WorkerParked",
    "WorkerQuarantined",
    "WorkerReady",
    "WorkerReaped",
    "WorkerRemoved",
    "WorkerRestartScheduled",
    "WorkerRested",
    "WorkerResumed",
    "WorkerSignalled",
    "WorkerSpawned",
    "WorkerState",
    "WorkerUnreapable",
    "WorkerUsage",
    "catalogue",
]


_PARTS = tuple(f"{__name__}.{part}" for part in ("daemon", "workers", "requests", "control"))


def catalogue() -> dict[str, type[Event]]:
    """Every event class by its name, in the order in which a reader meets them.

    Without those that somebody else may have made of the root.
    """
    ours = [cls for cls in Event.__subclasses__() if cls.__module__ in _PARTS]
    ours.sort(key=lambda cls: _PARTS.index(cls.__module__))
    return {str(cls.__struct_config__.tag): cls for cls in ours}
