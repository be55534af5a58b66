"""The errors of decoders."""

from __future__ import annotations


class DecodeError(ValueError):
    """The bytes do not match the schema."""


class TooManyElements(DecodeError):
    """A request has more elements than its limit."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"more than {limit} elements in one request")
