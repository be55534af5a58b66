"""Finding what is given twice."""

from milena.protocol.requests.repeated import repeated_in


def test_what_stands_twice_or_more_is_found_once() -> None:
    assert repeated_in(["a", "b", "a", "c", "a", "c"]) == {"a", "c"}
    assert repeated_in([]) == set()
