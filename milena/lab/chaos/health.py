"""Whether all partitions are in sync, as each broker tells it over the wire: so it works with any cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from milena.client.cluster import Cluster, ClusterView, view_of
from milena.lab.chaos.topics import Topic
from milena.lab.chaos.writable import Replicas
from milena.node.links.outgoing import ChannelError
from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.types import METADATA_TOPIC, TopicPartition

if TYPE_CHECKING:
    from milena.protocol.apis import (
        DescribeLogDirsResponse,
        DescribeQuorumResponse,
        ListPartitionReassignmentsResponse,
        MetadataResponse,
    )

INTERVAL: Final = 0.25
ASKING: Final = 3.0
"""Seconds for one answer."""


class Reply(Enum):
    """What came of a request. A node that is slow, or stands still, is silent; it is not gone."""

    ANSWERED = "answered"
    SILENT = "silent"
    """Nothing in time."""
    GONE = "gone"
    """There is no connection, or it broke."""


class Quorum(NamedTuple):
    """The metadata log: its high watermark, how far each broker has fetched it, and in which directory."""

    end: int
    fetched: Mapping[int, int]
    directories: frozenset[tuple[int, str]]
    """(broker, id)."""


class NotHealthy(AssertionError):
    """The cluster did not recover. The message says what is missing."""


class Health:
    """Asks the brokers at ``bootstrap``, one by one."""

    def __init__(
        self, client: Cluster, brokers: Sequence[int], bootstrap: Sequence[tuple[str, int]], topics: Sequence[Topic]
    ) -> None:
        self._client = client
        self._clock = client.runtime.clock
        self._brokers = frozenset(brokers)
        self._bootstrap = bootstrap
        self._min_isr = {topic.name: topic.min_isr for topic in topics}

    async def views(self, seconds: float = ASKING) -> list[ClusterView | None]:
        """The metadata of each broker, None from one that does not answer within so many seconds."""
        return list(await asyncio.gather(*(self.view(address, seconds) for address in self._bootstrap)))

    async def view(self, address: tuple[str, int], seconds: float = ASKING) -> ClusterView | None:
        response: MetadataResponse | None
        _, response = await self._replied(
            address,
            seconds,
            ApiKey.METADATA,
            topics=None,
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=False,
        )
        return None if response is None else view_of(response)

    async def reply(self, address: tuple[str, int], seconds: float) -> Reply:
        """Of any node, also the controller."""
        return (await self._replied(address, seconds, ApiKey.API_VERSIONS))[0]

    async def has_offline_directory(self, address: tuple[str, int], seconds: float) -> bool:
        """Whether the broker tells so, or is gone. One that is slow tells nothing."""
        told: DescribeLogDirsResponse | None
        reply, told = await self._replied(address, seconds, ApiKey.DESCRIBE_LOG_DIRS, topics=None)
        return reply is Reply.GONE or (told is not None and any(one.error_code for one in told.results))

    async def quorum(self, address: tuple[str, int], seconds: float) -> Quorum | None:
        """As the controller tells a broker that is asked; None if there is no answer."""
        topics = [{"topic_name": METADATA_TOPIC, "partitions": [{"partition_index": 0}]}]
        told: DescribeQuorumResponse | None
        _, told = await self._replied(address, seconds, ApiKey.DESCRIBE_QUORUM, topics=topics)
        if told is None or told.error_code or not told.topics:
            return None
        log = told.topics[0].partitions[0]
        if log.error_code:
            return None
        ends: dict[int, int] = {}
        for one in log.observers:
            ends[one.replica_id] = max(one.log_end_offset, ends.get(one.replica_id, -1))
        directories = {(one.replica_id, str(one.replica_directory_id)) for one in log.observers}
        return Quorum(log.high_watermark, ends, frozenset(directories))

    async def reassigns(self, address: tuple[str, int], seconds: float) -> bool:
        """Whether a reassignment is under way, as the controller tells a broker that is asked."""
        told: ListPartitionReassignmentsResponse | None
        key = ApiKey.LIST_PARTITION_REASSIGNMENTS
        _, told = await self._replied(address, seconds, key, timeout_ms=int(seconds * 1000), topics=None)
        return told is not None and bool(told.topics)

    async def _replied(
        self, address: tuple[str, int], seconds: float, key: ApiKey, **fields: object
    ) -> tuple[Reply, Any]:
        """The answer is None if there is none in time."""
        try:
            async with asyncio.timeout(seconds):
                told = await self._client.to(*address).request(key, None, timeout=seconds, **fields)
                return Reply.ANSWERED, told
        except TimeoutError:
            return Reply.SILENT, None
        except ChannelError:
            return Reply.GONE, None
        except KafkaError as error:
            return Reply.SILENT if error.code is ErrorCode.REQUEST_TIMED_OUT else Reply.ANSWERED, None

    async def partitions(self) -> Mapping[TopicPartition, Replicas]:
        """Those of the run's topics with the newest leader epoch that a broker tells; none if nobody answers."""
        newest: dict[TopicPartition, tuple[int, Replicas]] = {}
        for view in await self.views():
            for name, topic in ({} if view is None else view.topics).items():
                for number, told in topic.partitions.items():
                    place = (name, number)
                    if name in self._min_isr and told.leader_epoch > newest.get(place, (-2, None))[0]:
                        replicas = Replicas(told.leader, told.isr, self._min_isr[name])
                        newest[place] = (told.leader_epoch, replicas)
        return {place: replicas for place, (_, replicas) in newest.items()}

    async def addresses(self) -> Mapping[int, str]:
        """The address of each broker as the others advertise it: ``host:port``."""
        views = [view for view in await self.views() if view is not None]
        return {one.id: f"{one.host}:{one.port}" for view in views for one in view.brokers.values()}

    async def in_sync(self, seconds: float) -> None:
        """Returns once every broker tells that all are there and that all replicas of all topics are in sync. Raises
        NotHealthy."""
        await self.wait(lambda views: [text for view in views for text in self._missing(view)], seconds)

    async def wait(self, missing: Callable[[list[ClusterView | None]], Collection[str]], seconds: float) -> None:
        """Until nothing is missing. Raises NotHealthy."""
        end = self._clock.monotonic() + seconds
        while texts := missing(await self.views()):
            if self._clock.monotonic() > end:
                raise NotHealthy(f"after {seconds:.0f} seconds: {'; '.join(sorted(set(texts))[:10])}")
            await self._clock.sleep(INTERVAL)

    def _missing(self, view: ClusterView | None) -> list[str]:
        if view is None:
            return ["a broker does not answer"]
        found = [f"broker {one} is away" for one in self._brokers - set(view.brokers)]
        for name, topic in view.topics.items():
            for number, told in topic.partitions.items():
                if told.leader < 0:
                    found.append(f"{name}-{number} has no leader")
                elif set(told.isr) != set(told.replicas):
                    found.append(f"{name}-{number}: ISR {sorted(told.isr)} of {sorted(told.replicas)}")
        return found
