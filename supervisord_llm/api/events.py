"""``GET /api/v1/events``: the event log from the in-memory ring, and with ``follow`` on and on.

The first line is ``stream.opened``. Where the ring has already dropped what this reader wants (an
old ``since``, or a reader slower than the daemon), one ``stream.gap`` line names what is lost.
"""

from __future__ import annotations

from functools import partial

from starlette.requests import Request
from starlette.types import ASGIApp

from supervisord_llm.api.bodies import as_bool, as_seq, read_query
from supervisord_llm.api.follow import follow
from supervisord_llm.api.front import Front
from supervisord_llm.api.inbox import read_no_body, until_disconnect
from supervisord_llm.api.replies import LineStream, Streamed, json_lines
from supervisord_llm.schema import StreamGap, StreamOpened
from supervisord_llm.telemetry.ring import Gap


async def stream(front: Front, request: Request) -> ASGIApp:
    """Stream the events after ``since``; without ``follow``, end where the ring ends now."""
    query = read_query(request, follow=as_bool, since=as_seq)
    await read_no_body(request)
    live = query.get("follow", False)
    follower = front.ring.follow(query.get("since"), live=live)
    opened = StreamOpened(
        boot=front.supervisor.boot, seq=max(follower.next_seq, front.ring.first_seq)
    )

    async def next_lines() -> bytes:
        batch = await follower.next_batch()
        return b"" if batch is None else _encode(batch)

    async def run(lines: LineStream) -> bytes:
        await lines.open()
        if lines.head_only:
            return b""
        await lines.send(json_lines([opened]))
        if live:
            await follow(next_lines, lines, request.state.closing)
            # The daemon closes this listener: what has been published meanwhile is still told.
            rest = front.ring.follow(follower.next_seq - 1, live=False)
        else:
            rest = follower
        while (batch := await rest.next_batch()) is not None:
            await lines.send(_encode(batch))
        return b""

    return Streamed(lambda lines: until_disconnect(request, partial(run, lines)))


def _encode(batch: list[bytes] | Gap) -> bytes:
    if isinstance(batch, Gap):
        return json_lines([StreamGap(first=batch.first, last=batch.last)])
    return b"\n".join(batch) + b"\n"
