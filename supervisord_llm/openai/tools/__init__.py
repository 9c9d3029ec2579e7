"""Tool calls in what a model writes: which format it is, and the parser for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from supervisord_llm.openai.tools.hermes import Hermes
from supervisord_llm.openai.tools.parser import MAX_CALL, ToolParser
from supervisord_llm.openai.tools.parts import OPEN, Format, Part, Text, ToolCall
from supervisord_llm.openai.tools.qwen import Qwen

__all__ = ["MAX_CALL", "Part", "Text", "ToolCall", "ToolParser", "parser_for"]


def parser_for(
    template: str | None,
    tools: Mapping[str, Mapping[str, object]],
    *,
    new_id: Callable[[], str],
) -> ToolParser:
    """The parser for what a model writes that was told of some tools.

    Its chat template shows the model how to write calls, so it tells the format too. One that shows
    neither was written for a model that knows some other, or that was told in the conversation:
    then a call may have either format, and its beginning tells which.

    Args:
        template: the source of the model's chat template, if it has one.
        tools: by the name of each tool that was offered, the JSON schema of its arguments.
        new_id: returns what makes the next call's id unique, random hexadecimal digits.
    """
    source = template or ""
    formats: list[Format]
    if "<function=" in source and "<parameter=" in source:
        formats = [Qwen(tools)]
    elif OPEN in source:
        formats = [Hermes()]
    else:
        formats = [Hermes(), Qwen(tools)]
    return ToolParser(formats, tools, new_id=new_id)
