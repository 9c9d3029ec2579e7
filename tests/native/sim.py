"""One sim worker on its pipes, as the daemon would hold it, for a test to talk to."""

from __future__ import annotations

import json
import os
import selectors
import struct
import subprocess
import sysconfig
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

Message = dict[str, Any]

PATIENCE = 30.0  # seconds for any one message; only a hung worker uses it up

PLAIN: dict[str, str] = {}
"""The environment of a worker whose supervisor knows no extension."""

KNOWN = {"SUPERVISORD_LLM_PROTOCOL": "1", "SUPERVISORD_LLM_HEARTBEAT_MS": "3600000"}
"""One that knows them, with heartbeats too rare to come between what a test reads."""

BEATING = {"SUPERVISORD_LLM_PROTOCOL": "1", "SUPERVISORD_LLM_HEARTBEAT_MS": "10"}


def program(name: str) -> str:
    """A built binary, where the daemon looks for it."""
    path = Path(sysconfig.get_path("scripts")) / name
    assert path.exists(), f"no {path}; run `make build`"
    return str(path)


class SimWorker:
    """A running worker. Every wait is bounded by PATIENCE."""

    def __init__(self, process: subprocess.Popen[bytes], control: int) -> None:
        """Take over a process with pipes for all streams, and the control pipe's write end."""
        assert process.stdin is not None
        assert process.stdout is not None
        self.process = process
        self._control: int | None = control
        self._stdin = process.stdin
        self._stdout = process.stdout
        self._pending = b""
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._stdout, selectors.EVENT_READ)

    def send_line(self, line: str | bytes) -> None:
        """Write one line as it is."""
        data = line if isinstance(line, bytes) else line.encode()
        self._stdin.write(data + b"\n")

    def send(self, **message: object) -> None:
        """Write one request."""
        self.send_line(json.dumps(message))

    def _more(self) -> bytes:
        ready = self._selector.select(PATIENCE)
        assert ready, f"nothing came for {PATIENCE} s, behind {self._pending!r}"
        data = os.read(self._stdout.fileno(), 65536)
        self._pending += data
        return data

    def receive_line(self) -> str:
        """The next line, without its end."""
        while b"\n" not in self._pending:
            assert self._more(), f"stdout ended behind {self._pending!r}"
        line, _, self._pending = self._pending.partition(b"\n")
        return line.decode()

    def receive(self) -> Message:
        """The next message of any kind."""
        message = json.loads(self.receive_line())
        assert isinstance(message, dict)
        return message

    def receive_until(self, wanted: Callable[[Message], bool]) -> list[Message]:
        """All messages up to and with the first wanted one."""
        messages = [self.receive()]
        while not wanted(messages[-1]):
            messages.append(self.receive())
        return messages

    def receive_rest(self) -> bytes:
        """All that is left until stdout ends."""
        while self._more():
            pass
        rest, self._pending = self._pending, b""
        return rest

    def ask(self, **message: object) -> Message:
        """Send a request and return the next message."""
        self.send(**message)
        return self.receive()

    def finish(self) -> tuple[str, Message]:
        """The text and the terminal of the request in hand."""
        messages = self.receive_until(lambda message: "done" in message or "error" in message)
        return "".join(message.get("token", "") for message in messages), messages[-1]

    def generate(self, prompt: str, **fields: object) -> tuple[str, Message]:
        """Send one request and return its text and its terminal."""
        self.send(prompt=prompt, **fields)
        return self.finish()

    def cancel(self, request: int) -> None:
        """Write one cancel frame."""
        self.send_control(struct.pack("<Q", request))

    def send_control(self, data: bytes) -> None:
        """Write bytes to the control pipe."""
        assert self._control is not None
        os.write(self._control, data)

    def close_control(self) -> None:
        """Close our end of the control pipe."""
        if self._control is not None:
            os.close(self._control)
        self._control = None

    def leave(self) -> int:
        """Close stdin, and the exit status that follows."""
        self._stdin.close()
        return self.process.wait(PATIENCE)

    def wait(self) -> int:
        """The exit status of a worker that ends by itself."""
        return self.process.wait(PATIENCE)

    def stop_reading(self) -> None:
        """Close our end of stdout."""
        self._selector.close()
        self._stdout.close()

    def stderr(self) -> str:
        """All of stderr, once the worker has ended."""
        assert self.process.stderr is not None
        return self.process.stderr.read().decode()

    def close(self) -> None:
        """End the process if it still runs, and close everything."""
        self._selector.close()
        self.close_control()
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for stream in (self._stdin, self._stdout, self.process.stderr):
            if stream is not None:
                stream.close()


@contextmanager
def start(*options: str, env: dict[str, str] = KNOWN, cancel: bool = True) -> Iterator[SimWorker]:
    """A worker that has just been started, with or without a control pipe."""
    read_end, write_end = os.pipe()
    control = {"EXECUTORCH_LLM_WORKER_CONTROL_FD": str(read_end)} if cancel else {}
    mark = {name: os.environ[name] for name in ("SUPERVISORD_LLM_TEST",) if name in os.environ}
    try:
        process = subprocess.Popen(
            [program("sllm-sim-worker"), *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=[read_end],
            env={**env, **control, **mark},
            start_new_session=True,
            bufsize=0,
        )
    finally:
        os.close(read_end)
    worker = SimWorker(process, write_end)
    try:
        yield worker
    finally:
        worker.close()


@contextmanager
def ready(*options: str, env: dict[str, str] = KNOWN, cancel: bool = True) -> Iterator[SimWorker]:
    """A worker that has said that it is ready; on a good end it must leave with status 0."""
    with start(*options, env=env, cancel=cancel) as worker:
        worker.receive_until(lambda message: "ready" in message)
        yield worker
        assert worker.leave() == 0


def wait_until(condition: Callable[[], bool]) -> None:
    """Look again until it holds, for what nothing tells of (the state of another process)."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "the condition never held"
        time.sleep(0.005)
