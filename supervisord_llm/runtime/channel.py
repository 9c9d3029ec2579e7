"""The pump between a worker's pipes and its protocol; dull on purpose.

Bytes in, messages out, in batches: everything that one read brought is handed on in one call. It
never waits for a worker's pipe without a bound, and it judges nothing: what is malformed, blocked
or closed is told to the owner.
"""

from __future__ import annotations

import contextlib
import os
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from enum import StrEnum

import trio

from supervisord_llm.core.words import WireId
from supervisord_llm.runtime.process import Pipes
from supervisord_llm.wire.control_frame import encode_cancel
from supervisord_llm.wire.messages import Generate, Message
from supervisord_llm.wire.serial import SerialConnection

_READ_SIZE = 65536
_LAST_WORDS = 1 << 20
"""What is read at most from a pipe whose writer has exited; a descendant may go on writing."""


class FrameFate(StrEnum):
    """What became of a cancel frame."""

    TAKEN = "taken"
    FULL = "full"
    """The pipe has no room; trying again later is right."""
    BROKEN = "broken"
    """Part of the frame went in, or the pipe failed: no later frame could be trusted."""


Write = Callable[[int, bytes], int]
"""``os.write``, or what a test puts in its place to force a short write."""


class Channel:
    """The daemon's side of one worker's four pipes; owns and closes their descriptors."""

    def __init__(
        self,
        pipes: Pipes,
        connection: SerialConnection,
        *,
        stdin_timeout: float,
        on_messages: Callable[[Sequence[Message]], None],
        after_read: Callable[[], Awaitable[None] | None],
        on_log: Callable[[bytes], None],
        on_stdin_blocked: Callable[[], None],
        on_closed: Callable[[str], None],
        write: Write = os.write,
    ) -> None:
        """Take over the descriptors; the callbacks must not block.

        Args:
            pipes: non-blocking descriptors.
            connection: the protocol.
            stdin_timeout: how long the worker may take nothing of its input, in seconds.
            on_messages: what one read brought.
            after_read: called between two reads; what it returns is awaited, for a bounded moment.
            on_log: what one read of stderr brought.
            on_stdin_blocked: the worker has taken nothing of its input for ``stdin_timeout``.
            on_closed: the worker closed its end of this pipe, as one that ends does.
            write: how bytes go to the control pipe.
        """
        self.connection = connection
        self._stdin_timeout = stdin_timeout
        self._on_messages = on_messages
        self._after_read = after_read
        self._on_log = on_log
        self._on_stdin_blocked = on_stdin_blocked
        self._on_closed = on_closed
        self._write = write
        self._stdin: int | None = pipes.stdin
        self._stdout = pipes.stdout
        self._stderr = pipes.stderr
        self._control: int | None = pipes.control
        self._outgoing: deque[bytes] = deque()
        self._outgoing_added = trio.Event()
        self._closing_stdin = False
        self._closed = False

    # Out ----------------------------------------------------------------------

    def generate(self, request: Generate, wire_id: WireId) -> None:
        """Queue a generation for the worker."""
        self._send(self.connection.send_generate(request, wire_id))

    def probe(self) -> None:
        """Queue the idle probe of a worker that cannot ``ping``."""
        self._send(self.connection.send_probe())

    def close_session(self, session_id: str) -> None:
        """Queue the closing of a named session; an operation like a generation."""
        self._send(self.connection.send_close(session_id))

    def reset_session(self, session_id: str) -> None:
        """Queue the reset of a named session; an operation like a generation."""
        self._send(self.connection.send_reset(session_id))

    def ping(self, nonce: int) -> None:
        """Queue a ping."""
        self._send(self.connection.send_ping(nonce))

    def _send(self, data: bytes) -> None:
        self._outgoing.append(data)
        self._outgoing_added.set()

    def close_stdin(self) -> None:
        """Let the worker see the end of its input, after what is queued."""
        self._closing_stdin = True
        self._outgoing_added.set()

    async def run_writer(self) -> None:
        """Write what is queued, until stdin is closed or does not get through."""
        while self._stdin is not None:
            while self._outgoing:
                if not await self._write_all(self._stdin, self._outgoing.popleft()):
                    self._close_stdin_now()
                    return
            if self._closing_stdin:
                self._close_stdin_now()
                return
            self._outgoing_added = trio.Event()
            await self._outgoing_added.wait()

    async def _write_all(self, descriptor: int, data: bytes) -> bool:
        """Write everything; False, and told, if the worker does not take it."""
        view = memoryview(data)
        while view:
            try:
                view = view[os.write(descriptor, view) :]
            except BlockingIOError:
                with trio.move_on_after(self._stdin_timeout) as waiting:
                    await trio.lowlevel.wait_writable(descriptor)
                if waiting.cancelled_caught:
                    self._on_stdin_blocked()
                    return False
            except BrokenPipeError:
                self._on_closed("stdin")
                return False
        return True

    def _close_stdin_now(self) -> None:
        if self._stdin is not None:
            trio.lowlevel.notify_closing(self._stdin)
            os.close(self._stdin)
            self._stdin = None

    # Cancel -------------------------------------------------------------------

    def close_control(self) -> None:
        """Close the control pipe: the worker did not say that it reads it, or it is broken."""
        if self._control is not None:
            os.close(self._control)
            self._control = None

    def cancel(self, wire_id: WireId) -> FrameFate:
        """Write one cancel frame; it is far below PIPE_BUF, so it goes whole or not at all."""
        if self._control is None:
            return FrameFate.BROKEN
        frame = encode_cancel(wire_id)
        try:
            written = self._write(self._control, frame)
        except BlockingIOError:
            return FrameFate.FULL
        except OSError:
            written = 0
        if written == len(frame):
            return FrameFate.TAKEN
        self.close_control()
        return FrameFate.BROKEN

    # In -----------------------------------------------------------------------

    async def run_reader(self) -> None:
        """Hand on what the worker writes to stdout, until it closes it."""
        while True:
            await trio.lowlevel.wait_readable(self._stdout)
            if not self._read_once():
                self._on_closed("stdout")
                return
            if (pause := self._after_read()) is not None:
                await pause

    def read_now(self) -> None:
        """Hand on what is waiting in the pipe, without waiting for more.

        So the worker's word counts when it and a deadline are pending in the same moment.
        """
        left = 0 if self._closed else _LAST_WORDS
        with contextlib.suppress(BlockingIOError):
            while left > 0 and (data := os.read(self._stdout, _READ_SIZE)):
                left -= len(data)
                self._hand_on(data)

    def _read_once(self) -> bool:
        """Read what one read gives; False at the end of the pipe.

        A line that the end cuts off is no protocol error: the exit that comes with it says more.
        """
        try:
            data = os.read(self._stdout, _READ_SIZE)
        except BlockingIOError:
            return True
        self._hand_on(data)
        return bool(data)

    def _hand_on(self, data: bytes) -> None:
        if messages := self.connection.receive(data):
            self._on_messages(messages)

    async def run_log_reader(self) -> None:
        """Hand on what the worker writes to stderr, until it closes it."""
        while True:
            await trio.lowlevel.wait_readable(self._stderr)
            try:
                data = os.read(self._stderr, _READ_SIZE)
            except BlockingIOError:
                continue
            if not data:
                return
            self._on_log(data)

    def read_log_now(self) -> None:
        """Hand on what is waiting in stderr."""
        left = 0 if self._closed else _LAST_WORDS
        with contextlib.suppress(BlockingIOError):
            while left > 0 and (data := os.read(self._stderr, _READ_SIZE)):
                left -= len(data)
                self._on_log(data)

    def close(self) -> None:
        """Close every descriptor; tasks that wait on them must have ended."""
        self._closed = True
        self._close_stdin_now()
        self.close_control()
        os.close(self._stdout)
        os.close(self._stderr)
