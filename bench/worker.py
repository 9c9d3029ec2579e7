"""A worker on bare pipes, as the daemon would start it, for a floor to read."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

import msgspec

from bench.processes import PATIENCE, SCRIPTS, SIM
from supervisord_llm.wire.control_frame import encode_cancel


class BareWorker:
    """A ready worker; ``stdout`` is the descriptor of its output, non-blocking."""

    def __init__(self, process: subprocess.Popen[bytes], control: int) -> None:
        """Take over a process with piped stdin and stdout, and wait for its ready line."""
        self._control = control
        assert process.stdin is not None
        assert process.stdout is not None
        self._stdin = process.stdin.fileno()
        self.stdout = process.stdout.fileno()
        self.ready = b""
        while not self.ready.endswith(b"\n"):
            piece = os.read(self.stdout, 65536)
            if not piece:
                raise EOFError("the worker ended before it was ready")
            self.ready += piece
        os.set_blocking(self.stdout, False)

    def generate(self, wire_id: int, prompt: str) -> None:
        """Ask for a generation; it must fit into the pipe."""
        fields = {"prompt": prompt, "max_new_tokens": 100_000_000, "cancel_request_id": wire_id}
        os.write(self._stdin, msgspec.json.encode(fields) + b"\n")

    def cancel(self, wire_id: int) -> None:
        """Write the frame that cancels a generation."""
        os.write(self._control, encode_cancel(wire_id))


@contextmanager
def bare_workers(count: int) -> Iterator[list[BareWorker]]:
    """Run ready sim workers; they end with the end of their input."""
    with ExitStack() as stack:
        yield [stack.enter_context(bare_worker(SIM)) for _ in range(count)]


@contextmanager
def bare_worker(command: Sequence[str]) -> Iterator[BareWorker]:
    """Run one ready worker of any kind."""
    control_read, control_write = os.pipe()
    try:
        process = subprocess.Popen(
            [SCRIPTS / command[0], *command[1:]],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            pass_fds=[control_read],
            env={
                **os.environ,
                "SUPERVISORD_LLM_PROTOCOL": "1",
                "SUPERVISORD_LLM_HEARTBEAT_MS": "500",
                "EXECUTORCH_LLM_WORKER_CONTROL_FD": str(control_read),
            },
        )
    finally:
        os.close(control_read)
    try:
        yield BareWorker(process, control_write)
    finally:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        process.stdout.close()
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        os.close(control_write)
