"""``llmctl chat``: a conversation, of which every turn is a generation of its own."""

from __future__ import annotations

import secrets
import signal
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager, suppress
from enum import Enum, auto
from typing import Unpack

import click
import trio

from supervisord_llm.cli.completion import complete_pool
from supervisord_llm.cli.generation import Generation
from supervisord_llm.cli.lines import Lines
from supervisord_llm.cli.sampling import Sampling, check_encodable, sampling_options
from supervisord_llm.cli.session import (
    ExitCode,
    Session,
    command,
    complain_of,
    examples,
    sole_error,
    sole_pool,
)
from supervisord_llm.client import ApiError, Client, ControlError
from supervisord_llm.core.words import Outcome
from supervisord_llm.schema import Finished, GenerateRequest, Message

_PROMPT = "> "
_HELP = (
    "/new   begin anew: the model forgets what was said\n"
    "/help  show this\n"
    "Every other line is said to the model. Ctrl-C ends an answer; Ctrl-C or Ctrl-D here leaves."
)

_CLOSE_SECONDS = 2.0
"""How long the end waits for the daemon to close the session, which it would do later by itself."""


class _Turn(Enum):
    """How it went."""

    ANSWERED = auto()
    INTERRUPTED = auto()
    FAILED = auto()
    LEFT = auto()


@click.command(
    short_help="Talk with a model.",
    epilog=examples(
        "llmctl chat",
        'llmctl chat --pool smollm --system "Answer in one sentence." --temperature 0.7',
        "llmctl chat < questions.txt",
    ),
)
@click.option(
    "--pool",
    metavar="NAME",
    shell_complete=complete_pool,
    help="The pool to ask; may be left out when there is only one.",
)
@click.option("--system", metavar="TEXT", help="What the model is told before everything else.")
@sampling_options
@click.option(
    "--session",
    "session_id",
    metavar="ID",
    help="Use the session of this name, and leave it open at the end.",
)
@command
async def chat(
    session: Session,
    *,
    pool: str | None,
    system: str | None,
    session_id: str | None,
    **sampling: Unpack[Sampling],
) -> ExitCode:
    """Talk with a model: each line that you type is answered, with all that was said before.

    Ctrl-C cancels the answer, of which what is there counts as said; a second Ctrl-C leaves at
    once. At the prompt Ctrl-C and Ctrl-D end the conversation, /new begins anew, /help lists that.
    A line whose answer failed counts as not said. You edit a line as your terminal does it by
    itself, which passes on 4095 bytes of it at most; pipe longer ones in.

    Where the pool's workers keep sessions, the conversation has one, so that what was read once is
    not read again. Where input and output are no terminals, each line of standard input is a turn,
    the answers go to standard output, and the exit status is 1 if one of them failed. With --json
    the lines of the streams go there as they are.
    """
    if system is not None:
        check_encodable(system, "system text")
    async with session.client() as client:
        return await Conversation(
            session, client, pool=pool, system=system, session_id=session_id, sampling=sampling
        ).run()


class Conversation:
    """What was said so far, and the turn that is under way."""

    def __init__(
        self,
        session: Session,
        client: Client,
        *,
        pool: str | None,
        system: str | None,
        session_id: str | None,
        sampling: Sampling,
    ) -> None:
        self._session = session
        self._client = client
        self._pool = pool
        self._opening = [] if system is None else [Message(role="system", content=system)]
        self._said = list(self._opening)
        self._own_session = session_id is None
        self._session_id: str | None
        self._session_id = f"chat-{secrets.token_hex(8)}" if session_id is None else session_id
        self._has_session = False
        self._sampling = sampling
        self._lines = Lines()
        self._attended = sys.stdin.isatty() and session.fitted and not session.as_json
        self._interrupted = False
        self._waiting = trio.CancelScope()

    async def run(self) -> ExitCode:
        """Talk until one side has enough of it; the exit code says how it went."""
        code = ExitCode.DONE
        async with self._interruptible():
            try:
                code = await self._talk()
            finally:
                await self._close()
        return code

    @asynccontextmanager
    async def _interruptible(self) -> AsyncGenerator[None]:
        """Heed Ctrl-C where no generation does it."""
        with trio.open_signal_receiver(signal.SIGINT) as interrupts:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._watch, interrupts)
                yield
                nursery.cancel_scope.cancel()

    async def _watch(self, interrupts: AsyncIterator[int]) -> None:
        async for _ in interrupts:
            self._interrupted = True
            self._waiting.cancel()

    async def _talk(self) -> ExitCode:
        if self._attended:
            await self._greet()
        code = ExitCode.DONE
        while (line := await self._next_line()) is not None:
            match await self._hear(line):
                case _Turn.LEFT:
                    # Not to be kept from it by a session that waits for the generation's end.
                    self._has_session = False
                    return ExitCode.INTERRUPTED
                case _Turn.INTERRUPTED if not self._attended:  # nobody is there to go on
                    return ExitCode.INTERRUPTED
                case _Turn.FAILED if not self._attended:
                    code = ExitCode.FAILED
        return ExitCode.INTERRUPTED if self._interrupted and not self._attended else code

    async def _greet(self) -> None:
        """Look for the daemon before anything is typed, and tell with whom one talks."""
        with trio.CancelScope() as self._waiting:
            try:
                pool = await self._find_pool()
            except ControlError as error:
                complain_of(self._session, error)
            else:
                self._session.say(f"{pool}; /help lists what you can do", "dim")

    async def _find_pool(self) -> str:
        if self._pool is None:
            self._pool = await sole_pool(self._client, "choose with --pool")
        return self._pool

    async def _next_line(self) -> bytes | None:
        """The next line; ``None`` at the end of input, and after Ctrl-C."""
        line = None
        with trio.CancelScope() as self._waiting:
            if self._interrupted:
                return None
            if self._attended:
                await self._session.out.write(_PROMPT)
            line = await self._lines.next()
        if self._interrupted:  # also where the line came in the same moment
            line = None
        if line is None and self._attended:
            self._session.say("")  # the shell's prompt has a line of its own
        return line

    async def _hear(self, line: bytes) -> _Turn:
        """Do what a line asks for."""
        try:
            text = line.decode()
        except UnicodeDecodeError as error:
            self._session.complain(f"cannot send this line: byte {error.start} is not UTF-8")
            return _Turn.FAILED
        match text.strip():
            case "":
                pass
            case "/help":
                self._session.say(_HELP)
            case "/new":
                # The session stays: its worker empties it for a prompt that does not continue it.
                self._said = list(self._opening)
            case _:
                return await self._turn(text)
        return _Turn.ANSWERED

    async def _turn(self, text: str) -> _Turn:
        """Say something to the model and hear its answer.

        What was said counts only with an answer, since models are made for turns that alternate. An
        answer that was cut off by Ctrl-C is kept: the person has read it and may refer to it, and
        often cuts it off because it is enough. Any other broken answer is dropped, so that the line
        can be said again.
        """
        asked = [*self._said, Message(role="user", content=text)]
        with trio.CancelScope() as self._waiting:
            try:
                pool = await self._find_pool()
            except ControlError as error:
                complain_of(self._session, error)
                return _Turn.FAILED
        if self._waiting.cancelled_caught:
            return _Turn.INTERRUPTED
        while True:
            request = GenerateRequest(
                pool=pool, messages=asked, session_id=self._session_id, **self._sampling
            )
            generation = Generation(self._session, self._client, request)
            self._has_session = self._session_id is not None
            try:
                code = await generation.run()
            except (ControlError, BaseExceptionGroup) as error:
                cause = sole_error(error)
                if not isinstance(cause, ControlError):
                    raise
                if self._own_session and _refuses_session(cause):
                    self._session_id = None
                    continue
                await generation.end_line()
                complain_of(self._session, cause)
                return _Turn.FAILED
            return self._take(asked, generation, code)

    def _take(self, asked: list[Message], generation: Generation, code: ExitCode) -> _Turn:
        """Add to what was said, if there is an answer."""
        interrupted = code is ExitCode.INTERRUPTED
        match generation.finished:
            case Finished(outcome=Outcome.COMPLETED):
                counts = True
            case Finished(outcome=Outcome.CANCELLED):
                counts = interrupted and generation.text != ""
            case _:
                counts = False
        if counts:
            self._said = [*asked, Message(role="assistant", content=generation.text)]
        if generation.left:
            return _Turn.LEFT
        if interrupted:
            return _Turn.INTERRUPTED
        return _Turn.ANSWERED if code is ExitCode.DONE else _Turn.FAILED

    async def _close(self) -> None:
        """Close a session that is only ours; where that fails, ``session_ttl`` closes it."""
        if not self._own_session or not self._has_session:
            return
        with trio.move_on_after(_CLOSE_SECONDS) as self._waiting, suppress(ControlError):
            await self._client.close_session(str(self._session_id), model=self._pool)


def _refuses_session(error: ControlError) -> bool:
    """Whether the pool's workers keep none, which only a refusal tells."""
    return isinstance(error, ApiError) and error.param == "session_id"
