"""Numbers in texts that others have written."""

from __future__ import annotations

import re
from typing import Final

_WHOLE: Final = re.compile(r"([+-]?)0*([0-9]{1,19})")
_BOUND: Final = 1 << 63


def whole(text: str) -> int | None:
    """The number in ``text``, as Java's Long.parseLong reads it: None where it is none, or has more than 64 bits. What
    ``int`` takes beyond that (spaces, ``1_000``) is none, and what it fails on (5,000 digits) is as well."""
    match = _WHOLE.fullmatch(text)
    if match is None:
        return None
    number = int(match[2]) if match[1] != "-" else -int(match[2])
    return number if -_BOUND <= number < _BOUND else None
