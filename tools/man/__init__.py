"""The manual pages, from the same values as the help texts and docs/reference.md.

They are made when the program is installed, not kept: nobody reads roff where a repository is
shown. The alternative, one Markdown source and a converter, was not taken: it would be one more
program to install, for the few macros of man(7) that a reference needs.
"""

from tools.man.commands import llmctl, supervisord_llm
from tools.man.configuration import configuration_file


def pages() -> dict[str, str]:
    """Every page's text by its file name; the last character is its section."""
    return {
        "supervisord-llm.8": supervisord_llm(),
        "llmctl.1": llmctl(),
        "supervisord-llm.toml.5": configuration_file(),
    }
