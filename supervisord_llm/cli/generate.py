"""``llmctl generate``: a prompt in, the model's text out, and Ctrl-C that says what it did."""

from __future__ import annotations

import sys
from typing import Unpack

import click

from supervisord_llm.cli.completion import complete_pool
from supervisord_llm.cli.generation import Generation
from supervisord_llm.cli.sampling import Number, Sampling, check_encodable, sampling_options
from supervisord_llm.cli.session import ExitCode, Session, command, examples, sole_pool
from supervisord_llm.schema import (
    INT32_MAX,
    PRIORITY_MAX,
    PRIORITY_MIN,
    GenerateRequest,
    Message,
)


@click.command(
    short_help="Send a prompt and stream the answer.",
    epilog=examples(
        'llmctl generate "Why is the sky blue?"',
        'llmctl generate --raw "Once upon a time" --max-new-tokens 50',
        'llmctl generate --temperature 0.8 --seed 7 "A haiku about rain"',
        "cat question.txt | llmctl generate",
        'llmctl generate --session trip --deadline 30 "And the day after?"',
    ),
)
@click.argument("prompt", required=False)
@click.option(
    "--pool",
    metavar="NAME",
    shell_complete=complete_pool,
    help="The pool to ask; may be left out when there is only one.",
)
@click.option("--raw", is_flag=True, help="Send the text as it is, without the chat template.")
@sampling_options
@click.option(
    "--session", "session_id", metavar="ID", help="Go on with the conversation of this name."
)
@click.option(
    "--priority",
    type=click.IntRange(PRIORITY_MIN, PRIORITY_MAX),
    default=0,
    help="A higher one waits less in the queue.",
)
@click.option(
    "--deadline",
    type=Number(0.001, INT32_MAX // 1000),
    metavar="SECONDS",
    help="Cancel it when it has not ended by then.",
)
@click.option(
    "--queue-timeout",
    type=Number(0.001, INT32_MAX // 1000),
    metavar="SECONDS",
    help="Give up when no worker has taken it by then.",
)
@command
async def generate(
    session: Session,
    prompt: str | None,
    *,
    pool: str | None,
    raw: bool,
    session_id: str | None,
    priority: int,
    deadline: float | None,
    queue_timeout: float | None,
    **sampling: Unpack[Sampling],
) -> ExitCode:
    """Send PROMPT and stream the answer; without PROMPT, or with "-", read standard input.

    The text goes to standard output, the facts about it to standard error; with --json the lines of
    the stream go to standard output as they are. Ctrl-C cancels the generation and tells how long
    that took and what became of the worker; a second Ctrl-C leaves at once.
    """
    text = _text(prompt, raw=raw)
    async with session.client() as client:
        request = GenerateRequest(
            pool=pool or await sole_pool(client, "choose with --pool"),
            prompt=text if raw else None,
            messages=None if raw else [Message(role="user", content=text)],
            session_id=session_id,
            priority=priority,
            deadline_ms=_milliseconds(deadline),
            queue_timeout_ms=_milliseconds(queue_timeout),
            **sampling,
        )
        return await Generation(session, client, request).run()


def _milliseconds(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1000)


def _text(prompt: str | None, *, raw: bool) -> str:
    """The prompt from the command line or from standard input."""
    if prompt is not None and prompt != "-":
        text = prompt
    elif prompt is None and sys.stdin.isatty():
        raise click.UsageError("Missing argument 'PROMPT'; or pipe the prompt in.")
    else:
        try:
            text = sys.stdin.buffer.read().decode()
        except UnicodeDecodeError as error:
            raise click.UsageError(
                f"cannot read the prompt from standard input: byte {error.start} is not UTF-8."
            ) from error
        # The line's end belongs to the pipe, not to the question; raw text is left alone.
        text = text if raw else text.removesuffix("\n")
    if not text:
        raise click.UsageError("The prompt is empty.")
    check_encodable(text, "prompt")
    return text
