"""The body of ``POST /v1/completions``: raw text, or token ids, to go on with."""

from __future__ import annotations

from typing import Annotated

import msgspec

from supervisord_llm.errors import InvalidRequest
from supervisord_llm.openai.fields import Completion

MAX_PROMPTS = 16
"""How many prompts one request may have; each waits for a worker as a request of its own."""

TokenId = Annotated[int, msgspec.Meta(ge=0, le=2**32 - 1)]
Prompt = str | tuple[int, ...]
"""Text, or the ids of its tokens."""


class CompletionRequest(Completion, frozen=True, kw_only=True):
    """The body: text goes to the model as it is, without its chat template."""

    prompt: str | list[str | TokenId | list[TokenId]]
    """One text, up to 16 texts, the token ids of one prompt, or of up to 16."""

    @property
    def prompts(self) -> list[Prompt]:
        """The prompts, each for a choice of its own.

        Raises:
            InvalidRequest: there is none, an empty one, too many, or texts beside token ids.
        """
        prompts = self._prompts()
        if not prompts or not all(prompts):
            raise _invalid("it is empty; send a text, or token ids")
        if len(prompts) > MAX_PROMPTS:
            raise _invalid(f"{len(prompts)} prompts are too many; send at most {MAX_PROMPTS}")
        return prompts

    def _prompts(self) -> list[Prompt]:
        if isinstance(self.prompt, str):
            return [self.prompt]
        texts = [each for each in self.prompt if isinstance(each, str)]
        ids = [each for each in self.prompt if isinstance(each, int)]
        lists = [tuple(each) for each in self.prompt if isinstance(each, list)]
        if len(self.prompt) not in {len(texts), len(ids), len(lists)}:
            raise _invalid("it mixes texts and token ids; send one kind")
        return [tuple(ids)] if ids else [*texts, *lists]


def _invalid(what: str) -> InvalidRequest:
    return InvalidRequest(f"cannot use field 'prompt': {what}", param="prompt")
