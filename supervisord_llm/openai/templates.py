"""The model's own chat template: a conversation in, the prompt that the model was trained on out.

Templates are Jinja2 programs that come with the model, written against the environment of Hugging
Face's ``apply_chat_template``; what they may rely on is set up here: block trimming, loop controls,
``{% generation %}``, ``raise_exception``, ``strftime_now``, a ``tojson`` that does not escape HTML,
and the variables ``messages``, ``add_generation_prompt``, ``bos_token``, ``eos_token``, ``tools``
and ``documents``. The alternative, a table of known formats as some servers have it, was not taken:
it is wrong for each model that it does not know, and silently so.

A template is foreign code. It runs in Jinja2's immutable sandbox, so it reaches nothing of the
daemon, and its output is bounded. Its time is not: who serves a model file has let the engine's
native parser and arithmetic loose on it already.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import NoReturn

from jinja2 import TemplateError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from supervisord_llm.errors import InvalidRequest, OperatorError
from supervisord_llm.wire.messages import Model

MAX_PROMPT = 4 << 20
"""How long a rendered prompt may be, in bytes of UTF-8; far above what a context holds."""

_SHOWN = 300
"""How many characters of a template's own error message are passed on."""


class TemplateBroken(OperatorError):
    """The model's chat template cannot be compiled, or fails by itself on a sound conversation."""


class ChatTemplate:
    """A model's template, compiled once and rendered for each conversation; immutable."""

    def __init__(self, model: Model, *, max_prompt: int = MAX_PROMPT) -> None:
        """Compile the template of a model.

        Args:
            model: what its worker said of it.
            max_prompt: how long a prompt may become, in bytes of UTF-8.

        Raises:
            InvalidRequest: the model has no template, so messages cannot be sent to it.
            TemplateBroken: it has one that cannot be compiled.
        """
        if model.chat_template is None:
            raise InvalidRequest(
                "cannot send messages to a model that has no chat template; send 'prompt' instead",
                param="messages",
            )
        self._name = model.id or "the model"
        self._max_prompt = max_prompt
        self._special = {"bos_token": model.bos_token or "", "eos_token": model.eos_token or ""}
        try:
            self._template = _environment().from_string(model.chat_template)
        except Exception as error:
            raise self._broken(error) from error

    def render(self, messages: Sequence[tuple[str, str]], *, now: datetime) -> str:
        """Return the prompt for a conversation, up to where the assistant's next turn begins.

        Args:
            messages: role and content of each turn, in order.
            now: the time that a template which asks for it is told.

        Raises:
            InvalidRequest: the template refused the conversation (its words are in the message), or
                the prompt became too long.
            TemplateBroken: the template failed by itself.
        """
        pieces = self._template.generate(
            messages=[{"role": role, "content": content} for role, content in messages],
            add_generation_prompt=True,
            tools=None,
            documents=None,
            strftime_now=now.strftime,
            **self._special,
        )
        prompt: list[str] = []
        size = 0
        try:
            for piece in pieces:
                size += len(piece.encode())
                if size > self._max_prompt:
                    break
                prompt.append(piece)
        except _Refused as error:
            raise InvalidRequest(
                f"cannot apply the chat template of {self._name}: {str(error)[:_SHOWN]}; change "
                "the messages, or send 'prompt' instead",
                param="messages",
            ) from None
        except Exception as error:
            raise self._broken(error) from error
        if size > self._max_prompt:
            raise InvalidRequest(
                f"cannot apply the chat template of {self._name}: the prompt is longer than "
                f"{self._max_prompt} bytes; send fewer or shorter messages",
                param="messages",
            )
        return "".join(prompt)

    def _broken(self, error: Exception) -> TemplateBroken:
        line = getattr(error, "lineno", None)
        where = f"line {line}: " if line is not None else ""
        kind = "" if isinstance(error, TemplateError) else f"{type(error).__name__}: "
        return TemplateBroken(
            f"cannot apply the chat template of {self._name}: {where}{kind}{str(error)[:_SHOWN]}; "
            "serve a model file with a sound template, or send 'prompt' instead of messages"
        )


class _Refused(Exception):
    """The template called ``raise_exception``."""


def _raise_exception(message: object) -> NoReturn:
    raise _Refused(str(message))


def _to_json(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


class _Generation(Extension):
    """``{% generation %}``: marks the assistant's words for training; here its body as it is."""

    tags = {"generation"}  # noqa: RUF012 - Jinja2's interface

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, _Generation]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise_exception
    return environment
