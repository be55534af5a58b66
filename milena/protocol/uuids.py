"""Kafka's text form of a UUID: its 16 bytes in URL-safe base64 without padding, 22 characters."""

from __future__ import annotations

from binascii import Error, a2b_base64, b2a_base64
from uuid import UUID


def to_text(value: UUID) -> str:
    """Return Kafka's text form."""
    return b2a_base64(value.bytes, newline=False).decode("ascii").rstrip("=").translate(_TO_URL)


def from_text(text: str) -> UUID:
    """Parse a UUID. Raises ValueError if ``text`` is not a UUID in this form."""
    if len(text) != 22 or "+" in text or "/" in text:
        raise ValueError(f"{text!r} is no UUID: Kafka writes 22 characters of URL-safe base64")
    try:
        return UUID(bytes=a2b_base64(text.translate(_FROM_URL).encode("ascii") + b"==", strict_mode=True))
    except (Error, UnicodeEncodeError, ValueError) as error:
        raise ValueError(f"{text!r} is no UUID: Kafka writes 22 characters of URL-safe base64") from error


_TO_URL = str.maketrans("+/", "-_")
_FROM_URL = str.maketrans("-_", "+/")
