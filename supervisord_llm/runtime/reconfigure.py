"""Reads the configuration and its key files again; puts what changed into force, or nothing."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

import msgspec

from supervisord_llm import events
from supervisord_llm.config.diff import compare, in_force
from supervisord_llm.config.keys import KeyFiles, describe_changes
from supervisord_llm.config.launch import slot_launches
from supervisord_llm.config.load import LoadedConfig, load
from supervisord_llm.config.problems import ConfigWarning
from supervisord_llm.errors import ConfigError, OperatorError
from supervisord_llm.runtime.request import Publish
from supervisord_llm.runtime.supervisor import Supervisor


class Change(msgspec.Struct, frozen=True):
    """What reading the file again has changed."""

    digest: str
    """The file's SHA-256 in hexadecimal digits."""
    differences: list[str]
    """What is now otherwise, one sentence each."""
    needs_restart: list[str]
    """Keys that changed in the file and take effect only when the daemon is started again."""
    warnings: list[str]
    """What an operator should know of the new file."""


class Reconfiguration:
    """Called once for each wish to reload, by signal or by the API; never waits."""

    def __init__(
        self,
        loaded: LoadedConfig,
        supervisor: Supervisor,
        publish: Publish,
        environ: Mapping[str, str],
        *,
        replace_keys: Callable[[KeyFiles], None],
    ) -> None:
        """Begin with the configuration that the daemon was started with.

        ``replace_keys`` is given what the files of API keys hold whenever they were read again.
        """
        self._path = loaded.path
        self._config = loaded.config
        self._supervisor = supervisor
        self._publish = publish
        self._environ = environ
        self._keys = loaded.keys
        self._replace_keys = replace_keys

    def __call__(self) -> Change:
        """Read the file again.

        Returns:
            What changed. Workers that must be replaced for it are replaced afterwards, one by one.

        Raises:
            ConfigError: if the file is not valid; nothing has changed then.
            Refused: if the daemon is shutting down.
        """
        try:
            loaded = load(self._path, self._environ)
            warnings = [*loaded.warnings, *self._warnings_of_launches(loaded)]
        except ConfigError as error:
            self._publish(events.ConfigRejected(error="; ".join(error.problems)))
            raise
        difference = compare(self._config, loaded.config)
        config = in_force(self._config, loaded.config)
        self._supervisor.reconfigure(config, difference)
        self._config = config
        differences = [*difference.sentences, *describe_changes(self._keys, loaded.keys)]
        self._keys = {**self._keys, **loaded.keys}
        self._replace_keys(loaded.keys)
        self._publish(
            events.ConfigReloaded(
                digest=loaded.digest,
                differences=differences,
                needs_restart=difference.needs_restart,
            )
        )
        for warning in warnings:
            self._publish(
                events.DaemonWarning(
                    topic=warning.topic, message=warning.message, remedy=warning.remedy
                )
            )
        return Change(
            loaded.digest,
            differences,
            difference.needs_restart,
            [f"{warning.message}; {warning.remedy}" for warning in warnings],
        )

    def _warnings_of_launches(self, loaded: LoadedConfig) -> list[ConfigWarning]:
        cores = sorted(os.sched_getaffinity(0))
        try:
            return slot_launches(loaded.config, cores=cores, environ=self._environ).warnings
        except (ValueError, OperatorError) as error:
            raise ConfigError(str(loaded.path), [str(error)]) from error
