"""What can go wrong between a client and the daemon, told apart by what to do about it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from supervisord_llm.errors import SupervisordError


class ControlError(SupervisordError):
    """The root of everything that the client raises on purpose."""


class DaemonUnreachable(ControlError):
    """Nobody answers on the socket, or the answer broke off; ``reason`` says which in few words."""

    def __init__(self, socket: Path, reason: str) -> None:
        super().__init__(f"cannot reach the daemon at {socket}: {reason}")
        self.socket = socket
        self.reason = reason


class NotPermitted(ControlError):
    """The socket's file mode does not let this user in."""

    def __init__(self, socket: Path) -> None:
        super().__init__(f"cannot open the control socket {socket}: permission denied")
        self.socket = socket


class ApiError(ControlError):
    """The daemon refused: the fields of its error envelope.

    ``status`` is the HTTP status; ``retry_after`` is in seconds, ``None`` where trying again does
    not help or the daemon did not say.
    """

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        param: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.param = param
        self.retry_after = retry_after


class UnreadableReply(ControlError):
    """Something answered, but not as the control API does: another program, or another version."""

    def __init__(self, socket: Path, detail: str) -> None:
        super().__init__(
            f"cannot read the answer from {socket}: {detail}; "
            "see that a supervisord-llm of the same version listens there"
        )
        self.socket = socket


@contextmanager
def transport_errors(socket: Path) -> Iterator[None]:
    """Turn the HTTP library's transport errors into `DaemonUnreachable` or `NotPermitted`."""
    try:
        yield
    except httpx.TransportError as error:
        cause = _os_error(error)
        if isinstance(error, httpx.ConnectError) and isinstance(cause, PermissionError):
            raise NotPermitted(socket) from error
        raise DaemonUnreachable(socket, _reason(error, cause)) from error


def _reason(error: httpx.TransportError, cause: OSError | None) -> str:
    if isinstance(error, httpx.TimeoutException):
        return "no answer in time, is it stopped or stuck"
    if not isinstance(error, httpx.ConnectError):
        return "it closed the connection before its answer was complete"
    if isinstance(cause, FileNotFoundError):
        return "no such file"
    if isinstance(cause, ConnectionRefusedError):
        return "nobody listens there any more"
    if cause is not None and cause.strerror:
        return cause.strerror.lower()
    return str(cause or error)


def _os_error(error: BaseException) -> OSError | None:
    """The system call's error behind the HTTP library's, which keeps it only as a cause."""
    link: BaseException | None = error
    while link is not None:
        if isinstance(link, OSError):
            return link
        link = link.__cause__ or link.__context__
    return None
