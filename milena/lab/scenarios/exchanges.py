"""Requests and responses as a scenario expects them, compared with those that a node recorded.

A field is searched at any depth, so that ``{leader_epoch: 2}`` finds the one partition's. Lists are compared item by
item. Leader epochs are compared in the document's numbers; an epoch without records has none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

EPOCH_FIELDS: Final = frozenset({"leader_epoch", "current_leader_epoch", "last_fetched_epoch", "epoch"})


def renumbered(found: object, numbers: Mapping[int, int] | None) -> object:
    """Return the value with the document's leader epochs (None: unchanged)."""
    if isinstance(found, Mapping):
        return {
            key: numbers.get(value, f"no record in {value}")
            if numbers is not None and key in EPOCH_FIELDS and isinstance(value, int) and value >= 0
            else renumbered(value, numbers)
            for key, value in found.items()
        }
    if isinstance(found, list):
        return [renumbered(item, numbers) for item in found]
    return found


def mismatch(expected: object, found: object, at: str = "") -> str | None:
    """Return the first difference as text, or None."""
    if isinstance(expected, Mapping):
        for key, value in expected.items():
            candidates = list(_deep(found, key))
            if not candidates:
                return f"{at}.{key}: missing in {found}"
            reasons = [mismatch(value, one, f"{at}.{key}") for one in candidates]
            if all(reasons):
                return reasons[0]
        return None
    if isinstance(expected, Sequence) and not isinstance(expected, str):
        if not isinstance(found, Sequence) or len(found) != len(expected):
            return f"{at}: expected {expected}, found {found}"
        pairs = zip(expected, found, strict=True)
        return next((reason for one, other in pairs if (reason := mismatch(one, other, at))), None)
    return None if expected == found else f"{at}: expected {expected!r}, found {found!r}"


def differences(expected: Sequence[object], found: Sequence[object]) -> list[str]:
    """Return the differences of a whole trace: the number of exchanges, and each exchange."""
    wrong = []
    if len(expected) != len(found):
        wrong.append(f"{len(expected)} exchanges expected, {len(found)} found: {list(found)}")
    for number, (one, other) in enumerate(zip(expected, found, strict=False), 1):
        if reason := mismatch(one, other):
            wrong.append(f"exchange {number}: {reason}")
    return wrong


def _deep(found: object, key: str) -> Iterator[object]:
    if isinstance(found, Mapping):
        if key in found:
            yield found[key]
        for value in found.values():
            yield from _deep(value, key)
    elif isinstance(found, list):
        for item in found:
            yield from _deep(item, key)
