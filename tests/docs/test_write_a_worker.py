"""What the documentation tells the writers of workers is what the daemon speaks."""

from __future__ import annotations

import copy
import re

import msgspec
import pytest

from supervisord_llm.core.words import Extension
from supervisord_llm.runtime import process
from supervisord_llm.wire.control_frame import encode_cancel
from supervisord_llm.wire.messages import PROBE_SESSION, Generate, Malformed, SessionOp
from supervisord_llm.wire.serial import SerialConnection
from tools.generated import ROOT

TEXT = (ROOT / "docs" / "write-a-worker.md").read_text(encoding="utf-8")
ECHO = ROOT / "native" / "examples" / "echo"


def blocks(language: str) -> list[str]:
    """The fenced blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)


class Play:
    """Both sides of a conversation in the documentation, with the daemon's real codec."""

    def __init__(self) -> None:
        """Nobody has said anything."""
        self.connection = SerialConnection(max_line=2**20, dialect="auto")
        self.wire_id = 0

    def speak(self, line: str) -> None:
        """Say one line of the conversation, and see that the codec takes or makes it."""
        who, _, said = line.partition(":")
        match who:
            case "worker":
                (message,) = self.connection.receive(said.strip().encode() + b"\n")
                assert not isinstance(message, Malformed), message
            case "daemon":
                wanted = msgspec.json.decode(said)
                assert wanted == msgspec.json.decode(self._send(dict(wanted)))
            case "control":
                assert bytes.fromhex(said) == encode_cancel(self.wire_id)
            case "refused":
                heard = copy.deepcopy(self.connection).receive(said.strip().encode() + b"\n")
                assert [Malformed] == [type(message) for message in heard]
            case _:
                pytest.fail(f"nobody is called {who!r}")

    def _send(self, fields: dict[str, object]) -> bytes:
        match fields.get("op"):
            case "close" if fields["session_id"] == PROBE_SESSION:
                return self.connection.send_probe()
            case "open" | "close" | "reset" as op:
                send = getattr(self.connection, f"send_{op}")
                line: bytes = send(fields["session_id"])
                return line
            case "ping":
                return self.connection.send_ping(msgspec.convert(fields["nonce"], int))
            case _:
                pass
        self.wire_id = msgspec.convert(fields.pop("cancel_request_id", self.wire_id + 1), int)
        if "prompt_segments" in fields:
            (segment,) = msgspec.convert(fields.pop("prompt_segments"), list[dict[str, list[int]]])
            fields["prompt"] = segment["ids"]
        generate = msgspec.convert(fields, Generate)
        assert fields == {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in msgspec.structs.asdict(generate).items()
            if value is not None
        }
        return self.connection.send_generate(generate, self.wire_id)


@pytest.mark.parametrize("number", range(5))
def test_the_daemon_speaks_as_the_examples_do(number: int) -> None:
    """Each worker's line is understood, each of the daemon's is what it would send."""
    play = Play()

    for line in blocks("text")[number].splitlines():
        play.speak(line)


def test_all_examples_are_played() -> None:
    """A conversation that is added to the page is added above."""
    assert 5 == len(blocks("text"))


@pytest.mark.parametrize(
    "wrong",
    [
        'worker: {"token": "for nobody"}',
        'worker: {"opened": true, "session_id": "trip"}',
        'daemon: {"op": "forget", "session_id": "trip"}',
        'refused: {"heartbeat": {"phase": "load", "beats": 1}}',
        'daemon: {"prompt": "Hi"}',
        'daemon: {"prompt": "Hi", "stop": [], "tone": "friendly"}',
        "control: 02 00 00 00 00 00 00 00",
        "somebody: {}",
    ],
)
def test_an_example_that_is_wrong_is_noticed(wrong: str) -> None:
    """The play takes neither a line that the codec refuses nor one that it would not send."""
    play = Play()
    play.speak('worker: {"ready": true, "supports_cancel": true, "extensions": ["heartbeat"]}')
    play.speak('daemon: {"prompt": "Hi", "stop": [], "cancel_request_id": 1}')
    play.speak('worker: {"done": true, "finish_reason": "stop", "prompt_tokens": 1, '
               '"completion_tokens": 0}')  # fmt: skip

    with pytest.raises((AssertionError, msgspec.ValidationError, pytest.fail.Exception)):
        play.speak(wrong)


@pytest.mark.parametrize("op", SessionOp)
def test_every_operation_on_a_session_is_shown(op: SessionOp) -> None:
    """Each is asked for in some conversation, and answered there."""
    asked = re.findall(rf'^daemon: \{{"op": "{op}", "session_id": "(?!__)', TEXT, re.MULTILINE)

    assert asked


def test_every_extension_is_explained() -> None:
    """Each has a row, and no other has one."""
    table = TEXT.partition("| extension |")[2].partition("\n\n")[0]

    assert [each.value for each in Extension] == re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)


@pytest.mark.parametrize(
    "variable",
    [process.PROTOCOL_VARIABLE, process.HEARTBEAT_VARIABLE, process.CONTROL_VARIABLE],
)
def test_the_variables_are_called_as_they_are(variable: str) -> None:
    """A worker finds what it is told in the variables that the page names."""
    assert f"`{variable}" in TEXT


def test_the_code_that_is_shown_is_that_of_the_example() -> None:
    """Each piece of C++ and CMake on the page stands in the example, word for word."""
    source = (ECHO / "main.cpp").read_text(encoding="utf-8")
    project = (ECHO / "CMakeLists.txt").read_text(encoding="utf-8")

    assert [] == [each for each in blocks("cpp") if each not in source]
    assert [] == [each for each in blocks("cmake") if each not in project]
    assert 4 == len(blocks("cpp") + blocks("cmake"))
