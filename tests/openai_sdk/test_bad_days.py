"""What goes wrong behind the front, as an application with the ``openai`` library meets it."""

from __future__ import annotations

import threading
from pathlib import Path

import openai
import pytest

from tests.openai_sdk.conftest import said, serving

FOREVER = "a sim.tokens=90000 sim.tps=200"


def test_a_failure_behind_the_first_output_is_an_error_of_the_stream(tmp_path: Path) -> None:
    """What came before it was shown."""
    content = said("a sim.tokens=20 sim.tps=200 sim.exit=3 sim.at=5")
    with serving(tmp_path) as served, served.over_tcp() as client:
        stream = client.chat.completions.create(model="sim", messages=content, stream=True)
        begun = next(text for chunk in stream if (text := chunk.choices[0].delta.content))
        with pytest.raises(openai.APIError) as caught:
            list(stream)
    assert not isinstance(caught.value, openai.APIStatusError)
    assert "worker_failed" == caught.value.code
    assert begun.startswith("t0 ")


def test_the_library_asks_again_what_a_lost_worker_left(tmp_path: Path) -> None:
    """502 says so with `x-should-retry`, as often as the application lets it."""
    with serving(tmp_path) as served:
        with (
            served.over_tcp(max_retries=1) as client,
            pytest.raises(openai.InternalServerError) as caught,
        ):
            client.chat.completions.create(
                model="sim", messages=said("a sim.exit=3 sim.during=prefill")
            )
        served.wait_idle()
        tries = served.daemon.events("request.accepted")
    assert (502, "worker_failed") == (caught.value.status_code, caught.value.code)
    assert 2 == len(tries)


def test_a_full_queue_is_waited_for(tmp_path: Path) -> None:
    """429 at first; once there is room, the library's next try is answered."""
    with (
        serving(tmp_path, settings="queue.max_queued = 1") as served,
        served.over_tcp() as busy,
        served.over_tcp(max_retries=5) as patient,
    ):
        streams = [
            busy.chat.completions.create(model="sim", messages=said(FOREVER), stream=True)
            for _ in range(2)
        ]
        waiting = threading.Thread(
            target=lambda: list(
                busy.completions.create(model="sim", prompt="a", max_tokens=1, stream=True)
            )
        )
        waiting.start()
        served.wait_served("queued")
        with pytest.raises(openai.RateLimitError) as caught:
            busy.completions.create(model="sim", prompt="b")
        assert "queue_full" == caught.value.code
        assert int(caught.value.response.headers["retry-after"]) >= 1

        answers: list[str] = []
        asking = threading.Thread(
            target=lambda: answers.append(
                patient.completions.create(model="sim", prompt="c", max_tokens=1).choices[0].text
            )
        )
        asking.start()
        served.daemon.wait("request.rejected", 2)
        for stream in streams:
            stream.close()
        waiting.join()
        asking.join()
    assert ["t0 "] == answers


def test_a_drained_pool_is_told_as_unavailable(tmp_path: Path) -> None:
    """503, which is worth another try, and the pool's name."""
    with serving(tmp_path) as served:
        assert served.daemon.client.post("/api/v1/pools/sim/drain").is_success
        with (
            served.over_tcp() as client,
            pytest.raises(openai.InternalServerError, match="sim") as caught,
        ):
            client.completions.create(model="sim", prompt="a")
    assert (503, "pool_unavailable") == (caught.value.status_code, caught.value.code)
    assert caught.value.response.headers["retry-after"]


def test_an_application_that_gives_up_frees_its_worker(tmp_path: Path) -> None:
    """The library's own timeout closes the connection in the middle of a whole answer."""
    with serving(tmp_path) as served:
        with (
            served.over_tcp(timeout=0.3) as client,
            pytest.raises(openai.APITimeoutError),
        ):
            client.chat.completions.create(model="sim", messages=said(FOREVER))
        finished = served.daemon.wait("request.finished")
        served.wait_idle()
        assert ("cancelled", "client") == (finished["outcome"], finished["cancelled_by"])
        assert not served.daemon.events("worker.quarantined")


def test_a_withdrawn_key_ends_no_stream(tmp_path: Path) -> None:
    """What was let in goes on; the next request is refused."""
    with serving(tmp_path) as served, served.over_tcp() as client:
        stream = client.completions.create(
            model="sim", prompt="a sim.tokens=90000 sim.tps=200", stream=True, max_tokens=90_000
        )
        next(iter(stream))
        (tmp_path / "keys").write_text("# nobody\n")
        assert served.daemon.client.post("/api/v1/config/reload").is_success
        with pytest.raises(openai.AuthenticationError):
            client.models.list()
        assert next(iter(stream)).choices
        stream.close()
        served.daemon.wait("request.finished")
        served.wait_idle()
