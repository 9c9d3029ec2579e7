"""Events to the journal, with their priority and each field by its name.

The protocol is systemd's native one (https://systemd.io/JOURNAL_NATIVE_PROTOCOL/): a datagram of
fields, or an empty one with a sealed memory file for what does not fit. It is spoken here in a few
lines, so no library is needed at run time. The journal is never waited for: what it does not take
now is dropped and counted. Where its socket is missing, lines go to stderr with the priority in
front (sd-daemon(3)), which whatever reads stderr in the journal's place understands.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
from array import array
from typing import Literal

from supervisord_llm.events import Level
from supervisord_llm.telemetry.record import PRIORITIES, Record, fields
from supervisord_llm.telemetry.sink import LineSink
from supervisord_llm.telemetry.wording import sentence

SOCKET = "/run/systemd/journal/socket"
IDENTIFIER = "supervisord-llm"

_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL
_OWN = frozenset({"MESSAGE", "PRIORITY", "SYSLOG_IDENTIFIER", "SEQ"})
"""What is said of every event; a field of an event with such a name is in ``MESSAGE`` already."""


class JournalOutput:
    """Writes records of a level and above to the journal."""

    target = "the journal"
    remedy = "raise the journal's limits (journald.conf(5)), or log.level"

    def __init__(self, sink: LineSink, *, level: Level, path: str = SOCKET) -> None:
        """Prepare to write.

        Args:
            sink: stderr, for when there is no journal; it is closed with this.
            level: the least level that is written.
            path: the journal's socket.
        """
        self._sink = sink
        self._least = PRIORITIES[level]
        self._path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._lost = 0
        self._taking = True

    def __call__(self, record: Record) -> None:
        """Write a record, or drop it where it is not taken."""
        if PRIORITIES[record.event.level] > self._least:
            return
        sent = self._send(encode(record))
        self._taking = sent == "taken"
        if sent == "full":
            self._lost += 1
        elif sent == "absent":
            priority = PRIORITIES[record.event.level]
            self._taking = self._sink.write(b"<%d>%b\n" % (priority, record.encoded))

    @property
    def recovered(self) -> bool:
        """Whether records were dropped since `take_lost`, but the last one was taken."""
        return self._lost + self._sink.lost > 0 and self._taking

    def take_lost(self) -> int:
        """The number of records that were dropped, which is forgotten by this."""
        lost, self._lost = self._lost, 0
        return lost + self._sink.take_lost()

    def close(self) -> None:
        """Let go of the socket; what it has taken is the journal's."""
        self._socket.close()
        self._sink.close()

    def _send(self, data: bytes) -> Literal["taken", "full", "absent"]:
        flags = socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL
        try:
            try:
                # The address each time: a journal that was restarted is another socket.
                self._socket.sendto(data, flags, self._path)
            except OSError as error:
                if error.errno not in {errno.EMSGSIZE, errno.ENOBUFS}:
                    raise
                self._send_as_file(data, flags)
        except (FileNotFoundError, ConnectionRefusedError, PermissionError):
            return "absent"
        except OSError:  # full, or closed
            return "full"
        return "taken"

    def _send_as_file(self, data: bytes, flags: int) -> None:
        fd = os.memfd_create(IDENTIFIER, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            with open(fd, "wb", closefd=False) as file:
                file.write(data)
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", [fd]))]
            self._socket.sendmsg([b""], rights, flags, self._path)
        finally:
            os.close(fd)


def encode(record: Record) -> bytes:
    """A record as the journal's native protocol has it.

    Fields keep their names in capitals. Lists of text are one line per entry; what is no text is
    written as JSON.
    """
    own = fields(record.event)
    said: dict[str, str] = {
        "MESSAGE": sentence(own),
        "PRIORITY": str(PRIORITIES[record.event.level]),
        "SYSLOG_IDENTIFIER": IDENTIFIER,
        "SEQ": str(record.seq),
    }
    for name, value in own.items():
        if (field := name.upper()) not in _OWN and value is not None:
            said[field] = _text(value)
    return b"".join(_field(name, text.encode()) for name, text in said.items())


def _text(value: object) -> str:
    if isinstance(value, list) and value and all(isinstance(each, str) for each in value):
        return "\n".join(value)
    return value if isinstance(value, str) else json.dumps(value)


def _field(name: str, value: bytes) -> bytes:
    if b"\n" not in value:
        return b"%b=%b\n" % (name.encode(), value)
    return b"%b\n%b%b\n" % (name.encode(), len(value).to_bytes(8, "little"), value)
