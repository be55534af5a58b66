"""Values of records as a scenario writes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NotRequired, TypeAlias, TypedDict

Numbered = TypedDict("Numbered", {"from": int, "to": int, "text": NotRequired[str]})
"""Numbered values: ``{from: 11, to: 20, text: "B:%d"}``."""
Values: TypeAlias = Sequence[str | int] | Numbered
SOME: Final = 3


def values_of(values: Values) -> list[str]:
    """Return the values; a number N is the value "msg N"."""
    if isinstance(values, Mapping):
        text = values.get("text", "msg %d")
        return [text % number for number in range(values["from"], values["to"] + 1)]
    return [f"msg {value}" if isinstance(value, int) else str(value) for value in values]


def shown_values(values: Sequence[object]) -> str:
    """Return all values, or the first and the last one of more than three."""
    return f"{values[0]} to {values[-1]}" if len(values) > SOME else ", ".join(map(str, values))
