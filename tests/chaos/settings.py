"""The configuration that the daemon runs with: small graces, and a limit wherever there is one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.conftest import TEST_VARIABLE

Table = Mapping[str, Any]
Changes = Mapping[str, Table] | None
"""Changes to pools by name; a pool whose changes are ``{}`` is left out."""

COOPERATIVE, PREFILL, TERMINATE, KILL, REAP, DETACH = 0.3, 1.0, 0.3, 2.0, 5.0, 2.0
"""Seconds: the graces of every pool."""

DRAIN = 3.0
"""Seconds that running work gets at the end."""

ATTEMPTS = 2
"""How often a request is given to a worker at most."""

COMMON: Table = {
    "pass_env": [TEST_VARIABLE],
    "stdin_timeout": "1s",
    "heartbeat": "100ms",
    "session_ttl": "2s",
    "load_limits": {"timeout": "5s", "stall": "2s"},
    "cancel": {
        "cooperative_grace": f"{COOPERATIVE}s",
        "prefill_grace": f"{PREFILL}s",
        "terminate_grace": f"{TERMINATE}s",
        "kill_grace": f"{KILL}s",
        "reap_grace": f"{REAP}s",
        "detach_timeout": f"{DETACH}s",
    },
    "health": {
        "probe_interval": "500ms",
        "probe_timeout": "1s",
        "first_token_stall": "2s",
        "token_stall": "2s",
    },
    "restart": {
        "backoff_initial": "50ms",
        "backoff_max": "400ms",
        "healthy_after": "1s",
        "max_restarts": 8,
        "restart_window": "10s",
    },
    "queue": {
        "max_queued": 32,
        "queue_timeout": "5s",
        "deadline": "20s",
        "age_step": "200ms",
        "max_attempts": ATTEMPTS,
        "mailbox_tokens": 256,
        "mailbox_bytes": "64KiB",
    },
    "limits": {
        "memory_soft": "64MiB",
        "memory_hard": "128MiB",
        "max_requests": 25,
        "max_age": "8s",
    },
    "sampling": {"max_new_tokens": 100_000},
}

SESSIONS = frozenset({"alpha", "delta"})
"""The pools whose workers keep sessions with a name."""

GROUPS: Mapping[str, str] = {"delta": "device", "epsilon": "device"}
"""Pools of which only one is loaded at a time, by the device that they share."""

POOLS: Mapping[str, Table] = {
    "alpha": {"command": ["sllm-sim-worker", "--sessions=4"], "workers": 3, "min_ready": 3},
    "beta": {
        "command": ["sllm-sim-worker", "--no_cancel_prefill", "--ignore_eof", "--load_ms=50"],
        "workers": 2,
        "min_ready": 2,
        "standby": 1,
        "reload": "restart",
        "cancel": {"self_test": True},
    },
    "gamma": {
        "command": ["sllm-sim-worker", "--no_cancel", "--no_heartbeat", "--no_ping"],
        "workers": 1,
        "min_ready": 0,
        "load": "on_demand",
        "idle_ttl": "1s",
        "cancel": {"on_uncancellable": "detach"},
    },
    "delta": {
        "command": ["sllm-sim-worker", "--sessions=2", "--load_ms=50"],
        "workers": 2,
        "min_ready": 0,
        "load": "on_demand",
        "idle_ttl": "2s",
        "exclusive": GROUPS["delta"],
    },
    "epsilon": {
        "command": ["sllm-sim-worker", "--no_cancel"],
        "workers": 1,
        "min_ready": 0,
        "load": "on_demand",
        "idle_ttl": "1s",
        "exclusive": GROUPS["epsilon"],
        "cancel": {"on_uncancellable": "auto"},
    },
}


def text(folder: Path, changes: Changes = None) -> str:
    """The file, with changes to pools by name; a pool whose changes are ``{}`` is left out."""
    lines = [f'[[listen]]\naddress = "unix:{folder}/control.sock"\nsend_timeout = "2s"']
    daemon: Table = {
        "state_dir": f"{folder}/state",
        "shutdown_drain": f"{DRAIN}s",
        "seal_memory": False,  # or only root could count its descriptors
    }
    lines += _table("daemon", daemon)
    lines += _table("log", {"format": "json", "level": "debug", "ring_events": 1000})
    for name, own in POOLS.items():
        changed = (changes or {}).get(name, own)
        if changed:
            lines += _table(f"pool.{name}", _merged(_merged(COMMON, own), changed))
    return "\n".join(lines) + "\n"


def _table(name: str, table: Table) -> list[str]:
    """Write a table; what JSON says of strings, numbers and lists of them, TOML says too."""
    plain = {key: value for key, value in table.items() if not isinstance(value, dict)}
    lines = [f"[{name}]", *(f"{key} = {json.dumps(value)}" for key, value in plain.items())]
    for key, value in table.items():
        if isinstance(value, dict):
            lines += _table(f"{name}.{key}", value)
    return lines


def _merged(base: Table, own: Table) -> dict[str, Any]:
    """Take ``own`` over ``base``, tables key by key."""
    merged = dict(base)
    for key, value in own.items():
        under = merged.get(key)
        both = isinstance(under, dict) and isinstance(value, dict)
        merged[key] = _merged(under, value) if both and under is not None else value
    return merged
