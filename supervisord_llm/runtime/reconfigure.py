"""Reads the configuration file again and puts what changed into force, or changes nothing."""

from __future__ import annotations

import os
from collections.abc import Mapping

import msgspec

from supervisord_llm import events
from supervisord_llm.config.diff import compare, in_force
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
    ) -> None:
        """Begin with the configuration that the daemon was started with."""
        self._path = loaded.path
        self._config = loaded.config
        self._supervisor = supervisor
        self._publish = publish
        self._environ = environ

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
        self._publish(
            events.ConfigReloaded(
                digest=loaded.digest,
                differences=difference.sentences,
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
            difference.sentences,
            difference.needs_restart,
            [f"{warning.message}; {warning.remedy}" for warning in warnings],
        )

    def _warnings_of_launches(self, loaded: LoadedConfig) -> list[ConfigWarning]:
        cores = sorted(os.sched_getaffinity(0))
        try:
            return slot_launches(loaded.config, cores=cores, environ=self._environ).warnings
        except (ValueError, OperatorError) as error:
            raise ConfigError(str(loaded.path), [str(error)]) from error
