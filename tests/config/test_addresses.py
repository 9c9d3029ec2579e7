from __future__ import annotations

import pytest

from supervisord_llm.config.addresses import Address, TcpAddress, UnixAddress, parse_address


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("unix:/run/a//b.sock", UnixAddress("/run/a/b.sock")),
        ("tcp:127.0.0.1:8000", TcpAddress("127.0.0.1", 8000)),
        ("tcp:localhost:8000", TcpAddress("127.0.0.1", 8000)),
        ("tcp:0.0.0.0:0", TcpAddress("0.0.0.0", 0)),
        ("tcp:[::1]:65535", TcpAddress("::1", 65535)),
        ("tcp:[0:0::1]:80", TcpAddress("::1", 80)),
        ("tcp:[fe80::1%lo]:80", TcpAddress("fe80::1%lo", 80)),
    ],
)
def test_an_address_is_read(text: str, expected: Address) -> None:
    """What means the same is the same."""
    assert expected == parse_address(text)


@pytest.mark.parametrize(
    "text", ["tcp:127.0.0.1:80", "tcp:[::1]:80", "tcp:[fe80::1%lo]:80", "tcp:0.0.0.0:0"]
)
def test_an_address_is_shown_as_it_is_written(text: str) -> None:
    """People may copy it into the configuration."""
    assert text == str(parse_address(text))


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("tcp:127.0.0.1", 'write "tcp:", an IP address or localhost, and a port'),
        ("tcp:127.0.0.1:http", 'write "tcp:", an IP address or localhost, and a port'),
        ("tcp:::1:80", 'or "tcp:[::1]:8000"'),
        ("tcp:[::1]", 'write "tcp:", an IP address or localhost, and a port'),
        ("tcp::80", "is no IP address; write one"),
        ("tcp:*:80", "0.0.0.0 and [::] are all of this machine's"),
        ("tcp:[127.0.0.1]:80", "is no IP address"),
        ("tcp:example.org:80", '"example.org" is no IP address'),
        ("tcp:127.0.0.1:65536", "a port is at most 65535"),
        ("tcp:[::ffff:127.0.0.1]:80", "write tcp:127.0.0.1:80"),
        ("127.0.0.1:80", 'or "tcp:", an IP address'),
        ("unix:", "the absolute path of a socket"),
        ("unix:a.sock", "the absolute path of a socket"),
        (f"unix:/{'x' * 107}", "choose a shorter one"),
    ],
)
def test_what_is_no_address_is_told_with_what_to_write(text: str, remedy: str) -> None:
    """Each fault has its own sentence."""
    with pytest.raises(ValueError, match=r"^cannot listen on ") as caught:
        parse_address(text)
    assert remedy in str(caught.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("tcp:127.8.9.1:80", True),
        ("tcp:localhost:80", True),
        ("tcp:[::1]:80", True),
        ("tcp:0.0.0.0:80", False),
        ("tcp:[::]:80", False),
        ("tcp:192.168.0.1:80", False),
    ],
)
def test_loopback_is_what_no_other_machine_reaches(text: str, expected: bool) -> None:
    """All addresses of the machine include those that others reach."""
    address = parse_address(text)
    assert isinstance(address, TcpAddress)
    assert expected == address.loopback
