"""The common part of the admin adapters: they check whether a topic exists before they create, delete or change it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from milena.lab.histories.events import RequestOutcome
from milena.testing.chaos_clients import outcomes

UNSURE = -1
"""In place of an error code: the request may have been sent, and was not answered."""


class Admin(ABC):
    """Implements ``ChaosAdmin``. Subclasses call the library and return the broker's error code."""

    async def create_topic(
        self, name: str, partitions: int, replicas: int, config: Mapping[str, str]
    ) -> RequestOutcome:
        existed = await self._exists(name)
        return outcomes.of_change(await self._create(name, partitions, replicas, config), there_before=existed)

    async def delete_topic(self, name: str) -> RequestOutcome:
        existed = await self._exists(name)
        return outcomes.of_change(await self._delete(name), there_before=existed)

    async def set_config(self, topic: str, config: Mapping[str, str]) -> RequestOutcome:
        existed = await self._exists(topic)
        return outcomes.of_change(await self._set_config(topic, config), there_before=existed)

    async def _exists(self, name: str) -> bool | None:
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
