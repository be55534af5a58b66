"""Answers that repeat the same element."""

from __future__ import annotations

import pytest

from milena.node.serving.repeats import Repeats
from milena.protocol.errors import ErrorCode, KafkaError


def test_elements_mentioned_once_are_not_bounded() -> None:
    repeats = Repeats(limit=10)
    for name in range(1_000):
        repeats.note(name, 1_000)


def test_repeated_elements_are_bounded() -> None:
    repeats = Repeats(limit=10)
    repeats.note("group", 4)
    repeats.note("group", 4)
    repeats.note("group", 4)
    with pytest.raises(KafkaError) as refused:
        repeats.note("group", 4)
    assert refused.value.code is ErrorCode.INVALID_REQUEST
