"""Conversations by their model's template, or the pool's: bounded, and in no request's way."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

import msgspec
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from supervisord_llm.api import templates
from supervisord_llm.api.rendering import prompt_of, render
from supervisord_llm.api.templates import Conversation, Source, Templates
from supervisord_llm.config.templates import TemplateFile
from supervisord_llm.errors import InvalidRequest, Refused
from supervisord_llm.events import DaemonWarning
from supervisord_llm.openai.templates import ChatTemplate, TemplateBroken
from supervisord_llm.runtime.pool import Pool
from supervisord_llm.wire.messages import Model
from tests.api.fakes import FakeDaemon
from tests.harness import SECONDS

HI = Conversation(messages=[{"role": "user", "content": "Hi"}])
GREETING = "{{ bos_token }}{{ messages[0].content }}!"
ENDLESS = "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}"


@dataclass
class Desk:
    """The parts of a daemon that make prompts."""

    daemon: FakeDaemon = field(default_factory=FakeDaemon)

    def __post_init__(self) -> None:
        self.front = self.daemon.front()
        self.pool = cast("Pool", self.daemon.pool)

    async def render(
        self, template: str | None, asked: Conversation = HI, bos_token: str | None = None
    ) -> str:
        """Make the prompt for a model with this template."""
        model = Model(chat_template=template, bos_token=bos_token)
        with trio.fail_after(SECONDS):
            return await render(self.front, self.pool, asked, model)


@pytest.fixture
async def desk() -> Desk:
    """A daemon whose one pool is ``smollm``."""
    return Desk()


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Templates have little time, and conversations little patience."""
    monkeypatch.setattr(templates, "MAX_SECONDS", 0.3)
    monkeypatch.setattr(templates, "MAX_WAIT", 0.1)


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The templates that were compiled."""
    found: list[str] = []

    def note(source: str, *args: Any, **kwargs: Any) -> ChatTemplate:
        found.append(source)
        return ChatTemplate(source, *args, **kwargs)

    monkeypatch.setattr(templates, "ChatTemplate", note)
    return found


def source(text: str, **fields: str) -> Source:
    """A template by its text."""
    return Source(text, **{"bos_token": "", "eos_token": "", "name": "toy", **fields})


async def test_a_conversation_goes_into_the_models_template(desk: Desk) -> None:
    """With the tokens that the model announced, the tools and the variables of the request."""
    template = GREETING + "{{ tools[0].name }}{{ mood }}"
    asked = Conversation(messages=HI.messages, tools=[{"name": "f"}], kwargs={"mood": "?"})
    assert "<s>Hi!f?" == await desk.render(template, asked, bos_token="<s>")


async def test_the_pools_own_template_goes_before_the_models(desk: Desk) -> None:
    """It is there because the model's is wrong, or is none; the tokens are the model's still."""
    file = TemplateFile("/t.jinja", "{{ bos_token }}own")
    desk.daemon.pool.config = msgspec.structs.replace(desk.pool.config, chat_template=file)
    for template in (GREETING, None):
        assert "<s>own" == await desk.render(template, bos_token="<s>")


async def test_a_model_without_a_template_takes_no_messages(desk: Desk) -> None:
    """Both ways out are told."""
    with pytest.raises(InvalidRequest, match="no chat template; send 'prompt' instead") as caught:
        await desk.render(None)

    assert "pool.smollm.chat_template" in str(caught.value)
    assert "messages" == caught.value.param


async def test_a_model_that_nobody_knows_yet_is_waited_for(desk: Desk) -> None:
    """What is returned makes the prompt once it is known."""
    prompt, later = await prompt_of(desk.front, desk.pool, HI)
    assert ("", True) == (prompt, later is not None)
    assert later is not None
    assert "Hi!" == await later(Model(chat_template=GREETING))
    desk.daemon.pool.model = Model(chat_template=GREETING)
    assert ("Hi!", None) == await prompt_of(desk.front, desk.pool, HI)


async def test_a_broken_template_is_told_to_the_operator(desk: Desk) -> None:
    """Who can do something about it; the client is told as well."""
    with pytest.raises(InvalidRequest, match="line 1: unexpected '}'"):
        await desk.render("{{ x }")

    warning = await desk.daemon.wait_event(DaemonWarning)
    assert ("chat_template", "smollm") == (warning.topic, warning.pool)


async def test_a_template_that_refuses_is_not_told_to_the_operator(desk: Desk) -> None:
    """The conversation is to blame."""
    with pytest.raises(InvalidRequest, match="the model: not so; change"):
        await desk.render("{{ raise_exception('not so') }}")

    assert [] == desk.daemon.events


@pytest.mark.usefixtures("hasty")
async def test_a_template_without_an_end_is_ended(desk: Desk) -> None:
    """Within its time, and the next one is served; nested loops need no output to be endless."""
    with pytest.raises(InvalidRequest, match=r"longer than 0\.3 seconds"):
        await desk.render(ENDLESS)

    assert "Hi!" == await desk.render(GREETING)
    assert "chat_template" == (await desk.daemon.wait_event(DaemonWarning)).topic


async def test_an_endless_template_holds_up_only_its_own_model(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Others are rendered while it runs; those that wait for it are refused after a while."""
    monkeypatch.setattr(templates, "MAX_SECONDS", 1.0)
    monkeypatch.setattr(templates, "MAX_WAIT", 0.1)
    made = Templates()
    ends: list[str] = []

    async def run_endless() -> None:
        with pytest.raises(TemplateBroken):
            await made.render(source(ENDLESS), HI)
        ends.append("endless")

    with trio.fail_after(SECONDS):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run_endless)
            await wait_all_tasks_blocked()
            assert "Hi!" == await made.render(source(GREETING), HI)
            ends.append("other")
            with pytest.raises(Refused, match="too many conversations wait") as caught:
                await made.render(source(ENDLESS), HI)
            ends.append("refused")
    assert ["other", "refused", "endless"] == ends
    assert 0.1 == caught.value.retry_after


async def test_a_template_is_compiled_once(compiled: list[str]) -> None:
    """For each text and each pair of tokens; also one that cannot be compiled."""
    made = Templates()
    for _ in range(3):
        assert "Hi!" == await made.render(source(GREETING), HI)
        assert "<s>Hi!" == await made.render(source(GREETING, bos_token="<s>"), HI)
        with pytest.raises(TemplateBroken):
            await made.render(source("{{ x }"), HI)
    assert [GREETING, GREETING, "{{ x }"] == compiled


async def test_templates_that_nobody_uses_are_forgotten(compiled: list[str]) -> None:
    """The last ones used are kept: a worker that announces ever others fills no memory."""
    made = Templates()
    for number in range(40):
        await made.render(source(GREETING), HI)
        await made.render(source(f"{number}"), HI)
    assert 41 == len(compiled)
    await made.render(source("39"), HI)
    await made.render(source("0"), HI)
    assert "0" == compiled[-1]
    assert 42 == len(compiled)
