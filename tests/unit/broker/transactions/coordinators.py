"""A transaction coordinator that leads the only partition of __transaction_state, and its requests."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from milena.broker.apis import add_offsets_to_txn, add_partitions_to_txn, end_txn, init_producer_id
from milena.broker.replica.partition import Partition
from milena.broker.transactions.coordinator import TransactionCoordinator
from milena.broker.transactions.decisions import NoProducerIds
from milena.broker.transactions.markers import MarkerWork
from milena.broker.transactions.model import TransactionSettings
from milena.node.api import RequestContext
from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.requests import messages
from milena.protocol.types import TRANSACTION_TOPIC, LeaderEpoch, ProducerId
from tests.unit.broker.fixtures import ME, Bench, Request, at_once, led_by
from tests.unit.broker.groups.coordinators import Tasks
from tests.unit.broker.transactions.worlds import Ids

TOPIC, COUNT = "orders", 3
"""A topic of the image, and the number of its partitions."""


class Blocks:
    """Producer ids that have to be allocated while ``ids.available`` is not set."""

    def __init__(self) -> None:
        self.ids = Ids()
        self.refusal: ErrorCode | None = None

    def take(self) -> ProducerId | None:
        try:
            return self.ids.next()
        except NoProducerIds:
            return None

    async def ready(self) -> None:
        if self.refusal is not None:
            raise KafkaError(self.refusal)
        self.ids.available = True

    async def next(self) -> ProducerId:
        await self.ready()
        return self.ids.next()


class Markers:
    """The markers that are to be written. ``write`` reports all of them as written."""

    def __init__(self) -> None:
        self.sent: list[MarkerWork] = []
        self.cancelled: list[int] = []

    def send(self, work: MarkerWork) -> None:
        self.sent.append(work)

    def cancel(self, state_partition: int) -> None:
        self.cancelled.append(state_partition)
        self.sent = [work for work in self.sent if work.state_partition != state_partition]

    def write(self) -> None:
        sent, self.sent = self.sent, []
        for work in sent:
            work.done()


class Coordinated:
    """A coordinator and its partition, which has only this replica. It is the ``node`` of API modules."""

    def __init__(self, bench: Bench, *, min_isr: int = 1, **settings: Any) -> None:
        self.bench = bench
        self.tasks = Tasks()
        self.markers = Markers()
        self.producer_ids = Blocks()
        self.version = 2
        self.topic = bench.topic(TOPIC, *[led_by(ME)] * COUNT)
        self.image = bench.image
        self.groups = SimpleNamespace(partition_for=lambda group: 0)
        self.created: list[str] = []
        self.auto_create = SimpleNamespace(create_internal=self.created.extend)
        bench.topic("__consumer_offsets", led_by(ME))
        self.partition: Partition = bench.led(TRANSACTION_TOPIC, min_insync_replicas=min_isr)
        runtime: Any = bench.runtime
        self.runtime = runtime
        tasks: Any = self.tasks
        self.transactions = TransactionCoordinator(
            runtime,
            tasks,
            turn=lambda: bench.clock.sleep(0),
            partition_count=lambda: 1,
            version=lambda: self.version,
            producer_ids=self.producer_ids,
            markers=self.markers,
            settings=TransactionSettings(commit_timeout_ms=5_000, **settings),
        )
        self.epoch = 0
        self.elect()
        self.tasks.run()

    def elect(self, epochs: int = 1) -> None:
        """Elect this broker in a new leader epoch. The partition is loaded by ``tasks.run``."""
        self.epoch += epochs
        self.partition.become(led_by(ME, leader_epoch=self.epoch))
        self.transactions.elected(0, LeaderEpoch(self.epoch), self.partition)

    def elect_with_follower(self) -> None:
        """Elect this broker in the next leader epoch, with an in-sync follower that fetches nothing, and load."""
        self.epoch += 1
        self.partition.become(led_by(ME, replicas=(ME, 2), isr=(ME, 2), leader_epoch=self.epoch))
        self.transactions.elected(0, LeaderEpoch(self.epoch), self.partition)
        self.tasks.run()

    def ask(self, module: Any, key: ApiKey, version: int, /, **fields: Any) -> Request:
        """Pass a request to its handler like the dispatcher. It may be answered later."""
        request = Request(key, version)
        decoded = messages.decode_request(key, version, messages.encode_request(key, version, **fields))
        request.ctx.request = decoded
        try:
            answer = at_once(module.handle(self, request.ctx, decoded))
        except KafkaError as error:
            answer = failure(module, request.ctx, decoded, error)
        if answer is not None:
            request.ctx.respond_fields(**answer)
        return request

    def init(
        self, transactional_id: str | None = "x", *, version: int = 5, timeout_ms: int = 60_000, **fields: Any
    ) -> Request:
        return self.ask(
            init_producer_id,
            ApiKey.INIT_PRODUCER_ID,
            version,
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
            **fields,
        )

    def add(
        self, epoch: int, *partitions: int, transactional_id: str = "x", version: int = 3, producer_id: int = 1_000
    ) -> Request:
        return self.ask(
            add_partitions_to_txn,
            ApiKey.ADD_PARTITIONS_TO_TXN,
            version,
            v3_and_below_transactional_id=transactional_id,
            v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=[{"name": TOPIC, "partitions": partitions}],
        )

    def add_batch(self, *transactions: dict[str, Any], version: int = 5) -> Request:
        key = ApiKey.ADD_PARTITIONS_TO_TXN
        return self.ask(add_partitions_to_txn, key, version, transactions=list(transactions))

    def steps(self, *transactions: dict[str, Any]) -> int:
        """The number of steps in which a batched AddPartitionsToTxn is executed."""
        key, version = ApiKey.ADD_PARTITIONS_TO_TXN, 5
        ctx = Request(key, version).ctx
        frame = messages.encode_request(key, version, transactions=list(transactions))
        ctx.request = messages.decode_request(key, version, frame)
        return 1 + sum(1 for _ in add_partitions_to_txn.handle(self, ctx, ctx.request))

    def add_offsets(self, epoch: int, *, version: int = 4, producer_id: int = 1_000) -> Request:
        return self.ask(
            add_offsets_to_txn,
            ApiKey.ADD_OFFSETS_TO_TXN,
            version,
            transactional_id="x",
            producer_id=producer_id,
            producer_epoch=epoch,
            group_id="g",
        )

    def end(self, epoch: int, *, commit: bool = True, version: int = 5, producer_id: int = 1_000) -> Request:
        return self.ask(
            end_txn,
            ApiKey.END_TXN,
            version,
            transactional_id="x",
            producer_id=producer_id,
            producer_epoch=epoch,
            committed=commit,
        )


def failure(module: Any, ctx: RequestContext, decoded: Any, error: KafkaError) -> dict[str, object]:
    """What the dispatcher answers if a handler raises."""
    failed: Callable[..., dict[str, object]] | None = getattr(module, "failed", None)
    return {"error_code": error.code} if failed is None else failed(ctx, decoded, error)


def one(
    transactional_id: str, producer_id: int, epoch: int, *partitions: int, verify: bool = False, topic: str = TOPIC
) -> dict[str, Any]:
    """A transaction of a batched AddPartitionsToTxn."""
    return {
        "transactional_id": transactional_id,
        "producer_id": producer_id,
        "producer_epoch": epoch,
        "verify_only": verify,
        "topics": [{"name": topic, "partitions": partitions}],
    }
