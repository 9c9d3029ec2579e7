"""Pools whose workers are not alike: some are started with other options than the rest."""

from __future__ import annotations

from tests.harness import SCRIPTS


def some_faulty(pattern: str, options: str, others: str = "") -> list[str]:
    """A command whose workers in the places of a shell's pattern have a fault, e.g. ``sim.0/1``.

    A place is a slot, a slash and a generation; others have the options ``others``.
    """
    sim = SCRIPTS / "sllm-sim-worker"
    script = (
        f'case "$SUPERVISORD_LLM_SLOT" in {pattern}) exec {sim} {options};; '
        f"*) exec {sim} {others};; esac"
    )
    return ["sh", "-c", script]
