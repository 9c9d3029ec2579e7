"""One generation at a terminal: the stream, and the two meanings of Ctrl-C.

The first interrupt posts a cancellation and reads on, because the daemon's answer, and what became
of the worker, are what the person wants to know. The second closes the connection, which the daemon
takes for a cancellation too. Before the request has an id there is nothing to post, so the first
closes already.
"""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator

import trio

from supervisord_llm.cli.output import duration, printable
from supervisord_llm.cli.requests import aftermath, ending, failure
from supervisord_llm.cli.session import ExitCode, Session
from supervisord_llm.client import Client, ControlError, GenerateStream
from supervisord_llm.core.words import FinishReason, Outcome, RequestState
from supervisord_llm.schema import Finished, GenerateRequest, RequestInfo, Started, Token


class Generation:
    """One request from its submission to its last printed word.

    Afterwards ``text`` is the answer as far as it came, and ``finished`` the daemon's last word;
    ``left`` says that a second interrupt did not wait for that.
    """

    def __init__(self, session: Session, client: Client, request: GenerateRequest) -> None:
        self._session = session
        self._client = client
        self._request = request
        self.finished: Finished | None = None
        self.left = False
        self._texts: list[str] = []
        self._id: str | None = None
        self._worker: str | None = None
        self._ends_line = True
        self._interrupted = False
        self._cancel_answered = trio.Event()
        self._cancel_reply: RequestInfo | None = None

    @property
    def text(self) -> str:
        """What the model has said so far."""
        return "".join(self._texts)

    async def run(self) -> ExitCode:
        """Stream it; the exit code says how it ended."""
        code = ExitCode.INTERRUPTED
        # Installed before anything is sent, so that no interrupt finds a request without a watcher.
        with trio.open_signal_receiver(signal.SIGINT) as interrupts:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._watch, interrupts, nursery)
                async with self._client.generate(self._request) as stream:
                    self._id = stream.accepted.id
                    await self._follow(stream)
                    self.finished = stream.finished
                assert self.finished is not None, "a stream without one has raised"
                code = await self._conclude(self.finished)
                nursery.cancel_scope.cancel()
        # One that came in the moment of the end was heard and not acted on.
        return ExitCode.INTERRUPTED if self._interrupted else code

    async def _watch(self, interrupts: AsyncIterator[int], nursery: trio.Nursery) -> None:
        async for _ in interrupts:
            if self._id is None or self._interrupted:
                self.left = self._interrupted
                self._session.say("\nleft; the daemon cancels the request", "dim")
                nursery.cancel_scope.cancel()
            else:
                self._interrupted = True
                nursery.start_soon(self._cancel, self._id, nursery)

    async def _cancel(self, request_id: str, nursery: trio.Nursery) -> None:
        try:
            self._cancel_reply = await self._client.cancel(request_id)
        except ControlError as error:
            self._session.complain(f"cannot cancel {request_id}: {error}; leaving instead")
            nursery.cancel_scope.cancel()
        self._cancel_answered.set()

    async def _follow(self, stream: GenerateStream) -> None:
        if self._session.as_json:
            await self._session.out.write_json(stream.raw)
        elif stream.accepted.queued:
            self._session.say(f"waiting, {stream.accepted.queued} before it in the queue", "dim")
        async for line in stream:
            if isinstance(line, Started):
                self._worker = line.worker
                if line.attempt > 1 and not self._session.as_json:
                    self._session.say(f"its worker failed; attempt {line.attempt}", "dim")
            if isinstance(line, Token):
                self._texts.append(line.text)
            if self._session.as_json:
                await self._session.out.write_json(stream.raw)
            elif isinstance(line, Token) and line.text:
                self._ends_line = line.text.endswith("\n")
                safe = printable(line.text) if self._session.fitted else line.text
                await self._session.out.write(safe)

    async def _conclude(self, finished: Finished) -> ExitCode:
        await self.end_line()
        if self._interrupted:
            await self._tell_cancelled(finished)
            return ExitCode.INTERRUPTED
        match finished.outcome:
            case Outcome.COMPLETED:
                if not self._session.as_json:
                    self._session.say(self._facts(finished), "dim")
                return ExitCode.DONE
            case Outcome.CANCELLED:
                by = finished.cancelled_by
                self._session.complain(ending(finished.outcome, finished.cancel, by))
                return ExitCode.FAILED
            case Outcome.FAILED:
                self._session.complain(failure(finished.error))
                return ExitCode.FAILED

    async def end_line(self) -> None:
        """End the answer's last line, if it has not done so itself."""
        if not self._ends_line:
            self._ends_line = True
            await self._session.out.write("\n")

    async def _tell_cancelled(self, finished: Finished) -> None:
        await self._cancel_answered.wait()
        if finished.outcome is Outcome.FAILED:
            self._session.complain(failure(finished.error))
            return
        end = ending(finished.outcome, finished.cancel)
        reply = self._cancel_reply
        in_time = reply is not None and reply.state is not RequestState.FINISHED
        if in_time or finished.outcome is Outcome.CANCELLED:
            # The outcome is here, the worker may still be on the ladder.
            end += aftermath(await self._client.settled(finished.id))
        self._session.say(end, "yellow")

    def _facts(self, finished: Finished) -> str:
        """Who answered, how much and how fast."""
        facts = [printable(self._worker or self._request.pool)]
        if finished.finish_reason is FinishReason.LENGTH:
            facts.append("stopped at its token limit")
        timings, usage = finished.timings, finished.usage
        if usage is not None:
            facts.append(f"{usage.generated_tokens} tokens")
            if usage.reused_tokens:
                kept = f"{usage.reused_tokens} of {usage.prompt_tokens}"
                facts.append(f"{kept} prompt tokens were there from before")
        if timings.ttft_ms is not None:
            facts.append(f"first after {duration(timings.ttft_ms)}")
            decode_ms = timings.decode_ms or timings.total_ms - timings.ttft_ms
            if usage is not None and usage.generated_tokens > 1 and decode_ms > 0:
                facts.append(f"{usage.generated_tokens / decode_ms * 1000:.1f} tokens/s")
        return " · ".join(facts)
