"""What is told of generations that were never accepted."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from starlette.requests import Request

from supervisord_llm.api.errors import http_error
from supervisord_llm.api.front import Front
from supervisord_llm.errors import ClientError, Refused
from supervisord_llm.events import RequestRejected


@contextmanager
def rejections(front: Front, request: Request, pool: str | None) -> Iterator[None]:
    """Publish ``request.rejected`` for a generation that is refused in this block.

    Args:
        front: takes the event.
        request: is noted to have been told of.
        pool: whose it was, as far as it is known; what is no pool's name is not told.
    """
    try:
        yield
    except (ClientError, Refused) as error:
        known = pool if pool in front.supervisor.pools else None
        field = error.param if isinstance(error, ClientError) else None
        front.publish(RequestRejected(code=http_error(error).code, pool=known, field=field))
        request.state.told = True
        raise
