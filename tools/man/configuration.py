"""supervisord-llm.toml(5), from the types that read the file."""

from __future__ import annotations

from collections.abc import Iterator

from tools.man import roff
from tools.reference.configuration import TableOfKeys, tables

_ABOUT = """\
A TOML file, UTF-8. A duration is text with a unit (ms, s, m, h, d, also `1m30s`), a size likewise
(B, KiB, MiB, GiB, TiB). An unknown key is refused. `supervisord-llm check` lists every problem at
once, and prints what is in force.

In `address`, `state_dir`, `command`, `env` and `per_slot_env` these are filled in:
`{runtime_dir}`, `{data_dir}`, `{bin_dir}` (the folder of the workers that came with the program)
and `{package:NAME}` (that of an installed Python package); in `command`, `env` and `per_slot_env`
also `{slot}`, `{index}` and `{threads}`. `{{` and `}}` are braces.
"""
_EXAMPLE = (
    "[pool.smollm]",
    'command = ["sllm-llama-worker", "--model", "/var/lib/models/smollm.gguf"]',
    "workers = 2",
)


def configuration_file() -> str:
    """The page of the file format."""
    name = "supervisord-llm.toml"
    return "".join(
        (
            roff.header(name, 5),
            roff.section(
                "Name", f"{roff.escape(name)} \\- configuration of supervisord\\-llm(8)\n"
            ),
            roff.section("Description", roff.paragraph(_ABOUT)),
            roff.section("Keys", *_tables()),
            roff.section("Example", roff.lines(_EXAMPLE)),
            roff.section("See also", roff.paragraph("supervisord-llm(8), llmctl(1)")),
        )
    )


def _tables() -> Iterator[str]:
    for table in tables():
        yield roff.subsection(
            table.title.replace("`", ""), roff.paragraph(table.meaning), roff.tagged(_keys(table))
        )


def _keys(table: TableOfKeys) -> Iterator[tuple[str, str]]:
    for key in table.keys:
        default = {"required": "required", "": ""}.get(key.default, f"by default `{key.default}`")
        facts = "; ".join(part for part in (key.may_be, default) if part)
        yield key.name, f"{key.meaning} ({facts})"
