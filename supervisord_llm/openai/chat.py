"""The body of ``POST /v1/chat/completions``, and the conversation as a chat template takes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import msgspec

from supervisord_llm.errors import InvalidRequest
from supervisord_llm.openai.fields import Completion, Tokens
from supervisord_llm.openai.unsupported import unsupported

Turn = Mapping[str, object]
"""One message for a template: ``role``, ``content`` as one string, and what else it has."""


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of a message's content."""

    type: str
    text: str | None = None


class CalledFunction(msgspec.Struct, frozen=True, kw_only=True):
    """What was called, with its arguments as JSON text."""

    name: str
    arguments: str


class Called(msgspec.Struct, frozen=True, kw_only=True):
    """A call that the assistant made in an earlier turn."""

    id: str
    type: Literal["function"] = "function"
    function: CalledFunction


class ChatMessage(msgspec.Struct, frozen=True, kw_only=True):
    """One turn of the conversation."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[Part] | None = None
    """Text, or parts that are all text; only an assistant's turn may have none."""
    name: str | None = None
    reasoning_content: str | None = None
    """What the assistant thought before it; some templates look at it."""
    tool_calls: list[Called] | None = None
    tool_call_id: str | None = None
    """Whose result the content is, in a turn of ``tool``."""
    function_call: object = None
    audio: object = None


class Function(msgspec.Struct, frozen=True, kw_only=True):
    """What a tool is called by, and what it takes, as a JSON schema."""

    name: Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_.-]{1,128}\Z")]
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    """Something that the model may call."""

    type: str
    function: Function | None = None


class ChatRequest(Completion, frozen=True, kw_only=True):
    """The body: a conversation, to be continued by the assistant."""

    messages: Annotated[list[ChatMessage], msgspec.Meta(min_length=1)]
    max_completion_tokens: Tokens | None = None
    """The newer name of ``max_tokens``."""
    tools: Annotated[list[Tool], msgspec.Meta(max_length=128)] | None = None
    tool_choice: object = None
    """``"auto"``, or ``"none"``, under which the model is not told of the tools."""
    parallel_tool_calls: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    """More variables for the chat template, such as ``{"enable_thinking": false}``."""

    @property
    def token_limit(self) -> int | None:
        """The most tokens of the answer, by whichever name it was given."""
        newer = self.max_completion_tokens
        return self.max_tokens if newer is None else newer

    @property
    def turns(self) -> list[Turn]:
        """The messages for the template.

        Raises:
            UnsupportedParameter: one holds something else than text.
            InvalidRequest: one holds nothing.
        """
        return [_turn(at, message) for at, message in enumerate(self.messages)]

    @property
    def offered(self) -> list[dict[str, object]]:
        """The tools that the template tells the model of; none under ``tool_choice`` "none"."""
        return [] if self.tool_choice == "none" else [_tool(tool) for tool in self.tools or ()]

    @property
    def tool_schemas(self) -> dict[str, Mapping[str, object]]:
        """By the name of each tool that the model may call: the JSON schema of its arguments."""
        if self.tool_choice == "none":
            return {}
        functions = [tool.function for tool in self.tools or () if tool.function is not None]
        return {function.name: function.parameters or {} for function in functions}

    def check(self) -> None:
        """Raise for what no field can get wrong alone.

        Raises:
            InvalidRequest: fields that contradict each other.
            UnsupportedParameter: values that are not offered.
        """
        super().check()
        older, newer = self.max_tokens, self.max_completion_tokens
        if older is not None and newer is not None and older != newer:
            raise InvalidRequest(
                "cannot use field 'max_tokens': 'max_completion_tokens' says something else; send "
                "one of them",
                param="max_tokens",
            )
        if self.tool_choice not in (None, "none", "auto"):
            raise unsupported("tool_choice", 'send "auto" or "none"')
        if self.parallel_tool_calls is False and self.tools:
            raise unsupported("parallel_tool_calls", "leave it out, and expect several calls")
        for at, tool in enumerate(self.tools or ()):
            if tool.type != "function" or tool.function is None:
                raise unsupported(f"tools[{at}].type", 'send tools of type "function"')
            if tool.function.strict:
                remedy = "leave it out, and check the arguments that come"
                raise unsupported(f"tools[{at}].function.strict", remedy)


def _turn(at: int, message: ChatMessage) -> Turn:
    for field in ("function_call", "audio"):
        if getattr(message, field) is not None:
            raise unsupported(f"messages[{at}].{field}", "leave it out")
    if message.content is None and message.role != "assistant":
        where = f"messages[{at}].content"
        raise InvalidRequest(f"cannot use field {where!r}: it is missing; send text", param=where)
    turn: dict[str, object] = {"role": message.role, "content": _text(at, message.content)}
    for field in ("name", "reasoning_content", "tool_call_id"):
        if (value := getattr(message, field)) is not None:
            turn[field] = value
    if message.tool_calls:
        turn["tool_calls"] = [_called(call) for call in message.tool_calls]
    return turn


def _text(at: int, content: str | Sequence[Part] | None) -> str:
    """The content as one string: that is what every template takes."""
    if content is None or isinstance(content, str):
        return content or ""
    texts = []
    for number, part in enumerate(content):
        if part.type != "text":
            where = f"messages[{at}].content[{number}].type"
            raise unsupported(where, 'send parts of type "text"')
        texts.append(part.text or "")
    return "".join(texts)


def _called(call: Called) -> dict[str, object]:
    """A call as templates take it: with its arguments as an object, where they are one."""
    arguments: object
    try:
        arguments = msgspec.json.decode(call.function.arguments, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError):
        arguments = call.function.arguments
    function = {"name": call.function.name, "arguments": arguments}
    return {"id": call.id, "type": "function", "function": function}


def _tool(tool: Tool) -> dict[str, object]:
    function = {} if tool.function is None else msgspec.structs.asdict(tool.function)
    return {
        "type": "function",
        "function": {name: value for name, value in function.items() if value is not None},
    }
