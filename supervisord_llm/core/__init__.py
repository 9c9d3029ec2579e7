"""The pure core: decides everything, touches nothing.

Each machine here is a total table. ``step(state, event)`` returns the next state and the effects to
perform; every state answers every event with a move, with "heard and ignored", or with ``Illegal``,
which is our own bug and raises. No machine reads a clock, sends a signal or knows trio: time
arrives inside events (``now``, in seconds on one monotonic clock) and leaves as ``Arm`` effects,
and a timer that fires late finds a state in which it changes nothing, so nobody ever has to win a
race to cancel one.

Effects are attached to moves, not to arrivals in a state, and are frozen values that the runtime
performs without judgement of its own.

The alternative, callbacks inside transitions, was not taken: every test would need a process.
"""
