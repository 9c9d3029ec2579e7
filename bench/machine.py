"""What the figures were measured on, without its name."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import msgspec

from supervisord_llm import __version__


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """Hardware, kernel and interpreter, and how busy the machine was when the run began."""

    cpu: str
    cores: int
    memory_mib: int
    kernel: str
    python: str
    version: str
    load: float
    """Processes that ran or wanted to run, over the last minute."""


def describe() -> Machine:
    """Describe this machine now."""
    pages, size = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    return Machine(
        cpu=cpu_model(Path("/proc/cpuinfo").read_text(encoding="utf-8")) or platform.machine(),
        cores=len(os.sched_getaffinity(0)),
        memory_mib=pages * size // 2**20,
        kernel=f"{platform.system()} {platform.release()}",
        python=platform.python_version(),
        version=__version__,
        load=round(os.getloadavg()[0], 2),
    )


def cpu_model(cpuinfo: str) -> str | None:
    """The first processor's model in the text of ``/proc/cpuinfo``; ``None`` if it names none."""
    for line in cpuinfo.splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            return value.strip()
    return None
