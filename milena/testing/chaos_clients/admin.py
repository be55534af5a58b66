"""What admin clients have in common: they look whether a topic is there before they make or delete it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from milena.lab.histories.events import RequestOutcome
from milena.testing.chaos_clients import outcomes

UNSURE = -1
"""In place of an error code: the request may have been sent, and there is no answer."""


class Admin(ABC):
    """Implements ``ChaosAdmin``. Subclasses ask the library, and return the error code of the broker."""

    async def create_topic(
        self, name: str, partitions: int, replicas: int, config: Mapping[str, str]
    ) -> RequestOutcome:
        there = await self._is_there(name)
        return outcomes.of_change(await self._create(name, partitions, replicas, config), there_before=there)

    async def delete_topic(self, name: str) -> RequestOutcome:
        there = await self._is_there(name)
        return outcomes.of_change(await self._delete(name), there_before=there)

    async def set_config(self, topic: str, config: Mapping[str, str]) -> RequestOutcome:
        there = await self._is_there(topic)
        return outcomes.of_change(await self._set_config(topic, config), there_before=there)

    async def _is_there(self, name: str) -> bool | None:
        topics = await self.topics()
        return None if topics is None else name in topics

    @abstractmethod
    async def topics(self) -> Sequence[str] | None: ...

    @abstractmethod
    async def close(self) -> None: ...

    @abstractmethod
    async def _create(self, name: str, partitions: int, replicas: int, config: Mapping[str, str]) -> int: ...

    @abstractmethod
    async def _delete(self, name: str) -> int: ...

    @abstractmethod
    async def _set_config(self, topic: str, config: Mapping[str, str]) -> int: ...
