"""Messages to a pool whose model nobody knows yet: they load it, and are put into its template."""

from __future__ import annotations

from pathlib import Path

from supervisord_llm.core.words import FailureReason, Outcome
from supervisord_llm.schema import Finished, GenerateRequest, Message, Token
from tests.api.house import House, house
from tests.harness import QUICK

DEMAND = QUICK + 'load = "on_demand"\n'


async def say(at: House, content: str) -> tuple[str, Finished]:
    """Send one message and read to the end: the text and the last line."""
    turn = Message(role="user", content=content)
    asked = GenerateRequest(pool="sim", messages=[turn], max_new_tokens=2)
    async with at.client.generate(asked) as stream:
        lines = [line async for line in stream]
    last = lines[-1]
    assert isinstance(last, Finished)
    return "".join(line.text for line in lines if isinstance(line, Token)), last


async def test_the_first_message_loads_the_model(tmp_path: Path) -> None:
    """Nothing has to be known of a model before it is asked for."""
    async with house(tmp_path, settings=DEMAND, ready=False) as at:
        text, finished = await say(at, "hello")

        assert ("t0 t1 ", Outcome.COMPLETED) == (text, finished.outcome)
        assert finished.usage is not None
        # The sim worker's own template has more words than the message alone.
        assert finished.usage.prompt_tokens > 1
        assert Outcome.COMPLETED == (await say(at, "again"))[1].outcome


async def test_a_template_that_refuses_fails_what_waited_for_it(tmp_path: Path) -> None:
    """With the template's words; whoever comes later is refused at once, and others are served."""
    template = "{{{{raise_exception('no')}}}}"  # braces of a configuration are doubled
    async with house(tmp_path, f"--chat_template {template}", settings=DEMAND, ready=False) as at:
        _, finished = await say(at, "hello")

        assert finished.error is not None
        assert FailureReason.INVALID_REQUEST == finished.error.code
        assert "cannot apply the chat template of sim: no" in finished.error.message
        asked = GenerateRequest(pool="sim", prompt="x", max_new_tokens=1)
        async with at.client.generate(asked) as stream:
            lines = [line async for line in stream]
        assert isinstance(lines[-1], Finished)
        assert Outcome.COMPLETED == lines[-1].outcome
