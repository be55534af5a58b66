"""A consumer in a classic group: it reads the partitions that the group assigns to it and commits its positions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from milena.client.cluster import Cluster
from milena.client.consumer import ConsumedRecord, Consumer
from milena.client.membership import GroupMetadata, Membership
from milena.protocol.errors import KafkaError
from milena.protocol.types import TopicPartition

HEARTBEATS_PER_SESSION: Final = 3
LONGEST_WAIT: Final = 0.5
"""Seconds of one poll before the group's state is checked again."""


class GroupConsumer:
    """``poll`` joins, rejoins after a rebalance, and reads. ``assigned`` is called with each new assignment.

    Without ``auto_commit`` the caller commits. With it, the records that earlier polls returned are committed before a
    rebalance, on ``close``, and every ``commit_interval`` seconds. ``committed`` as in ``Consumer``.
    """

    def __init__(
        self,
        cluster: Cluster,
        group: str,
        topics: Sequence[str],
        *,
        reset: str = "earliest",
        session_timeout_ms: int = 45_000,
        rebalance_timeout_ms: int = 300_000,
        instance_id: str | None = None,
        auto_commit: bool = True,
        commit_interval: float = 5.0,
        rack: str = "",
        committed: bool = False,
        assigned: Callable[[list[TopicPartition]], None] = lambda partitions: None,
    ) -> None:
        self._clock = cluster.runtime.clock
        self._consumer = Consumer(cluster, reset=reset, rack=rack, committed=committed)
        self._membership = Membership(
            cluster,
            group,
            topics,
            session_timeout_ms=session_timeout_ms,
            rebalance_timeout_ms=rebalance_timeout_ms,
            instance_id=instance_id,
        )
        self._heartbeat_interval = session_timeout_ms / 1000 / HEARTBEATS_PER_SESSION
        self._auto_commit = auto_commit
        self._commit_interval = commit_interval
        self._next_commit = self._clock.monotonic() + commit_interval
        self._assigned = assigned
        self._tasks = cluster.runtime.new_tasks(f"member of {group}")
        self._beating = False
        self._rejoin = True
        self._failure: KafkaError | None = None
        self._consumed: dict[TopicPartition, int] = {}
        """The offset after the last record that was returned and is not committed yet."""

    @property
    def assignment(self) -> list[TopicPartition]:
        return self._consumer.assignment

    @property
    def member_id(self) -> str:
        return self._membership.member_id

    @property
    def generation(self) -> int:
        return self._membership.generation

    @property
    def metadata(self) -> GroupMetadata:
        """The membership, for ``TransactionalProducer.send_offsets``."""
        return self._membership.metadata

    def position(self, topic: str, partition: int) -> int | None:
        """As ``Consumer.position``."""
        return self._consumer.position(topic, partition)

    def seek(self, topic: str, partition: int, offset: int) -> None:
        """As ``Consumer.seek``, until the next assignment."""
        self._consumer.seek(topic, partition, offset)

    async def poll(self, timeout: float, max_records: int = 500) -> list[ConsumedRecord]:
        """Records, or none after ``timeout`` seconds (joining may take longer). Raises KafkaError."""
        deadline = self._clock.monotonic() + timeout
        while True:
            if self._failure is not None:
                failure, self._failure = self._failure, None
                raise failure
            if self._rejoin:
                await self._join()
            if self._auto_commit and self._consumed and self._clock.monotonic() >= self._next_commit:
                await self._commit_consumed()
            left = deadline - self._clock.monotonic()
            records = await self._consumer.poll(max(min(left, LONGEST_WAIT), 0), max_records)
            for record in records:
                self._consumed[record.topic, record.partition] = record.offset + 1
            if records or left <= 0:
                return records

    async def commit(self, offsets: Mapping[TopicPartition, int] | None = None) -> None:
        """Commit ``offsets``, or the positions of ``poll``. Raises KafkaError if the group has removed this member."""
        chosen = dict(self._consumed) if offsets is None else dict(offsets)
        if chosen:
            await self._membership.commit(chosen)
            for partition, offset in chosen.items():
                if self._consumed.get(partition) == offset:
                    del self._consumed[partition]

    async def committed(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        return await self._membership.committed(partitions)

    async def close(self) -> None:
        """Commit if auto-commit is enabled, leave the group, stop."""
        if self._auto_commit and self._consumed and not self._rejoin:
            await self._commit_consumed()
        await self._tasks.stop()
        await self._membership.leave()
        await self._consumer.close()

    async def _join(self) -> None:
        if self._auto_commit and self._consumed and self._membership.generation >= 0:
            await self._commit_consumed()
        self._consumed.clear()
        partitions = await self._membership.join()
        committed = await self._membership.committed(partitions) if partitions else {}
        self._consumer.assign({})
        self._consumer.assign({partition: committed.get(partition) for partition in partitions})
        self._rejoin = False
        self._assigned(partitions)
        if not self._beating:
            self._beating = True
            self._tasks.keep(self._beat, name="heartbeats")

    async def _beat(self) -> None:
        while True:
            await self._clock.sleep(self._heartbeat_interval)
            if self._rejoin:
                continue
            try:
                self._rejoin = not await self._membership.heartbeat()
            except KafkaError as error:
                self._failure = error

    async def _commit_consumed(self) -> None:
        """An automatic commit: if the group rejects it, it is dropped, and the records are read again."""
        self._next_commit = self._clock.monotonic() + self._commit_interval
        try:
            await self.commit()
        except KafkaError:
            self._rejoin = True
