"""Which worker holds which session."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from supervisord_llm.core import sessions
from supervisord_llm.core.sessions import Placement, State


def after(*uses: tuple[str, str, float]) -> State:
    """Sessions that were used on slots at times."""
    state = State()
    for session, slot, at in uses:
        state = sessions.used(state, session, slot, 1, at)
    return state


def test_a_session_is_where_it_was_used_last() -> None:
    """What it left elsewhere is still there, and counts there."""
    state = after(("a", "p.0", 1.0), ("b", "p.0", 2.0), ("a", "p.1", 3.0))
    assert Placement("a", "p.1", 1, 3.0) == sessions.place(state, "a")
    assert ["p.0", "p.1"] == [each.slot for each in sessions.places(state, "a")]
    assert (2, 1, 2) == (
        sessions.count(state, "p.0"),
        sessions.count(state, "p.1"),
        sessions.total(state),
    )
    assert sessions.place(state, "c") is None
    assert [] == sessions.places(state, "c")


def test_a_session_falls_back_on_what_it_left() -> None:
    """The old context is the beginning of the conversation, and warm as far as it goes."""
    state = sessions.dropped(after(("a", "p.0", 1.0), ("a", "p.1", 2.0)), "p.1")
    assert Placement("a", "p.0", 1, 1.0) == sessions.place(state, "a")


def test_a_worker_takes_what_it_held_with_it() -> None:
    """Of its slot nothing is left, of others everything."""
    state = after(("a", "p.0", 1.0), ("b", "p.1", 2.0), ("c", "p.0", 3.0))
    assert after(("b", "p.1", 2.0)) == sessions.dropped(state, "p.0")


def test_an_earlier_generation_holds_nothing() -> None:
    """Also if nobody told of its end."""
    state = sessions.used(after(("a", "p.0", 1.0), ("b", "p.1", 2.0)), "c", "p.0", 2, 3.0)
    assert sessions.place(state, "a") is None
    assert Placement("b", "p.1", 1, 2.0) == sessions.place(state, "b")
    assert Placement("c", "p.0", 2, 3.0) == sessions.place(state, "c")


def test_a_session_is_closed_on_one_slot_or_on_all() -> None:
    """Other sessions stay."""
    state = after(("a", "p.0", 1.0), ("a", "p.1", 2.0), ("b", "p.0", 3.0))
    assert after(("a", "p.1", 2.0), ("b", "p.0", 3.0)) == sessions.closed(state, "a", "p.0")
    assert after(("b", "p.0", 3.0)) == sessions.closed(state, "a")


def test_the_session_that_was_not_used_for_longest_makes_room() -> None:
    """Unless it is busy; and only if there is no room and the new one is not there yet."""
    state = after(("a", "p.0", 1.0), ("b", "p.0", 2.0), ("c", "p.1", 0.5), ("a", "p.0", 3.0))
    assert "b" == sessions.victim(state, "p.0", "d", 2)
    assert "a" == sessions.victim(state, "p.0", "d", 2, {"b"})
    assert sessions.victim(state, "p.0", "d", 2, {"a", "b"}) is None
    assert sessions.victim(state, "p.0", "d", 3) is None
    assert sessions.victim(state, "p.0", "a", 2) is None
    assert "c" == sessions.victim(state, "p.1", "a", 1)
    assert sessions.victim(State(), "p.0", "a", 0) is None


def test_what_is_not_used_for_its_time_expires() -> None:
    """At the time that is told and not before; a busy one does not."""
    state = after(("a", "p.0", 1.0), ("b", "p.0", 2.0), ("a", "p.1", 4.0))
    assert 11.0 == sessions.next_expiry(state, 10.0)
    assert [] == sessions.expired(state, 10.0, 10.9)
    assert [Placement("a", "p.0", 1, 1.0)] == sessions.expired(state, 10.0, 11.0)
    assert 12.0 == sessions.next_expiry(state, 10.0, {"a"})
    assert [Placement("b", "p.0", 1, 2.0)] == sessions.expired(state, 10.0, 99.0, {"a"})
    assert sessions.next_expiry(state, 10.0, {"a", "b"}) is None


names = st.sampled_from("abcdef")
slots = st.sampled_from(["p.0", "p.1"])


@given(
    steps=st.lists(
        st.one_of(
            st.tuples(st.just("use"), names, slots),
            st.tuples(st.just("close"), names, slots | st.none()),
            st.tuples(st.just("drop"), st.just(""), slots),
        )
    )
)
def test_the_books_agree_with_what_the_workers_hold(
    steps: list[tuple[str, str, str | None]],
) -> None:
    """Workers of two places each are never asked for a third session, whatever happens."""
    state = State()
    generations = {"p.0": 1, "p.1": 1}
    held: dict[str, list[str]] = {"p.0": [], "p.1": []}
    for now, (step, session, slot) in enumerate(steps):
        if step == "use":
            assert slot is not None
            if (victim := sessions.victim(state, slot, session, 2)) is not None:
                assert victim == held[slot].pop(0)
                state = sessions.closed(state, victim, slot)
            state = sessions.used(state, session, slot, generations[slot], float(now))
            held[slot] = [each for each in held[slot] if each != session] + [session]
        elif step == "close":
            state = sessions.closed(state, session, slot)
            for name in held if slot is None else [slot]:
                held[name] = [each for each in held[name] if each != session]
        else:
            assert slot is not None
            state = sessions.dropped(state, slot)
            generations[slot] += 1
            held[slot] = []
        for name, expected in held.items():
            assert len(expected) <= 2
            assert expected == [each.session for each in state.placements if each.slot == name]
