"""A worker is killed after each byte of its answer: nothing is delivered twice or put together."""

from __future__ import annotations

from pathlib import Path

import pytest

from supervisord_llm.core.words import FailureReason, Outcome
from supervisord_llm.events import RequestFinished, RequestRetried, RequestStarted
from supervisord_llm.runtime.request import RequestSpec
from tests.api.house import ask, house, read
from tests.harness import Bench, bench, read_all
from tests.runtime import mortal

SETTINGS = """
restart.backoff_max = "1s"
restart.healthy_after = "0s"
restart.max_restarts = 9999
queue.max_attempts = 2
"""


def first_token_ends(generation: int) -> int:
    """How many bytes of a reply there are up to the end of its first token's line."""
    return mortal.reply(generation).index(b"\n") + 1


async def ask_dying(made: Bench, count: int) -> None:
    """Send one request whose worker dies after so many bytes, and judge its answer."""
    await made.wait_ready()
    generation = made.slot().generation
    said = mortal.reply(generation)
    spec = RequestSpec(prompt=f"{count} {generation}")
    async with made.pool.request(spec) as stream:
        text, record = await read_all(stream)
    started = made.events.all(RequestStarted, request=stream.request.id)
    retried = made.events.all(RequestRetried, request=stream.request.id)
    assert len(made.events.all(RequestFinished, request=stream.request.id)) == 1
    if count == len(said):
        # Its last word was whole: it is dead, but the request is complete.
        assert record.outcome is Outcome.COMPLETED
        assert (text, len(started)) == ("".join(mortal.texts(generation)), 1)
    elif count >= first_token_ends(generation):
        lines = said[:count].count(b"\n")
        assert (record.outcome, record.error) == (Outcome.FAILED, FailureReason.WORKER_EXITED)
        assert record.retryable
        assert text == "".join(mortal.texts(generation)[:lines])
        assert (len(started), retried) == (1, [])
    else:
        assert record.outcome is Outcome.COMPLETED
        assert [event.generation for event in started] == [generation, generation + 1]
        assert text == "".join(mortal.texts(generation + 1))
        assert [event.reason for event in retried] == ["worker_exited"]
        assert record.ttft_ms is not None


@pytest.mark.parametrize("step", [4096, 1], ids=["at once", "byte by byte"])
async def test_an_answer_is_one_workers_whole_or_its_beginning(tmp_path: Path, step: int) -> None:
    """For each byte: before the first token another worker answers, afterwards none does."""
    async with bench(tmp_path, command=mortal.command(step), settings=SETTINGS) as made:
        count = 0
        # The replies of later generations have more digits, so the end moves a little.
        while count <= len(mortal.reply(made.slot().generation)):
            await ask_dying(made, count)
            count += 1
        assert made.slot().restarts >= count - 1


async def test_what_the_client_reads_is_one_workers_too(tmp_path: Path) -> None:
    """The same through the socket, around the ends of lines: what was sent cannot be taken back."""
    reply = mortal.reply(1)
    ends = [place for place, byte in enumerate(reply, 1) if byte == ord("\n")]
    async with house(tmp_path, command=mortal.command(), settings=SETTINGS) as at:
        slot = at.supervisor.slots["sim.0"]
        for count in [0, *(end + step for end in ends[:-1] for step in (-1, 0, 1))]:
            await at.wait_serving(1)
            generation = slot.generation
            async with at.client.generate(ask(f"{count} {generation}")) as stream:
                text, finished = await read(stream)
            if count < ends[0] + len(str(generation)) - 1:
                assert finished.outcome is Outcome.COMPLETED
                assert text == "".join(mortal.texts(generation + 1))
            else:
                assert finished.error is not None
                assert finished.error.retryable
                assert text
                assert "".join(mortal.texts(generation)).startswith(text)
