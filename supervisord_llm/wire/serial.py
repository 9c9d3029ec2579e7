"""The serial dialects: one operation at a time, replies that name no request.

Since a reply names nothing, it belongs to the operation that is outstanding, and one that comes
while none is cannot be attributed: the worker and the daemon are out of step, and nothing that it
says later can be believed. The same holds after any malformed line, so the first one ends the
connection: it is reported once and every byte after it is ignored. The alternative, to fall into
step again at the next terminal, was not taken: a request could then be given another one's text.

Pings and heartbeats stand beside the operations. They come from another thread of the worker and
may fall between any two lines.
"""

from __future__ import annotations

from typing import Literal, assert_never

import msgspec

from supervisord_llm.core.words import WIRE_ID_MAX, Dialect, Extension, Phase, WireId
from supervisord_llm.errors import InternalError
from supervisord_llm.wire.lines import LineSplitter
from supervisord_llm.wire.messages import (
    PROBE_SESSION,
    Done,
    Failed,
    Generate,
    Heartbeat,
    Malformed,
    Message,
    Pong,
    ProbeAck,
    Ready,
    SessionDone,
    SessionOp,
    SessionRefused,
    Tokens,
    valid_session_id,
)
from supervisord_llm.wire.replies import (
    DoneLine,
    ErrorLine,
    MalformedLine,
    ReadyLine,
    Reply,
    SessionLine,
    TokenLine,
    parse,
    show,
)

DialectPolicy = Literal["auto", "serial"]
"""What a pool expects of its workers: whatever they negotiate, or one of the serial dialects."""

_token_lines = msgspec.json.Decoder(TokenLine)


class SerialConnection:
    """The daemon's side of the protocol with one worker, from its first byte to its last."""

    def __init__(self, *, max_line: int, dialect: DialectPolicy) -> None:
        """Expect a ready line.

        Args:
            max_line: how long a line may be, in bytes with its newline.
            dialect: the pool's policy; it decides what a worker of another dialect is told.
        """
        self.ready: Ready | None = None
        """What the worker said when its model was loaded."""
        self.dialect: Dialect | None = None
        """The dialect that was negotiated; `None` before that."""
        self.extensions: tuple[Extension, ...] = ()
        """The extensions that both sides know."""
        self.capacity = 0
        """How many requests the worker takes at a time; 0 before it is ready."""
        self._policy = dialect
        self._max_line = max_line
        self._lines = LineSplitter(max_line)
        self._generation: WireId | None = None
        self._last_wire_id: WireId = 0
        self._session_op: tuple[SessionOp, str] | None = None
        """The operation on a session that is outstanding; the idle probe is one."""
        self._nonces: set[int] = set()
        self._broken = False

    # In -------------------------------------------------------------------------------------------

    def receive(self, data: bytes) -> list[Message]:
        """Take what one read brought and return what it says, in order.

        Never raises for anything that a worker can write: what breaks the protocol is `Malformed`,
        always last and only once.
        """
        if self._broken:
            return []
        messages: list[Message] = []
        try:
            self._take(self._lines.feed(data), messages)
        except MalformedLine as error:
            self._broken = True
            messages.append(Malformed(str(error)))
        return messages

    def receive_eof(self) -> list[Message]:
        """Take the end of the worker's output; it is malformed in the middle of a line."""
        beginning = self._lines.started
        if self._broken or not beginning:
            return []
        self._broken = True
        return [Malformed(f"its output ended in the middle of a line: {show(beginning)}")]

    def _take(self, lines: list[bytes], messages: list[Message]) -> None:
        """Read lines; what was understood is in ``messages`` also when one of them is malformed."""
        texts: list[str] | None = None
        for line in lines:
            reply = _read(line)
            if isinstance(reply, TokenLine) and self._generation is not None:
                if texts is None:
                    texts = []
                    messages.append(Tokens(self._generation, texts))
                texts.append(reply.token)
            else:
                texts = None
                messages.append(self._hear(reply, line))
        if (beginning := self._lines.too_long) is not None:
            raise MalformedLine(f"a line over max_line ({self._max_line} bytes)", beginning)

    def _hear(self, reply: Reply, line: bytes) -> Message:
        if self.ready is None and not isinstance(reply, ReadyLine | Heartbeat):
            raise MalformedLine("something else before the ready line", line)
        match reply:
            case ReadyLine():
                return self._negotiate(reply, line)
            case Heartbeat():
                return self._beat(reply, line)
            case Pong(nonce=nonce):
                if nonce not in self._nonces:
                    raise MalformedLine("a pong without its ping", line)
                self._nonces.remove(nonce)
                return reply
            case TokenLine():
                raise MalformedLine("output that belongs to no request", line)
            case DoneLine():
                return self._end(reply, line)
            case ErrorLine():
                return self._fail(reply, line)
            case SessionLine():
                return self._acknowledge(reply, line)
            case _:
                assert_never(reply)

    def _negotiate(self, said: ReadyLine, line: bytes) -> Ready:
        if self.ready is not None:
            raise MalformedLine("ready for the second time", line)
        if said.multiplexed:
            expected = "" if self._policy == "auto" else f', but its pool says "{self._policy}"'
            raise MalformedLine(
                f"speaks the multiplexed dialect{expected}; this daemon speaks the serial ones: "
                "start the worker without multiplexing",
                line,
            )
        self.dialect = Dialect.SERIAL_CANCEL if said.supports_cancel else Dialect.SERIAL
        self.extensions = said.extensions
        self.capacity = 1
        self.ready = Ready(
            max_sessions=said.max_sessions,
            max_named_sessions=said.max_named_sessions,
            supports_cancel=said.supports_cancel,
            extensions=said.extensions,
            model=said.model,
        )
        return self.ready

    def _beat(self, beat: Heartbeat, line: bytes) -> Heartbeat:
        """Accept a heartbeat that was offered; while the model loads nothing is negotiated yet."""
        if self.ready is None and beat.phase is not Phase.LOAD:
            raise MalformedLine(f"in {beat.phase} before the ready line", line)
        if self.ready is not None and Extension.HEARTBEAT not in self.extensions:
            raise MalformedLine("a heartbeat, which the ready line did not offer", line)
        return beat

    def _end(self, said: DoneLine, line: bytes) -> Done:
        if said.cancelled and self.dialect is not Dialect.SERIAL_CANCEL:
            raise MalformedLine("cancelled, though it said that it cannot be", line)
        return Done(
            wire_id=self._take_generation(line),
            finish_reason=said.finish_reason,
            cancelled=said.cancelled,
            prompt_tokens=said.prompt_tokens,
            completion_tokens=said.completion_tokens,
            reused_prompt_tokens=said.reused_prompt_tokens,
            prefill_ms=said.prefill_ms,
            decode_ms=said.decode_ms,
            total_ms=said.total_ms,
        )

    def _acknowledge(self, said: SessionLine, line: bytes) -> SessionDone | ProbeAck:
        asked, self._session_op = self._session_op, None
        if asked is None or asked[0] is not said.op or said.session_id not in {None, asked[1]}:
            article = "an" if said.op is SessionOp.OPEN else "a"
            raise MalformedLine(f"acknowledges {article} {str(said.op)!r} that was not asked", line)
        return ProbeAck() if asked[1] == PROBE_SESSION else SessionDone(*asked)

    def _fail(self, said: ErrorLine, line: bytes) -> Failed | SessionRefused | ProbeAck:
        asked, self._session_op = self._session_op, None
        if asked is not None and asked[1] == PROBE_SESSION:
            # It answered in step, which is all that a probe asks.
            return ProbeAck()
        if asked is not None:
            return SessionRefused(*asked, said.error, said.code)
        return Failed(self._take_generation(line), said.error, said.code)

    def _take_generation(self, line: bytes) -> WireId:
        wire_id, self._generation = self._generation, None
        if wire_id is None:
            raise MalformedLine("a terminal that belongs to no request", line)
        return wire_id

    # Out ------------------------------------------------------------------------------------------

    def send_generate(self, request: Generate, wire_id: WireId) -> bytes:
        """Begin a generation and return the line that asks for it.

        The id goes on the line only where the worker reads cancel frames; others refuse it. A
        prompt of token ids is one segment, which every worker of this protocol reads.

        Raises:
            InternalError: the worker is not ready, or not free, or the id is not a new one.
        """
        if not self._last_wire_id < wire_id <= WIRE_ID_MAX:
            raise InternalError(f"the wire id {wire_id} does not follow {self._last_wire_id}")
        fields = {
            name: value
            for name, value in msgspec.structs.asdict(request).items()
            if value is not None
        }
        if not isinstance(request.prompt, str):
            fields["prompt_segments"] = [{"ids": fields.pop("prompt")}]
        if self.dialect is Dialect.SERIAL_CANCEL:
            fields["cancel_request_id"] = wire_id
        line = msgspec.json.encode(fields) + b"\n"
        self._check_free()
        self._generation = self._last_wire_id = wire_id
        return line

    def send_probe(self) -> bytes:
        """Begin the idle probe and return its line; it is an operation like a generation.

        Raises:
            InternalError: the worker is not ready, or not free.
        """
        return self._send_session(SessionOp.CLOSE, PROBE_SESSION)

    def send_open(self, session_id: str) -> bytes:
        """Begin to open a named session and return the line that asks for it.

        Raises:
            InternalError: the worker is not ready, or not free, or no session has such a name.
        """
        return self._send_named(SessionOp.OPEN, session_id)

    def send_close(self, session_id: str) -> bytes:
        """Begin to close a named session and return the line that asks for it.

        Raises:
            InternalError: the worker is not ready, or not free, or no session has such a name.
        """
        return self._send_named(SessionOp.CLOSE, session_id)

    def send_reset(self, session_id: str) -> bytes:
        """Begin to reset a named session and return the line that asks for it.

        Raises:
            InternalError: the worker is not ready, or not free, or no session has such a name.
        """
        return self._send_named(SessionOp.RESET, session_id)

    def _send_named(self, op: SessionOp, session_id: str) -> bytes:
        if not valid_session_id(session_id):
            raise InternalError(f"cannot {op} a session named {session_id!r}")
        return self._send_session(op, session_id)

    def _send_session(self, op: SessionOp, session_id: str) -> bytes:
        self._check_free()
        self._session_op = (op, session_id)
        return msgspec.json.encode({"op": op, "session_id": session_id}) + b"\n"

    def send_ping(self, nonce: int) -> bytes:
        """Return a ping's line; pings may be sent at any time and do not wait for each other.

        Raises:
            InternalError: the worker did not offer the extension, or such a ping is outstanding.
        """
        if Extension.PING not in self.extensions or nonce in self._nonces:
            raise InternalError(f"cannot ping with nonce {nonce}")
        self._nonces.add(nonce)
        return msgspec.json.encode({"op": "ping", "nonce": nonce}) + b"\n"

    def _check_free(self) -> None:
        if self._broken:
            # The sender has not been told yet: what it asks for is in vain, but no fault of its.
            return
        if self.ready is None or self._generation is not None or self._session_op is not None:
            raise InternalError("the worker is not ready for another operation")


def _read(line: bytes) -> Reply:
    """Return what a line says.

    Nearly every line is a token, so those take a short way: an object without a comma, or with a
    single colon, has one key, and the decoder knows the one shape. Other lines are read with care.
    """
    if b"," in line and line.count(b":") != 1:
        return parse(line)
    try:
        return _token_lines.decode(line)
    except (ValueError, RecursionError):
        return parse(line)
