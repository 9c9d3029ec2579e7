"""``llmctl pools``: who can serve what."""

from __future__ import annotations

import click

from supervisord_llm.cli.session import ExitCode, Session, command, examples
from supervisord_llm.cli.tables import Cell, Column, states, yes_no
from supervisord_llm.schema import ModelInfo, PoolInfo

_COLUMNS = (
    Column("POOL"),
    Column("READY"),
    Column("STATE"),
    Column("TARGET", numeric=True),
    Column("QUEUED", numeric=True),
    Column("IN-FLIGHT", numeric=True),
    Column("WORKERS"),
    Column("CONTEXT", numeric=True),
    Column("MODEL"),
)


@click.command(
    short_help="List the pools with their models.",
    epilog=examples(
        "llmctl pools",
        "llmctl pools --json | jq '.pools[].config'",
    ),
)
@command
async def pools(session: Session) -> ExitCode:
    """List the pools with their models.

    READY says whether as many workers serve as the pool's min_ready asks for, or would on demand.
    STATE is "drained" (an operator took it out of service; "llmctl resume POOL" brings it back),
    "unloaded" (the next request loads its model) or "reloading" (its workers are being replaced).
    TARGET is how many workers are wanted, and how many more on standby. With --json each pool's
    configuration in force comes too.
    """
    async with session.client() as client:
        answer = await client.pools()
    if session.as_json:
        await session.print_json(answer)
    else:
        await session.print_table(_COLUMNS, [_row(pool) for pool in answer.pools])
    return ExitCode.DONE


def _row(pool: PoolInfo) -> list[Cell]:
    model = pool.model
    return [
        pool.name,
        yes_no(value=pool.ready),
        _standing(pool),
        f"{pool.target}+{pool.standby}" if pool.standby else pool.target,
        pool.queued,
        pool.in_flight,
        states(pool.states),
        model.context_length if model else None,
        _described(model) if model else None,
    ]


def _standing(pool: PoolInfo) -> str:
    """What is not as usual with a pool, in one word each."""
    unloaded = not pool.loaded and not pool.drained
    unusual = {"drained": pool.drained, "unloaded": unloaded, "reloading": pool.reloading}
    return ",".join(word for word, is_so in unusual.items() if is_so)


def _described(model: ModelInfo) -> str:
    parts = [model.id, model.quantization, None if model.chat_template else "(no chat template)"]
    return " ".join(filter(None, parts))
