"""A cluster of one broker that answers a client's requests from a script, without a network."""

from __future__ import annotations

import asyncio
import dataclasses
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from typing import Any

from milena.client.cluster import Cluster
from milena.node.links.outgoing import Channel, ChannelError
from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import ErrorCode
from milena.protocol.records.batch import BatchView
from milena.protocol.records.records import iter_records
from milena.protocol.requests import messages
from milena.protocol.requests.produce import ProducedPartition, decode_produce_request, encode_produce_response
from milena.protocol.schemas.registry import REGISTRY
from milena.runtime.clock import SystemClock
from milena.runtime.process import real_runtime

TOPIC = "orders"
PARTITIONS = 3
PRODUCER = 4000

LOST = "the connection breaks before the answer"
"""In ``ScriptedCluster.errors``: the broker executes the request, but the answer does not arrive."""


class SteppedClock(SystemClock):
    """A clock that moves when something waits."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def time_ms(self) -> int:
        return int(self.now * 1000)

    async def sleep(self, seconds: float) -> None:
        self.now += seconds
        await asyncio.sleep(0)


@dataclasses.dataclass
class Written:
    """A batch in the log. ``version`` is that of the Produce request."""

    partition: int
    values: list[bytes | None]
    epoch: int
    sequence: int
    transactional: bool
    version: int


class ScriptedCluster(Cluster):
    """``transaction_version``: the finalized level. ``errors``: codes that requests of an API are answered with first.
    ``requests``: the APIs that were requested with their versions, without Metadata and FindCoordinator."""

    def __init__(self, transaction_version: int = 2) -> None:
        self.clock = SteppedClock()
        super().__init__(dataclasses.replace(real_runtime(), clock=self.clock), [("broker", 9092)])
        self.transaction_version = transaction_version
        self.features_epoch = 0
        self.epoch = -1
        self.errors: defaultdict[ApiKey, deque[ErrorCode | str]] = defaultdict(deque)
        self.requests: list[tuple[ApiKey, int, Any]] = []
        self.lookups = 0
        self.log: list[Written] = []
        self.versions = {key: api.kafka for key, api in REGISTRY.items()}
        self.before: Callable[[ApiKey], None] = lambda key: None

    def separate_channel(self, host: str, port: int) -> Channel:
        return ScriptedChannel(self, host, port)

    async def pause(self, attempt: int) -> None:
        await self.clock.sleep(1.0)

    def finalize(self, transaction_version: int) -> None:
        """Change the level. Connections learn it with the next request, as if they had been opened again."""
        self.transaction_version = transaction_version
        self.features_epoch += 1

    def asked(self) -> list[str]:
        """The APIs that were requested, in order."""
        return [key.name for key, _, _ in self.requests]

    def request(self, key: ApiKey) -> Any:
        """The last request of an API."""
        return next(request for asked, _, request in reversed(self.requests) if asked is key)

    def version(self, key: ApiKey) -> int:
        """The version of the last request of an API."""
        return [version for asked, version, _ in self.requests if asked is key][-1]

    def answer(self, key: ApiKey, version: int, request: Any) -> dict[str, object]:
        self.before(key)
        error = self.errors[key].popleft() if self.errors[key] else ErrorCode.NONE
        code = ErrorCode.NONE if isinstance(error, str) else error
        fields: dict[str, object] = self._answers()[key](version, request, code)
        if error == LOST:
            raise ChannelError(LOST)
        return fields

    def _answers(self) -> dict[ApiKey, Callable[[int, Any, ErrorCode], dict[str, object]]]:
        return {
            ApiKey.METADATA: self._metadata,
            ApiKey.FIND_COORDINATOR: self._find_coordinator,
            ApiKey.INIT_PRODUCER_ID: self._init_producer_id,
            ApiKey.ADD_PARTITIONS_TO_TXN: self._add_partitions,
            ApiKey.ADD_OFFSETS_TO_TXN: lambda version, request, code: {"error_code": code},
            ApiKey.TXN_OFFSET_COMMIT: self._commit_offsets,
            ApiKey.END_TXN: self._end,
            ApiKey.OFFSET_FETCH: self._offsets,
        }

    def _metadata(self, version: int, request: Any, code: ErrorCode) -> dict[str, object]:
        partitions = [
            {"error_code": 0, "partition_index": one, "leader_id": 1, "replica_nodes": [1], "isr_nodes": [1]}
            for one in range(PARTITIONS)
        ]
        topic = {"error_code": 0, "name": TOPIC, "is_internal": False, "partitions": partitions}
        brokers = [{"node_id": 1, "host": "broker", "port": 9092}]
        return {"brokers": brokers, "controller_id": 1, "topics": [topic]}

    def _find_coordinator(self, version: int, request: Any, code: ErrorCode) -> dict[str, object]:
        self.lookups += 1
        one = {"key": request.coordinator_keys[0], "node_id": 1, "host": "broker", "port": 9092, "error_code": code}
        return {"coordinators": [one]}

    def _init_producer_id(self, version: int, request: Any, code: ErrorCode) -> dict[str, object]:
        if code is ErrorCode.NONE:
            self.epoch += 1
        return {"error_code": code, "producer_id": PRODUCER, "producer_epoch": self.epoch}

    def _add_partitions(self, version: int, request: Any, code: ErrorCode) -> dict[str, object]:
        results = []
        for topic in request.v3_and_below_topics:
            by_partition = [
                {"partition_index": one, "partition_error_code": ErrorCode.OPERATION_NOT_ATTEMPTED if code else 0}
                for one in topic.partitions
            ]
            by_partition[-1]["partition_error_code"] = code
            results.append({"name": topic.name, "results_by_partition": by_partition})
        return {"results_by_topic_v3_and_below": results}

    def _commit_offsets(self, version: int, request: Any, code: ErrorCode) -> dict[str, object]:
        return {
            "topics": [
                {
                    "name": topic.name,
                    "partitions": [
                        {"partition_index": one.partition_index, "error_code": code} for one in topic.partitions
                    ],
                }
                for topic in request.topics
            ]
        }

    def _offsets(self, version: int, request: Any, code: ErrorCode) -> dict[str, object]:
        one = {"partition_index": 1, "committed_offset": -1 if code else 42, "metadata": "host-1", "error_code": code}
        return {"groups": [{"group_id": "billing", "topics": [{"name": TOPIC, "partitions": [one]}], "error_code": 0}]}

    def _end(self, version: int, request: Any, code: ErrorCode) -> dict[str, object]:
        if version < 5:
            return {"error_code": code}
        if code is ErrorCode.NONE:
            self.epoch += 1
        return {"error_code": code, "producer_id": PRODUCER, "producer_epoch": self.epoch}

    def produce(self, version: int, body: Sequence[Any]) -> bytes:
        request = decode_produce_request(version, b"".join(body))
        self.requests.append((ApiKey.PRODUCE, version, request))
        self.before(ApiKey.PRODUCE)
        error = self.errors[ApiKey.PRODUCE].popleft() if self.errors[ApiKey.PRODUCE] else ErrorCode.NONE
        [(name, topic_id, [(partition, data)])] = request.topics
        assert data is not None
        batch = BatchView(memoryview(data))
        code = ErrorCode.NONE if isinstance(error, str) else error
        if code is ErrorCode.NONE and all(
            (one.partition, one.epoch, one.sequence) != (partition, batch.producer_epoch, batch.base_sequence)
            for one in self.log
        ):
            values = [record.value for record in iter_records(batch)]
            written = Written(
                partition, values, batch.producer_epoch, batch.base_sequence, batch.is_transactional, version
            )
            self.log.append(written)
        if error == LOST:
            raise ChannelError(LOST)
        result = ProducedPartition(partition, error_code=code, base_offset=len(self.log) - 1)
        return encode_produce_response(version, [(name, topic_id, [result])])


class ScriptedChannel(Channel):
    """A channel that is always connected."""

    def __init__(self, cluster: ScriptedCluster, host: str, port: int) -> None:
        super().__init__(cluster.runtime, host, port, "client")
        self._script = cluster
        self.versions = cluster.versions

    @property
    def connected(self) -> bool:
        return True

    async def connect(self) -> None:
        self.features = {"transaction.version": self._script.transaction_version}
        self.features_epoch = self._script.features_epoch

    async def request(
        self, key: ApiKey, version: int | None = None, /, *, timeout: float | None = None, **fields: object
    ) -> Any:
        await asyncio.sleep(0)
        chosen = self.choose(key, version)
        request = messages.build_request(key, chosen, **fields)
        if key not in (ApiKey.METADATA, ApiKey.FIND_COORDINATOR):
            self._script.requests.append((key, chosen, request))
        return messages.build_response(key, chosen, **self._script.answer(key, chosen, request))

    async def request_raw(
        self, key: ApiKey, version: int, body: Any, decode: Any, *, timeout: float | None = None
    ) -> Any:
        await asyncio.sleep(0)
        return decode(memoryview(self._script.produce(version, body)))
