from __future__ import annotations

import pytest

from supervisord_llm import errors
from supervisord_llm.api.errors import MethodNotAllowed, http_error, internal_error
from supervisord_llm.core.words import RejectReason
from supervisord_llm.errors import ClientError, Refused


def kinds() -> list[type[ClientError]]:
    """Every client error that exists, except the root and what is tested below."""
    found = [each for each in vars(errors).values() if isinstance(each, type)]
    return [each for each in found if issubclass(each, ClientError) and each is not ClientError]


@pytest.mark.parametrize("kind", kinds())
def test_each_client_error_has_a_status_and_a_code(kind: type[ClientError]) -> None:
    """A new class without a row in the table would be a 500."""
    error = http_error(kind("cannot do it; do that", param="x"))
    assert 400 <= error.status < 500
    assert ("cannot do it; do that", "x", error.code) == (
        error.body.error.message,
        error.body.error.param,
        error.body.error.code,
    )


def test_the_codes_are_told_apart() -> None:
    """Each kind of error has a code of its own."""
    codes = [http_error(kind("x")).code for kind in kinds()]
    assert sorted(set(codes)) == sorted(codes)


@pytest.mark.parametrize("reason", list(RejectReason))
def test_each_refusal_has_a_status(reason: RejectReason) -> None:
    """Whoever may come again is told when."""
    error = http_error(Refused(reason, "cannot take it", retry_after=1.5))
    assert reason == error.code
    assert (error.status in {429, 503}) == (error.headers == {"retry-after": "2"})


def test_a_wrong_method_carries_the_right_ones() -> None:
    """405 has its Allow header."""
    assert {"allow": "GET, HEAD"} == http_error(MethodNotAllowed("x", allow="GET, HEAD")).headers


def test_an_internal_error_tells_its_id_alone() -> None:
    """The client can quote it, and learns nothing else."""
    error = internal_error("err_1")
    assert (500, "internal") == (error.status, error.code)
    assert "err_1" in error.body.error.message
