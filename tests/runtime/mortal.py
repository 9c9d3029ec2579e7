"""A worker that dies after some bytes of its reply, and whose generations speak differently.

    python mortal.py STEP

It writes STEP bytes at a time. A prompt is ``BYTES GENERATION``: the worker of that generation
writes so many bytes of its reply and kills itself. Every other one answers in full. The texts of
two generations have no token in common, so that an answer put together from both shows it.
"""

from __future__ import annotations

import json
import os
import signal
import sys

TOKENS = 3


def command(step: int = 4096) -> list[str]:
    """The command of a pool of such workers."""
    return [sys.executable, "-I", "-S", __file__, str(step)]


def texts(generation: int) -> list[str]:
    """The tokens of a whole answer."""
    return [f"{generation}.{number}é " for number in range(TOKENS)]


def reply(generation: int) -> bytes:
    """All that a worker of this generation says to a request."""
    done = {
        "done": True,
        "prompt_tokens": 1,
        "completion_tokens": TOKENS,
        "finish_reason": "length",
    }
    lines: list[dict[str, object]] = [{"token": text} for text in texts(generation)]
    return b"".join(
        json.dumps(line, ensure_ascii=False).encode() + b"\n" for line in [*lines, done]
    )


def say(said: bytes, step: int) -> None:
    """Write in pieces."""
    for start in range(0, len(said), step):
        os.write(1, said[start : start + step])


def main(step: int) -> None:
    """Answer requests until the end of the input, or of this process."""
    generation = int(os.environ["SUPERVISORD_LLM_SLOT"].rpartition("/")[2])
    os.write(1, b'{"ready": true, "supports_cancel": true}\n')
    for line in sys.stdin:
        count, dies = map(int, json.loads(line)["prompt"].split())
        said = reply(generation)
        if generation == dies:
            say(said[:count], step)
            os.kill(os.getpid(), signal.SIGKILL)
        say(said, step)


if __name__ == "__main__":
    main(int(sys.argv[1]))
