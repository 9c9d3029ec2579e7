"""Accepts connections, counts them, and ends them all when it is told to end.

The accepting task is cancelled first. The connections live behind a shield for a moment longer
(``FAREWELL``), so that event followers get a proper end of their stream and keep-alive connections
are closed in an orderly way; then every socket is cut, which wakes whatever still waits in one.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Sequence
from functools import partial

import trio
from hypercorn.trio.worker_context import WorkerContext

from supervisord_llm.api.app import App
from supervisord_llm.api.connection import Connection, settings
from supervisord_llm.api.front import Front, Publish, error_id
from supervisord_llm.api.listeners import Listener
from supervisord_llm.api.room import Room
from supervisord_llm.api.stream import GuardedStream
from supervisord_llm.api.tcp_listener import TcpListener
from supervisord_llm.config.schema import ListenConfig
from supervisord_llm.events import DaemonError, DaemonWarning, HttpRefused
from supervisord_llm.host.peers import Peer, TcpPeer, peer_of, tcp_peer_of

FAREWELL = 1.0
"""Seconds that connections get, after accepting has ended, to end by themselves."""

ACCEPT_WARNING_INTERVAL = 10.0
"""Seconds between warnings that accepting fails; trio tries again ten times a second."""

FULL_WARNING_INTERVAL = 60.0
"""Seconds between warnings that a listener is full and closes connections for newcomers."""


async def serve(
    front: Front,
    listeners: Sequence[Listener],
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve ``front`` on sockets of ``open_listeners`` until cancelled.

    ``started`` is called when every socket takes connections. Ends at most ``FAREWELL`` seconds
    after it was cancelled; by then the sockets are closed and unlinked, and every connection, and
    every task that served one, has ended.
    """
    try:
        with _AcceptWarnings(front.publish):
            async with trio.open_nursery() as nursery:
                for listener in listeners:
                    nursery.start_soon(_Server(front, listener).run)
                task_status.started()
    finally:
        for listener in listeners:
            listener.close()


class _Server:
    """One listener's accepting task and connections."""

    def __init__(self, front: Front, listener: Listener) -> None:
        self._front = front
        self._listener = listener
        self._limits: ListenConfig = listener.config
        self._app = App(front, listener.config)
        self._settings = settings(idle_timeout=listener.config.idle_timeout)
        self._context = WorkerContext(None)
        self._room: Room[GuardedStream] = Room(listener.config.max_connections)
        self._full_told_at = -float("inf")
        self._accepting_ended = trio.Event()
        self._all_gone = trio.Event()

    async def run(self) -> None:
        """Accept until cancelled, then see the connections off."""
        async with trio.open_nursery() as nursery:
            connections: trio.Nursery = await nursery.start(self._hold_connections)
            try:
                await trio.serve_listeners(
                    self._handle,
                    [trio.SocketListener(trio.socket.from_stdlib_socket(self._listener.socket))],
                    handler_nursery=connections,
                )
            finally:
                self._listener.close()
                self._accepting_ended.set()

    async def _hold_connections(
        self, *, task_status: trio.TaskStatus[trio.Nursery] = trio.TASK_STATUS_IGNORED
    ) -> None:
        with trio.CancelScope(shield=True):
            async with trio.open_nursery() as connections:
                task_status.started(connections)
                await self._accepting_ended.wait()
                self._app.closing.set()
                await self._context.terminated.set()
                with trio.move_on_after(FAREWELL):
                    await self._wait_all_gone()
                for stream in self._room.members():
                    stream.cut()
                connections.cancel_scope.cancel()

    async def _wait_all_gone(self) -> None:
        while self._room:
            self._all_gone = trio.Event()
            await self._all_gone.wait()

    async def _handle(self, accepted: trio.SocketStream) -> None:
        stream = GuardedStream(accepted, send_timeout=self._limits.send_timeout)
        try:
            await self._serve(stream)
        except Exception as error:  # noqa: BLE001 - one connection's bug is not another's end
            self._front.publish(
                DaemonError(
                    id=error_id(),
                    where="api.connection",
                    error=repr(error),
                    traceback="".join(traceback.format_exception(error)),
                )
            )
        finally:
            stream.cut()
            self._room.leave(stream)
            self._all_gone.set()

    async def _serve(self, stream: GuardedStream) -> None:
        fd = stream.socket.fileno()
        try:
            tcp = isinstance(self._listener, TcpListener)
            peer = tcp_peer_of(fd) if tcp else peer_of(fd)
        except OSError:  # it has left before it was asked who it is
            return
        refuse = partial(self._refuse, peer)
        admitted, displaced = self._room.admit(stream)
        if not admitted:
            refuse(0, "one connection more than listen.max_connections")
            return
        if displaced is not None:
            displaced.cut()
            self._tell_full()
        await Connection(
            self._app,
            self._settings,
            self._context,
            stream,
            peer=peer,
            refuse=refuse,
            on_idle=partial(self._mark, stream),
        ).run()
        if stream.stalled:
            refuse(0, "a client that did not read for listen.send_timeout")

    def _mark(self, stream: GuardedStream, idle: bool) -> None:
        self._room.mark(stream, idle=idle)

    def _tell_full(self) -> None:
        now = trio.current_time()
        if now < self._full_told_at + FULL_WARNING_INTERVAL:
            return
        self._full_told_at = now
        self._front.publish(
            DaemonWarning(
                topic="connections",
                message=f"{self._listener.address} has {self._limits.max_connections} connections; "
                "for each new one that is closed which has been without a request for longest",
                remedy="look for clients that open connections and forget them, or raise "
                "listen.max_connections",
            )
        )

    def _refuse(self, peer: Peer | TcpPeer, status: int, reason: str) -> None:
        self._front.publish(HttpRefused(status=status, reason=reason, peer=str(peer)))


class _AcceptWarnings(logging.Handler):
    """Turns what ``trio.serve_listeners`` logs, for want of descriptors say, into a few events."""

    def __init__(self, publish: Publish) -> None:
        super().__init__(logging.ERROR)
        self._publish = publish
        self._quiet_until = -float("inf")
        self._logger = logging.getLogger("trio.serve_listeners")

    def __enter__(self) -> None:
        self._logger.addHandler(self)
        self._logger.propagate = False

    def __exit__(self, *exc: object) -> None:
        self._logger.removeHandler(self)
        self._logger.propagate = True

    def emit(self, record: logging.LogRecord) -> None:
        """Publish one warning, then be quiet for a while."""
        now = trio.current_time()
        if now < self._quiet_until:
            return
        self._quiet_until = now + ACCEPT_WARNING_INTERVAL
        error = record.exc_info[1] if record.exc_info else None
        self._publish(
            DaemonWarning(
                topic="accept",
                message=f"cannot accept connections: {error or record.getMessage()}",
                remedy="raise the limit of open files (LimitNOFILE=), or lower "
                "listen.max_connections",
            )
        )
