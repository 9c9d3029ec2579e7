"""Stop strings found in a text as it is made, so that nothing of one is ever shown.

Workers look for them too, at their token boundaries. This is the backstop behind workers that do
not, or that see one only after a part of it has gone out. It decides as ours do: the stop string
that is complete first wins, because generation ends there, and of several complete at once the one
that begins first, because the others are inside it.

Each string has a Knuth-Morris-Pratt automaton, so a character costs constant time on average, for
strings made to be slow as well; while none has begun, text is leapt over by its first characters.
The alternative, searching the held text and the new one at each token, was not taken: it reads what
is held again for each of them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence


class StopGuard:
    """Shows a text up to the first stop string, wherever the text is cut on its way here."""

    def __init__(self, stops: Sequence[str]) -> None:
        """Start at the beginning of a text.

        Args:
            stops: what ends it; none of them is empty.
        """
        assert all(stops)
        self._words = [_Word(each) for each in dict.fromkeys(stops)]
        firsts = "".join(re.escape(each.word[0]) for each in self._words)
        self._begins = re.compile(f"[{firsts}]") if firsts else None
        self._held = ""
        self._stopped = False

    @property
    def stopped(self) -> bool:
        """Whether a stop string was found: no more is shown, and no more need be made."""
        return self._stopped

    def feed(self, text: str) -> str:
        """Take the next piece of the text and return what may be shown now.

        Held back is the longest end of the text that may become a stop string, and no more.
        """
        if self._begins is None:
            return text
        if self._stopped:
            return ""
        before = len(self._held)
        known = self._held + text
        self._held = ""
        at = before
        while at < len(known):
            if not any(each.matched for each in self._words):
                begin = self._begins.search(known, at)
                if begin is None:
                    return known
                at = begin.start()
            char = known[at]
            at += 1
            # Each must hear each character, so the list is made before anything is asked of it.
            complete = [len(each.word) for each in self._words if each.advance(char)]
            if complete:
                self._stopped = True
                return known[: at - max(complete)]
        shown = len(known) - max(each.matched for each in self._words)
        self._held = known[shown:]
        return known[:shown]

    def finish(self) -> str:
        """Return what was held back: the text has ended by itself, so it is no stop string."""
        held, self._held = self._held, ""
        return held


class _Word:
    """A stop string and how much of it the text ends with."""

    __slots__ = ("_fallback", "matched", "word")

    def __init__(self, word: str) -> None:
        self.word = word
        self.matched = 0
        self._fallback = _fallback(word)

    def advance(self, char: str) -> bool:
        """Take the next character; whether the string is complete with it."""
        matched = self.matched
        while matched and self.word[matched] != char:
            matched = self._fallback[matched]
        if self.word[matched] == char:
            matched += 1
        self.matched = matched
        return matched == len(self.word)


def _fallback(word: str) -> list[int]:
    """For each length of a beginning: how much of the word that beginning ends with besides."""
    lengths = [0, 0]
    matched = 0
    for char in word[1:]:
        while matched and word[matched] != char:
            matched = lengths[matched]
        if word[matched] == char:
            matched += 1
        lengths.append(matched)
    return lengths
