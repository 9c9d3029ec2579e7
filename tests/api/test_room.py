from __future__ import annotations

from supervisord_llm.api.room import Room


def test_whoever_has_been_idle_for_longest_makes_room() -> None:
    """Not the one that came first, if it has had a request since."""
    room: Room[str] = Room(3)
    for name in ("a", "b", "c"):
        assert (True, None) == room.admit(name)
    room.mark("a", idle=False)
    room.mark("a", idle=True)
    assert (True, "b") == room.admit("d")
    assert (True, "c") == room.admit("e")
    assert (True, "a") == room.admit("f")
    assert {"d", "e", "f"} == set(room.members())


def test_a_connection_with_a_request_is_left_alone() -> None:
    """If all have one, the newcomer is refused."""
    room: Room[str] = Room(2)
    room.admit("a")
    room.admit("b")
    room.mark("a", idle=False)
    assert (True, "b") == room.admit("c")
    room.mark("c", idle=False)
    assert (False, None) == room.admit("d")
    assert 2 == len(room)


def test_one_that_leaves_makes_room_by_itself() -> None:
    """Busy or idle, and it does not matter how often it is said."""
    room: Room[str] = Room(2)
    room.admit("a")
    room.admit("b")
    room.mark("b", idle=False)
    for name in ("a", "b", "b"):
        room.leave(name)
    assert 0 == len(room)
    assert (True, None) == room.admit("c")


def test_one_that_was_displaced_does_not_come_back() -> None:
    """What it says while it is being closed is nothing to anybody."""
    room: Room[str] = Room(1)
    room.admit("a")
    assert (True, "a") == room.admit("b")
    room.mark("a", idle=False)
    room.mark("a", idle=True)
    assert ["b"] == room.members()
