"""What a worker and a client can make the daemon hold, at its most.

Each of these looks as if it had no end. That lines, logs, heads, bodies, connections and unread
output are bounded is tested where they are: `tests/wire`, `tests/runtime` and `tests/api`.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from supervisord_llm.core.words import FailureReason
from supervisord_llm.events import RequestFinished, WorkerQuarantined
from supervisord_llm.schema import GenerateRequest
from tests.api.house import ask, house, read
from tests.harness import QUICK

# Says as much as one line may hold, at each point where it may say something.
VERBOSE = """
import json, sys
def say(**fields):
    print(json.dumps(fields), flush=True)
MUCH = "x" * (2**20 - 5000)
say(ready=True, extensions=["model"] + ["made-up"] * 50000, model=dict(id="m", made_up=MUCH[:1000]))
for line in sys.stdin:
    if "sim.refuse" in line:
        say(error=MUCH, code=MUCH[:1000])
    elif "sim.noise" in line:
        print(MUCH, flush=True)
    elif "sim.mutter" in line:
        print(MUCH, MUCH, MUCH, file=sys.stderr, flush=True)
        say(done=True, finish_reason="stop", prompt_tokens=1, completion_tokens=0)
"""


def verbose(folder: Path) -> list[str]:
    """The command of such a worker."""
    script = folder / "worker.py"
    script.write_text(VERBOSE)
    return [sys.executable, "-S", "-E", str(script)]


async def test_a_verbose_worker_fills_neither_the_log_nor_the_records(tmp_path: Path) -> None:
    """Its errors, its nonsense and its muttering are kept as a few hundred bytes, or cut."""
    async with house(tmp_path, command=verbose(tmp_path)) as made:
        for prompt, error in (
            ("sim.refuse", FailureReason.ENGINE_ERROR),
            ("sim.mutter", None),
            ("sim.noise", FailureReason.PROTOCOL_ERROR),
        ):
            async with made.client.generate(ask(prompt)) as stream:
                _, finished = await read(stream)
            assert (finished.error and finished.error.code) == error
        await made.wait(RequestFinished, count=3)
        quarantined = await made.wait(WorkerQuarantined)
        assert quarantined.reason == "protocol_error"
        assert max(len(encoded) for encoded in made.ring.between(1, made.ring.last_seq)) < 40_000
        requests = await made.client.requests()
        assert max(len(repr(request)) for request in requests.requests) < 10_000
        [worker] = (await made.client.workers()).workers
        assert len(repr(worker)) < 10_000


@pytest.mark.parametrize("depth", [2000, 500_000])
async def test_nested_bodies_are_refused_and_harm_nobody(tmp_path: Path, depth: int) -> None:
    """However deep they are: in a field that is known, in one that is not, and in no field."""
    async with house(tmp_path) as made:
        nested = "[" * depth + "]" * depth
        for body in (nested, f'{{"prompt":{nested}}}', f'{{"x":{nested}}}', "{" * depth):
            for path in ("/api/v1/generate", "/api/v1/pools/sim/scale"):
                reply = await made.client._http.post(path, content=body)
                assert reply.status_code == 400
                assert len(reply.content) < 1000
        async with made.client.generate(ask("x sim.tokens=1")) as stream:
            assert (await read(stream))[1].outcome == "completed"
        assert max(len(encoded) for encoded in made.ring.between(1, made.ring.last_seq)) < 40_000


async def test_sessions_of_clients_are_bounded_by_what_a_worker_holds(tmp_path: Path) -> None:
    """A client that names a new one each time makes the worker forget the oldest."""
    async with house(tmp_path, "--sessions 2", settings=QUICK) as made:
        for number in range(30):
            asked = GenerateRequest(
                pool="sim", prompt="x", session_id=f"s{number}", max_new_tokens=1
            )
            async with made.client.generate(asked) as stream:
                await read(stream)
        assert (await made.client.pool("sim")).sessions <= 2
