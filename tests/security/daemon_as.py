"""A daemon that runs as a user without any right of its own, started by root."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.conftest import TEST_VARIABLE
from tests.daemon.running import Running, ending
from tests.harness import SECONDS
from tests.security.people import Person, command

# All is imported, and what Python looks up late is looked up, before the rights are gone. A process
# that has changed its user cannot be looked into; one that was executed can, so that is restored.
_RUN = """
import ctypes, importlib, pkgutil, sysconfig
import _strptime, encodings.ascii, encodings.idna, encodings.latin_1, encodings.unicode_escape
import supervisord_llm
for module in pkgutil.walk_packages(supervisord_llm.__path__, "supervisord_llm."):
    importlib.import_module(module.name)
sysconfig.get_path("scripts")
become()
ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # PR_SET_DUMPABLE
from supervisord_llm.cli.daemon import main
sys.exit(main())
"""


@contextmanager
def daemon_as(who: Person, folder: Path, config: Path, **environ: str) -> Iterator[Running]:
    """Run a daemon as somebody until the end of the block, where it must stop in order."""
    log = folder / "log"
    variables = {"PATH": os.environ["PATH"], TEST_VARIABLE: os.environ[TEST_VARIABLE], **environ}
    with log.open("wb") as stderr:
        process = subprocess.Popen(
            command(who, _RUN, "run", "--config", str(config)), stderr=stderr, env=variables
        )
    with ending(Running(folder, process, log)) as made:
        made.wait("daemon.ready")
        yield made
        process.terminate()
        assert process.wait(SECONDS) == 0
