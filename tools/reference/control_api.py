"""The routes, the records that they take and give, and the errors."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import cast

import msgspec
from msgspec import inspect as kinds

from supervisord_llm import schema
from supervisord_llm.api.errors import HttpError, MethodNotAllowed, http_error, internal_error
from supervisord_llm.api.routes import ROUTES
from supervisord_llm.core.words import RejectReason
from supervisord_llm.errors import ClientError, Refused
from tools.reference import docstrings, markdown
from tools.reference.completions import completions
from tools.reference.kinds import in_words

PACKAGE = "supervisord_llm."
_RECORDS = (schema.requests, schema.workers, schema.pools, schema.daemon, schema.base)
"""The modules of the records, in the order of the document."""


def control_api() -> str:
    """The section on the HTTP interface."""
    routes = (
        (route.method, f"`{route.path}`", route.group, markdown.line(route.handler.__doc__))
        for route in ROUTES
    )
    return markdown.section(
        2,
        "Routes",
        "HTTP/1.1 on the listeners of the configuration; a listener serves the groups of its "
        "`serve`. GET routes answer HEAD too.",
        markdown.table(("method", "path", "group", "what it does"), routes),
        _errors(),
        completions(),
        _records(),
    )


def _errors() -> str:
    rows = [(str(each.status), f"`{each.code}`", meaning) for each, meaning in _refusals()]
    return markdown.section(
        3,
        "Errors",
        'Every error has the body `{"error": {"message", "type", "code", "param"}}`. An '
        "error after a stream has begun is in its last record instead.",
        markdown.table(("status", "code", "when"), rows),
    )


def _refusals() -> Iterator[tuple[HttpError, str]]:
    for cls in _client_errors():
        yield http_error(_made(cls)), markdown.line(cls.__doc__).partition(";")[0]
    for reason in RejectReason:
        refused = http_error(Refused(reason, ""))
        if "retry-after" in refused.headers:
            yield refused, "Not now; the header `Retry-After` says when to try again."
    yield internal_error(""), "A bug of ours; the event `daemon.error` has its details."


def _client_errors() -> list[type[ClientError]]:
    """Those of ours, by status."""
    known = [ClientError]
    for each in known:  # grows on the way
        known += each.__subclasses__()
    ours = [each for each in known[1:] if each.__module__.startswith(PACKAGE)]
    return sorted(ours, key=lambda each: http_error(_made(each)).status)


def _made(cls: type[ClientError]) -> ClientError:
    return cls("", allow="") if issubclass(cls, MethodNotAllowed) else cls("")


def structs() -> Iterator[type[msgspec.Struct]]:
    """The records of the API, in the order of their definition."""
    for module in _RECORDS:
        for cls in vars(module).values():
            defined_here = inspect.isclass(cls) and cls.__module__ == module.__name__
            if defined_here and issubclass(cls, msgspec.Struct) and cls is not schema.Request:
                yield cls


def _records() -> str:
    return markdown.section(
        3,
        "Records",
        "What bodies, replies and lines of streams are made of. A body with an unknown field is "
        "refused; a reply may have further fields in later versions.",
        *(_record(cls) for cls in structs()),
    )


def _record(cls: type[msgspec.Struct]) -> str:
    kind = cast("kinds.StructType", kinds.type_info(cls))
    documented = docstrings.members_of(cls)
    may_lack = kind.forbid_unknown_fields or cls.__struct_config__.omit_defaults
    rows = [
        (
            f"`{field.encode_name}`",
            in_words(field.type),
            "may be left out" if may_lack and not field.required else "",
            markdown.line(documented.get(field.name)),
        )
        for field in kind.fields
    ]
    if kind.tag is not None:
        rows.insert(0, (f"`{kind.tag_field}`", f'`"{kind.tag}"`', "", ""))
    fields = markdown.table(("field", "value", "", "meaning"), rows)
    return markdown.section(4, cls.__name__, markdown.prose(cls.__doc__), fields)
