"""The golden table of the cooperative rung."""

from __future__ import annotations

from typing import Literal

import msgspec
import pytest

from supervisord_llm.core import cancellation
from supervisord_llm.core.cancellation import (
    Answer,
    Condemn,
    Decoding,
    Fate,
    FrameTaken,
    Kind,
    PipeBroken,
    State,
    TellDelivered,
    Terminal,
    Terms,
    Timer,
    WorkerGone,
    WriteFrame,
)
from supervisord_llm.core.effects import Arm, Elapsed
from supervisord_llm.core.words import AnsweredBy, QuarantineReason
from tests.core.golden import Expected, Sample, differences, goes, ignores, stays, unexamined

ASKED_AT, NOW = 100.0, 101.5
TERMS = Terms(
    cooperative_grace=2.0,
    prefill_grace=10.0,
    cancellable=True,
    interruptible_prefill=True,
    resend_every=0.25,
)
STUBBORN = Terms(
    cooperative_grace=2.0,
    prefill_grace=10.0,
    cancellable=True,
    interruptible_prefill=False,
    resend_every=0.25,
)
ALONE = Terms(
    cooperative_grace=2.0,
    prefill_grace=10.0,
    cancellable=False,
    interruptible_prefill=False,
    on_uncancellable="detach",
    detach_timeout=60.0,
)
TAKEN, BROKEN, DECODING = FrameTaken(NOW), PipeBroken(NOW), Decoding(NOW)
TERMINAL, GONE = Terminal(NOW), WorkerGone(NOW)
MISSED = Condemn(QuarantineReason.CANCEL_GRACE_MISSED)
UNCANCELLABLE = Condemn(QuarantineReason.UNCANCELLABLE)
PIPE = Condemn(QuarantineReason.CONTROL_PIPE_BROKEN)
ENDS = goes(Kind.OVER)
DELIVERED = stays(TellDelivered(1.5), delivered=True)


def elapsed(timer: Timer, armed_in: Kind, now: float = NOW) -> Elapsed:
    """A timer is over."""
    return Elapsed(timer, armed_in, now)


def state(
    kind: Kind,
    *,
    terms: Terms = TERMS,
    hold_at: float = 102.0,
    patient: bool = False,
    delivered: bool = False,
) -> State:
    """A cancellation that was asked for one and a half seconds ago."""
    return State(
        kind=kind,
        terms=terms,
        asked_at=ASKED_AT,
        hold_at=hold_at,
        patient=patient,
        delivered=delivered,
    )


ASKED_ANSWERS: dict[object, Expected] = {
    BROKEN: goes(Kind.OVER, Answer(), PIPE),
    TERMINAL: ENDS,
    GONE: ENDS,
    elapsed(Timer.RESEND, Kind.ASKED): stays(
        WriteFrame(), Arm(Timer.RESEND, NOW + 0.25, Kind.ASKED)
    ),
    elapsed(Timer.ANSWER, Kind.ASKED, 102.0): goes(
        Kind.HOLDING, Answer(), Arm(Timer.RESEND, 102.25, Kind.HOLDING)
    ),
}
HOLDING_ANSWERS: dict[object, Expected] = {
    BROKEN: goes(Kind.OVER, PIPE),
    TERMINAL: ENDS,
    GONE: ENDS,
    elapsed(Timer.RESEND, Kind.HOLDING): stays(
        WriteFrame(), Arm(Timer.RESEND, NOW + 0.25, Kind.HOLDING)
    ),
    **ignores(elapsed(Timer.RESEND, Kind.ASKED), elapsed(Timer.ANSWER, Kind.ASKED)),
}

SAMPLES = [
    Sample(
        "asked",
        state(Kind.ASKED),
        {
            **ASKED_ANSWERS,
            TAKEN: DELIVERED,
            elapsed(Timer.HOLD, Kind.ASKED, 102.0): goes(Kind.OVER, Answer(), MISSED),
            **ignores(DECODING, elapsed(Timer.HOLD, Kind.ASKED, 101.9)),
        },
    ),
    Sample(
        "asked, a frame was taken",
        state(Kind.ASKED, delivered=True),
        {**ASKED_ANSWERS, **ignores(TAKEN, DECODING)},
    ),
    Sample(
        "asked in a prefill that cannot be interrupted",
        state(Kind.ASKED, terms=STUBBORN, hold_at=110.0, patient=True),
        {
            **ASKED_ANSWERS,
            TAKEN: DELIVERED,
            DECODING: stays(
                Arm(Timer.HOLD, NOW + 2.0, Kind.ASKED), hold_at=NOW + 2.0, patient=False
            ),
            elapsed(Timer.HOLD, Kind.ASKED, 110.0): goes(Kind.OVER, Answer(), MISSED),
            **ignores(elapsed(Timer.HOLD, Kind.ASKED, 109.9)),
        },
    ),
    Sample(
        "asked, such a prefill is over",
        state(Kind.ASKED, terms=STUBBORN, hold_at=103.0),
        {
            **ASKED_ANSWERS,
            elapsed(Timer.HOLD, Kind.ASKED, 103.0): goes(Kind.OVER, Answer(), MISSED),
            **ignores(DECODING),
        },
    ),
    Sample(
        "holding",
        state(Kind.HOLDING),
        {
            **HOLDING_ANSWERS,
            TAKEN: DELIVERED,
            elapsed(Timer.HOLD, Kind.ASKED, 102.0): goes(Kind.OVER, MISSED),
            **ignores(DECODING),
        },
    ),
    Sample(
        "holding, a frame was taken",
        state(Kind.HOLDING, delivered=True),
        {**HOLDING_ANSWERS, **ignores(TAKEN, DECODING)},
    ),
    Sample(
        "holding in a prefill that cannot be interrupted",
        state(Kind.HOLDING, terms=STUBBORN, hold_at=110.0, patient=True),
        {
            **HOLDING_ANSWERS,
            DECODING: stays(
                Arm(Timer.HOLD, NOW + 2.0, Kind.HOLDING), hold_at=NOW + 2.0, patient=False
            ),
            elapsed(Timer.HOLD, Kind.ASKED, 110.0): goes(Kind.OVER, MISSED),
            **ignores(elapsed(Timer.HOLD, Kind.ASKED, 109.9)),
        },
    ),
    Sample(
        "holding, such a prefill is over",
        state(Kind.HOLDING, terms=STUBBORN, hold_at=103.5),
        {
            **HOLDING_ANSWERS,
            elapsed(Timer.HOLD, Kind.HOLDING, 103.5): goes(Kind.OVER, MISSED),
            **ignores(DECODING, elapsed(Timer.HOLD, Kind.ASKED, 102.0)),
        },
    ),
    *(
        Sample(
            "detached",
            state(Kind.DETACHED, terms=ALONE, hold_at=160.0, patient=patient),
            {
                TERMINAL: ENDS,
                GONE: ENDS,
                elapsed(Timer.DETACH, Kind.DETACHED, 160.0): goes(Kind.OVER, UNCANCELLABLE),
                **ignores(TAKEN, BROKEN, DECODING),
                **ignores(
                    *(
                        elapsed(timer, kind, 160.0)
                        for timer in (Timer.RESEND, Timer.ANSWER, Timer.HOLD)
                        for kind in Kind
                    )
                ),
            },
        )
        for patient in (False, True)
    ),
    *(
        Sample(
            "over",
            state(Kind.OVER, terms=STUBBORN, hold_at=hold_at, patient=True, delivered=delivered),
            ignores(
                TAKEN,
                BROKEN,
                DECODING,
                TERMINAL,
                GONE,
                *(elapsed(timer, kind, 110.0) for timer in Timer for kind in Kind),
            ),
        )
        for delivered in (False, True)
        for hold_at in (102.0, 110.0)
    ),
]


def test_every_cell_of_the_cancellation_answers_as_its_row_says() -> None:
    """Next state and effects are those of the rows, in the order of the rows."""
    assert [] == differences(cancellation.TABLE, SAMPLES)


def test_every_cell_of_the_cancellation_has_a_row() -> None:
    """A new cell needs an expectation."""
    assert [] == unexamined(cancellation.TABLE, SAMPLES)


def test_asking_writes_a_frame_and_arms_all_three_deadlines() -> None:
    """A worker that can stop anywhere has one grace, for the answer and for itself."""
    expected = (
        State(
            kind=Kind.ASKED,
            terms=TERMS,
            asked_at=100.0,
            hold_at=102.0,
            patient=False,
            delivered=False,
        ),
        (
            WriteFrame(),
            Arm(Timer.RESEND, 100.25, Kind.ASKED),
            Arm(Timer.ANSWER, 102.0, Kind.ASKED),
            Arm(Timer.HOLD, 102.0, Kind.ASKED),
        ),
    )
    assert expected == cancellation.begin(100.0, TERMS, decoding=False)


@pytest.mark.parametrize(
    ("decoding", "prefill_grace", "hold_at", "patient"),
    [(False, 10.0, 110.0, True), (False, 1.0, 102.0, True), (True, 10.0, 102.0, False)],
)
def test_only_a_prefill_that_cannot_be_interrupted_gets_the_longer_allowance(
    *, decoding: bool, prefill_grace: float, hold_at: float, patient: bool
) -> None:
    """The answer is due as ever; the worker is never condemned before it."""
    terms = Terms(
        cooperative_grace=2.0,
        prefill_grace=prefill_grace,
        cancellable=True,
        interruptible_prefill=False,
    )
    expected = (
        State(kind=Kind.ASKED, terms=terms, asked_at=100.0, hold_at=hold_at, patient=patient),
        (
            WriteFrame(),
            Arm(Timer.RESEND, 100.2, Kind.ASKED),
            Arm(Timer.ANSWER, 102.0, Kind.ASKED),
            Arm(Timer.HOLD, hold_at, Kind.ASKED),
        ),
    )
    assert expected == cancellation.begin(100.0, terms, decoding=decoding)


@pytest.mark.parametrize("decoding", [False, True])
def test_a_worker_that_cannot_be_cancelled_is_condemned_at_once(*, decoding: bool) -> None:
    """Its client is answered in the same breath, and nothing is waited for."""
    terms = Terms(
        cooperative_grace=2.0, prefill_grace=10.0, cancellable=False, interruptible_prefill=False
    )
    expected = (
        State(kind=Kind.OVER, terms=terms, asked_at=100.0, hold_at=100.0),
        (Answer(), Condemn(QuarantineReason.UNCANCELLABLE)),
    )
    assert expected == cancellation.begin(100.0, terms, decoding=decoding)


@pytest.mark.parametrize("decoding", [False, True])
def test_a_worker_that_cannot_be_cancelled_may_be_left_to_end_by_itself(*, decoding: bool) -> None:
    """Its client is answered at once all the same, and its time is bounded."""
    expected = (
        State(kind=Kind.DETACHED, terms=ALONE, asked_at=100.0, hold_at=160.0),
        (Answer(AnsweredBy.DETACH), Arm(Timer.DETACH, 160.0, Kind.DETACHED)),
    )
    assert expected == cancellation.begin(100.0, ALONE, decoding=decoding)


def test_a_worker_that_can_be_cancelled_is_never_left_alone() -> None:
    """What to do with one that cannot be is no matter for it."""
    terms = msgspec.structs.replace(ALONE, cancellable=True)
    state, effects = cancellation.begin(100.0, terms, decoding=True)
    assert Kind.ASKED == state.kind
    assert WriteFrame() == effects[0]


@pytest.mark.parametrize(
    ("wanted", "reload_seconds", "remaining_seconds", "expected"),
    [
        ("terminate", 100.0, 1.0, "terminate"),
        ("terminate", None, None, "terminate"),
        ("detach", 1.0, 100.0, "detach"),
        ("detach", None, None, "detach"),
        ("auto", 5.0, 5.1, "terminate"),
        ("auto", 5.0, 5.0, "detach"),
        ("auto", 5.0, 4.9, "detach"),
        ("auto", None, 100.0, "detach"),
        ("auto", 5.0, None, "detach"),
    ],
)
def test_a_loaded_model_is_given_up_only_where_that_is_known_to_be_faster(
    wanted: Fate | Literal["auto"],
    reload_seconds: float | None,
    remaining_seconds: float | None,
    expected: Fate,
) -> None:
    """A clear word in the configuration is followed; a guess is made only on observed figures."""
    assert expected == cancellation.choose(
        wanted, reload_seconds=reload_seconds, remaining_seconds=remaining_seconds
    )


@pytest.mark.parametrize(
    ("tokens_left", "seconds_per_token", "expected"),
    [(200, 0.05, 10.0), (0, 0.05, 0.0), (-1, 0.05, 0.0), (None, 0.05, None), (200, None, None)],
)
def test_what_a_generation_would_still_take_is_told_only_if_both_figures_are_known(
    tokens_left: int | None, seconds_per_token: float | None, expected: float | None
) -> None:
    """A worker may have written one token more than it was asked for; that takes no time back."""
    assert expected == cancellation.remaining(tokens_left, seconds_per_token)
