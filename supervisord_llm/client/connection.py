"""The client itself: one method per route.

Short questions have bounded timeouts; streams have none, because a model may think for as long as
its pool allows. A stream is an async context manager and not a bare async generator: leaving the
block is what closes the connection, and closing it is what cancels the request, so neither may wait
for a garbage collector.

Every question has a connection of its own. On a Unix socket that costs a fraction of a millisecond;
a kept connection may be closed by the daemon in the moment in which it is used again, and a prompt
cannot be sent twice to find out.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar
from urllib.parse import quote

import httpx
import msgspec
import trio

from supervisord_llm import __version__, paths
from supervisord_llm.client.errors import (
    ApiError,
    NotPermitted,
    UnreadableReply,
    transport_errors,
)
from supervisord_llm.client.streams import EventStream, GenerateStream, LogStream
from supervisord_llm.core.words import RequestState
from supervisord_llm.schema import (
    ConfigChange,
    ErrorReply,
    GenerateRequest,
    PoolInfo,
    PoolReply,
    Pools,
    RequestInfo,
    Requests,
    ScaleRequest,
    SessionDeleted,
    SessionRequest,
    SessionReset,
    SlotReply,
    Status,
    WorkerInfo,
    Workers,
)

T = TypeVar("T")

CONNECT_TIMEOUT = 5.0
"""Seconds for the connection to be taken; a live daemon needs far less than one."""

READ_TIMEOUT = 30.0
"""Seconds without a byte after which a short question counts as unanswered."""

SETTLE_TIMEOUT = 30.0
"""Seconds that `Client.settled` waits: more than the default graces of the ladder together."""


class Client:
    """A connection to one daemon, used as an async context manager.

    ``socket`` is the control socket's path; without it the rule of `paths.control_socket` applies
    to the process's environment, and its `OperatorError` passes through. ``read_timeout`` is how
    many seconds without a byte a short question is given; streams are not subject to it.

    Every method raises `DaemonUnreachable` or `NotPermitted` where the daemon cannot be talked to,
    `ApiError` where it refuses, and `UnreadableReply` where the answer makes no sense.
    """

    def __init__(
        self, socket: Path | str | None = None, *, read_timeout: float = READ_TIMEOUT
    ) -> None:
        self._brief = httpx.Timeout(read_timeout, connect=CONNECT_TIMEOUT)
        self._endless = httpx.Timeout(read_timeout, connect=CONNECT_TIMEOUT, read=None)
        self.socket = paths.control_socket(os.environ) if socket is None else Path(socket)
        self._http = httpx.AsyncClient(
            # No certificates are needed on a Unix socket; loading them costs 40 ms each time.
            transport=httpx.AsyncHTTPTransport(
                uds=str(self.socket),
                verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
                limits=httpx.Limits(max_keepalive_connections=0),
            ),
            base_url="http://localhost",
            headers={"user-agent": f"supervisord-llm/{__version__}", "connection": "close"},
            timeout=self._brief,
            trust_env=False,  # nothing in the environment is meant for this socket
        )

    async def __aenter__(self) -> Self:
        await self._http.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._http.__aexit__(kind, error, traceback)

    async def status(self) -> Status:
        """The daemon and its pools in short."""
        return await self._ask("GET", "/api/v1/status", Status)

    async def pools(self) -> Pools:
        """Every pool: its live state and the configuration in force."""
        return await self._ask("GET", "/api/v1/pools", Pools)

    async def pool(self, name: str) -> PoolInfo:
        """One pool."""
        return await self._ask("GET", f"/api/v1/pools/{_segment(name)}", PoolInfo)

    async def workers(self) -> Workers:
        """Every slot with the worker in it."""
        return await self._ask("GET", "/api/v1/workers", Workers)

    async def worker(self, slot: str) -> WorkerInfo:
        """One slot with the worker in it."""
        return await self._ask("GET", f"/api/v1/workers/{_segment(slot)}", WorkerInfo)

    async def reload(self, slot: str) -> SlotReply:
        """Drain one slot and start its next generation; returns as soon as that has begun."""
        return await self._command(slot, "reload")

    async def drain(self, slot: str) -> SlotReply:
        """Take one slot out of service when it has finished; returns as soon as that has begun."""
        return await self._command(slot, "drain")

    async def quarantine(self, slot: str) -> SlotReply:
        """Tear down the worker in one slot now; returns as soon as that has begun."""
        return await self._command(slot, "quarantine")

    async def resume(self, slot: str) -> SlotReply:
        """Bring one slot back that is parked, stopped or draining."""
        return await self._command(slot, "resume")

    async def _command(self, slot: str, verb: str) -> SlotReply:
        return await self._ask("POST", f"/api/v1/workers/{_segment(slot)}/{verb}", SlotReply)

    async def reload_pool(self, name: str, *, wait: bool = False) -> PoolReply:
        """Replace each worker of a pool, one after the other, without losing a request.

        With ``wait`` this and the other commands for a pool return when what they began is over,
        however long loading and running work take; without, as soon as it has begun.
        """
        return await self._pool_command(name, "reload", wait=wait)

    async def drain_pool(self, name: str, *, wait: bool = False) -> PoolReply:
        """Take a pool out of service: it takes nothing new and finishes what it has."""
        return await self._pool_command(name, "drain", wait=wait)

    async def resume_pool(self, name: str) -> PoolReply:
        """Bring a drained pool back, and its slots that are parked or stopped."""
        return await self._pool_command(name, "resume")

    async def scale(self, name: str, workers: int, *, wait: bool = False) -> PoolReply:
        """Give a pool so many workers, besides those on standby."""
        body = ScaleRequest(workers=workers)
        return await self._pool_command(name, "scale", wait=wait, body=body)

    async def _pool_command(
        self, name: str, verb: str, *, wait: bool = False, body: msgspec.Struct | None = None
    ) -> PoolReply:
        return await self._ask(
            "POST",
            f"/api/v1/pools/{_segment(name)}/{verb}",
            PoolReply,
            body=body,
            params=_wait(wait=wait),
            endless=wait,
        )

    async def reload_config(self) -> ConfigChange:
        """Let the daemon read its file again; an `ApiError` says why it stays with the old one."""
        return await self._ask("POST", "/api/v1/config/reload", ConfigChange)

    async def reset_session(self, session_id: str, *, model: str | None = None) -> SessionReset:
        """Forget what a session's worker has read; ``model`` is the pool, if there are several."""
        path = f"/v1/sessions/{_segment(session_id)}/reset"
        return await self._ask("POST", path, SessionReset, body=SessionRequest(model=model))

    async def close_session(self, session_id: str, *, model: str | None = None) -> SessionDeleted:
        """Close a session; ``model`` is the pool, if there are several."""
        path = f"/v1/sessions/{_segment(session_id)}"
        params = None if model is None else {"model": model}
        return await self._ask("DELETE", path, SessionDeleted, params=params)

    @asynccontextmanager
    async def logs(
        self, slot: str, *, follow: bool = False, lines: int | None = None
    ) -> AsyncGenerator[LogStream]:
        """Read the last lines that one slot's workers wrote to stderr, across its generations.

        ``lines`` is how many, by default as the daemon likes. With ``follow`` the stream goes on
        with what is written next, until the daemon stops.
        """
        params: dict[str, str] = {}
        if follow:
            params["follow"] = "true"
        if lines is not None:
            params["lines"] = str(lines)
        path = f"/api/v1/workers/{_segment(slot)}/logs"
        async with self._open("GET", path, params=params) as response:
            stream = LogStream(response, self.socket)
            try:
                yield stream
            finally:
                await stream.aclose()

    async def requests(self) -> Requests:
        """The requests that are over and remembered, then those under way, newest last."""
        return await self._ask("GET", "/api/v1/requests", Requests)

    async def request(self, request_id: str) -> RequestInfo:
        """One request: in flight, queued or recently finished."""
        return await self._ask("GET", f"/api/v1/requests/{_segment(request_id)}", RequestInfo)

    async def cancel(self, request_id: str, *, wait: bool = False) -> RequestInfo:
        """Ask for a request's end; asking again, or too late, changes nothing.

        With ``wait`` the answer comes when the request has its outcome, however long its pool's
        graces are; without, at once.
        """
        return await self._ask(
            "POST",
            f"/api/v1/requests/{_segment(request_id)}/cancel",
            RequestInfo,
            params=_wait(wait=wait),
            endless=wait,
        )

    async def settled(self, request_id: str, *, within: float = SETTLE_TIMEOUT) -> RequestInfo:
        """Wait until it is known what became of a cancelled request's worker.

        Where the request had its end already, that is nothing, and ``resolution`` stays ``None``.
        At most ``within`` seconds; then the answer is what is known by that time, with
        ``resolution`` still ``None``.
        """
        deadline = trio.current_time() + within
        pause = 0.005
        while True:
            info = await self.request(request_id)
            cancelled = info.cancelled_by is not None or info.cancel_raced
            known = info.resolution is not None or not cancelled
            resolved = info.state is RequestState.FINISHED and known
            if resolved or trio.current_time() + pause > deadline:
                return info
            await trio.sleep(pause)
            pause = min(pause * 1.5, 0.25)

    @asynccontextmanager
    async def generate(self, request: GenerateRequest) -> AsyncGenerator[GenerateStream]:
        """Submit a prompt; entering returns when the queue has taken it, with its id.

        Leaving the block before the stream's end closes the connection, which cancels the request.
        """
        async with self._open("POST", "/api/v1/generate", body=request) as response:
            stream = GenerateStream(response, self.socket)
            try:
                yield await stream.open()
            finally:
                await stream.aclose()

    @asynccontextmanager
    async def events(
        self, *, follow: bool = False, since: int | None = None
    ) -> AsyncGenerator[EventStream]:
        """Read the event log, as far back as it reaches or after the sequence number ``since``.

        A reader that comes back gives the last number that it has seen. With ``follow`` the stream
        goes on with what happens next, until the daemon stops.
        """
        params: dict[str, str] = {}
        if follow:
            params["follow"] = "true"
        if since is not None:
            params["since"] = str(since)
        async with self._open("GET", "/api/v1/events", params=params) as response:
            stream = EventStream(response, self.socket)
            try:
                yield await stream.open()
            finally:
                await stream.aclose()

    async def _ask(
        self,
        method: str,
        path: str,
        reply: type[T],
        *,
        body: msgspec.Struct | None = None,
        params: Mapping[str, str] | None = None,
        endless: bool = False,
    ) -> T:
        timeout = self._endless if endless else self._brief
        content, headers = _encoded(body)
        with transport_errors(self.socket):
            response = await self._http.request(
                method, path, content=content, params=params, headers=headers, timeout=timeout
            )
        if not response.is_success:
            raise self._refusal(response)
        try:
            return msgspec.json.decode(response.content, type=reply)
        except msgspec.DecodeError as error:
            raise UnreadableReply(self.socket, str(error)) from error

    @asynccontextmanager
    async def _open(
        self,
        method: str,
        path: str,
        *,
        body: msgspec.Struct | None = None,
        params: Mapping[str, str] | None = None,
    ) -> AsyncGenerator[httpx.Response]:
        content, headers = _encoded(body)
        request = self._http.build_request(
            method, path, content=content, params=params, headers=headers, timeout=self._endless
        )
        with transport_errors(self.socket):
            response = await self._http.send(request, stream=True)
            try:
                if not response.is_success:
                    await response.aread()
            except BaseException:
                await response.aclose()
                raise
        if not response.is_success:
            raise self._refusal(response)
        yield response

    def _refusal(self, response: httpx.Response) -> Exception:
        """What the daemon's error envelope says, as an exception."""
        try:
            error = msgspec.json.decode(response.content, type=ErrorReply).error
        except msgspec.DecodeError:
            detail = f"HTTP status {response.status_code} without an error message"
            return UnreadableReply(self.socket, detail)
        if response.status_code in {httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN}:
            return NotPermitted(self.socket)
        return ApiError(
            response.status_code,
            error.code,
            error.message,
            param=error.param,
            retry_after=_seconds(response.headers.get("retry-after")),
        )


def _segment(name: str) -> str:
    """A name as one segment of a path, whatever is in it."""
    return quote(name, safe="")


def _encoded(body: msgspec.Struct | None) -> tuple[bytes | None, dict[str, str] | None]:
    """A body and its headers, if there is one."""
    if body is None:
        return None, None
    return msgspec.json.encode(body), {"content-type": "application/json"}


def _wait(*, wait: bool) -> dict[str, str] | None:
    return {"wait": "true"} if wait else None


def _seconds(header: str | None) -> float | None:
    try:
        return None if header is None else float(header)
    except ValueError:  # a date, which the daemon does not send
        return None
