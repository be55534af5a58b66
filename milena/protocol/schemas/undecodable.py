"""What a reader raises for bytes that it cannot or must not take."""

from __future__ import annotations


class DecodeError(ValueError):
    """The bytes are not what their schema says."""


class TooManyElements(DecodeError):
    """A request holds more elements than its reader may take."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"more than {limit} elements in one request")
