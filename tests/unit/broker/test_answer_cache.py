"""The size limit of the response cache."""

from __future__ import annotations

from milena.broker.metadata.answer_cache import AnswerCache


def test_the_size_of_requests_counts_for_the_cache_limit() -> None:
    cache = AnswerCache(max_bytes=10_000)
    for at in range(50):
        cache.put((at, b"r" * 1_000), b"small", 1_000)
    kept = [at for at in range(50) if cache.get((at, b"r" * 1_000)) is not None]
    assert 0 < len(kept) < 10


def test_a_request_larger_than_a_quarter_of_the_cache_is_not_cached() -> None:
    cache = AnswerCache(max_bytes=10_000)
    cache.put("key", b"answer", 3_000)
    assert cache.get("key") is None
