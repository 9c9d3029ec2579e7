"""The requests that can be asked about: those under way, and the last ones that are over."""

from __future__ import annotations

from collections import OrderedDict

from supervisord_llm.core.words import RequestId
from supervisord_llm.errors import NotFound
from supervisord_llm.runtime.request import Request

_REMEMBERED = 1000


class Registry:
    """Requests by id; those that are over are remembered for a while."""

    def __init__(self) -> None:
        """Know of none."""
        self._live: dict[RequestId, Request] = {}
        self._over: OrderedDict[RequestId, Request] = OrderedDict()

    def add(self, request: Request) -> None:
        """A request was accepted."""
        self._live[request.id] = request

    def retire(self, request: Request) -> None:
        """A request is over."""
        self._live.pop(request.id, None)
        request.release_text()
        self._over[request.id] = request
        while len(self._over) > _REMEMBERED:
            self._over.popitem(last=False)

    def all(self) -> list[Request]:
        """Those that are remembered, then those under way, as they were accepted."""
        return [*self._over.values(), *self._live.values()]

    def find(self, request_id: RequestId) -> Request:
        """A request under way or remembered.

        Raises:
            NotFound: if there is none.
        """
        request = self._live.get(request_id) or self._over.get(request_id)
        if request is None:
            raise NotFound(
                f"no request {request_id!r} is under way or among the last {_REMEMBERED} that ended"
            )
        return request
