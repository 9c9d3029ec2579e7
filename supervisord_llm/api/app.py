"""The ASGI application of one listener: finds the handler, and lets no exception out.

Every refused request becomes one event, every exception that is not a refusal a 500 with an id and
a ``daemon.error`` event under it.
"""

from __future__ import annotations

import traceback
from functools import partial

import trio
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from supervisord_llm.api.errors import (
    ClientGone,
    HttpError,
    MethodNotAllowed,
    http_error,
    internal_error,
)
from supervisord_llm.api.front import Front, error_id
from supervisord_llm.api.gate import admit
from supervisord_llm.api.inbox import Inbox
from supervisord_llm.api.replies import error_reply
from supervisord_llm.api.routes import ROUTES, Endpoint
from supervisord_llm.config.schema import ListenConfig
from supervisord_llm.errors import ClientError, NotFound, Refused
from supervisord_llm.events import DaemonError, HttpRefused


class App:
    """Serves the route groups of one listener.

    ``closing`` is set when accepting has ended: replies that would go on by themselves end then.
    """

    def __init__(self, front: Front, listen: ListenConfig) -> None:
        self.closing = trio.Event()
        self._front = front
        self._listen = listen
        self._router = Router(
            [
                Route(
                    route.path,
                    partial(_serve, front, route),
                    methods=[route.method],
                    name=f"{route.method} {route.path}",
                )
                for route in ROUTES
                if route.group in listen.serve
            ],
            redirect_slashes=False,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one HTTP request."""
        inbox = Inbox(scope, receive)
        reply = _Outbox(inbox, send)
        scope["app"] = self
        scope["state"] |= {
            "listen": self._listen,
            "closing": self.closing,
            "client": scope["state"]["peer"].client,
        }
        try:
            await self._router(scope, inbox, reply)
        except ClientGone:
            return
        except (ClientError, Refused) as error:
            failure = http_error(error)
            self._tell(scope, failure)
        except HTTPException as error:
            failure = http_error(_as_client_error(error, scope))
            self._tell(scope, failure)
        except Exception as error:  # noqa: BLE001 - whatever it is, the client gets an answer
            failure = self._report(scope, error)
        except BaseExceptionGroup as group:
            # A bug that was found while the handler was being cancelled: nobody is left to answer.
            _, bugs = group.split(trio.Cancelled)
            if bugs is not None:
                self._report(scope, bugs)
            raise
        else:
            return
        if not reply.started:
            more = scope["state"].get("reply_headers", {})
            await error_reply(failure, more)(scope, inbox, reply)

    def _tell(self, scope: Scope, error: HttpError) -> None:
        """Publish a refusal that its handler has not published in more detail."""
        if error.status == 404 or scope["state"].get("told", False):
            return
        peer = scope["state"]["peer"]
        reason = f"{error.code}: {scope['method']} {_where(scope)}"
        self._front.publish(HttpRefused(status=error.status, reason=reason, peer=str(peer)))

    def _report(self, scope: Scope, error: BaseException) -> HttpError:
        id_ = error_id()
        self._front.publish(
            DaemonError(
                id=id_,
                where=f"{scope['method']} {_where(scope)}",
                error=repr(error),
                traceback="".join(traceback.format_exception(error)),
            )
        )
        return internal_error(id_)


async def _serve(front: Front, route: Endpoint, request: Request) -> ASGIApp:
    if route.group == "inference":
        admit(request, front.keys)
    return await route.handler(front, request)


class _Outbox:
    """The application's ``send``; knows whether a reply has begun, keeps unread bodies moving."""

    def __init__(self, inbox: Inbox, send: Send) -> None:
        self.started = False
        self._inbox = inbox
        self._send = send

    async def __call__(self, message: Message) -> None:
        """Send one message of the reply."""
        self.started = True
        if self._inbox.body_ended:
            await self._send(message)
            return
        if message["type"] == "http.response.start":
            message["headers"] = [*message["headers"], (b"connection", b"close")]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._inbox.discard)
            await self._send(message)
            nursery.cancel_scope.cancel()


def _where(scope: Scope) -> str:
    return str(scope["raw_path"].decode("ascii"))[:200]


def _as_client_error(error: HTTPException, scope: Scope) -> ClientError:
    """Translate what the router raises: no such route, or not with that method."""
    where = f"{scope['method']} {_where(scope)}"
    if error.status_code == 405:
        allow = ", ".join(sorted((error.headers or {}).get("Allow", "").split(", ")))
        return MethodNotAllowed(f"cannot {where}: the route takes {allow}; use that", allow=allow)
    return NotFound(
        f"cannot find {where}: this listener has no such route; check the path, and listen.serve"
    )
