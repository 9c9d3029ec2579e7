"""Reads a configuration file: a whole configuration, or every problem of it."""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from supervisord_llm import paths
from supervisord_llm.config.advice import advise
from supervisord_llm.config.checks import check
from supervisord_llm.config.decode import decode
from supervisord_llm.config.keys import ApiKeys, KeyFiles, read_keys
from supervisord_llm.config.placeholders import fill, folders
from supervisord_llm.config.problems import ConfigWarning, Problems
from supervisord_llm.config.schema import Config, ListenConfig
from supervisord_llm.errors import ConfigError, OperatorError


class LoadedConfig(msgspec.Struct, frozen=True):
    """A valid configuration and where it came from."""

    config: Config
    """With addresses and ``state_dir`` filled in; what differs from slot to slot is not."""
    path: Path
    digest: str
    """The file's SHA-256 in hexadecimal digits."""
    warnings: list[ConfigWarning]
    keys: KeyFiles = {}
    """What the files of ``listen.api_keys`` hold."""


def load(path: Path, environ: Mapping[str, str]) -> LoadedConfig:
    """Read and check a configuration file.

    Args:
        path: the TOML file.
        environ: for the folders among the placeholders, and ``SUPERVISORD_LLM_SOCKET``.

    Raises:
        ConfigError: with every problem, each naming its key and the remedy.
    """
    content = _read(path)
    problems = Problems()
    config = decode(Config, _parse(path, content), problems)
    warnings: list[ConfigWarning] = []
    config = replace(
        config,
        listen=_move_control_socket(config.listen, environ.get(paths.SOCKET_VARIABLE), warnings),
    )
    config = _fill_in(config, environ, problems)
    check(config, environ, problems)
    keys = _read_key_files(config, problems)
    if problems.sentences:
        raise ConfigError(str(path), problems.sentences)
    warnings += [*advise(config), *_advise_on_keys(keys)]
    return LoadedConfig(config, path, hashlib.sha256(content).hexdigest(), warnings, keys)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        reason = (error.strerror or "unknown error").lower()
        problem = f"cannot read the file: {reason}; check its path and permissions"
        raise ConfigError(str(path), [problem]) from error


def _parse(path: Path, content: bytes) -> dict[str, Any]:
    try:
        return tomllib.loads(content.decode())
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        problem = f"cannot read it as text: bad UTF-8 in line {line}; save the file as UTF-8"
    except tomllib.TOMLDecodeError as error:
        problem = f"cannot read it as TOML: {error}; mend it there"
    except RecursionError:
        problem = "cannot read it as TOML: nested too deeply; write at most a few levels"
    raise ConfigError(str(path), [problem])


def _move_control_socket(
    listeners: tuple[ListenConfig, ...], socket: str | None, warnings: list[ConfigWarning]
) -> tuple[ListenConfig, ...]:
    """Give the first control listener the address that the environment asks for."""
    moved = list(listeners)
    first = next(
        (
            index
            for index, each in enumerate(moved)
            if "control" in each.serve and not each.address.startswith("tcp:")
        ),
        None,
    )
    if first is None:
        warnings.append(
            ConfigWarning(
                "listen",
                "no listener serves control, so llmctl cannot reach this daemon",
                'add "control" to a listener\'s serve',
            )
        )
    elif socket:
        # Not the configuration's text, so nothing in it is a placeholder.
        path = socket.removeprefix("unix:").replace("{", "{{").replace("}", "}}")
        moved[first] = replace(moved[first], address=f"unix:{path}")
    return tuple(moved)


def _fill_in(config: Config, environ: Mapping[str, str], problems: Problems) -> Config:
    known = folders(environ)

    def filled(where: str, text: str) -> str:
        try:
            return fill(text, known)
        except (ValueError, OperatorError) as error:
            if not problems.touch([where]):
                problems.add(where, str(error))
            return text

    daemon = replace(config.daemon, state_dir=filled("daemon.state_dir", config.daemon.state_dir))
    log = replace(config.log, file=filled("log.file", config.log.file))
    listen = tuple(
        replace(
            each,
            address=filled(f"listen[{index}].address", each.address),
            api_keys=filled(f"listen[{index}].api_keys", each.api_keys),
        )
        for index, each in enumerate(config.listen)
    )
    return replace(config, daemon=daemon, log=log, listen=listen)


def _read_key_files(config: Config, problems: Problems) -> dict[str, ApiKeys]:
    found: dict[str, ApiKeys] = {}
    for index, listen in enumerate(config.listen):
        where = f"listen[{index}].api_keys"
        if not listen.api_keys or listen.api_keys in found or problems.touch([where]):
            continue
        try:
            found[listen.api_keys] = read_keys(Path(listen.api_keys))
        except OperatorError as error:
            problems.add(where, str(error))
    return found


def _advise_on_keys(keys: KeyFiles) -> Iterator[ConfigWarning]:
    # No problem: who withdraws the last key wants that to take effect.
    for path, entries in keys.items():
        if not entries:
            yield ConfigWarning(
                "api_keys",
                f"nobody has a key in {path}, so every request that needs one is refused",
                f"make one with `supervisord-llm new-key NAME --file {path}`",
            )
