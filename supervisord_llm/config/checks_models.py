"""The names that clients use for a pool's model, which must not mean two pools."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from supervisord_llm.config.problems import join
from supervisord_llm.config.schema import PoolConfig
from supervisord_llm.config.units import show
from supervisord_llm.core.words import PoolName

NAME_MAX = 255
"""Characters of a name; there is no such limit elsewhere, but lists of models have to be shown."""


def model_findings(
    pools: Mapping[PoolName, PoolConfig],
) -> Iterator[tuple[str, tuple[str, ...], str]]:
    """Find names that are none, and those that are a pool's or were given before."""
    given: dict[str, str] = {}
    for name, pool in pools.items():
        for index, model in enumerate(pool.models):
            path = f"{join('pool', name)}.models[{index}]"
            first = given.setdefault(model, path)
            if not _is_name(model):
                text = (
                    f"cannot be a model's name; write 1 to {NAME_MAX} printable characters without "
                    "a space"
                )
                yield path, (), text
            elif model in pools:
                whose = "its own" if model == name else f"that of {join('pool', model)}"
                yield path, (), f"cannot use {show(model)}: it is {whose}; remove it"
            elif first != path:
                text = f"cannot use {show(model)} twice: {first} is the same; keep one of them"
                yield path, (first,), text


def _is_name(model: str) -> bool:
    return 0 < len(model) <= NAME_MAX and model.isprintable() and " " not in model
