"""What follows when a request of a transactional producer fails."""

from __future__ import annotations

import pytest

from milena.client.attempts import Attempts, Next
from milena.protocol.errors import ErrorCode, KafkaError

DEADLINE = 60.0


def after(attempts: Attempts, *codes: ErrorCode, now: float = 0.0) -> Next:
    """Note errors. Returns what follows the last one."""
    return [attempts.after(KafkaError(code), now) for code in codes][-1]


def test_a_retriable_error_is_retried_until_the_deadline() -> None:
    attempts = Attempts(DEADLINE)
    assert after(attempts, ErrorCode.NOT_COORDINATOR, now=DEADLINE - 1) is Next.RETRY
    assert after(attempts, ErrorCode.NOT_COORDINATOR, now=DEADLINE) is Next.TIMED_OUT
    assert attempts.failed == 2


def test_an_error_that_is_not_retriable_is_final_even_after_the_deadline() -> None:
    assert after(Attempts(DEADLINE), ErrorCode.PRODUCER_FENCED, now=DEADLINE + 1) is Next.REFUSED


@pytest.mark.parametrize(
    ("codes", "uncertain"),
    [
        ([ErrorCode.PRODUCER_FENCED], False),
        ([ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.PRODUCER_FENCED], False),
        ([ErrorCode.NETWORK_EXCEPTION, ErrorCode.PRODUCER_FENCED], True),
        ([ErrorCode.NOT_COORDINATOR, ErrorCode.CONCURRENT_TRANSACTIONS], True),
    ],
)
def test_the_outcome_is_uncertain_once_an_attempt_may_have_taken_effect(
    codes: list[ErrorCode], uncertain: bool
) -> None:
    attempts = Attempts(DEADLINE)
    after(attempts, *codes)
    assert attempts.uncertain is uncertain
