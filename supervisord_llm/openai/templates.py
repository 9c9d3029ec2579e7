"""The model's own chat template: a conversation in, the prompt that the model was trained on out.

Templates are Jinja2 programs that come with the model, written against the environment of Hugging
Face's ``apply_chat_template``; what they may rely on is set up here: block trimming, loop controls,
``{% generation %}``, ``raise_exception``, ``strftime_now``, a ``tojson`` that does not escape HTML,
and the variables ``messages``, ``add_generation_prompt``, ``bos_token``, ``eos_token``, ``tools``
and ``documents``. The alternative, a table of known formats as some servers have it, was not taken:
it is wrong for each model that it does not know, and silently so.

A template is foreign code. It runs in Jinja2's immutable sandbox, so it reaches nothing of the
daemon; what it may make is bounded (`bounds`), and so are its own length and its output. Its time
is bounded by whoever renders, who needs a thread for that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import NoReturn

from jinja2 import TemplateError, nodes

from supervisord_llm.errors import InvalidRequest, OperatorError
from supervisord_llm.openai import bounds
from supervisord_llm.openai.sandbox import Sandbox
from supervisord_llm.openai.unsupported import unsupported

MAX_PROMPT = 4 << 20
"""How long a rendered prompt may be, in bytes of UTF-8; far above what a context holds."""

RESERVED = frozenset({
    "add_generation_prompt",
    "bos_token",
    "documents",
    "eos_token",
    "messages",
    "raise_exception",
    "strftime_now",
    "tools",
})  # fmt: skip
"""The variables of a template that ``chat_template_kwargs`` may not give."""

_SHOWN = 300
"""How many characters of a template's own error message are passed on."""

_MAX_TIME_FORMAT = 1000


class TemplateBroken(OperatorError):
    """A chat template cannot be compiled, fails by itself on a sound conversation, or overdoes it.

    ``reason`` is what is wrong with it, without whose it is and without a remedy.
    """

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(
            f"cannot apply the chat template of {name}: {reason}; serve a model with a sound "
            "template, name one in the pool's chat_template, or send 'prompt' instead of messages"
        )
        self.reason = reason


class ChatTemplate:
    """A model's template, compiled once and rendered for each conversation; immutable."""

    def __init__(
        self,
        source: str,
        bos_token: str = "",
        eos_token: str = "",
        *,
        name: str = "the model",
        max_prompt: int = MAX_PROMPT,
    ) -> None:
        """Compile a template.

        Args:
            source: the template.
            bos_token: the model's token for the beginning of a text; empty for none.
            eos_token: that for its end.
            name: whose template it is, for messages.
            max_prompt: how long a prompt may become, in bytes of UTF-8.

        Raises:
            TemplateBroken: if it is too long or cannot be compiled.
        """
        self._name = name
        self._max_prompt = max_prompt
        self._special = {"bos_token": bos_token, "eos_token": eos_token}
        try:
            bounds.check_source(source)
            with bounds.metered():
                sandbox = Sandbox()
                parsed = sandbox.parse(source)
                self._takes_tools = any(
                    name.name == "tools" for name in parsed.find_all(nodes.Name)
                )
                self._template = sandbox.from_string(parsed)
        except Exception as error:
            raise self._broken(error) from error

    def render(
        self,
        messages: Sequence[Mapping[str, object]],
        *,
        tools: Sequence[Mapping[str, object]] = (),
        kwargs: Mapping[str, object] = {},
        now: datetime,
    ) -> str:
        """Return the prompt for a conversation, up to where the assistant's next turn begins.

        Args:
            messages: the turns, in order, as templates expect them: with ``role`` and ``content``.
            tools: descriptions of the functions that the model may call.
            kwargs: further variables, ``chat_template_kwargs`` of the request.
            now: the time that a template which asks for it is told.

        Raises:
            UnsupportedParameter: there are tools, and the template has no place for them.
            InvalidRequest: ``kwargs`` has a name of `RESERVED`, the template refused the
                conversation (its words are in the message), or the prompt became too long.
            TemplateBroken: the template failed by itself, or makes more than `bounds` allows.
        """
        if tools and not self._takes_tools:
            raise unsupported(
                "tools",
                f"the chat template of {self._name} does not tell of tools; leave them out, or "
                "name a model that was trained for them",
            )
        for name in kwargs:
            if name in RESERVED:
                raise InvalidRequest(
                    f"cannot use field 'chat_template_kwargs': {name!r} is not to be given there; "
                    "leave it out",
                    param="chat_template_kwargs",
                )
        pieces = self._template.generate({
            **kwargs,
            "messages": messages,
            "add_generation_prompt": True,
            "tools": tools or None,
            "documents": None,
            "strftime_now": _strftime(now),
            "raise_exception": _raise_exception,
            **self._special,
        })  # fmt: skip
        prompt: list[str] = []
        size = 0
        try:
            with bounds.metered():
                for piece in pieces:
                    size += len(piece.encode())
                    if size > self._max_prompt:
                        break
                    prompt.append(piece)
        except _Refused as error:
            raise InvalidRequest(
                f"cannot apply the chat template of {self._name}: {error}; change the messages, or "
                "send 'prompt' instead",
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
        ours = isinstance(error, TemplateError | bounds.TooMuch)
        kind = "" if ours else f"{type(error).__name__}: "
        return TemplateBroken(self._name, f"{where}{kind}{str(error)[:_SHOWN]}")


class _Refused(Exception):
    """The template called ``raise_exception``."""


def _raise_exception(message: object) -> NoReturn:
    raise _Refused(bounds.text(message)[:_SHOWN])


def _strftime(now: datetime) -> Callable[[str], str]:
    def strftime(pattern: str) -> str:
        if len(pattern) > _MAX_TIME_FORMAT:
            raise bounds.TooMuch(f"it formats the time by more than {_MAX_TIME_FORMAT} characters")
        return now.strftime(pattern)

    return strftime
