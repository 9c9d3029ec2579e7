"""Connections in the states that a worker's line can find them in, and lines for them.

The room ``supervisord_llm/wire`` is held to full branch coverage; to see it:
``coverage run -m pytest -p no:randomly tests/wire; coverage combine;
coverage report --include='supervisord_llm/wire/*'``.
"""

from __future__ import annotations

import msgspec

from supervisord_llm.wire.messages import Generate, Message, Tokens
from supervisord_llm.wire.serial import SerialConnection

MAX_LINE = 4096

EVERY_EXTENSION = ["ping", "heartbeat", "cancel_prefill", "cancel_ids", "model"]

DONE = {"done": True, "finish_reason": "stop", "prompt_tokens": 2, "completion_tokens": 2}

HI = Generate(prompt="Hi")


def line(fields: object) -> bytes:
    """One line of the protocol."""
    return msgspec.json.encode(fields) + b"\n"


READY = line({"ready": True, "supports_cancel": True, "extensions": EVERY_EXTENSION})


def loading(max_line: int = MAX_LINE) -> SerialConnection:
    """A connection whose worker has said nothing yet."""
    return SerialConnection(max_line=max_line, dialect="auto")


def idle(ready: bytes = READY, max_line: int = MAX_LINE) -> SerialConnection:
    """A connection whose worker is ready and has nothing to do."""
    connection = loading(max_line)
    connection.receive(ready)
    return connection


def generating(ready: bytes = READY, max_line: int = MAX_LINE) -> SerialConnection:
    """A connection whose worker has been given request 7."""
    connection = idle(ready, max_line)
    connection.send_generate(HI, 7)
    return connection


def probing() -> SerialConnection:
    """A connection whose worker has been sent the idle probe."""
    connection = idle()
    connection.send_probe()
    return connection


def resetting() -> SerialConnection:
    """A connection whose worker has been asked to reset the session ``s1``."""
    connection = idle()
    connection.send_reset("s1")
    return connection


def merged(messages: list[Message]) -> list[Message]:
    """Messages with neighbouring runs of tokens put together: where runs end is up to the reads."""
    whole: list[Message] = []
    for message in messages:
        last = whole[-1] if whole else None
        if isinstance(message, Tokens) and isinstance(last, Tokens):
            whole[-1] = Tokens(last.wire_id, last.texts + message.texts)
        else:
            whole.append(message)
    return whole
