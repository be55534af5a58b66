"""Transactional producers of a scenario, and the requests that each of them sends.

Unlike ``milena.client``'s producer they do nothing by themselves: the scenario decides which request is sent, whether
the producer waits for its answer, and whether it repeats the request.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from milena.client.membership import GroupMetadata, by_topic
from milena.node.links.outgoing import Channel, ChannelError, only
from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.records.records import Record, build_batch
from milena.protocol.requests import messages
from milena.protocol.requests.produce import ProduceRequest, decode_produce_response, encode_produce_request
from milena.protocol.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, ProducerEpoch, ProducerId, TopicPartition

if TYPE_CHECKING:
    from milena.protocol.apis import (
        AddOffsetsToTxnResponse,
        AddPartitionsToTxnResponse,
        EndTxnResponse,
        InitProducerIdResponse,
        TxnOffsetCommitResponse,
    )

NEWEST: Final = 2
"""The newest transaction version."""
BEFORE: Final[Mapping[ApiKey, int]] = {
    ApiKey.INIT_PRODUCER_ID: 4,
    ApiKey.ADD_PARTITIONS_TO_TXN: 3,
    ApiKey.PRODUCE: 11,
    ApiKey.TXN_OFFSET_COMMIT: 4,
    ApiKey.END_TXN: 4,
}
"""The versions that a client without transaction version 2 sends at most (KIP-890)."""
ACKS_ALL: Final = -1
TIMEOUT_MS: Final = 30_000
PATIENCE: Final = 60.0
"""Seconds until a request without an answer fails; a held one must not."""


class Answer(NamedTuple):
    """``apply`` takes what the producer learns from the answer. ``offset`` is that of the first record written."""

    error: ErrorCode
    apply: Callable[[], None] = lambda: None
    offset: int = -1


Send = Callable[[Channel], Awaitable[Answer]]


@dataclass(slots=True)
class ScenarioProducer:
    """``version``: the transaction version that its client uses."""

    transactional_id: str
    version: int = NEWEST
    producer_id: ProducerId = NO_PRODUCER_ID
    epoch: ProducerEpoch = NO_PRODUCER_EPOCH
    sequences: dict[TopicPartition, int] = field(default_factory=dict)
    added: set[TopicPartition] = field(default_factory=set)
    """The partitions that the client has added to its transaction (transaction versions 0 and 1)."""

    def _become(self, producer_id: ProducerId, epoch: ProducerEpoch) -> None:
        if (producer_id, epoch) != (self.producer_id, self.epoch):
            self.producer_id, self.epoch = producer_id, epoch
            self.sequences.clear()

    async def _version(self, channel: Channel, api: ApiKey) -> int:
        await channel.connect()
        as_before = self.version < NEWEST or api is ApiKey.ADD_PARTITIONS_TO_TXN  # later versions are for brokers
        return channel.choose(api, at_most=BEFORE.get(api) if as_before else None)

    async def _request(self, channel: Channel, api: ApiKey, **fields: object) -> Any:  # noqa: ANN401 - decoded response; callers annotate it
        return await channel.request(api, await self._version(channel, api), timeout=PATIENCE, **fields)

    @property
    def _identity(self) -> dict[str, object]:
        return {
            "transactional_id": self.transactional_id,
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
        }

    def init(self, timeout_ms: int, *, continues: bool) -> Send:
        """InitProducerId. ``continues``: with the present producer id and epoch (KIP-360)."""
        producer_id, epoch = (self.producer_id, self.epoch) if continues else (NO_PRODUCER_ID, NO_PRODUCER_EPOCH)

        async def send(channel: Channel) -> Answer:
            response: InitProducerIdResponse = await self._request(
                channel,
                ApiKey.INIT_PRODUCER_ID,
                transactional_id=self.transactional_id,
                transaction_timeout_ms=timeout_ms,
                producer_id=producer_id,
                producer_epoch=epoch,
            )

            def learn() -> None:
                self._become(response.producer_id, ProducerEpoch(response.producer_epoch))
                self.added.clear()

            return Answer(ErrorCode(response.error_code), learn)

        return send

    def add_partitions(self, partitions: Collection[TopicPartition]) -> Send:
        """AddPartitionsToTxn, as a client sends it."""
        identity = {f"v3_and_below_{key}": value for key, value in self._identity.items()}
        topics = [{"name": name, "partitions": numbers} for name, numbers in by_topic(list(partitions)).items()]

        async def send(channel: Channel) -> Answer:
            response: AddPartitionsToTxnResponse = await self._request(
                channel, ApiKey.ADD_PARTITIONS_TO_TXN, v3_and_below_topics=topics, **identity
            )
            codes = [
                ErrorCode(one.partition_error_code)
                for topic in response.results_by_topic_v3_and_below
                for one in topic.results_by_partition
            ]
            error = next((code for code in codes if code not in (0, ErrorCode.OPERATION_NOT_ATTEMPTED)), ErrorCode.NONE)
            return Answer(error, lambda: self.added.update(partitions))

        return send

    def produce(self, partition: TopicPartition, values: Sequence[str], now_ms: int) -> Send:
        """Produce one batch. The sequence numbers are taken by the call."""
        topic, number = partition
        first = self.sequences.get(partition, 0)
        self.sequences[partition] = first + len(values)
        batch = build_batch(
            [Record(delta, 0, None, value.encode()) for delta, value in enumerate(values)],
            base_timestamp=now_ms,
            transactional=True,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=first,
        )
        request = ProduceRequest(
            self.transactional_id, ACKS_ALL, TIMEOUT_MS, [(topic, None, [(number, memoryview(batch))])]
        )

        async def send(channel: Channel) -> Answer:
            version = min(await self._version(channel, ApiKey.PRODUCE), 12)
            response = await channel.request_raw(
                ApiKey.PRODUCE,
                version,
                [encode_produce_request(version, request)],
                lambda body: decode_produce_response(version, body),
                timeout=PATIENCE,
            )
            found = only(only(response.topics)[2])
            return Answer(ErrorCode(found.error_code), offset=found.base_offset)

        return send

    def add_offsets(self, group: str) -> Send:
        """AddOffsetsToTxn, which a client of transaction version 2 does not send."""
        identity = self._identity

        async def send(channel: Channel) -> Answer:
            response: AddOffsetsToTxnResponse = await self._request(
                channel, ApiKey.ADD_OFFSETS_TO_TXN, group_id=group, **identity
            )
            return Answer(ErrorCode(response.error_code))

        return send

    def commit_offsets(self, offsets: Mapping[TopicPartition, int], member: GroupMetadata) -> Send:
        """TxnOffsetCommit by a member of a group, or without one (KIP-447)."""
        identity = self._identity
        topics = [
            {
                "name": topic,
                "partitions": [
                    {"partition_index": one, "committed_offset": offsets[topic, one], "committed_metadata": ""}
                    for one in numbers
                ],
            }
            for topic, numbers in by_topic(list(offsets)).items()
        ]

        async def send(channel: Channel) -> Answer:
            version = min(await self._version(channel, ApiKey.TXN_OFFSET_COMMIT), 5)
            response: TxnOffsetCommitResponse = await channel.request(
                ApiKey.TXN_OFFSET_COMMIT,
                version,
                timeout=PATIENCE,
                group_id=member.group,
                generation_id=member.generation,
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                topics=topics,
                **identity,
            )
            codes = [one.error_code for topic in response.topics for one in topic.partitions]
            return Answer(ErrorCode(next((code for code in codes if code), 0)))

        return send

    def end(self, *, commit: bool) -> Send:
        """EndTxn. With transaction version 2 the answer has the next epoch."""
        identity = self._identity

        async def send(channel: Channel) -> Answer:
            response: EndTxnResponse = await self._request(channel, ApiKey.END_TXN, committed=commit, **identity)

            def learn() -> None:
                self.added.clear()
                if messages.get(response, "producer_id", -1) >= 0:
                    self._become(response.producer_id, ProducerEpoch(response.producer_epoch))

            return Answer(ErrorCode(response.error_code), learn)

        return send


async def answer_of(channel: Channel, send: Send) -> Answer:
    """Send a request. A broken connection is the answer NETWORK_EXCEPTION, as clients name it."""
    try:
        return await send(channel)
    except KafkaError as error:
        return Answer(error.code)
    except ChannelError:
        return Answer(ErrorCode.NETWORK_EXCEPTION)
