"""What a valid configuration says in vain, or to more people than it means to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from supervisord_llm.config.arguments import secret_options
from supervisord_llm.config.problems import ConfigWarning
from supervisord_llm.config.schema import Config, PoolConfig
from supervisord_llm.config.units import show


def advise(config: Config) -> Iterator[ConfigWarning]:
    """Warn of what works, but hardly as meant; unlike a problem it stops nobody.

    A key that has its default was not necessarily written, so nothing is said about it.
    """
    members = Counter(pool.exclusive for pool in config.pool.values())
    for name, pool in config.pool.items():
        if options := secret_options(pool.command):
            yield ConfigWarning(
                "secret",
                f"the command of pool {name} seems to have a secret in it "
                f"({', '.join(map(show, options))}): every user of this machine can read that "
                "with `ps`",
                "give it to the worker in a file, or in env or pass_env",
            )
        if pool.load == "eager" and pool.idle_ttl != PoolConfig(command=pool.command).idle_ttl:
            yield ConfigWarning(
                "load",
                f'idle_ttl of pool {name} has no effect: with load = "eager" it stays loaded',
                'write load = "on_demand", or remove idle_ttl',
            )
        if pool.exclusive and members[pool.exclusive] == 1:
            yield ConfigWarning(
                "exclusive",
                f"pool {name} is alone in the exclusive group {show(pool.exclusive)}",
                "give the pools that share its device the same name, or remove exclusive",
            )
        if pool.cancel.cancellation == "required" and pool.cancel.on_uncancellable != "terminate":
            yield ConfigWarning(
                "cancel",
                f"on_uncancellable of pool {name} has no effect: with "
                'cancellation = "required" workers that cannot be asked are refused',
                'write cancellation = "auto", or remove on_uncancellable',
            )
