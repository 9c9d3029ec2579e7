"""The reference says what the code says, and all of it.

What must be there is gathered here anew from the code, and looked for in the text, so that a
section that the generator forgets is missed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path

import click
import msgspec
import pytest
from click.testing import CliRunner

from supervisord_llm import events, schema
from supervisord_llm.api.routes import ROUTES, Endpoint
from supervisord_llm.cli import ctl, daemon, session
from supervisord_llm.config import schema as config
from supervisord_llm.config.kinds import Table
from supervisord_llm.core import words
from supervisord_llm.errors import ClientError
from tools.reference import __main__ as tool
from tools.reference import docstrings, markdown

TEXT = tool.DOCUMENT.read_text(encoding="utf-8")


def section_of(heading: str) -> str:
    """The text under a heading, up to the next one of the same level or above."""
    level = len(heading) - len(heading.lstrip("#"))
    _, found, below = TEXT.partition(f"\n{heading}\n")
    assert found, f"there is no {heading}"
    return re.split(rf"^#{{1,{level}}} ", below, maxsplit=1, flags=re.MULTILINE)[0]


def rows_of(section: str) -> dict[str, str]:
    """The rows of a section's tables whose first cell is code, by that code."""
    return {name: row for row, name in re.findall(r"^(\| `([^`]*)` \|.*)$", section, re.MULTILINE)}


def words_in_code() -> Iterator[type[StrEnum]]:
    """Every enum of words."""
    for value in vars(words).values():
        if isinstance(value, type) and issubclass(value, StrEnum) and value is not StrEnum:
            yield value


def test_the_reference_is_what_the_code_makes() -> None:
    """Whoever changes a key, a route, an event or a word makes the reference anew."""
    assert tool.reference() == TEXT


def test_check_fails_on_an_old_reference_and_leaves_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``--check`` says what to run; only a run without it writes."""
    old = tmp_path / "reference.md"
    old.write_text(TEXT.replace("`cooperative_grace`", "`patience`"), encoding="utf-8")
    monkeypatch.setattr(tool, "DOCUMENT", old)

    result = CliRunner().invoke(tool.main, ["--check"])

    assert 1 == result.exit_code
    assert "run `make docs`" in result.output
    assert "`patience`" in old.read_text(encoding="utf-8")
    assert 0 == CliRunner().invoke(tool.main, []).exit_code
    assert TEXT == old.read_text(encoding="utf-8")


TABLES: dict[str, type[msgspec.Struct]] = {
    "`[daemon]`": config.DaemonConfig,
    "`[log]`": config.LogConfig,
    "`[[listen]]`": config.ListenConfig,
    "`[pool.NAME]`": config.PoolConfig,
    "`[pool.NAME.load_limits]`": config.LoadLimits,
    "`[pool.NAME.cancel]`": config.CancelConfig,
    "`[pool.NAME.health]`": config.HealthConfig,
    "`[pool.NAME.restart]`": config.RestartConfig,
    "`[pool.NAME.queue]`": config.QueueConfig,
    "`[pool.NAME.limits]`": config.LimitsConfig,
    "`[pool.NAME.sampling]`": config.SamplingConfig,
}


def test_no_table_of_the_configuration_is_forgotten_here() -> None:
    """The list of tables above is complete: every Struct of the schema but the whole file."""
    tables = {
        value
        for value in vars(config).values()
        if isinstance(value, type)
        and issubclass(value, msgspec.Struct)
        and value not in (msgspec.Struct, config.Config, Table)
    }

    assert tables == set(TABLES.values())


@pytest.mark.parametrize("title", TABLES)
def test_every_key_is_there_with_its_meaning_and_default(title: str) -> None:
    """A key's row has four filled cells."""
    rows = rows_of(section_of(f"### {title}"))
    keys = {
        field.encode_name
        for field in msgspec.structs.fields(TABLES[title])
        if not (isinstance(field.type, type) and issubclass(field.type, msgspec.Struct))
    }

    assert keys == rows.keys()
    for row in rows.values():
        assert all(cell.strip() for cell in row.strip("|").split(" | ")), row


def test_a_default_and_its_bounds_are_as_the_file_has_them() -> None:
    """Quantities have their units, and the one key without a default says so."""
    cancel, pool = section_of("### `[pool.NAME.cancel]`"), section_of("### `[pool.NAME]`")

    assert '| `kill_grace` | a duration from "0s" to "365d", such as "2s" | `"2s"` |' in cancel
    assert '| `max_line` | a size from "1KiB" to "1GiB", such as "1MiB" | `"1MiB"` |' in pool
    (command,) = [row for row in pool.splitlines() if row.startswith("| `command`")]
    assert "| required |" in command


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
def test_every_route_is_there(route: Endpoint) -> None:
    """With its method, its group and what it does."""
    what = markdown.line(route.handler.__doc__)

    expected = f"| {route.method} | `{route.path}` | {route.group} | {what} |"
    assert expected in section_of("## Routes")


def test_every_error_code_is_there() -> None:
    """Of every class of errors that is the client's fault, and of our own faults."""
    section = section_of("### Errors")

    rows = re.findall(r"^\| (\d+) \| `(\w+)` \|", section, re.MULTILINE)
    kinds = [ClientError]
    for kind in kinds:
        kinds += kind.__subclasses__()
    ours = [each for each in kinds[1:] if each.__module__.startswith("supervisord_llm.")]
    assert len(ours) + 4 == len(rows)
    assert {("429", "queue_full"), ("503", "shutting_down"), ("500", "internal")} < set(rows)


@pytest.mark.parametrize("name", sorted(events.catalogue()))
def test_every_event_is_there_with_all_of_its_fields(name: str) -> None:
    """And with its level."""
    event = events.catalogue()[name]
    section = section_of(f"### `{name}`")

    fields = [field.encode_name for field in msgspec.structs.fields(event)]
    assert fields == list(rows_of(section))
    assert f"Level: `{event.level}`." in section


@pytest.mark.parametrize("enum", list(words_in_code()), ids=lambda enum: enum.__name__)
def test_every_word_is_there(enum: type[StrEnum]) -> None:
    """Each value of each enum, in its order, and no other."""
    section = section_of(f"### {enum.__name__}")
    listed = section.partition(markdown.prose(enum.__doc__))[2]

    found = list(rows_of(listed)) or re.findall(r"`(.*?)`", listed)
    assert [member.value for member in enum] == found


@pytest.mark.parametrize(
    "record",
    [
        value
        for value in vars(schema).values()
        if isinstance(value, type) and issubclass(value, msgspec.Struct)
        if value is not schema.Request  # the root of bodies, without a field
    ],
    ids=lambda record: record.__name__,
)
def test_every_record_of_the_api_is_there(record: type[msgspec.Struct]) -> None:
    """With each of its fields."""
    section = section_of(f"#### {record.__name__}")

    tag = [record.__struct_config__.tag_field] if record.__struct_config__.tag else []
    fields = [field.encode_name for field in msgspec.structs.fields(record)]
    assert [*tag, *fields] == list(rows_of(section))


@pytest.mark.parametrize(
    ("program", "group", "exits"),
    [
        (daemon.PROGRAM, daemon.cli, daemon.ExitCode),
        (ctl.PROGRAM, ctl.cli, session.ExitCode),
    ],
)
def test_every_command_option_and_exit_status_is_there(
    program: str, group: click.Group, exits: type[daemon.ExitCode | session.ExitCode]
) -> None:
    """Of both programs."""
    section = section_of(f"### `{program}`")

    statuses = re.findall(r"^\| (\d+) \| \w", section, re.MULTILINE)
    assert [str(code.value) for code in exits] == statuses
    for verb, command in group.commands.items():
        below = section_of(f"#### `{program} {verb}`")
        for parameter in command.params:
            names = parameter.opts if isinstance(parameter, click.Option) else []
            assert all(name in below for name in names)


def test_links_lead_somewhere() -> None:
    """Every link within the document names a heading, and no two headings share a name."""
    headings = re.findall(r"^#+ (.*)$", TEXT, re.MULTILINE)
    anchors = [re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in headings]

    assert sorted(set(anchors)) == sorted(anchors)
    assert set(re.findall(r"\]\(#([^)]*)\)", TEXT)) <= set(anchors)


def test_meanings_are_read_from_below_the_fields() -> None:
    """A string under a field or member is its meaning; other strings are not."""
    assert "Its word." == docstrings.members_of(words.AnsweredBy)["WORKER"]
    assert {} == docstrings.members_of(words.Outcome)


def test_a_table_leaves_empty_columns_out() -> None:
    """And a bar within a cell does not end it."""
    expected = "| a | c |\n|---|---|\n| 1 | x\\|y |\n"

    assert expected == markdown.table(("a", "b", "c"), [("1", "", "x|y")])
