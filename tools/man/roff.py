"""Text for man(7): what would be a command there is made text, Markdown's code becomes bold."""

from __future__ import annotations

import re
from collections.abc import Iterable

from supervisord_llm import __version__

_CODE = re.compile(r"`([^`]+)`")
_LINK = re.compile(r"\[([^\]]+)\]\([^)]*\)")


def header(name: str, section: int) -> str:
    """The first line. There is no date: the same source makes the same page."""
    return f'.TH "{name.upper()}" "{section}" "" "supervisord-llm {__version__}"\n'


def section(title: str, *parts: str) -> str:
    """A heading and what stands under it."""
    return f'.SH "{escape(title.upper())}"\n' + "".join(parts)


def subsection(title: str, *parts: str) -> str:
    """A heading of the second level."""
    return f'.SS "{escape(title)}"\n' + "".join(parts)


def paragraph(markdown: str) -> str:
    """A paragraph, or several where empty lines part them."""
    blocks = re.split(r"\n\s*\n", markdown.strip())
    return "".join(f".PP\n{text(block)}\n" for block in blocks if block)


def tagged(pairs: Iterable[tuple[str, str]]) -> str:
    """A list of terms, each with its meaning indented below it; a term is taken as it is."""
    return "".join(
        f".TP\n\\fB{escape(term)}\\fR\n{text(meaning) or '.'}\n" for term, meaning in pairs
    )


def lines(verbatim: Iterable[str]) -> str:
    """Lines that are not filled: examples, synopses."""
    body = "".join(f"{escape(line)}\n" for line in verbatim)
    return f".PP\n.nf\n.RS 4\n{body}.RE\n.fi\n"


def text(markdown: str) -> str:
    """Inline Markdown on one line."""
    flat = " ".join(_LINK.sub(r"\1", markdown).split())
    parts = _CODE.split(flat)
    # Every second part stood between backticks.
    shown = [f"\\fB{escape(part)}\\fR" if at % 2 else escape(part) for at, part in enumerate(parts)]
    return _guarded("".join(shown))


def escape(plain: str) -> str:
    """Plain text; a hyphen stays the character that a shell takes, a quote ends no argument."""
    escaped = plain.replace("\\", "\\e").replace("-", "\\-").replace('"', "\\(dq")
    return _guarded(escaped.replace("…", "...").replace("→", "\\->"))


def _guarded(line: str) -> str:
    return f"\\&{line}" if line.startswith((".", "'")) else line
