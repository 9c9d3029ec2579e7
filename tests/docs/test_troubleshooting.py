"""Whatever an event may say, the troubleshooting page has what to do about it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path

import pytest

from supervisord_llm import events
from supervisord_llm.core.words import (
    FailureReason,
    PlannedReason,
    QuarantineReason,
    RejectReason,
)
from tools.generated import ROOT

DOCS = ROOT / "docs"
TEXT = (DOCS / "troubleshooting.md").read_text(encoding="utf-8")


def entries_below(heading: str) -> list[str]:
    """The first cells of the tables under a heading."""
    section = TEXT.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return re.findall(r"^\| `([\w.]+)` \|", section, re.MULTILINE)


def topics_in_code() -> Iterator[str]:
    """The topics of all warnings, wherever one is made."""
    for path in sorted((ROOT / "supervisord_llm").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and (topic := _topic(node)) is not None:
                yield topic


def _topic(call: ast.Call) -> str | None:
    made = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if made not in {"DaemonWarning", "ConfigWarning", "_warn"}:
        return None
    named = [keyword.value for keyword in call.keywords if keyword.arg == "topic"]
    match [*named, *call.args[:1]]:
        case [ast.Constant(value=str(topic)), *_]:
            return topic
        case _:
            return None  # it hands on what another one made, or tells of a slot


@pytest.mark.parametrize(
    ("heading", "words"),
    [
        ("A worker was quarantined", QuarantineReason),
        ("A worker is replaced or stopped on purpose", PlannedReason),
        ("A request failed", FailureReason),
        ("A request was refused", RejectReason),
    ],
)
def test_every_reason_has_its_entry(heading: str, words: type[StrEnum]) -> None:
    """Each word of the closed set, in its order, and no other."""
    assert [word.value for word in words] == entries_below(heading)


def test_every_topic_of_a_warning_has_its_entry() -> None:
    """Each topic that the code can say, and no other."""
    assert sorted(set(topics_in_code())) == entries_below("A warning")


def test_topics_are_found_wherever_a_warning_is_made() -> None:
    """In the configuration, the daemon and the event log alike."""
    assert {"threads", "leftovers", "log", "spawn"} <= set(topics_in_code())


def test_the_events_that_are_named_exist() -> None:
    """No event is spoken of that the catalogue does not have."""
    prefixes = "|".join({name.partition(".")[0] for name in events.catalogue()})
    named = set(re.findall(rf"`((?:{prefixes})\.[a-z_]+)`", TEXT))

    # Some keys of the configuration look like events.
    keys = {"cancel.cooperative_grace", "cancel.prefill_grace", "cancel.cancellation"}
    keys |= {"cancel.self_test"}
    assert set() == named - keys - {"daemon.state_dir"} - events.catalogue().keys()
    assert set(entries_below("Other events that mean something")) <= events.catalogue().keys()


@pytest.mark.parametrize("page", sorted(DOCS.glob("*.md")), ids=lambda page: page.name)
def test_links_between_the_pages_lead_somewhere(page: Path) -> None:
    """Each names a page that is there, and a heading on it."""
    text = page.read_text(encoding="utf-8")
    for name, anchor in re.findall(r"\]\(([\w-]+\.md)(?:#([\w-]+))?\)", text):
        headings = re.findall(r"^#+ (.*)$", (DOCS / name).read_text(encoding="utf-8"), re.MULTILINE)
        anchors = {re.sub(r"[^\w\- ]", "", each.lower()).replace(" ", "-") for each in headings}
        assert not anchor or anchor in anchors


KEYS = re.compile(
    r"`((?:daemon|log|listen|load_limits|cancel|health|restart|queue|limits|sampling)\.[a-z_]+)`"
)


def keys_of(table: str) -> set[str]:
    """The keys of a table of the configuration, as the reference has them."""
    reference = (DOCS / "reference.md").read_text(encoding="utf-8")
    heading = re.compile(rf"^### `\[+(?:pool\.NAME\.)?{table}\]+`$", re.MULTILINE)
    section = heading.split(reference)[1].partition("\n### ")[0]
    return set(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE))


@pytest.mark.parametrize("page", sorted(DOCS.glob("*.md")), ids=lambda page: page.name)
def test_the_keys_that_are_named_exist(page: Path) -> None:
    """A key of the configuration that a page names is in the reference's table of that name."""
    named = set(KEYS.findall(page.read_text(encoding="utf-8"))) - events.catalogue().keys()

    for table, _, key in (each.partition(".") for each in named):
        assert key in keys_of(table)
