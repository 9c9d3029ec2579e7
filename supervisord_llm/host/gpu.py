"""Memory on GPUs by process, as ``nvidia-smi`` prints it.

NVML's bindings were not taken: they load the driver's library into the daemon, where a call into a
broken driver can hang the thread that made it for good. A program can be left behind.
"""

from __future__ import annotations

import shutil
from pathlib import Path

ARGUMENTS = ("--query-compute-apps=pid,used_gpu_memory", "--format=csv,noheader,nounits")
"""Makes it print a line like ``1234, 5120`` for each process and GPU, in mebibytes."""


def find(path: str | None = None) -> Path | None:
    """Where ``nvidia-smi`` is; ``None`` on a machine without it.

    Args:
        path: folders to look in, parted like ``$PATH``, which is taken otherwise.
    """
    found = shutil.which("nvidia-smi", path=path)
    return None if found is None else Path(found)


def parse(text: str) -> dict[int, int]:
    """Bytes by pid, of all GPUs together.

    Processes whose memory it does not know ("[N/A]", "[Insufficient Permissions]") are left out.
    Pids are the machine's: in a container they name none of its processes.

    Raises:
        ValueError: if it is not that list; it says its errors on the same stream.
    """
    found: dict[int, int] = {}
    for line in text.splitlines():
        if not line.strip():
            continue
        pid, comma, used = (part.strip() for part in line.partition(","))
        known = used.isascii() and used.isdigit()
        if not (comma and pid.isascii() and pid.isdigit() and (known or used.startswith("["))):
            raise ValueError(f"cannot read {line[:80]!r} as a process and its memory on a GPU")
        if known:
            found[int(pid)] = found.get(int(pid), 0) + int(used) * 2**20
    return found
