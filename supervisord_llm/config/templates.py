"""A chat template from a file: read, and tried for mistakes, with the configuration."""

from __future__ import annotations

import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec

from supervisord_llm.config.units import show
from supervisord_llm.openai.bounds import MAX_SOURCE
from supervisord_llm.openai.templates import ChatTemplate, TemplateBroken


@dataclass(frozen=True)
class TemplateFile:
    """A template as its file had it when the configuration was read."""

    path: str
    source: str


Template = (
    Annotated[
        TemplateFile,
        msgspec.Meta(extra={"unit": "template", "wanted": "the absolute path of a Jinja file"}),
    ]
    | None
)
"""``None``, which the file writes as ``""``, is the model's own."""


def read_template(path: str) -> TemplateFile:
    """Read a template's file.

    Raises:
        ValueError: if it cannot be read, is no text or no template; it says what to do.
    """
    if not path.startswith("/") or "\0" in path:
        raise ValueError(f"cannot use {show(path)}: not absolute; write an absolute path")
    content = _read(path)
    try:
        source = content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ValueError(
            f"cannot read {show(path)} as text: bad UTF-8 in line {line}; save the file as UTF-8"
        ) from error
    try:
        ChatTemplate(source)
    except TemplateBroken as error:
        raise ValueError(f"cannot use {show(path)}: {error.reason}; mend it there") from error
    return TemplateFile(path, source)


def _read(path: str) -> bytes:
    try:
        # A pipe or a device would be read for ever, or not at all.
        if not stat.S_ISREG(Path(path).stat().st_mode):
            raise ValueError(f"cannot read {show(path)}: not a file; write the path of a file")
        with Path(path).open("rb") as file:
            content = file.read(MAX_SOURCE + 1)
    except OSError as error:
        reason = (error.strerror or "unknown error").lower()
        raise ValueError(
            f"cannot read {show(path)}: {reason}; check its path and permissions"
        ) from error
    if len(content) > MAX_SOURCE:
        raise ValueError(
            f"cannot use {show(path)}: longer than {MAX_SOURCE} bytes; write a shorter template"
        )
    return content
