"""Numbers in text from outside, as Java reads them."""

from __future__ import annotations

import re
from math import inf
from typing import Final

_WHOLE: Final = re.compile(r"([+-]?)0*([0-9]{1,19})")
_BOUND: Final = 1 << 63
_BEYOND_CHAR: Final = "\U00010000"
_DECIMAL: Final = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?")
_HEXADECIMAL: Final = re.compile(r"([+-]?)(0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?")
_NAMED: Final = re.compile(r"[+-]?(?:NaN|Infinity)")
_BLANKS: Final = "".join(map(chr, range(0x21)))


def trimmed(text: str) -> str:
    """``text`` without the characters that Java's String.trim removes: U+0020 and all below it, and no others."""
    return text.strip(_BLANKS)


def whole(text: str) -> int | None:
    """The integer in ``text``, as Java's Long.parseLong reads it; None if it is not one or exceeds 64 bits. Forms that
    only Python's ``int`` accepts (spaces, ``1_000``) are None, as are those that it fails on (5,000 digits). Digits of
    other scripts count if they are one char in Java."""
    if not text.isascii():
        text = "".join(str(int(char)) if char.isdecimal() and char < _BEYOND_CHAR else char for char in text)
    match = _WHOLE.fullmatch(text)
    if match is None:
        return None
    number = int(match[2]) if match[1] != "-" else -int(match[2])
    return number if -_BOUND <= number < _BOUND else None


def double(text: str) -> float | None:
    """The number in ``text``, as Java's Double.parseDouble reads it; None if it is not one. Java accepts blanks around
    it, hexadecimal numbers with an exponent (``0x1p3``) and the suffixes f and d."""
    text = trimmed(text)
    if match := _DECIMAL.fullmatch(text):
        return float(match[1])
    if match := _HEXADECIMAL.fullmatch(text):
        sign = -1.0 if match[1] == "-" else 1.0
        try:
            return sign * float.fromhex(match[2])
        except OverflowError:
            return sign * inf
    return float(text) if _NAMED.fullmatch(text) else None
