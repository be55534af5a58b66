"""What the workload asks of a client library. The simulation has Milena's own; elsewhere it is a library that people
use, behind an adapter.

Adapters hide nothing: an error that the library reports is ``FAILED`` only if the record or change can never take
effect (the broker refused it for good); everything else that is not ``OK`` is ``UNKNOWN``. No method raises for
what a fault of the cluster causes; all of them can be cancelled.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from milena.lab.histories.events import RequestOutcome
from milena.protocol.types import TopicPartition


@dataclass(frozen=True, slots=True)
class Sent:
    """What became of a record. ``offset`` is -1 if it is not known. ``error``: the library's text, "" for none.
    ``identity``: producer id and epoch that it was sent with, "" if the library does not tell."""

    outcome: RequestOutcome
    offset: int = -1
    error: str = ""
    identity: str = ""


@dataclass(frozen=True, slots=True)
class Got:
    """A record that was read. ``epoch``: the leader epoch of its batch, -1 if the library does not tell."""

    partition: TopicPartition
    offset: int
    key: str | None
    value: str | None
    epoch: int = -1


class ChaosProducer(Protocol):
    """Keeps the order of its records within a partition, and retries for longer than any fault lasts."""

    async def send(self, partition: TopicPartition, key: str | None, value: str | None) -> Sent:
        """Returns when the outcome is known. Many may be under way at once; their order is that of the calls, which
        enqueue before they first suspend."""
        ...

    async def close(self) -> None:
        """Returns when the outcome of everything is known."""
        ...


class ChaosConsumer(Protocol):
    """Assigned by hand; its position moves by itself alone."""

    async def poll(self, seconds: float) -> Sequence[Got]:
        """What has come, at most ``seconds`` later; empty if nothing has."""
        ...

    async def end_of(self, partition: TopicPartition) -> tuple[int, int] | None:
        """Log start offset and high watermark as the leader tells them now; None if it does not answer."""
        ...

    async def close(self) -> None: ...


class ChaosMember(Protocol):
    """A member of a group that has subscribed, without auto-commit."""

    @property
    def session(self) -> str:
        """Another text after each assignment: within one, records of a partition must be consecutive."""
        ...

    async def poll(self, seconds: float) -> Sequence[Got]: ...

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> RequestOutcome: ...

    async def close(self) -> None: ...


class ChaosAdmin(Protocol):
    """Changes return their outcome."""

    async def create_topic(
        self, name: str, partitions: int, replicas: int, config: Mapping[str, str]
    ) -> RequestOutcome: ...

    async def delete_topic(self, name: str) -> RequestOutcome: ...

    async def set_config(self, topic: str, config: Mapping[str, str]) -> RequestOutcome: ...

    async def topics(self) -> Sequence[str] | None:
        """None if nobody answers."""
        ...

    async def close(self) -> None: ...


class Clients(Protocol):
    """A library. What it cannot do raises NotImplementedError, which ``can`` tells before."""

    name: str
    """As in reports: ``confluent-kafka``, ``kafka-python``, ``aiokafka``, ``java``, ``milena``."""
    can: frozenset[str]
    """Of ``produce``, ``consume``, ``group``, ``admin``."""

    async def producer(self, *, acks: int, idempotent: bool) -> ChaosProducer: ...

    async def consumer(self, positions: Mapping[TopicPartition, int]) -> ChaosConsumer:
        """It begins at these offsets; at an offset that is gone it goes to the log start offset."""
        ...

    async def member(self, group: str, topics: Sequence[str]) -> ChaosMember: ...

    async def admin(self) -> ChaosAdmin: ...
