"""Whether all partitions are in sync, as each broker reports it over the wire. It works with any Kafka cluster."""

from __future__ import annotations

import asyncio
import contextlib
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
    from milena.lab.chaos.place import Insight
    from milena.protocol.apis import (
        DescribeLogDirsResponse,
        DescribeQuorumResponse,
        ListPartitionReassignmentsResponse,
        MetadataResponse,
    )

INTERVAL: Final = 0.25
UNCLEAN: Final = 1
"""An election type."""
ELECTING_MS: Final = 5000
ASKING: Final = 3.0
"""Seconds for one answer."""


class Reply(Enum):
    """The result of a request. A slow or paused node is ``SILENT``, not ``GONE``."""

    ANSWERED = "answered"
    SILENT = "silent"
    """No answer in time."""
    GONE = "gone"
    """The connection was refused, or it broke."""


class Quorum(NamedTuple):
    """The metadata log: its high watermark, how far each broker has fetched it, and in which directory."""

    end: int
    fetched: Mapping[int, int]
    directories: frozenset[tuple[int, str]]
    """(broker, id)."""


class NotHealthy(AssertionError):
    """The cluster did not recover. The message says what is missing."""


class Health:
    """Sends requests to each broker at ``bootstrap``."""

    def __init__(
        self,
        client: Cluster,
        brokers: Sequence[int],
        bootstrap: Sequence[tuple[str, int]],
        topics: Sequence[Topic],
        insight: Insight | None = None,
    ) -> None:
        """``insight``: replicas that it excuses need not be in sync, and partitions whose ISR has lost records get an
        unclean election."""
        self._insight = insight
        self._client = client
        self._clock = client.runtime.clock
        self._brokers = frozenset(brokers)
        self._bootstrap = bootstrap
        self._min_isr = {topic.name: topic.min_isr for topic in topics}

    async def views(self, seconds: float = ASKING) -> list[ClusterView | None]:
        """Return the metadata of each broker; None for a broker that does not answer within so many seconds."""
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
        """Send ApiVersions to any node, also to the controller."""
        return (await self._replied(address, seconds, ApiKey.API_VERSIONS))[0]

    async def has_offline_directory(self, address: tuple[str, int], seconds: float) -> bool:
        """Whether the broker reports an offline log directory, or is gone. False if it does not answer."""
        answer: DescribeLogDirsResponse | None
        reply, answer = await self._replied(address, seconds, ApiKey.DESCRIBE_LOG_DIRS, topics=None)
        return reply is Reply.GONE or (answer is not None and any(one.error_code for one in answer.results))

    async def quorum(self, address: tuple[str, int], seconds: float) -> Quorum | None:
        """Return the state of the quorum from a broker, which asks the controller; None if there is no answer."""
        topics = [{"topic_name": METADATA_TOPIC, "partitions": [{"partition_index": 0}]}]
        answer: DescribeQuorumResponse | None
        _, answer = await self._replied(address, seconds, ApiKey.DESCRIBE_QUORUM, topics=topics)
        if answer is None or answer.error_code or not answer.topics:
            return None
        log = answer.topics[0].partitions[0]
        if log.error_code:
            return None
        ends: dict[int, int] = {}
        for one in log.observers:
            ends[one.replica_id] = max(one.log_end_offset, ends.get(one.replica_id, -1))
        directories = {(one.replica_id, str(one.replica_directory_id)) for one in log.observers}
        return Quorum(log.high_watermark, ends, frozenset(directories))

    async def reassigns(self, address: tuple[str, int], seconds: float) -> bool:
        """Whether a reassignment is under way, from a broker, which asks the controller."""
        answer: ListPartitionReassignmentsResponse | None
        key = ApiKey.LIST_PARTITION_REASSIGNMENTS
        _, answer = await self._replied(address, seconds, key, timeout_ms=int(seconds * 1000), topics=None)
        return answer is not None and bool(answer.topics)

    async def _replied(
        self, address: tuple[str, int], seconds: float, key: ApiKey, **fields: object
    ) -> tuple[Reply, Any]:
        """Send a request. The answer is None if it does not come in time."""
        try:
            async with asyncio.timeout(seconds):
                answer = await self._client.to(*address).request(key, None, timeout=seconds, **fields)
                return Reply.ANSWERED, answer
        except TimeoutError:
            return Reply.SILENT, None
        except ChannelError:
            return Reply.GONE, None
        except KafkaError as error:
            return Reply.SILENT if error.code is ErrorCode.REQUEST_TIMED_OUT else Reply.ANSWERED, None

    async def partitions(self) -> Mapping[TopicPartition, Replicas]:
        """Return the state of the partitions of the run's topics with the newest leader epoch that a broker reports;
        empty if no broker answers."""
        newest: dict[TopicPartition, tuple[int, Replicas]] = {}
        for view in await self.views():
            for name, topic in ({} if view is None else view.topics).items():
                for number, partition in topic.partitions.items():
                    place = (name, number)
                    if name in self._min_isr and partition.leader_epoch > newest.get(place, (-2, None))[0]:
                        replicas = Replicas(partition.leader, partition.isr, self._min_isr[name])
                        newest[place] = (partition.leader_epoch, replicas)
        return {place: replicas for place, (_, replicas) in newest.items()}

    async def addresses(self) -> Mapping[int, str]:
        """Return the advertised address of each broker: ``host:port``."""
        views = [view for view in await self.views() if view is not None]
        return {one.id: f"{one.host}:{one.port}" for view in views for one in view.brokers.values()}

    async def in_sync(self, seconds: float) -> None:
        """Return when every broker reports that no broker is missing and all replicas of all topics are in sync. Raise
        NotHealthy."""
        await self.wait(lambda views: [text for view in views for text in self._missing(view)], seconds)

    async def wait(self, missing: Callable[[list[ClusterView | None]], Collection[str]], seconds: float) -> None:
        """Wait until ``missing`` returns nothing. Raise NotHealthy after so many seconds."""
        end = self._clock.monotonic() + seconds
        while texts := missing(views := await self.views()):
            await self._elect_uncleanly(views)
            if self._clock.monotonic() > end:
                raise NotHealthy(f"after {seconds:.0f} seconds: {'; '.join(sorted(set(texts))[:10])}")
            await self._clock.sleep(INTERVAL)

    async def _elect_uncleanly(self, views: Sequence[ClusterView | None]) -> None:
        """Only a member of the ISR may lead by itself, also if the disk of the last one was replaced."""
        view = next((view for view in views if view is not None), None)
        if self._insight is None or view is None:
            return
        for topic, number in self._insight.shaken:
            known = view.topics.get(topic)
            if known is not None and number in known.partitions and known.partitions[number].leader < 0:
                named = [{"topic": topic, "partitions": [number]}]
                with contextlib.suppress(ChannelError, KafkaError):
                    await self._client.ask_any(
                        ApiKey.ELECT_LEADERS, election_type=UNCLEAN, topic_partitions=named, timeout_ms=ELECTING_MS
                    )

    def _is_excused(self, partition: TopicPartition, brokers: Collection[int]) -> bool:
        insight = self._insight
        return insight is not None and all(insight.excuses(partition, broker) for broker in brokers)

    def _missing(self, view: ClusterView | None) -> list[str]:
        if view is None:
            return ["a broker does not answer"]
        found = [f"broker {one} is away" for one in self._brokers - set(view.brokers)]
        for name, topic in view.topics.items():
            for number, partition in topic.partitions.items():
                if partition.leader < 0:
                    found.append(f"{name}-{number} has no leader")
                elif (behind := set(partition.replicas) ^ set(partition.isr)) and not self._is_excused(
                    (name, number), behind
                ):
                    found.append(f"{name}-{number}: ISR {sorted(partition.isr)} of {sorted(partition.replicas)}")
        return found
