"""One exception tree, named by whose fault it is: ours, the worker's, the client's, the operator's.

Messages begin with "cannot …" where something was attempted, name the field or file, and end with
what to do about it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from supervisord_llm.core.words import QuarantineReason, RejectReason


class SupervisordError(Exception):
    """The root of everything that this package raises on purpose."""


class InternalError(SupervisordError):
    """Our own bug: a state that the tables say cannot be reached."""


class WorkerError(SupervisordError):
    """A worker broke the protocol or its pipes; it is unfit from here on."""

    def __init__(self, reason: QuarantineReason, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class SpawnError(SupervisordError):
    """A process could not be started: a missing launcher, no memory, no file descriptors."""


class ClientError(SupervisordError):
    """The client asked for something that cannot be done as asked.

    ``param`` names the offending field, if there is one.
    """

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param


class InvalidRequest(ClientError):
    """A malformed body, an unknown field, a value out of range."""


class UnsupportedParameter(InvalidRequest):
    """A field that would change the output, and whose effect is not offered."""


class BodyTooLarge(ClientError):
    """A body over the listener's ``max_body``."""


class BodyTimeout(ClientError):
    """A body that did not arrive within the listener's ``body_timeout``."""


class NotFound(ClientError):
    """No such route, slot or request."""


class UnknownModel(ClientError):
    """No pool has that name."""


class Refused(SupervisordError):
    """A well-formed request that is not accepted now; ``retry_after`` is in seconds, if known."""

    def __init__(
        self, reason: RejectReason, message: str, *, retry_after: float | None = None
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.retry_after = retry_after


class OperatorError(SupervisordError):
    """The operator's environment or configuration does not allow what was asked."""


class ConfigError(OperatorError):
    """A configuration file with problems; ``problems`` holds all of them, one sentence each."""

    def __init__(self, path: str, problems: list[str]) -> None:
        super().__init__(f"{path}: " + "; ".join(problems))
        self.path = path
        self.problems = problems


class AddressInUse(OperatorError):
    """Another live daemon serves the socket."""
