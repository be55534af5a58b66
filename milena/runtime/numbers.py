"""Numbers in text from outside."""

from __future__ import annotations

import re
from typing import Final

_WHOLE: Final = re.compile(r"([+-]?)0*([0-9]{1,19})")
_BOUND: Final = 1 << 63


def whole(text: str) -> int | None:
    """The integer in ``text``, as Java's Long.parseLong reads it; None if it is not one or exceeds 64 bits. Forms that
    only Python's ``int`` accepts (spaces, ``1_000``) are None, as are those that it fails on (5,000 digits)."""
    match = _WHOLE.fullmatch(text)
    if match is None:
        return None
    number = int(match[2]) if match[1] != "-" else -int(match[2])
    return number if -_BOUND <= number < _BOUND else None
