"""Shell completion of names that only the daemon knows."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import click
import trio
from click.shell_completion import CompletionItem

from supervisord_llm import paths
from supervisord_llm.client import Client
from supervisord_llm.errors import SupervisordError

PATIENCE = 0.5
"""Seconds after which a shell gets no suggestions rather than a pause."""


def complete_slot(
    context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """The slots' names, with their states as help."""

    async def ask(client: Client) -> list[CompletionItem]:
        workers = (await client.workers()).workers
        return [CompletionItem(worker.slot, help=str(worker.state)) for worker in workers]

    return _suggest(context, ask, incomplete)


def complete_pool(
    context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """The pools' names."""

    async def ask(client: Client) -> list[CompletionItem]:
        return [CompletionItem(pool.name) for pool in (await client.status()).pools]

    return _suggest(context, ask, incomplete)


def complete_target(
    context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """The pools' names and the slots', the latter with their states as help."""

    async def ask(client: Client) -> list[CompletionItem]:
        workers = (await client.workers()).workers
        pools = dict.fromkeys(worker.pool for worker in workers)
        slots = [CompletionItem(worker.slot, help=str(worker.state)) for worker in workers]
        return [*(CompletionItem(pool, help="pool") for pool in pools), *slots]

    return _suggest(context, ask, incomplete)


def complete_request(
    context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """The ids of the requests that are not over, with their states as help."""

    async def ask(client: Client) -> list[CompletionItem]:
        requests = (await client.requests()).requests
        return [
            CompletionItem(request.id, help=str(request.state))
            for request in requests
            if request.outcome is None
        ]

    return _suggest(context, ask, incomplete)


def _suggest(
    context: click.Context,
    ask: Callable[[Client], Awaitable[list[CompletionItem]]],
    incomplete: str,
) -> list[CompletionItem]:
    async def items() -> list[CompletionItem]:
        with trio.move_on_after(PATIENCE):
            async with Client(_socket(context)) as client:
                return await ask(client)
        return []

    try:
        found = trio.run(items)
    except SupervisordError:  # in the middle of a command line there is no place to complain
        return []
    return [item for item in found if item.value.startswith(incomplete)]


def _socket(context: click.Context) -> Path:
    given = context.params.get("socket") or context.find_root().params.get("socket")
    return Path(given) if given else paths.control_socket(os.environ)
