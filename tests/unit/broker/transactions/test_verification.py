"""The requests to transaction coordinators: their batching, their errors (Kafka's AddPartitionsToTxnManager)."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from milena.broker.transactions import verification
from milena.broker.transactions.additions import Added
from milena.broker.transactions.meters import VerificationMeters
from milena.broker.transactions.verification import Operation, PartitionErrors, TransactionVerification
from milena.node.metrics import Metrics
from milena.protocol.api_keys import ApiKey
from milena.protocol.cooperative import ELEMENTS_PER_YIELD
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.types import NodeId, ProducerId, ProducerIdAndEpoch, TopicPartition
from milena.runtime.containment import Containment
from tests.unit.broker.hand_clock import HandClock

HERE = NodeId(1)


@dataclass
class Sent:
    """A request that a coordinator has received."""

    broker: NodeId
    version: int
    transactions: list[dict[str, Any]]
    response: asyncio.Future[Any]

    def answer(self, *errors: ErrorCode, top: ErrorCode = ErrorCode.NONE) -> None:
        """Give the n-th transaction the n-th error, NONE if there are fewer."""
        padded = [*errors, *[ErrorCode.NONE] * len(self.transactions)]
        results = [_result(transaction, error) for transaction, error in zip(self.transactions, padded, strict=False)]
        self.response.set_result(SimpleNamespace(error_code=top, results_by_transaction=results))


def _result(transaction: dict[str, Any], error: ErrorCode) -> SimpleNamespace:
    topics = [
        SimpleNamespace(
            name=topic["name"],
            results_by_partition=[
                SimpleNamespace(partition_index=index, partition_error_code=error) for index in topic["partitions"]
            ],
        )
        for topic in transaction["topics"]
    ]
    return SimpleNamespace(transactional_id=transaction["transactional_id"], topic_results=topics)


@dataclass
class Own:
    """The coordinator of this broker, whose answers the test gives. It is asked if ``is_here`` is set."""

    is_here: bool = False
    cost: int = 1
    """What each question counts for a ``YieldBudget``."""
    asked: list[tuple[str, int, list[TopicPartition], bool, Added]] = field(default_factory=list)

    def is_asked(self, node: NodeId) -> bool:
        return self.is_here

    def add_or_verify(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Mapping[TopicPartition, None],
        done: Added,
        *,
        verify_only: bool,
    ) -> int:
        self.asked.append((transactional_id, producer.epoch, list(partitions), verify_only, done))
        return self.cost

    def answer(self, error: ErrorCode = ErrorCode.NONE) -> None:
        """Give all partitions of the first question that is not answered this error."""
        *_, partitions, _, done = self.asked.pop(0)
        done(dict.fromkeys(partitions, error))


@dataclass
class Coordinators:
    """Links to brokers, whose answers the test gives; and the verifications of one broker."""

    served: int = 5
    """The version that all brokers serve."""
    node: NodeId | None = HERE
    """The broker of all transactional ids."""
    sent: list[Sent] = field(default_factory=list)
    clock: HandClock = field(default_factory=HandClock)
    metrics: Metrics = field(default_factory=Metrics)
    results: dict[str, PartitionErrors] = field(default_factory=dict)
    tasks: list[asyncio.Task[object]] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    """The names of verifications whose result raises an error."""
    own: Own = field(default_factory=Own)

    def __post_init__(self) -> None:
        self.contained = Containment(self.clock)
        self.verification = TransactionVerification(
            SimpleNamespace(clock=self.clock, contained=self.contained),  # type: ignore[arg-type]
            self,  # type: ignore[arg-type]
            self,
            lambda _: self.node,
            self.own,
            VerificationMeters(self.metrics),
        )

    def attempt(self, work: Coroutine[Any, Any, object], *, name: str) -> None:
        self.tasks.append(asyncio.ensure_future(work))

    async def version(self, broker: NodeId, key: ApiKey) -> int:
        assert key is ApiKey.ADD_PARTITIONS_TO_TXN
        return self.served

    async def request(
        self, broker: NodeId, key: ApiKey, version: int | None = None, *, timeout: float | None = None, **fields: Any
    ) -> Any:
        assert version is not None
        self.sent.append(Sent(broker, version, fields["transactions"], asyncio.get_running_loop().create_future()))
        return await self.sent[-1].response

    def ask(
        self,
        name: str,
        *partitions: TopicPartition,
        transactional_id: str = "tx",
        producer: int = 7,
        epoch: int = 0,
        operation: Operation = Operation.GENERIC_ERROR,
    ) -> None:
        """Ask about partitions; ``results`` has the result under ``name``."""

        def done(errors: PartitionErrors) -> None:
            assert name not in self.results
            self.results[name] = errors
            if name in self.refused:
                raise ValueError(name)

        self.verification.add_or_verify(
            transactional_id, ProducerId(producer), epoch, partitions or (("t", 0),), operation, done
        )

    async def run(self) -> None:
        for _ in range(5):
            await asyncio.sleep(0)

    async def next(self) -> Sent:
        """The next request, which must be the only one in flight."""
        await self.run()
        assert len(self.sent) == 1
        return self.sent.pop()


@pytest.fixture
def world() -> Coordinators:
    return Coordinators()


class TestRequests:
    async def test_the_request_has_the_partitions_by_topic(self, world: Coordinators) -> None:
        world.ask("a", ("t", 0), ("u", 1), ("t", 2), epoch=3)
        sent = await world.next()
        assert (sent.broker, sent.version) == (HERE, 5)
        assert sent.transactions == [
            {
                "transactional_id": "tx",
                "producer_id": 7,
                "producer_epoch": 3,
                "verify_only": True,
                "topics": [{"name": "t", "partitions": [0, 2]}, {"name": "u", "partitions": [1]}],
            }
        ]
        sent.answer()
        await world.run()
        assert world.results == {"a": {}}

    async def test_partitions_are_added_for_clients_of_version_2(self, world: Coordinators) -> None:
        world.ask("a", operation=Operation.ADD_PARTITION)
        assert [one["verify_only"] for one in (await world.next()).transactions] == [False]

    async def test_one_request_is_in_flight_and_the_next_one_has_all_that_came_meanwhile(
        self, world: Coordinators
    ) -> None:
        world.ask("a")
        first = await world.next()
        world.ask("b", transactional_id="other")
        world.ask("c", ("t", 1))
        world.ask("d", ("t", 2))
        await world.run()
        assert world.sent == []
        first.answer()
        second = await world.next()
        assert [(one["transactional_id"], one["topics"][0]["partitions"]) for one in second.transactions] == [
            ("other", [0]),
            ("tx", [1, 2]),
        ]
        second.answer(ErrorCode.INVALID_TXN_STATE)
        await world.run()
        assert world.results == {"a": {}, "b": {("t", 0): ErrorCode.INVALID_TXN_STATE}, "c": {}, "d": {}}

    @pytest.mark.parametrize(("producer", "operation"), [(8, Operation.GENERIC_ERROR), (7, Operation.ADD_PARTITION)])
    async def test_a_transactional_id_has_one_transaction_in_a_request(
        self, world: Coordinators, producer: int, operation: Operation
    ) -> None:
        world.ask("a")
        world.ask("b", producer=producer, operation=operation)
        (await world.next()).answer(ErrorCode.NONE)
        (await world.next()).answer(ErrorCode.INVALID_TXN_STATE)
        await world.run()
        assert world.results == {"a": {}, "b": {("t", 0): ErrorCode.INVALID_TXN_STATE}}

    async def test_coordinators_on_different_brokers_are_asked_at_once(self, world: Coordinators) -> None:
        world.ask("a")
        world.node = NodeId(2)
        world.ask("b")
        await world.run()
        assert [sent.broker for sent in world.sent] == [1, 2]

    async def test_a_large_verification_is_divided(self, world: Coordinators, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(verification, "MAX_PARTITIONS", 4)
        world.ask("a", *[("t", index) for index in range(10)])
        seen = []
        for error in (ErrorCode.NONE, ErrorCode.INVALID_TXN_STATE, ErrorCode.NONE):
            assert world.results == {}
            sent = await world.next()
            seen.append(sent.transactions[0]["topics"][0]["partitions"])
            sent.answer(error)
        await world.run()
        assert seen == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
        assert world.results == {"a": dict.fromkeys([("t", 4), ("t", 5), ("t", 6), ("t", 7)], ErrorCode(48))}

    async def test_small_verifications_share_a_request_up_to_the_limit(
        self, world: Coordinators, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(verification, "MAX_PARTITIONS", 4)
        for number in range(3):
            world.ask(f"{number}", ("t", 0), ("t", 1), transactional_id=f"{number}")
        counts = []
        while len(world.results) < 3:
            sent = await world.next()
            counts.append(len(sent.transactions))
            sent.answer()
            await world.run()
        assert counts == [2, 1]


class TestEpochs:
    async def test_a_newer_epoch_fences_waiting_verifications(self, world: Coordinators) -> None:
        world.ask("first", transactional_id="other")
        first = await world.next()
        world.ask("old", epoch=1)
        world.ask("new", epoch=2)
        assert world.results == {"old": {("t", 0): ErrorCode.INVALID_PRODUCER_EPOCH}}
        world.ask("older", epoch=0)
        assert world.results["older"] == {("t", 0): ErrorCode.INVALID_PRODUCER_EPOCH}
        first.answer()
        sent = await world.next()
        assert [one["producer_epoch"] for one in sent.transactions] == [2]
        sent.answer()
        await world.run()
        assert world.results["new"] == {}


class TestErrors:
    @pytest.mark.parametrize(
        ("operation", "error", "shown"),
        [
            (Operation.DEFAULT_ERROR, ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.INVALID_TXN_STATE),
            (Operation.GENERIC_ERROR, ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.TRANSACTION_ABORTABLE),
            (Operation.ADD_PARTITION, ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.TRANSACTION_ABORTABLE),
            (Operation.GENERIC_ERROR, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH),
            (Operation.ADD_PARTITION, ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.CONCURRENT_TRANSACTIONS),
        ],
    )
    async def test_errors_are_those_that_the_client_knows(
        self, world: Coordinators, operation: Operation, error: ErrorCode, shown: ErrorCode
    ) -> None:
        world.ask("a", operation=operation)
        (await world.next()).answer(error)
        await world.run()
        assert world.results == {"a": {("t", 0): shown}}

    @pytest.mark.parametrize(
        ("top", "shown"),
        [
            (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.INVALID_TXN_STATE),
            (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        ],
    )
    async def test_an_error_of_the_whole_request_is_that_of_all(
        self, world: Coordinators, top: ErrorCode, shown: ErrorCode
    ) -> None:
        world.ask("a", ("t", 0), ("t", 1))
        (await world.next()).answer(top=top)
        await world.run()
        assert world.results == {"a": {("t", 0): shown, ("t", 1): shown}}

    async def test_without_a_coordinator_the_answer_comes_at_once(self, world: Coordinators) -> None:
        world.node = None
        world.ask("a")
        assert world.results == {"a": {("t", 0): ErrorCode.COORDINATOR_NOT_AVAILABLE}}

    @pytest.mark.parametrize("failure", [ConnectionError("gone"), KafkaError(ErrorCode.REQUEST_TIMED_OUT)])
    async def test_a_coordinator_that_does_not_answer_is_a_network_error(
        self, world: Coordinators, failure: Exception
    ) -> None:
        world.ask("a")
        (await world.next()).response.set_exception(failure)
        world.ask("b")
        await world.run()
        assert world.results == {"a": {("t", 0): ErrorCode.NETWORK_EXCEPTION}}
        (await world.next()).answer()
        await world.run()
        assert world.results["b"] == {}

    async def test_a_transaction_that_the_response_lacks_is_not_verified(self, world: Coordinators) -> None:
        world.ask("a")
        (await world.next()).response.set_result(SimpleNamespace(error_code=0, results_by_transaction=[]))
        await world.run()
        assert world.results == {"a": {("t", 0): ErrorCode.NETWORK_EXCEPTION}}

    async def test_a_response_that_cannot_be_read_is_a_network_error_and_is_reported(self, world: Coordinators) -> None:
        world.ask("a")
        unreadable = await world.next()
        world.ask("b")
        unreadable.response.set_result(SimpleNamespace())
        await world.run()
        assert world.results == {"a": {("t", 0): ErrorCode.NETWORK_EXCEPTION}}
        assert world.contained.count == 1
        (await world.next()).answer()
        await world.run()
        assert world.results["b"] == {}

    async def test_a_request_that_fails_after_its_verification_does_not_affect_others(
        self, world: Coordinators
    ) -> None:
        world.refused.append("a")
        world.ask("a")
        world.ask("b", transactional_id="other")
        (await world.next()).answer()
        await world.run()
        assert world.results == {"a": {}, "b": {}} and world.contained.count == 1

    async def test_a_coordinator_of_an_old_release_does_not_verify(self) -> None:
        world = Coordinators(served=3)
        world.ask("a")
        await world.run()
        assert world.results == {"a": {}} and world.sent == []


class TestOwnCoordinator:
    @pytest.mark.parametrize("operation", [Operation.GENERIC_ERROR, Operation.ADD_PARTITION])
    async def test_it_is_asked_without_a_request(self, operation: Operation) -> None:
        world = Coordinators(own=Own(is_here=True))
        world.ask("a", ("t", 0), ("t", 1), epoch=3, operation=operation)
        await world.run()
        assert world.sent == [] and world.results == {}
        [(*asked, _)] = world.own.asked
        assert asked == ["tx", 3, [("t", 0), ("t", 1)], not operation.adds]
        world.own.answer()
        await world.run()
        assert world.results == {"a": {}}

    async def test_it_is_asked_once_at_a_time(self) -> None:
        world = Coordinators(own=Own(is_here=True))
        world.ask("a")
        await world.run()
        world.ask("b", ("t", 1))
        world.ask("c", ("t", 2))
        world.ask("d", transactional_id="other")
        await world.run()
        assert len(world.own.asked) == 1
        world.own.answer()
        await world.run()
        assert [(one[0], one[2]) for one in world.own.asked] == [("tx", [("t", 1), ("t", 2)]), ("other", [("t", 0)])]
        world.own.answer(ErrorCode.PRODUCER_FENCED)
        world.own.answer()
        await world.run()
        fenced = ErrorCode.INVALID_PRODUCER_EPOCH
        assert world.results == {"a": {}, "b": {("t", 1): fenced}, "c": {("t", 2): fenced}, "d": {}}

    async def test_other_tasks_run_between_transactions_that_take_long(self, monkeypatch: pytest.MonkeyPatch) -> None:
        world = Coordinators(own=Own(is_here=True, cost=ELEMENTS_PER_YIELD))
        monkeypatch.setattr(world.clock, "sleep", asyncio.sleep)
        for name in ("a", "b", "c"):
            world.ask(name, transactional_id=name, operation=Operation.ADD_PARTITION)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert len(world.own.asked) < 3
        await world.run()
        assert len(world.own.asked) == 3
        for _ in range(3):
            world.own.answer()
        await world.run()
        assert world.results == {"a": {}, "b": {}, "c": {}}

    async def test_a_failure_is_a_network_error_and_is_reported(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail(*_: object, **__: object) -> None:
            raise ValueError("a mistake")

        world = Coordinators(own=Own(is_here=True))
        monkeypatch.setattr(world.own, "add_or_verify", fail)
        world.ask("a")
        await world.run()
        assert world.results == {"a": {("t", 0): ErrorCode.NETWORK_EXCEPTION}}
        assert world.contained.count == 1


async def test_failures_and_times_are_measured(world: Coordinators) -> None:
    world.ask("a", ("t", 0), ("t", 1))
    sent = await world.next()
    world.clock.advance(0.5)
    sent.answer(ErrorCode.INVALID_TXN_STATE)
    await world.run()
    manager = "kafka_server_addpartitionstotxnmanager"
    times = world.metrics.timing(f"{manager}_verificationtimems")
    assert world.metrics.counter(f"{manager}_verificationfailurerate_total").value == 2
    assert (times.count, times.total_ms) == (1, 500)
