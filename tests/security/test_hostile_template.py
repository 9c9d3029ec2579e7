"""What a chat template, which comes with a model's file, can make of the conversations it sees."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import cast

import msgspec
import pytest

from supervisord_llm.api.rendering import render
from supervisord_llm.api.templates import Conversation
from supervisord_llm.errors import InvalidRequest
from supervisord_llm.events import DaemonWarning
from supervisord_llm.runtime.pool import Pool
from supervisord_llm.wire.messages import Model
from tests.api.fakes import FakeDaemon

SECRET = "my secret"
SAID = "messages[0].content"


async def faults(template: str) -> tuple[str, str]:
    """What the client is told of a broken template, and what the event log."""
    daemon = FakeDaemon()
    asked = Conversation(messages=[{"role": "user", "content": SECRET}])
    with pytest.raises(InvalidRequest) as caught:
        await render(
            daemon.front(), cast("Pool", daemon.pool), asked, Model(chat_template=template)
        )
    warning = await daemon.wait_event(DaemonWarning)
    assert SECRET not in b"".join(map(msgspec.json.encode, daemon.events)).decode()
    return str(caught.value), warning.message


@pytest.mark.parametrize(
    "template",
    [
        f"{{{{ {{}}[{SAID}].x }}}}",
        f"{{{{ namespace(a=1)[{SAID}].x }}}}",
        f"{{{{ [1][{SAID}].x }}}}",
        f"{{{{ messages|map({SAID})|list }}}}",
        f"{{{{ messages|select({SAID})|list }}}}",
        f"{{{{ range(**{{{SAID}: 1}}) }}}}",
        f"{{{{ ('{{' ~ {SAID} ~ '}}').format() }}}}",
        f"{{{{ {{}}[{SAID} * 100].x }}}}",
        f"{{{{ {{}}['\\'\"' ~ {SAID}].x }}}}",
    ],
)
async def test_a_fault_takes_no_piece_of_a_conversation_into_the_log(template: str) -> None:
    """An error names what was not found, which may be what somebody said; its kind is told."""
    client, log = await faults(template)
    assert SECRET in client
    assert "…" in log


@pytest.mark.parametrize(
    ("template", "told"),
    [
        ("{{ nosuch.x }}", "'nosuch' is undefined"),
        (f"{{{{ {SAID}.foo.bar }}}}", "'str object' has no attribute 'foo'"),
        (f"{{{{ {SAID} + 1 }}}}", 'can only concatenate str (not "int") to str'),
        ("{{ x|nosuch }}", "line 1: No filter named 'nosuch'"),
    ],
)
async def test_an_operator_still_reads_what_is_wrong(template: str, told: str) -> None:
    """Whatever stands in the template itself is told of it."""
    client, log = await faults(template)
    assert told in client
    assert told in log


@pytest.mark.parametrize(
    "reach",
    [
        lambda _: "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        lambda _: "{{ raise_exception.__globals__.x }}",
        lambda _: "{{ strftime_now.__globals__['os'] }}",
        lambda _: "{{ self.__init__.__globals__ }}",
        lambda _: "{{ cycler.__init__.__globals__.os.environ }}",
        lambda _: "{{ (messages|attr('__class__')).mro() }}",
        lambda _: "{{ '{0.__class__.__mro__}'.format(messages) }}",
        lambda _: "{{ messages.append(1) }}",
        lambda _: "{{ messages[0].update(role='system') }}",
        lambda path: f"{{% include '{path}' %}}",
        lambda path: f"{{% import '{path}' as x %}}{{{{ x }}}}",
        lambda path: f"{{% extends '{path}' %}}",
    ],
)
async def test_it_reaches_nothing_but_the_conversation(
    tmp_path: Path, reach: Callable[[Path], str]
) -> None:
    """Neither the interpreter nor a file, and it cannot change what the worker is to be told."""
    file = tmp_path / "file"
    file.write_text(SECRET)
    client, _ = await faults(reach(file))
    assert SECRET not in client


async def test_it_may_be_told_of_no_more_than_the_conversation() -> None:
    """Its variables are those of the request, and Jinja2's own harmless ones."""
    daemon = FakeDaemon()
    asked = Conversation(messages=[{"role": "user", "content": SECRET}])
    names = ["config", "request", "environ", "os", "front", "pool", "open", "__import__", "eval"]
    template = "".join(f"{{{{ {name} is defined }}}}" for name in names)
    prompt = await render(
        daemon.front(), cast("Pool", daemon.pool), asked, Model(chat_template=template)
    )
    assert prompt == "False" * len(names)
