"""One choice's text on its way from the worker: through the stop strings, then the tool calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from supervisord_llm.core import words
from supervisord_llm.openai.shapes import Call, CalledFunction, FinishReason
from supervisord_llm.openai.stops import StopGuard
from supervisord_llm.openai.tools import ToolCall, ToolParser


class Output:
    """Takes what the worker writes, and says what the client is to be shown of it, and when."""

    def __init__(
        self, stops: Sequence[str], make_parser: Callable[[], ToolParser] | None = None
    ) -> None:
        """Begin.

        Args:
            stops: the stop strings of the request.
            make_parser: makes what finds the calls, where the model was told of tools; it is asked
                when output comes, because only then it is sure to be known which model that is.
        """
        self._guard = StopGuard(stops)
        self._make_parser = make_parser
        self._parser: ToolParser | None = None
        self.plain = not stops and make_parser is None
        """Whether text passes unchanged and at once, so that it need not be fed here at all."""
        self.calls = 0
        """How many calls there were."""

    @property
    def stopped(self) -> bool:
        """Whether a stop string was found: nothing that comes now is shown."""
        return self._guard.stopped

    def feed(self, texts: Sequence[str]) -> list[str | Call]:
        """Take a batch of tokens; return what can be shown now, in order, and no empty text."""
        return self._parsed(self._guard.feed("".join(texts)), last=False)

    def finish(self) -> list[str | Call]:
        """Return what was held back, at the end of a generation that completed."""
        return self._parsed(self._guard.finish(), last=True)

    def reason(self, said: words.FinishReason | None) -> FinishReason:
        """Return why the choice ended; calls are first, then a stop string, then what was said."""
        if self.calls:
            return "tool_calls"
        return "length" if said is words.FinishReason.LENGTH and not self.stopped else "stop"

    def _parsed(self, text: str, *, last: bool) -> list[str | Call]:
        if self._make_parser is None:
            return [text] if text else []
        if self._parser is None:
            self._parser = self._make_parser()
        found = self._parser.feed(text) if text else []
        if last:
            found += self._parser.finish()
        return [self._call(each) if isinstance(each, ToolCall) else each.text for each in found]

    def _call(self, call: ToolCall) -> Call:
        index, self.calls = self.calls, self.calls + 1
        function = CalledFunction(name=call.name, arguments=call.arguments)
        return Call(index=index, id=call.id, function=function)
