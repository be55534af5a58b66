"""The interface between the workload and a client library. The simulation uses Milena's own client; other places use
client libraries behind adapters.

An adapter reports ``FAILED`` only if the record or change can never take effect (the broker has rejected it for good).
Every other error is ``UNKNOWN``. Methods do not raise what faults of the cluster cause; all of them can be cancelled.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, runtime_checkable

from milena.lab.histories.events import RequestOutcome
from milena.protocol.types import TopicPartition

IN_ORDER: Final = "in order"
"""The ability of a library whose producers keep one batch of a partition in flight, so that records stay in order also
without sequence numbers."""


@dataclass(frozen=True, slots=True)
class Sent:
    """The outcome of a record. ``offset`` is -1 if it is unknown. ``error``: the library's text, "" for none.
    ``identity``: the producer id and epoch of its batch, "" if the library does not report them."""

    outcome: RequestOutcome
    offset: int = -1
    error: str = ""
    identity: str = ""


@dataclass(frozen=True, slots=True)
class Got:
    """A record that was read. ``epoch``: the leader epoch of its batch, -1 if the library does not report it."""

    partition: TopicPartition
    offset: int
    key: str | None
    value: str | None
    epoch: int = -1


class ChaosProducer(Protocol):
    """Keeps the order of its records within a partition, and retries for longer than any fault lasts."""

    async def send(self, partition: TopicPartition, key: str | None, value: str | None) -> Sent:
        """Return when the outcome is known. Many calls may be in flight; records are in the order of the calls, because
        each call enqueues its record before it first suspends."""
        ...

    async def close(self) -> None:
        """Return when the outcome of every record is known."""
        ...


class ChaosConsumer(Protocol):
    """A consumer with assigned partitions and no group. Only ``poll`` moves its position."""

    async def poll(self, seconds: float) -> Sequence[Got]:
        """Return records after at most ``seconds``; empty if there are none."""
        ...

    async def end_of(self, partition: TopicPartition) -> tuple[int, int] | None:
        """Return the log start offset and the high watermark from the leader; None if it does not answer."""
        ...

    async def close(self) -> None: ...


class ChaosMember(Protocol):
    """A member of a group that has subscribed, without auto-commit."""

    @property
    def session(self) -> str:
        """A text that changes with each assignment. Within a session, records of a partition must be consecutive."""
        ...

    async def poll(self, seconds: float) -> Sequence[Got]: ...

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> RequestOutcome: ...

    async def close(self) -> None: ...


class ChaosAdmin(Protocol):
    """Changes of topics; each returns its outcome."""

    async def create_topic(
        self, name: str, partitions: int, replicas: int, config: Mapping[str, str]
    ) -> RequestOutcome: ...

    async def delete_topic(self, name: str) -> RequestOutcome: ...

    async def set_config(self, topic: str, config: Mapping[str, str]) -> RequestOutcome: ...

    async def topics(self) -> Sequence[str] | None:
        """Return the names of all topics; None if no broker answers."""
        ...

    async def close(self) -> None: ...


class Clients(Protocol):
    """A client library. Methods for which ``can`` has no entry raise NotImplementedError."""

    name: str
    """As in reports: ``confluent-kafka``, ``kafka-python``, ``aiokafka``, ``java``, ``milena``."""
    can: frozenset[str]
    """Of ``produce``, ``consume``, ``group``, ``admin`` and ``IN_ORDER``."""

    async def producer(self, *, acks: int, idempotent: bool) -> ChaosProducer: ...

    async def consumer(self, positions: Mapping[TopicPartition, int]) -> ChaosConsumer:
        """Return a consumer that starts at these offsets, or at the log start offset if an offset is gone."""
        ...

    async def member(self, group: str, topics: Sequence[str]) -> ChaosMember: ...

    async def admin(self) -> ChaosAdmin: ...


class ChaosTransactions(Protocol):
    """A transactional producer: one transaction at a time."""

    async def init(self) -> bool:
        """Fence earlier producers with the transactional id. False: it did not succeed in time; try again."""
        ...

    async def begin(self) -> bool:
        """Return False if the producer cannot be used any more."""
        ...

    async def send(self, partition: TopicPartition, value: str) -> Sent:
        """Return when the outcome is known. Many calls may be in flight."""
        ...

    async def send_offsets(self, offsets: Mapping[TopicPartition, int], member: ChaosTransformer) -> bool:
        """Commit offsets with the transaction. ``member`` has consumed them. Return whether that succeeded."""
        ...

    async def commit(self) -> RequestOutcome:
        """After an unknown outcome it may be called again. ``FAILED``: this call has certainly not committed."""
        ...

    async def abort(self) -> RequestOutcome: ...

    async def close(self) -> None:
        """An open transaction is left as it is."""
        ...


@runtime_checkable
class WithIdentity(Protocol):
    """A transactional producer whose producer id and epoch are known."""

    @property
    def identity(self) -> str:
        """The producer id and the epoch of the transaction that was begun last."""
        ...


class ChaosTransformer(Protocol):
    """A member of a group that reads with read_committed, and whose offsets a transactional producer commits."""

    @property
    def session(self) -> str:
        """As of ``ChaosMember``."""
        ...

    async def poll(self, seconds: float) -> Sequence[Got]: ...

    async def close(self) -> None: ...


@runtime_checkable
class TransactingClients(Protocol):
    """A client library with transactions. Consumers and members read with read_committed."""

    name: str
    own_epochs: bool
    """Each transaction has an epoch of its own where the cluster has transaction version 2 (KIP-890)."""
    fences_members: bool
    """Offsets are committed with the member's generation (KIP-447). Without it there is no work with
    ``transformer``."""

    async def transactions(self, transactional_id: str, timeout: float) -> ChaosTransactions:
        """``timeout``: seconds after which the coordinator aborts a transaction."""
        ...

    async def committed_consumer(self, positions: Mapping[TopicPartition, int]) -> ChaosConsumer: ...

    async def transformer(self, group: str, topics: Sequence[str]) -> ChaosTransformer: ...
