"""A worker that says what it is told, for replies that no runtime would write.

    python puppet.py READY REPLY...

READY is its first line. Each request line that comes in is answered with all of REPLY, a line each,
as they stand; ``|`` in a reply is an end of line that goes out in the same write, and
``!close-control`` closes the control pipe instead of saying anything.
"""

from __future__ import annotations

import os
import sys


def puppet(ready: str, *replies: str) -> list[str]:
    """The command of a pool of such workers."""
    lines = [line.replace("{", "{{").replace("}", "}}") for line in (ready, *replies)]
    return [sys.executable, "-S", __file__, *lines]


def say(line: str) -> None:
    """Write what a line stands for, at once."""
    os.write(1, line.replace("|", "\n").encode() + b"\n")


def main(ready: str, *replies: str) -> None:
    """Answer every request in the same way until the end of the input."""
    say(ready)
    for _ in sys.stdin:
        for reply in replies:
            if reply == "!close-control":
                os.close(int(os.environ["EXECUTORCH_LLM_WORKER_CONTROL_FD"]))
            else:
                say(reply)


if __name__ == "__main__":
    main(*sys.argv[1:])
