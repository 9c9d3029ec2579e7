"""One HTTP/1.1 connection: Hypercorn's own connection class, with less allowed and more told.

Hypercorn is used below its public surface, because only there the peer's credentials can be given
to the application and only there a connection can be refused before it becomes WebSocket or HTTP/2.
Its version is pinned and ``tests/api/test_hypercorn_names.py`` names everything that is relied on.

What h11 parses is judged where it is parsed, in a ``h11.Connection`` of ours. Looking for ``PRI *``
or ``Upgrade:`` in the raw bytes was not taken: it would be a second, worse parser.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import h11
import trio
from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.config import Config
from hypercorn.events import Event, RawData, Updated
from hypercorn.protocol import ProtocolWrapper
from hypercorn.protocol.h11 import H11Protocol
from hypercorn.trio.task_group import TaskGroup
from hypercorn.trio.tcp_server import TCPServer
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import ConnectionState
from hypercorn.typing import TaskGroup as TaskGroupFace
from starlette.types import ASGIApp

from supervisord_llm.api.stream import GuardedStream
from supervisord_llm.errors import InternalError
from supervisord_llm.host.peers import Peer, TcpPeer

MAX_HEAD = 32 * 1024
"""Bytes of a request line and its headers, all together; more is answered with 431."""

EARLY_BYTES_PATIENCE = 0.25
"""Seconds that a response may still take when bytes of the next request are here already."""

LINGER = 2.0
"""Seconds for which a client that is still sending is heard out, after its reply has ended."""

SMALL_PIECE = 16 * 1024
"""Bytes that `Connection.send_body_now` takes at most."""

Refuse = Callable[[int, str], None]
"""Told of the status (0: closed without one) and the reason of a connection that is turned away."""


class Http1(h11.Connection):
    """h11's parser, for plain requests one at a time.

    An upgrade, CONNECT or another HTTP version is a protocol error, which the server library
    answers with a bare 400. Bytes behind a request that is still being answered hide a later end
    of file, and with it the client's leaving; ``early`` is called each time that such bytes pause
    the parser.
    """

    def __init__(self, *, refuse: Refuse, early: Callable[[], None]) -> None:
        super().__init__(h11.SERVER, max_incomplete_event_size=MAX_HEAD)
        self._refuse = refuse
        self._early = early
        self._chunked = False

    def send_with_data_passthrough(self, event: h11.Event) -> list[bytes] | None:
        """Return the bytes of an event, in pieces, as h11 does."""
        pieces = super().send_with_data_passthrough(event)
        if isinstance(event, h11.Response):
            head = b"".join(pieces or []).lower()
            self._chunked = b"\r\ntransfer-encoding: chunked\r\n" in head
        return pieces

    def frame(self, data: bytes) -> bytes | None:
        """Return the bytes of a piece of a chunked body; ``None`` if no such body is under way.

        h11 would return the same: it remembers nothing of a piece, but takes 2 µs instead of 0.1.
        """
        if not self._chunked or self.our_state is not h11.SEND_BODY:
            return None
        return b"%x\r\n%b\r\n" % (len(data), data)

    def next_event(self) -> Any:
        """Return what h11 says. Raises ``h11.RemoteProtocolError`` for more than h11 would."""
        try:
            event = super().next_event()
        except h11.RemoteProtocolError as error:
            # What follows the colon is the client's own text, which may be a secret.
            self._refuse(error.error_status_hint, str(error).partition(":")[0])
            raise
        if event is h11.PAUSED:
            self._early()
        if isinstance(event, h11.Request) and (why := _not_served(event)):
            self._refuse(400, why)
            raise h11.RemoteProtocolError(why, error_status_hint=400)
        return event


def _not_served(request: h11.Request) -> str | None:
    if request.http_version not in {b"1.0", b"1.1"}:
        return "another version than HTTP/1.x"
    if request.method == b"CONNECT":
        return "CONNECT"
    names = {name for name, _ in request.headers}
    if b"upgrade" in names:
        return "an upgrade of the protocol"
    # Whoever stands between may have believed the other one, and sees other requests than we do.
    if {b"content-length", b"transfer-encoding"} <= names:
        return "both Content-Length and Transfer-Encoding"
    return None


def settings(*, idle_timeout: float) -> Config:
    """Hypercorn's configuration; ``idle_timeout`` bounds keep-alive and the arrival of a head.

    The read timeout stays unset: it would cut long streams, whose clients have nothing to say. The
    logs go nowhere: what matters of a request is an event, and ``app`` lets no exception out.
    """
    config = Config()
    config.accesslog = None
    config.errorlog = None
    config.include_server_header = False
    config.keep_alive_timeout = idle_timeout
    config.h11_max_incomplete_size = MAX_HEAD
    return config


class Connection(TCPServer):
    """One accepted connection; ``await connection.run()`` serves it until it is closed.

    ``peer`` reaches the application as ``scope["state"]["peer"]``. ``on_idle`` is told False when
    the head of a request has arrived, and True when its reply has ended and another may follow.
    """

    stream: GuardedStream  # type: ignore[assignment]

    def __init__(
        self,
        app: ASGIApp,
        config: Config,
        context: WorkerContext,
        stream: GuardedStream,
        *,
        peer: Peer | TcpPeer,
        refuse: Refuse,
        on_idle: Callable[[bool], None],
    ) -> None:
        state = {"peer": peer, "send_body_now": self.send_body_now}
        super().__init__(ASGIWrapper(app), config, context, state, stream)  # type: ignore[arg-type]
        self._refuse = refuse
        self._on_idle = on_idle
        self._reading = trio.CancelScope()
        self._still_sends = False
        self._http = Http1(refuse=refuse, early=self._on_early_bytes)
        self._unsent = b""
        self._left = False
        self._task_group = TaskGroup()

    async def run(self) -> None:
        """Serve requests until either side closes; everything it started has ended then."""
        # The server library's own block around a task group does not pass on what its nursery says
        # at the end: a nursery that is cancelled from within would look like one that failed, and
        # take every other connection of the listener with it.
        task_group = self._task_group
        try:
            async with trio.open_nursery() as nursery:
                task_group._nursery = nursery  # noqa: SLF001 (there is no other way)
                self._scope = nursery.cancel_scope
                self.protocol = self._make_protocol(task_group)
                await self.idle_task.restart(task_group, self._idle_timeout)
                with self._reading:
                    await self._read_data()
                if self._still_sends:
                    await self._hear_out()
                # The client has left; its idle clock would hold the connection until it runs out,
                # and so would the one that starts when its reply ends only after this.
                self._left = True
                await self.idle_task.stop()
        finally:
            self.stream.cut()

    async def protocol_send(self, event: Event) -> None:
        """Send, without a pause if all of it goes at once.

        Hypercorn's own takes a lock, a cancel scope and two rounds of the event loop, which is most
        of what a token costs that comes alone. It still does what needs waiting, or goes wrong.
        """
        if isinstance(event, Updated):
            self._on_idle(event.idle)
            if self._left:
                return
        if not isinstance(event, RawData) or self.send_lock.locked():
            await super().protocol_send(event)
            if self._still_sends:
                self._reading.cancel()
            return
        data, self._unsent = self._unsent + event.data, b""
        sent = self.stream.send_now(data)
        if sent == len(data):
            return
        # What has begun must be sent whole, or whatever came after it would be misread.
        with trio.CancelScope(shield=True):
            await super().protocol_send(RawData(data=data[sent:]))

    def send_body_now(self, data: bytes) -> bool:
        """Send a small piece of a reply's body on the spot, past the server's layers.

        Returns:
            False, with nothing done, if it cannot be: no reply is under way, an earlier piece
            still waits for the client, this one is not small, or the client takes no more.
        """
        # An empty chunk would be the end of the reply.
        if not data or len(data) > SMALL_PIECE or self._unsent or self.send_lock.locked():
            return False
        framed = self._http.frame(data)
        if framed is None:
            return False
        sent = self.stream.send_now(framed)
        if sent == 0:
            return False
        # Linux takes a piece of this size whole or not at all; if not, the rest goes first later.
        self._unsent = framed[sent:]
        return True

    def _make_protocol(self, task_group: TaskGroupFace) -> ProtocolWrapper:
        wrapper = ProtocolWrapper(
            self.app,
            self.config,
            self.context,
            task_group,
            ConnectionState(self.state),
            False,  # noqa: FBT003 (Hypercorn's own signature)
            None,
            None,
            self.protocol_send,
            "http/1.1",
        )
        if not isinstance(wrapper.protocol, H11Protocol):
            raise InternalError(f"Hypercorn made a {type(wrapper.protocol).__name__} for HTTP/1.1")
        wrapper.protocol.connection = self._http
        self._h11_protocol = wrapper.protocol
        return wrapper

    async def _close(self) -> None:
        """Close, but not under the hands of a client that still sends.

        The kernel answers what comes to a closed socket with a reset, for which many clients throw
        away the reply that they have: the very one that says what was wrong with their request.
        """
        if self._http.their_state in {h11.SEND_BODY, h11.ERROR} and not self._left:
            self._still_sends = True
            self._on_idle(True)  # noqa: FBT003 - its one argument
            with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                await self.stream.send_eof()
            return
        await super()._close()

    async def _hear_out(self) -> None:
        gone = (trio.BrokenResourceError, trio.ClosedResourceError)
        with trio.move_on_after(LINGER), suppress(*gone):
            while await self.stream.receive_some(MAX_HEAD):
                pass

    async def _idle_timeout(self) -> None:
        with trio.move_on_after(self.config.keep_alive_timeout) as patience:
            await self.context.terminated.wait()
        if patience.cancelled_caught and self._http.trailing_data[0]:
            self._refuse(0, "a request head that did not arrive within idle_timeout")
        with trio.CancelScope(shield=True):
            await self._initiate_server_close()

    def _on_early_bytes(self) -> None:
        self._task_group.spawn(self._bound_early_bytes)

    async def _bound_early_bytes(self) -> None:
        """End the connection if the response that the bytes overtook does not end soon.

        A client has the last byte of a response before this side has closed its books on it, and
        may rightly send the next request then; only a client that does not wait is pipelining.
        """
        with trio.move_on_after(EARLY_BYTES_PATIENCE) as patience:
            await self._h11_protocol.can_read.wait()
        if patience.cancelled_caught:
            self._refuse(0, "bytes after a request that was still being answered")
            self.stream.cut()
            self._scope.cancel()
