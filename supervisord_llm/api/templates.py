"""Chat templates at work: each with a thread of its own, and no more time than it may have.

Each has one thread at a time, so that a conversation waits for slow ones of its own model only, and
not longer than `MAX_WAIT`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial

import msgspec
import trio

from supervisord_llm.api.deadline import TooSlow, run_in_time
from supervisord_llm.core.words import RejectReason
from supervisord_llm.errors import Refused
from supervisord_llm.openai.templates import ChatTemplate, TemplateBroken

MAX_SECONDS = 2.0
"""How long a template may take for one conversation; sound ones take about a millisecond."""

MAX_WAIT = 10.0
"""Seconds that a conversation may wait for its template's thread."""

_KEPT = 16
"""How many templates are kept compiled: more than a daemon has pools, mostly."""


class Conversation(msgspec.Struct, frozen=True, kw_only=True):
    """What a template is given."""

    messages: Sequence[Mapping[str, object]]
    """The turns as templates expect them, the content one text each."""
    tools: Sequence[Mapping[str, object]] = ()
    kwargs: Mapping[str, object] = msgspec.field(default_factory=dict)
    """``chat_template_kwargs``."""


class Source(msgspec.Struct, frozen=True):
    """What makes a template; equal ones are compiled once."""

    source: str
    bos_token: str
    eos_token: str
    name: str

    def compile(self) -> ChatTemplate:
        """Compile it; raises `TemplateBroken`."""
        return ChatTemplate(self.source, self.bos_token, self.eos_token, name=self.name)


class _Desk:
    """One template's thread."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._limiter = trio.CapacityLimiter(1)
        self._turn = trio.Lock()
        self._template: ChatTemplate | TemplateBroken | None = None

    async def render(self, conversation: Conversation) -> str:
        name = self._source.name
        try:
            with trio.fail_after(MAX_WAIT):
                await self._turn.acquire()
        except trio.TooSlowError:
            raise Refused(
                RejectReason.QUEUE_FULL,
                f"cannot apply the chat template of {name} now: too many conversations wait for "
                "it; try again later",
                retry_after=MAX_WAIT,
            ) from None
        try:
            return await run_in_time(
                partial(self._render, conversation), MAX_SECONDS, self._limiter
            )
        except TooSlow:
            raise TemplateBroken(name, f"it takes longer than {MAX_SECONDS:g} seconds") from None
        finally:
            self._turn.release()

    def _render(self, conversation: Conversation) -> str:
        """Render, in the thread; compile before that where nobody has done so."""
        if self._template is None:
            try:
                self._template = self._source.compile()
            except TemplateBroken as error:
                self._template = error
        if isinstance(self._template, TemplateBroken):
            raise self._template
        return self._template.render(
            conversation.messages,
            tools=conversation.tools,
            kwargs=conversation.kwargs,
            now=datetime.now().astimezone(),
        )


class Templates:
    """The templates in use, compiled when they are first needed."""

    def __init__(self) -> None:
        """None is known yet."""
        self._desks: OrderedDict[Source, _Desk] = OrderedDict()

    async def render(self, source: Source, conversation: Conversation) -> str:
        """Return the prompt for a conversation.

        Raises:
            InvalidRequest: the template refuses the conversation, or the prompt is too long.
            TemplateBroken: the template is at fault, or takes longer than `MAX_SECONDS`.
            Refused: too many conversations wait for this template.
        """
        desk = self._desks.get(source)
        if desk is None:
            desk = self._desks[source] = _Desk(source)
        self._desks.move_to_end(source)
        if len(self._desks) > _KEPT:
            self._desks.popitem(last=False)
        return await desk.render(conversation)
