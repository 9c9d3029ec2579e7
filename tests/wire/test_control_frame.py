from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisord_llm.core.words import WIRE_ID_MAX
from supervisord_llm.errors import InternalError
from supervisord_llm.wire.control_frame import FRAME_SIZE, encode_cancel


def test_a_frame_is_the_id_in_eight_bytes_little_endian() -> None:
    """The frame of request 7, byte by byte."""
    assert b"\x07\x00\x00\x00\x00\x00\x00\x00" == encode_cancel(7)


@given(st.integers(1, WIRE_ID_MAX))
def test_a_worker_reads_back_the_id(wire_id: int) -> None:
    """What goes in comes out, for every id that a request can have."""
    frame = encode_cancel(wire_id)

    assert FRAME_SIZE == len(frame)
    assert (wire_id,) == struct.unpack("<Q", frame)


@pytest.mark.parametrize("wire_id", [-1, 0, WIRE_ID_MAX + 1])
def test_an_id_that_no_request_has_is_our_bug(wire_id: int) -> None:
    """Zero is ignored by workers, so sending it could only hide a mistake."""
    with pytest.raises(InternalError, match=f"wire id {wire_id}"):
        encode_cancel(wire_id)
