"""Public request ids: ``req_`` and a ULID, sortable by the time of their making."""

from __future__ import annotations

import secrets
import time

from supervisord_llm.core.words import RequestId

_CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_TIME_BITS, _RANDOM_BITS, _CHARACTERS = 48, 80, 26


def new_request_id() -> RequestId:
    """A new id: 48 bits of Unix time in milliseconds and 80 random bits, in Crockford's base 32."""
    milliseconds = time.time_ns() // 1_000_000 % 2**_TIME_BITS
    value = milliseconds << _RANDOM_BITS | secrets.randbits(_RANDOM_BITS)
    digits = (_CROCKFORD[value >> 5 * place & 31] for place in reversed(range(_CHARACTERS)))
    return "req_" + "".join(digits)
