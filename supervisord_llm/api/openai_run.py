"""One completion on its way: its requests, from their acceptance to their records.

A completion has a request for each of its prompts. They wait for workers side by side, and the
first that does not complete ends the others: an answer is whole or there is none.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial

import msgspec
import trio

from supervisord_llm.api.errors import HttpError
from supervisord_llm.api.openai_errors import unfinished
from supervisord_llm.core.words import CancelledBy
from supervisord_llm.errors import InternalError
from supervisord_llm.openai.answers import Kind, Label, Produced
from supervisord_llm.openai.output import Output
from supervisord_llm.openai.shapes import Call
from supervisord_llm.runtime.mailbox import Batch
from supervisord_llm.runtime.pool import Pool
from supervisord_llm.runtime.request import RequestSpec, RequestStream


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What is to be done for one HTTP request."""

    kind: Kind
    pool: Pool
    model: str
    """As it was asked for."""
    specs: Sequence[RequestSpec]
    """One for each choice."""
    outputs: Sequence[Output]
    """One for each choice."""
    with_usage: bool
    """Whether a stream tells the usage."""


class Running:
    """The requests of a completion, accepted."""

    def __init__(self, plan: Plan, streams: Sequence[RequestStream], created: int) -> None:
        self.plan = plan
        self.streams = streams
        first = streams[0].request.id
        self.label = Label(
            id=plan.kind.prefix + first.removeprefix("req_"),
            model=plan.model,
            created=created,
            with_usage=plan.with_usage,
        )
        self.headers = {"x-request-id": first}
        """For a client that gave no id of its own."""

    def cancel(self) -> None:
        """The client has left."""
        for stream in self.streams:
            stream.request.cancel(CancelledBy.CLIENT)


@asynccontextmanager
async def running(plan: Plan, created: int) -> AsyncIterator[Running]:
    """Have the requests of a completion accepted; leaving, by whatever exit, settles them.

    Raises:
        ClientError: if one of them cannot be done.
        Refused: if the pool does not take one of them.
    """
    async with AsyncExitStack() as stack:
        streams = [await stack.enter_async_context(plan.pool.request(spec)) for spec in plan.specs]
        yield Running(plan, streams, created)


async def all_of(jobs: Sequence[Callable[[], Awaitable[HttpError | None]]]) -> HttpError | None:
    """Run jobs side by side until all have ended, or one has failed; return why it has."""
    if len(jobs) == 1:
        return await jobs[0]()
    failures: list[HttpError] = []
    async with trio.open_nursery() as nursery:

        async def run(job: Callable[[], Awaitable[HttpError | None]]) -> None:
            if (failure := await job()) is not None:
                failures.append(failure)
                nursery.cancel_scope.cancel()

        for job in jobs:
            nursery.start_soon(run, job)
    return failures[0] if failures else None


def take(stream: RequestStream, output: Output, batch: Batch) -> list[str | Call]:
    """Return what a batch has for the client; end the generation if a stop string is in it."""
    shown = output.feed(batch.tokens) if batch.tokens else []
    if output.stopped and batch.record is None:
        stream.stop_found()
    return shown


async def whole(plan: Plan, created: int) -> tuple[msgspec.Struct | HttpError, dict[str, str]]:
    """Run a completion to its end; return the answer, or why there is none, and the headers.

    Raises what ``running`` does.
    """
    produced: list[Produced | None] = [None] * len(plan.specs)

    async def collect(index: int, stream: RequestStream) -> HttpError | None:
        output = plan.outputs[index]
        shown: list[str | Call] = []
        while (batch := await stream.next_batch()) is not None:
            shown += take(stream, output, batch)
            if batch.record is None:
                continue
            if (failure := unfinished(batch.record)) is not None:
                return failure
            shown += output.finish()
            produced[index] = Produced(
                text="".join(each for each in shown if isinstance(each, str)),
                calls=[each for each in shown if not isinstance(each, str)],
                finish_reason=output.reason(batch.record.finish_reason),
                usage=batch.record.usage,
            )
        return None

    async with running(plan, created) as at:
        jobs = [partial(collect, index, stream) for index, stream in enumerate(at.streams)]
        failure = await all_of(jobs)
        if failure is not None:
            return failure, at.headers
    answers = [each for each in produced if each is not None]
    if len(answers) < len(produced):
        raise InternalError(f"{at.label.id} ended without all of its records")
    return plan.kind.whole(at.label, answers), at.headers
