"""The event catalogue."""

from __future__ import annotations

from typing import cast

from msgspec import inspect as kinds

from supervisord_llm import events
from tools.reference import docstrings, markdown
from tools.reference.kinds import in_words


def event_log() -> str:
    """The section on events."""
    return markdown.section(
        2,
        "Events",
        "One JSON object a line, in the log and on `GET /api/v1/events`. Each has `ts` (RFC 3339, "
        "UTC), `seq` (counted without gaps), `level` and `event`, the name below; fields that do "
        "not apply are left out. The bounds of `gaps`, in seconds: "
        + ", ".join(f"{bound:g}" for bound in events.GAP_BUCKETS)
        + ".",
        *(_event(name, cls) for name, cls in events.catalogue().items()),
    )


def _event(name: str, cls: type[events.Event]) -> str:
    kind = cast("kinds.StructType", kinds.type_info(cls))
    documented = docstrings.members_of(cls)
    rows = [
        (
            f"`{field.encode_name}`",
            in_words(_present(field.type)),
            "" if field.required else "may be absent",
            markdown.line(documented.get(field.name)),
        )
        for field in kind.fields
    ]
    about = f"{markdown.prose(cls.__doc__)}\n\nLevel: `{cls.level}`."
    fields = markdown.table(("field", "value", "", "meaning"), rows)
    return markdown.section(3, f"`{name}`", about, fields)


def _present(kind: kinds.Type) -> kinds.Type:
    """The type of a field that is there: null is what is left out."""
    if not isinstance(kind, kinds.UnionType):
        return kind
    left = tuple(each for each in kind.types if not isinstance(each, kinds.NoneType))
    return left[0] if len(left) == 1 else kinds.UnionType(left)
