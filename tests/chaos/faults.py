"""What clients ask of the sim worker: mostly work, and every fault that it knows."""

from __future__ import annotations

from random import Random

import msgspec

FAULTS: tuple[str, ...] = (
    # Stuck, slow, or not listening.
    "sim.hang=prefill",
    "sim.hang=prefill sim.ignore_cancel sim.ignore_sigterm",
    "sim.hang=decode sim.hang_at={at}",
    "sim.hang=decode sim.hang_at={at} sim.ignore_cancel",
    "sim.ignore_cancel",
    "sim.ignore_cancel sim.ignore_sigterm",
    "sim.ignore_sigterm",
    "sim.late_done={ms}",
    "sim.prefill_ms={ms}",
    "sim.deaf",
    "sim.close_stdout sim.at={at}",
    "sim.pause_at=before_detach:{ms}",
    "sim.pause_at=after_flush:{ms}",
    "sim.pause_at=before_read:{ms}",
    # Deaths.
    "sim.exit=0 sim.at={at}",
    "sim.exit=3 sim.at={at}",
    "sim.exit=3 sim.during=prefill",
    "sim.signal=SEGV sim.at={at}",
    "sim.signal=KILL sim.during=prefill",
    "sim.signal=STOP sim.at={at}",
    "sim.abort sim.at={at}",
    # Wrong output.
    "sim.garbage sim.at={at}",
    "sim.half_line sim.at={at}",
    "sim.big_line=10000000 sim.at={at}",
    "sim.two_dones",
    "sim.stray_done={ms}",
    "sim.error=out_of_luck sim.at={at}",
    # Descendants.
    "sim.spawn=2",
    "sim.spawn_detached=2",
    "sim.spawn_stubborn=2",
    "sim.spawn_escaped=2",
    "sim.spawn_escaped=1 sim.exit=1 sim.at={at}",
    # Nuisances that stay with the worker.
    "sim.stderr_flood=500",
    "sim.stderr=200",
    "sim.leak=2000000",
    "sim.leak=60000000 sim.tokens=100 sim.tps=20",
)

POISON: tuple[str, ...] = (
    "poison sim.exit=3 sim.during=prefill",
    "venom sim.signal=SEGV sim.during=prefill",
)
"""Whole prompts that end every worker that reads them, the same each time."""

ENDLESS: tuple[str, ...] = ("sim.slow=prefill", "sim.tokens=100000 sim.tps=100")
"""Healthy work without an end: only for somebody who will leave or cancel."""


_POISONOUS = 0.01


class Prompt(msgspec.Struct, frozen=True):
    """A prompt, and what is known of its answer."""

    text: str
    endless: bool = False


def ordinary(random: Random) -> Prompt:
    """Work that nothing is wrong with."""
    tokens, rate = random.randint(1, 60), random.choice((0, 50, 200, 1000))
    return Prompt(f"{_words(random)} sim.tokens={tokens} sim.tps={rate}")


def any_(random: Random, *, faulty: float, endless: float) -> Prompt:
    """Work, and with these shares a fault, or no end."""
    if random.random() < _POISONOUS:
        return Prompt(random.choice(POISON))
    dice = random.random()
    if dice < endless:
        return Prompt(f"{_words(random)} {random.choice(ENDLESS)}", endless=True)
    prompt = ordinary(random)
    if dice > endless + faulty:
        return prompt
    fault = random.choice(FAULTS).format(at=random.randint(0, 5), ms=random.randint(1, 800))
    return Prompt(f"{prompt.text} {fault}")


def _words(random: Random) -> str:
    """A prompt of one word, or now and then one that fills a pipe."""
    return "x " * (40_000 if random.random() < 0.02 else random.randint(1, 20))


def answers(text: str) -> bool:
    """Whether this begins as the sim worker's answer does: nothing twice, nothing left out."""
    words = text.split()
    return words == [f"t{number}" for number in range(len(words))]
