"""The cancel frame: the one thing that travels on a worker's control pipe.

Eight bytes, the wire id of the request to cancel, little endian, with no header and no checksum. A
lost byte would shift every later frame, so a frame that was written in part ends the pipe's use.
Frames are idempotent at the worker, so one may be repeated until the terminal comes.
"""

from __future__ import annotations

from supervisord_llm.core.words import WIRE_ID_MAX, WireId
from supervisord_llm.errors import InternalError

FRAME_SIZE = 8
"""Bytes; far below PIPE_BUF, so that a write is whole or not at all."""


def encode_cancel(wire_id: WireId) -> bytes:
    """Return the frame that cancels a request.

    Raises:
        InternalError: the id is not one of 1 to 2**64 - 1.
    """
    if not 1 <= wire_id <= WIRE_ID_MAX:
        raise InternalError(f"no request has the wire id {wire_id}")
    return wire_id.to_bytes(FRAME_SIZE, "little")
