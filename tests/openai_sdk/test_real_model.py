"""The ``openai`` library with the real model behind it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest
from openai import OpenAI

from tests.daemon.running import Running, running
from tests.harness import QUICK, write_command
from tests.model.worker import model_path
from tests.openai_sdk.conftest import said

pytestmark = pytest.mark.model

QUESTION = said("Why is the sky blue?")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A daemon with one llama worker that keeps sessions."""
    folder: Path = tmp_path_factory.mktemp("model")
    command = ["sllm-llama-worker", "--model", str(model_path()), "--threads", "1"]
    settings = QUICK.replace('cooperative_grace = "500ms"', 'cooperative_grace = "5s"')
    with running(folder, write_command(folder, command, 1, settings)) as daemon:
        yield daemon


@pytest.fixture
def client(model: Running) -> Iterator[OpenAI]:
    """The library, over the Unix socket."""
    http = httpx2.Client(transport=httpx2.HTTPTransport(uds=str(model.socket)), timeout=120)
    with OpenAI(base_url="http://daemon/v1", api_key="none", http_client=http) as made:
        yield made


def test_a_greedy_answer_is_the_same_whole_and_streamed(client: OpenAI) -> None:
    """Through the model's own template, with what both count."""
    whole = client.chat.completions.create(
        model="sim", messages=QUESTION, temperature=0, max_completion_tokens=24
    )
    *chunks, last = client.chat.completions.create(
        model="sim",
        messages=QUESTION,
        temperature=0,
        max_completion_tokens=24,
        stream=True,
        stream_options={"include_usage": True},
    )
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert whole.choices[0].message.content == text
    assert "sky" in text
    assert whole.usage is not None
    assert last.usage is not None
    assert (24, whole.usage.prompt_tokens) == (
        last.usage.completion_tokens,
        last.usage.prompt_tokens,
    )
    assert "length" == whole.choices[0].finish_reason == chunks[-1].choices[0].finish_reason


def test_a_stop_string_ends_the_answer_before_it(client: OpenAI) -> None:
    """Wherever the model's tokens cut it."""
    fields: Any = {"model": "sim", "messages": QUESTION, "temperature": 0, "max_tokens": 24}
    text = client.chat.completions.create(**fields).choices[0].message.content or ""
    stop = text[20:23]
    stopped = client.chat.completions.create(**fields, stop=stop).choices[0]
    assert (text[: text.index(stop)], "stop") == (stopped.message.content, stopped.finish_reason)


def test_a_conversation_is_warm_in_its_session(client: OpenAI) -> None:
    """Most of the second prompt was read with the first."""
    turns = QUESTION
    cached = []
    for question in ("And at night?", "And on Mars?"):
        answer = client.chat.completions.create(
            model="sim", messages=turns, max_tokens=8, extra_headers={"X-Session-ID": "sky"}
        )
        assert answer.usage is not None
        assert answer.usage.prompt_tokens_details is not None
        cached.append(answer.usage.prompt_tokens_details.cached_tokens or 0)
        content = answer.choices[0].message.content
        turns = [*turns, {"role": "assistant", "content": content}, *said(question)]
    assert 0 == cached[0]
    assert cached[1] > 20


def test_a_prompt_over_the_context_is_told_with_the_limit(client: OpenAI) -> None:
    """400 from the model's real limit, before a stream begins; the next one is answered."""
    long = said("The quick brown fox jumps over the lazy dog. " * 2000)
    with pytest.raises(openai.BadRequestError, match="8192") as caught:
        client.chat.completions.create(model="sim", messages=long, stream=True)
    assert "context_length_exceeded" == caught.value.code
    assert client.completions.create(model="sim", prompt="Once", max_tokens=2).choices[0].text


def test_closing_a_stream_keeps_the_loaded_model(client: OpenAI, model: Running) -> None:
    """The same process answers the next one."""
    [pid] = model.worker_pids()
    stream = client.chat.completions.create(
        model="sim", messages=said("Tell me a long story."), stream=True, max_tokens=4000
    )
    with stream:
        next(iter(stream))
    assert client.completions.create(model="sim", prompt="Once", max_tokens=2).choices[0].text
    assert [pid] == model.worker_pids()
    assert "client" in {event.get("cancelled_by") for event in model.events("request.finished")}
