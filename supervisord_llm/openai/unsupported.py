"""What would change the output and is not offered: one list of fields, each with what it may hold.

A client that sets such a field relies on it, so it is refused and never passed over in silence. A
value under which the field does nothing is taken, since many clients send every field they know.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from supervisord_llm.errors import UnsupportedParameter

NO_OPS: Mapping[str, tuple[object, ...]] = {
    # How many answers, and what else is told of them.
    "n": (1,),
    "best_of": (1,),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "echo": (False,),
    "suffix": ("",),
    "prompt_logprobs": (0, False),
    # Sampling that workers are not asked for.
    "min_p": (0,),
    "typical_p": (1,),
    "frequency_penalty": (0,),
    "presence_penalty": (0,),
    "repetition_penalty": (1,),
    "repeat_penalty": (1,),
    "length_penalty": (1,),
    "dry_multiplier": (0,),
    "xtc_probability": (0,),
    "mirostat": (0,),
    "logit_bias": ({}, []),
    "bad_words": ([],),
    "use_beam_search": (False,),
    "samplers": ([],),
    # When it ends.
    "min_tokens": (0,),
    "max_new_tokens": (),
    "n_predict": (-1,),
    "ignore_eos": (False,),
    "stop_token_ids": ([],),
    "include_stop_str_in_output": (False,),
    # What form it has.
    "response_format": ({"type": "text"},),
    "guided_json": (),
    "guided_regex": ("",),
    "guided_choice": ([],),
    "guided_grammar": ("",),
    "structured_outputs": ({},),
    "json_schema": ({},),
    "grammar": ("",),
    "modalities": (["text"],),
    "audio": (),
    "verbosity": (),
    "prediction": (),
    # How the prompt is made.
    "chat_template": (),
    "documents": ([],),
    "add_generation_prompt": (True,),
    "continue_final_message": (False,),
    "reasoning_effort": (),
    "web_search_options": (),
    # Tools in their former form.
    "functions": ([],),
    "function_call": ("none",),
}
"""By field: the values, besides ``null``, under which it does nothing."""

_REMEDIES = {
    "functions": "send 'tools' instead",
    "function_call": "send 'tool_choice' instead",
    "max_new_tokens": "send 'max_tokens' instead",
    "n_predict": "send 'max_tokens' instead",
    "n": "send 'n': 1, and the request again for each further answer",
    "chat_template": "configure the pool's, or send 'chat_template_kwargs'",
}

_Listed = msgspec.defstruct(
    "_Listed", [(name, Any, None) for name in NO_OPS], module=__name__, frozen=True
)
_decoder = msgspec.json.Decoder(_Listed)


def check_unsupported(body: bytes) -> None:
    """Look through a body that has been decoded once, so that it is known to be an object.

    Raises:
        UnsupportedParameter: for the first field of the list that would do something.
    """
    listed = _decoder.decode(body)
    for name, no_ops in NO_OPS.items():
        value = getattr(listed, name)
        if value is not None and not any(_same(value, each) for each in no_ops):
            raise unsupported(name, _REMEDIES.get(name, "leave it out"))


def unsupported(param: str, remedy: str) -> UnsupportedParameter:
    """Return the refusal of a field, or of what it holds."""
    return UnsupportedParameter(
        f"cannot use field {param!r} like this: it is not supported; {remedy}", param=param
    )


def _same(value: object, no_op: object) -> bool:
    # In Python true is 1, in JSON it is not.
    return value == no_op and isinstance(value, bool) == isinstance(no_op, bool)
