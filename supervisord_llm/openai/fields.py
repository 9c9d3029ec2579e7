"""What the bodies of both kinds of completion have in common: the fields that are understood.

Fields that nobody here knows are let through, as clients send many that change nothing of the
output; those that would change it and are not offered are listed in ``unsupported``.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from supervisord_llm.errors import InvalidRequest

MAX_STOPS = 4
"""How many stop strings a request may have, as in OpenAI's reference."""

_INT32_MAX = 2**31 - 1
_INT64_MAX = 2**63 - 1

Stop = Annotated[str, msgspec.Meta(min_length=1, max_length=1024)]
Tokens = Annotated[int, msgspec.Meta(ge=1, le=_INT32_MAX)]


class StreamOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a stream is to be written."""

    include_usage: bool | None = None
    """Whether a chunk with the usage, and no choice, comes before the end."""


class Completion(msgspec.Struct, frozen=True, kw_only=True):
    """The root of the bodies that ask for a completion; ``null`` is the same as left out."""

    model: Annotated[str, msgspec.Meta(min_length=1)]
    """The name of a pool, or one of its aliases."""
    stream: bool | None = None
    """Whether the answer comes as server-sent events."""
    stream_options: StreamOptions | None = None
    """Only together with ``stream``."""
    max_tokens: Tokens | None = None
    """The most tokens of the answer; the pool's default where it is left out."""
    temperature: Annotated[float, msgspec.Meta(ge=0.0, le=2.0)] | None = None
    top_p: Annotated[float, msgspec.Meta(gt=0.0, le=1.0)] | None = None
    top_k: Annotated[int, msgspec.Meta(ge=-1, le=_INT32_MAX)] | None = None
    """0 and -1 are no limit."""
    seed: Annotated[int, msgspec.Meta(ge=0, le=_INT64_MAX)] | None = None
    stop: Stop | Annotated[list[Stop], msgspec.Meta(max_length=MAX_STOPS)] | None = None
    """One string, or up to four; the answer ends before the first that appears in it."""
    user: str | None = None
    """Taken, and not looked at."""
    session_id: str | None = None
    """The conversation whose context its worker keeps; it wins over the headers that name one."""

    @property
    def stops(self) -> tuple[str, ...]:
        """The stop strings."""
        if self.stop is None:
            return ()
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)

    @property
    def include_usage(self) -> bool:
        """Whether a stream is to tell the usage."""
        return self.stream_options is not None and bool(self.stream_options.include_usage)

    @property
    def best_tokens(self) -> int | None:
        """From how many of the likeliest tokens to choose, as workers take it."""
        return None if self.top_k is None else max(0, self.top_k)

    def check(self) -> None:
        """Raise ``InvalidRequest`` for what no field can get wrong alone."""
        if self.stream_options is not None and not self.stream:
            raise InvalidRequest(
                "cannot use field 'stream_options' without a stream; send 'stream': true, or leave "
                "it out",
                param="stream_options",
            )
