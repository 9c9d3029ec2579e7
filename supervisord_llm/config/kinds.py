"""The kinds of values that a configuration file has, each with its bounds and how it is written."""

from __future__ import annotations

from typing import Annotated

import msgspec

from supervisord_llm.config.units import CPU_MAX, DURATION_MAX, SIZE_MAX

INT32_MAX = 2**31 - 1

Duration = Annotated[float, msgspec.Meta(ge=0, le=DURATION_MAX, extra={"unit": "duration"})]
"""Seconds, 0 allowed; ``"250ms"`` in the file."""

Interval = Annotated[float, msgspec.Meta(ge=0.001, le=DURATION_MAX, extra={"unit": "duration"})]
"""Seconds, at least a millisecond."""

AgeLimit = Annotated[float, msgspec.Meta(ge=1, le=DURATION_MAX, extra={"unit": "duration"})] | None
"""Seconds, at least one; ``None``, which the file writes as ``""``, is no limit."""

MemoryLimit = Annotated[int, msgspec.Meta(ge=2**20, le=SIZE_MAX, extra={"unit": "size"})] | None
"""Bytes, at least 1 MiB; ``None``, which the file writes as ``""``, is no limit."""

BufferSize = Annotated[int, msgspec.Meta(ge=1024, le=2**30, extra={"unit": "size"})]
"""Bytes of something held in memory as a whole: 1 KiB to 1 GiB."""

LogSize = Annotated[int, msgspec.Meta(ge=4096, le=SIZE_MAX, extra={"unit": "size"})]
"""Bytes of a file that grows: 4 KiB or more."""

Cpus = Annotated[
    tuple[Annotated[int, msgspec.Meta(ge=0, le=CPU_MAX)], ...],
    msgspec.Meta(min_length=1, extra={"unit": "cpus"}),
]
"""Core numbers; ``"0-3,8"`` or ``[0, 1, 2, 3, 8]`` in the file."""

Count = Annotated[int, msgspec.Meta(ge=1, le=INT32_MAX)]
"""At least one."""

GroupName = Annotated[
    str,
    msgspec.Meta(
        pattern="^([a-z0-9][a-z0-9_-]{0,62})?$",
        extra={"wanted": '1 to 63 of a-z, 0-9, - and _, such as "gpu0", or "" for none'},
    ),
]
"""The name of a group of pools; empty for none."""

Strings = tuple[str, ...]
Environment = dict[str, Annotated[str, msgspec.Meta(extra={"secret": True})]]
"""Variables by name. Their values may be secrets, so no message and no dump shows them."""

Argv = Annotated[
    tuple[str, ...],
    msgspec.Meta(
        min_length=1,
        extra={
            "wanted": 'a list, such as ["sllm-llama-worker", "--model", "FILE"]',
            "arguments": True,
        },
    ),
]
"""A program and its arguments; those that look like secrets are shown by no message or dump."""


class Table(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of the file."""
