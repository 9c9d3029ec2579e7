"""Clients that are far behind: ``python -m bench.slow_readers SOCKET COUNT``.

Each asks for a stream, and reads so little of it that its connection is full all the time. It says
``ready`` when all of them have begun, goes on until its input ends, and writes as JSON how many
answers are still unread to the end.
"""

from __future__ import annotations

import select
import sys
from contextlib import ExitStack
from pathlib import Path

import msgspec

from bench.client import END, connect
from bench.front_client import chat

_PROMPT = "go sim.tokens=1200 sim.tps=400"
"""Tokens come one by one, and some 300 fit into a connection, each with its event.

The others wait in the daemon, where 1,024 may; more, and the request would fail.
"""
_SIP = 256
"""Bytes that a reader takes at a time: about an event."""
_SIPS_PER_SECOND = 4
"""So that a connection is full for half a minute and more."""


def main(path: str, count: str) -> None:
    """Read slowly until the input ends."""
    request = chat(_PROMPT, streamed=True)
    with ExitStack() as stack:
        sockets = [stack.enter_context(connect(Path(path))) for _ in range(int(count))]
        tails = [b""] * len(sockets)
        for stream in sockets:
            stream.sendall(request)
        for number, stream in enumerate(sockets):
            tails[number] = stream.recv(1)
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        turn = 0
        pause = 1 / _SIPS_PER_SECOND / len(sockets)
        while not select.select([sys.stdin], [], [], pause)[0]:
            number = turn % len(sockets)
            tails[number] = (tails[number] + sockets[number].recv(_SIP))[-len(END) :]
            turn += 1
        behind = sum(tail != END for tail in tails)
    sys.stdout.buffer.write(msgspec.json.encode(behind) + b"\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
