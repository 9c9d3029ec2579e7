from __future__ import annotations

import os
import socket

import pytest

from supervisord_llm.host.peers import Peer, TcpPeer, peer_of, tcp_peer_of


def test_the_peer_is_the_process_that_connected() -> None:
    """The kernel says who it is; the descriptor stays open and usable."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        expected = Peer(uid=os.getuid(), gid=os.getgid(), pid=os.getpid())
        assert expected == peer_of(ours.fileno())
        theirs.sendall(b"x")
        assert b"x" == ours.recv(1)


def test_another_process_is_told_apart() -> None:
    """A process that connects by itself has its own pid there."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(b"\0" + os.urandom(8).hex().encode())
        listener.listen()
        pid = os.fork()
        if pid == 0:
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(listener.getsockname())
            os._exit(0)
        connection, _ = listener.accept()
        with connection:
            peer = peer_of(connection.fileno())
        os.waitpid(pid, 0)
    assert pid == peer.pid


def test_what_is_no_unix_socket_has_no_peer() -> None:
    """A descriptor of another kind raises, and is not closed."""
    read, write = os.pipe()
    try:
        with pytest.raises(OSError, match="socket"):
            peer_of(read)
        assert 1 == os.write(write, b"x")
    finally:
        os.close(read)
        os.close(write)


def test_a_peer_reads_as_a_line() -> None:
    """The text that events carry."""
    assert "uid=1 gid=2 pid=3" == str(Peer(uid=1, gid=2, pid=3))


def test_a_tcp_peer_is_an_address() -> None:
    """The one that the client has itself; the descriptor stays open and usable."""
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.create_connection(listener.getsockname()) as client,
    ):
        accepted, _ = listener.accept()
        with accepted:
            host, port = client.getsockname()
            assert TcpPeer(host=host, port=port) == tcp_peer_of(accepted.fileno())
            client.sendall(b"x")
            assert b"x" == accepted.recv(1)


def test_a_tcp_socket_without_a_peer_has_none() -> None:
    """Its other side has left meanwhile, say."""
    with socket.socket() as unconnected, pytest.raises(OSError, match="not connected"):
        tcp_peer_of(unconnected.fileno())


def test_each_peer_is_somebody_who_takes_turns() -> None:
    """All processes of a user are one, and all connections of an address."""
    assert "uid:1" == Peer(uid=1, gid=2, pid=3).client
    assert "tcp:::1" == TcpPeer(host="::1", port=3).client


def test_a_tcp_peer_reads_as_an_address_is_written() -> None:
    """The text that events carry."""
    assert "tcp:127.0.0.1:3" == str(TcpPeer(host="127.0.0.1", port=3))
    assert "tcp:[::1]:3" == str(TcpPeer(host="::1", port=3))
