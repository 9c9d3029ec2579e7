"""``llmctl generate``: a prompt in, the model's text out, and Ctrl-C that says what it did."""

from __future__ import annotations

import math
import sys
from typing import Any

import click

from supervisord_llm.cli.completion import complete_pool
from supervisord_llm.cli.generation import Generation
from supervisord_llm.cli.session import ExitCode, Session, command, examples, sole_pool
from supervisord_llm.schema import (
    INT32_MAX,
    INT64_MAX,
    PRIORITY_MAX,
    PRIORITY_MIN,
    GenerateRequest,
    Message,
)


class Number(click.FloatRange):
    """A float within bounds; unlike click's own it knows that NaN is within none."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """The number, or a usage error that names the parameter."""
        number = float(super().convert(value, param, ctx))
        if math.isnan(number):
            self.fail("nan is not a number.", param, ctx)
        return number


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
@click.option("--max-new-tokens", type=click.IntRange(1, INT32_MAX), help="Stop after this many.")
@click.option(
    "--temperature", type=Number(0.0, 100.0), help="0 takes the likeliest token every time."
)
@click.option(
    "--top-p", type=Number(0.0, 1.0, min_open=True), help="Sample within this probability mass."
)
@click.option("--top-k", type=click.IntRange(0, INT32_MAX), help="Sample among this many; 0: all.")
@click.option("--seed", type=click.IntRange(0, INT64_MAX), help="Make sampling repeatable.")
@click.option(
    "--stop", multiple=True, metavar="TEXT", help="End before this text; may be repeated."
)
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
    max_new_tokens: int | None,
    temperature: float | None,
    top_p: float | None,
    top_k: int | None,
    seed: int | None,
    stop: tuple[str, ...],
    session_id: str | None,
    priority: int,
    deadline: float | None,
    queue_timeout: float | None,
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
            max_new_tokens=max_new_tokens,
            temperature=temperature,
            top_p=top_p,
            top_k=top_k,
            seed=seed,
            stop=list(stop) or None,
            session_id=session_id,
            priority=priority,
            deadline_ms=_milliseconds(deadline),
            queue_timeout_ms=_milliseconds(queue_timeout),
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
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise click.UsageError("cannot send the prompt: it is not UTF-8.") from error
    return text
