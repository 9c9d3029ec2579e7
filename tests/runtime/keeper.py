"""A worker that keeps sessions and is slow, or worse, with what is asked of them.

    python keeper.py GATE

What becomes of an operation on a session depends on the session's name: ``wait`` is answered once
somebody has written to the pipe GATE, ``hang`` never, and at ``die`` the worker kills itself. A
generation is answered at once with the names of the sessions that it has been asked to forget; in
``full`` only the second worker of a pool has memory for it.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path


def command(gate: Path) -> list[str]:
    """The command of a pool of such workers."""
    return [sys.executable, "-I", "-S", __file__, str(gate)]


def say(**message: object) -> None:
    """Write a line."""
    os.write(1, json.dumps(message).encode() + b"\n")


def main(gate: str) -> None:
    """Serve until the end of the input."""
    say(ready=True, max_sessions=5, max_named_sessions=4)
    forgotten: list[str] = []
    for line in sys.stdin:
        asked = json.loads(line)
        operation, session = asked.get("op"), asked.get("session_id")
        if operation is None and session == "full" and ".0/" in os.environ["SUPERVISORD_LLM_SLOT"]:
            say(error="no memory for it", code="capacity_exhausted", session_id=session)
        elif operation is None:
            say(token=" ".join(forgotten))
            say(done=True, prompt_tokens=1, completion_tokens=1, finish_reason="length")
        if operation is None:
            continue
        if session == "wait":
            Path(gate).read_text(encoding="ascii")
        elif session == "hang":
            signal.pause()
        elif session == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if session != "__probe__":
            forgotten.append(session)
        done = {"close": "closed", "reset": "reset", "open": "opened"}[operation]
        say(**{done: True, "session_id": session})


if __name__ == "__main__":
    main(sys.argv[1])
