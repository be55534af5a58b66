"""Reading values from JSON that somebody else has written: each is of its type and within its limits."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from reprlib import repr as beginning
from typing import Final
from uuid import UUID

from milena.protocol.uuids import from_text
from milena.runtime.printable import printable

LATEST: Final = (1 << 63) - 1
_SHOWN: Final = 60
"""Characters of a wrong value."""


class BadText(ValueError):
    """The text is not what it should be; the message says what is wrong."""


class Fields:
    """A JSON object. Its methods raise BadText."""

    def __init__(self, found: object, what: str) -> None:
        if not isinstance(found, dict):
            raise BadText(f"{what} is no JSON object")
        self._found: Mapping[str, object] = found
        self._what = what

    @classmethod
    def read(cls, data: bytes, what: str) -> Fields:
        try:
            found = json.loads(data)
        except (ValueError, RecursionError):
            raise BadText(f"{what} is not valid JSON") from None
        return cls(found, what)

    def get(self, name: str) -> object:
        if name not in self._found:
            raise BadText(f"{self._what} has no {name}")
        return self._found[name]

    def number(self, name: str, least: int = 0, most: int = LATEST) -> int:
        found = self.get(name)
        if not isinstance(found, int) or isinstance(found, bool) or not least <= found <= most:
            raise self._bad(name, f"a number from {least} to {most}")
        return found

    def flag(self, name: str) -> bool:
        found = self.get(name)
        if not isinstance(found, bool):
            raise self._bad(name, "true or false")
        return found

    def text(self, name: str) -> str:
        found = self.get(name)
        if not isinstance(found, str):
            raise self._bad(name, "a text")
        return found

    def id(self, name: str) -> UUID:
        try:
            return from_text(self.text(name))
        except ValueError:
            raise self._bad(name, "an id") from None

    def every(self, name: str) -> Sequence[object]:
        found = self.get(name)
        if not isinstance(found, list):
            raise self._bad(name, "a list")
        return found

    def _bad(self, name: str, wanted: str) -> BadText:
        found = self.get(name)
        shown = found[:_SHOWN] if isinstance(found, str) else beginning(found)[:_SHOWN]
        return BadText(f"{self._what} has {name}={printable(shown)}, which is not {wanted}")
