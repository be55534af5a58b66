"""The randomness port: every random choice of a node comes from here."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TypeVar
from uuid import UUID

T = TypeVar("T")


class Randomness:
    """Random choices, from a seed in the simulation and from the system otherwise."""

    __slots__ = ("_source",)

    def __init__(self, seed: int | None = None) -> None:
        self._source = random.SystemRandom() if seed is None else random.Random(seed)

    def uniform(self, low: float, high: float) -> float:
        return self._source.uniform(low, high)

    def below(self, bound: int) -> int:
        """A random integer in ``[0, bound)``."""
        return self._source.randrange(bound)

    def choice(self, items: Sequence[T]) -> T:
        return self._source.choice(items)

    def shuffled(self, items: Sequence[T]) -> list[T]:
        return self._source.sample(items, len(items))

    def bytes(self, count: int) -> bytes:
        return self._source.getrandbits(count * 8).to_bytes(count, "big") if count else b""

    def uuid(self) -> UUID:
        """A random (version 4) id whose base64 form, as Kafka writes it, does not start with ``-``."""
        while True:
            value = UUID(bytes=self.bytes(16), version=4)
            if value.bytes[0] >> 2 != 62:
                return value
