"""Metadata of remote segments in the topic ``__remote_log_metadata`` (docs/kafka-semantics.md: The metadata topic).

Nothing happens before the first partition is assigned: then the topic is found or created, and a producer and a
consumer start. A published record takes effect once this broker's own consumer has read it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

from milena.node.links.outgoing import ChannelError
from milena.protocol.errors import KafkaError
from milena.protocol.types import NodeId, Offset
from milena.runtime.context import Runtime
from milena.runtime.logging import get_logger
from milena.tiered.metadata.assignments import Assignments
from milena.tiered.metadata.metadata_cache import RemoteLogMetadataCache
from milena.tiered.metadata.metadata_manager import MetadataNotReady, RemoteLogMetadataError
from milena.tiered.metadata.metadata_partitioner import REMOTE_LOG_METADATA_TOPIC, metadata_partition
from milena.tiered.metadata.settings import RETRY_TIMEOUT_MS, MetadataTopicSettings
from milena.tiered.segments.segment_metadata import (
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    RemoteLogSegmentUpdate,
    TopicIdPartition,
)

if TYPE_CHECKING:
    from milena.client.cluster import Cluster, TopicView
    from milena.client.producer import Producer
    from milena.tiered.metadata.consumption import Consumption

SNAPSHOT_SECONDS: Final = 60.0
LAST_SNAPSHOT_SECONDS: Final = 5.0


class TopicMetadataManager:
    """Implements ``RemoteLogMetadataManager`` with the metadata topic (Kafka's
    ``TopicBasedRemoteLogMetadataManager``).

    ``addresses``: returns the addresses of the listener for this broker's own clients, which are known once it listens.
    ``folder``: returns the folder of a partition's log, for its snapshot. The node stops if the metadata topic cannot
    be used, as in Kafka.
    """

    def __init__(
        self,
        runtime: Runtime,
        node_id: NodeId,
        settings: MetadataTopicSettings,
        addresses: Callable[[], Sequence[tuple[str, int]]],
        folder: Callable[[TopicIdPartition], str | None],
    ) -> None:
        self._runtime = runtime
        self._node_id = node_id
        self._settings = settings
        self._addresses = addresses
        self._folder = folder
        self._assignments = Assignments(settings.partitions)
        self._consumption: Consumption | None = None
        self._tasks = runtime.new_tasks("remote log metadata")
        self._clusters: list[Cluster] = []
        self._asking: Cluster | None = None
        self._producer: Producer | None = None
        self._log = get_logger("remote log metadata", node=node_id)

    # -- life

    def start(self) -> None:
        self._tasks.spawn(self._run(), name="remote log metadata")

    async def stop(self) -> None:
        """Stop. Snapshots are written if that takes less than 5 s. Idempotent."""
        producer, self._producer = self._producer, None
        if producer is not None:
            await producer.close(flush=False)
        if self._consumption is not None:
            try:
                async with asyncio.timeout(LAST_SNAPSHOT_SECONDS):
                    await self._consumption.save()
            except TimeoutError:
                self._log.warning("some snapshots of remote log metadata were not written")
        await self._tasks.stop()
        self._assignments.unassign(list(self._assignments.shared))
        for cluster in self._clusters:
            cluster.close()

    async def restart(self) -> None:
        self._assignments.unassign(list(self._assignments.shared))  # so that no snapshot is written
        await self.stop()
        self._assignments = Assignments(self._settings.partitions)
        self._consumption = self._asking = None
        self._clusters.clear()
        self._tasks = self._runtime.new_tasks("remote log metadata")
        self.start()

    async def _run(self) -> None:
        await self._assignments.changed.wait()
        asking = self._asking = self._cluster("admin")
        topic = await self._find_topic(asking)
        if topic is None:
            return
        # Imported here, since most brokers never need it.
        from milena.client.producer import Producer
        from milena.tiered.metadata.consumption import Consumption
        from milena.tiered.metadata.snapshot_files import SnapshotFiles

        snapshots = SnapshotFiles(self._runtime, self._folder)
        consumption = Consumption(self._node_id, self._assignments, snapshots, self._cluster("consumer"), asking)
        consumption.start(self._tasks)
        self._consumption = consumption
        self._producer = Producer(self._cluster("producer"))
        self._log.info("remote log metadata started", topic_id=str(topic.id), partitions=len(topic.partitions))
        while True:
            await self._runtime.clock.sleep(SNAPSHOT_SECONDS)
            await consumption.save()

    async def _find_topic(self, cluster: Cluster) -> TopicView | None:
        """Find or create the topic. Returns None if it cannot be used, which ends the node. The time limit starts with
        the first answer of a broker, since this broker may send the request before it serves requests itself."""
        from milena.tiered.metadata.metadata_topic import WrongPartitionCount, find_or_create

        clock = self._runtime.clock
        deadline: float | None = None
        reason = ""
        while True:
            try:
                return await find_or_create(cluster, self._settings)
            except WrongPartitionCount as error:
                self._runtime.fatal(str(error), None)
                return None
            except (KafkaError, ChannelError) as error:
                if str(error) != reason:
                    reason = str(error)
                    self._log.info("remote log metadata topic cannot be used yet", reason=reason)
                if isinstance(error, KafkaError):
                    deadline = deadline or clock.monotonic() + self._settings.retry_timeout
                if deadline is not None and clock.monotonic() >= deadline:
                    unusable = f"topic {REMOTE_LOG_METADATA_TOPIC} cannot be used (within {RETRY_TIMEOUT_MS}): {reason}"
                    self._runtime.fatal(unusable, None)
                    return None
            await clock.sleep(self._settings.retry_interval)

    def _cluster(self, purpose: str) -> Cluster:
        """Return a client with its own connections: on a shared one, requests would wait for a fetch to end."""
        from milena.client.cluster import Cluster

        client_id = f"{REMOTE_LOG_METADATA_TOPIC}_client_{self._node_id}_{purpose}"
        cluster = Cluster(self._runtime, self._addresses(), client_id)
        self._clusters.append(cluster)
        return cluster

    # -- partitions

    def assign(self, led: Iterable[TopicIdPartition], followed: Iterable[TopicIdPartition]) -> None:
        self._assignments.assign(led)
        self._assignments.assign(followed)

    def unassign(self, partitions: Iterable[TopicIdPartition]) -> None:
        self._assignments.unassign(partitions)

    def is_ready(self, partition: TopicIdPartition) -> bool:
        followed = self._assignments.find(partition)
        return followed is not None and followed.ready

    async def wait_ready(self, partition: TopicIdPartition, seconds: float) -> bool:
        followed = self._assignments.find(partition)
        try:
            async with asyncio.timeout(seconds):
                while followed is not None and not followed.ready and not followed.gone:
                    await followed.wait_moved()
        except TimeoutError:
            return False
        return self.is_ready(partition)

    def cache(self, partition: TopicIdPartition) -> RemoteLogMetadataCache:
        followed = self._assignments.find(partition)
        if followed is None or not followed.ready:
            raise MetadataNotReady(
                f"the remote log metadata of {partition.topic}-{partition.partition} has not been read yet"
            )
        return followed.cache

    async def is_empty(self) -> bool:
        from milena.client.offsets import LATEST, find_offset

        if self._producer is None or self._asking is None:
            raise RemoteLogMetadataError("the remote log metadata manager is not running")
        try:
            for number in range(self._settings.partitions):
                if (await find_offset(self._asking, REMOTE_LOG_METADATA_TOPIC, number, LATEST)).offset > 0:
                    return False
        except (KafkaError, ChannelError) as error:
            raise RemoteLogMetadataError(f"whether the tier was ever used is not known: {error}") from error
        return True

    # -- publishing

    async def add(self, metadata: RemoteLogSegmentMetadata) -> None:
        if metadata.state is not RemoteLogSegmentState.COPY_SEGMENT_STARTED:
            raise ValueError(f"a new segment must be in state COPY_SEGMENT_STARTED, not {metadata.state.name}")
        await self._publish(metadata)

    async def update(self, update: RemoteLogSegmentUpdate) -> None:
        if update.state is RemoteLogSegmentState.COPY_SEGMENT_STARTED:
            raise ValueError("COPY_SEGMENT_STARTED is not an update")
        await self._publish(update)

    async def _publish(self, event: RemoteLogSegmentMetadata | RemoteLogSegmentUpdate) -> None:
        from milena.tiered.metadata.serialization import serialize

        producer, partition = self._producer, event.segment_id.partition
        if producer is None:
            raise RemoteLogMetadataError("the remote log metadata manager is not running")
        number = metadata_partition(partition, self._settings.partitions)
        try:
            written = await producer.send(REMOTE_LOG_METADATA_TOPIC, serialize(event), partition=number)
        except (KafkaError, ChannelError) as error:
            raise RemoteLogMetadataError(f"a record of {partition.topic}-{partition.partition}: {error}") from error
        await self._consumed(partition, Offset(written.offset))

    async def _consumed(self, partition: TopicIdPartition, offset: Offset) -> None:
        """Wait until this broker's consumer has read ``offset``. Returns at once if the partition is not assigned, or
        no longer. Raises RemoteLogMetadataError after ``consume_wait``."""
        followed = self._assignments.find(partition)
        if followed is None:
            return
        try:
            async with asyncio.timeout(self._settings.consume_wait):
                while not followed.gone and (followed.next is None or followed.next <= offset):
                    await followed.wait_moved()
        except TimeoutError:
            raise RemoteLogMetadataError(
                f"offset {offset} of the metadata of {partition.topic}-{partition.partition} was written, but "
                f"not read back within {self._settings.consume_wait:g} s"
            ) from None
        if self._producer is None:
            raise RemoteLogMetadataError("the remote log metadata manager was stopped")
