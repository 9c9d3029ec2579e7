"""``POST /api/v1/config/reload``: what SIGHUP does, with an answer."""

from __future__ import annotations

from starlette.requests import Request
from starlette.types import ASGIApp

from supervisord_llm.api.bodies import read_query
from supervisord_llm.api.commands import command
from supervisord_llm.api.errors import InvalidConfig
from supervisord_llm.api.front import Front
from supervisord_llm.api.inbox import read_no_body
from supervisord_llm.api.replies import json_reply
from supervisord_llm.errors import ConfigError
from supervisord_llm.schema import ConfigChange


async def reload(front: Front, request: Request) -> ASGIApp:
    """Read the configuration file again and put it in force; an invalid one changes nothing."""
    with command(front, request, "config.reload", front.config_path):
        read_query(request)
        await read_no_body(request)
        try:
            change = front.reload_config()
        except ConfigError as error:
            problems = "; ".join(error.problems)
            raise InvalidConfig(
                f"cannot use {error.path}: {problems}; nothing has changed, correct it and try "
                "again"
            ) from error
    return json_reply(
        ConfigChange(
            digest=change.digest,
            differences=list(change.differences),
            needs_restart=list(change.needs_restart),
            warnings=list(change.warnings),
        )
    )
