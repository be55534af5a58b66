"""AlterPartition requests: their contents, their responses, and when they are sent again."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from io import StringIO
from itertools import pairwise
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from milena.broker.replica.isr_proposals import MAX_IN_REQUEST, AlteredIsr, IsrProposal, IsrProposals
from milena.lab.world.world import World, simulate
from milena.node.links.outgoing import ChannelError
from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.requests import messages
from milena.protocol.types import BrokerEpoch, LeaderEpoch, NodeId, PartitionEpoch

TOPIC = UUID(int=7)
MEMBERS = ((NodeId(1), BrokerEpoch(11)), (NodeId(2), BrokerEpoch(22)))
Answer = dict[int, int] | ErrorCode | Exception


class ScriptedController:
    """A controller with given responses, in order: errors by partition, one for all, or none."""

    def __init__(self, *answers: Answer, version: int | None = None) -> None:
        self.answers = list(answers)
        self.version = version
        self.requests: list[tuple[float, Any]] = []

    def offered(self, key: ApiKey) -> int | None:
        assert key is ApiKey.ALTER_PARTITION
        return self.version

    async def request(
        self, key: ApiKey, version: int | None = None, *, timeout: float | None = None, **fields: Any
    ) -> Any:
        assert version is not None
        data = messages.encode_request(key, version, **fields)
        self.requests.append((asyncio.get_running_loop().time(), messages.decode_request(key, version, data)))
        await asyncio.sleep(0.001)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, ErrorCode):
            return SimpleNamespace(error_code=answer, topics=())
        partitions = tuple(
            SimpleNamespace(partition_index=index, error_code=error, leader_epoch=3, partition_epoch=8, isr=(1, 2))
            for index, error in answer.items()
        )
        return SimpleNamespace(error_code=0, topics=(SimpleNamespace(topic_id=TOPIC, partitions=partitions),))

    @property
    def pauses(self) -> list[float]:
        times = [time for time, _ in self.requests]
        return [round(after - before, 3) for before, after in pairwise(times)]

    def indexes(self, number: int) -> list[int]:
        return [one.partition_index for topic in self.requests[number][1].topics for one in topic.partitions]


class Sender:
    """The proposals of broker 1, whose epoch rises each time it is read."""

    def __init__(self, world: World, controller: ScriptedController) -> None:
        self.answers: list[tuple[int, AlteredIsr | ErrorCode]] = []
        self.epoch = 10
        runtime = world.machine("broker").start()
        self.proposals = IsrProposals(controller, runtime.clock, NodeId(1), self._next_epoch)
        self.proposals.start(runtime.new_tasks("test"))

    def _next_epoch(self) -> BrokerEpoch:
        self.epoch += 1
        return BrokerEpoch(self.epoch)

    def submit(self, index: int) -> bool:
        proposal = IsrProposal(
            topic_id=TOPIC,
            index=index,
            leader_epoch=LeaderEpoch(3),
            partition_epoch=PartitionEpoch(7),
            members=MEMBERS,
            done=lambda answer: self.answers.append((index, answer)),
        )
        return self.proposals.submit(proposal)


def with_controller(controller: ScriptedController, scenario: Callable[[Sender], Awaitable[None]]) -> None:
    async def run(world: World) -> None:
        await scenario(Sender(world, controller))
        world.machine("broker").kill()
        await world.machine("broker").wait_ended()

    simulate(run, seed=1)


def test_version_3_names_the_epoch_of_each_member() -> None:
    controller = ScriptedController({0: 0})

    async def scenario(sender: Sender) -> None:
        sender.submit(0)
        await asyncio.sleep(1)
        (request,) = (one for _, one in controller.requests)
        (partition,) = request.topics[0].partitions
        assert (request.broker_id, request.broker_epoch, request.topics[0].topic_id) == (1, 11, TOPIC)
        assert (partition.leader_epoch, partition.partition_epoch, partition.leader_recovery_state) == (3, 7, 0)
        assert [(one.broker_id, one.broker_epoch) for one in partition.new_isr_with_epochs] == [(1, 11), (2, 22)]
        expected = AlteredIsr(
            leader_epoch=LeaderEpoch(3), partition_epoch=PartitionEpoch(8), isr=(NodeId(1), NodeId(2))
        )
        assert sender.answers == [(0, expected)]

    with_controller(controller, scenario)


def test_version_2_has_the_plain_isr_and_version_3_the_epochs() -> None:
    controller = ScriptedController(KafkaError(ErrorCode.UNSUPPORTED_VERSION), {0: 0}, {0: 0})

    async def scenario(sender: Sender) -> None:
        sender.submit(0)
        await asyncio.sleep(0.01)
        controller.version = 2  # after the error for version 3
        await asyncio.sleep(1)
        (partition,) = controller.requests[1][1].topics[0].partitions
        assert list(partition.new_isr) == [1, 2] and len(sender.answers) == 1
        controller.version = 3
        sender.submit(0)
        await asyncio.sleep(1)
        (partition,) = controller.requests[2][1].topics[0].partitions
        assert [one.broker_epoch for one in partition.new_isr_with_epochs] == [11, 22]

    with_controller(controller, scenario)


def test_proposals_during_a_request_are_sent_together_afterwards() -> None:
    controller = ScriptedController({0: 0}, {1: 0, 2: int(ErrorCode.INELIGIBLE_REPLICA)})

    async def scenario(sender: Sender) -> None:
        sender.submit(0)
        await asyncio.sleep(0.0005)
        assert sender.submit(1) and sender.submit(2) and not sender.submit(0), "one for each partition"
        await asyncio.sleep(1)
        assert [controller.indexes(number) for number in range(2)] == [[0], [1, 2]]
        assert controller.pauses == [0.001]
        assert sender.answers[2] == (2, ErrorCode.INELIGIBLE_REPLICA)

    with_controller(controller, scenario)


@pytest.mark.parametrize(
    "failure",
    [ErrorCode.STALE_BROKER_EPOCH, ChannelError("gone"), KafkaError(ErrorCode.REQUEST_TIMED_OUT)],
    ids=["refused", "disconnected", "unanswered"],
)
def test_a_failed_request_is_sent_again_after_50_ms_with_the_current_broker_epoch(failure: Answer) -> None:
    controller = ScriptedController(failure, failure, {0: 0})

    async def scenario(sender: Sender) -> None:
        sender.submit(0)
        await asyncio.sleep(1)
        assert controller.pauses == [0.051, 0.051]
        assert [request.broker_epoch for _, request in controller.requests] == [11, 12, 13]
        assert len(sender.answers) == 1

    with_controller(controller, scenario)


def test_proposals_that_a_response_lacks_are_sent_again() -> None:
    controller = ScriptedController({1: 0}, {0: 0})

    async def scenario(sender: Sender) -> None:
        sender.submit(0)
        sender.submit(1)
        await asyncio.sleep(1)
        assert [controller.indexes(number) for number in range(2)] == [[0, 1], [0]]
        assert controller.pauses == [0.051] and [index for index, _ in sender.answers] == [1, 0]

    with_controller(controller, scenario)


def test_retriable_errors_are_sent_again_after_a_pause() -> None:
    controller = ScriptedController({0: int(ErrorCode.NOT_CONTROLLER)}, {0: 0})

    async def scenario(sender: Sender) -> None:
        sender.submit(0)
        await asyncio.sleep(0.002)
        assert sender.answers == [(0, ErrorCode.NOT_CONTROLLER)]
        sender.submit(0)
        await asyncio.sleep(1)
        assert controller.pauses == [0.051] and len(sender.answers) == 2

    with_controller(controller, scenario)


def test_a_final_error_does_not_delay_the_next_proposal() -> None:
    controller = ScriptedController({0: int(ErrorCode.INELIGIBLE_REPLICA)}, {1: 0})

    async def scenario(sender: Sender) -> None:
        sender.submit(0)
        await asyncio.sleep(0.0005)
        sender.submit(1)
        await asyncio.sleep(1)
        assert controller.pauses == [0.001] and len(sender.answers) == 2

    with_controller(controller, scenario)


def test_a_lasting_failure_is_logged_once_and_again_after_a_success(logged: StringIO) -> None:
    gone, late = ChannelError("gone"), ChannelError("late")
    controller = ScriptedController(gone, gone, late, {0: 0}, late, {0: 0})

    async def scenario(sender: Sender) -> None:
        for _ in range(2):
            sender.submit(0)
            await asyncio.sleep(1)
        reasons = [json.loads(line)["reason"] for line in logged.getvalue().splitlines() if "not changed yet" in line]
        assert reasons == ["gone", "late", "late"]

    with_controller(controller, scenario)


def test_a_request_has_at_most_the_maximum_of_proposals() -> None:
    count = 2 * MAX_IN_REQUEST + 1
    controller = ScriptedController(
        *(dict.fromkeys(range(first, first + MAX_IN_REQUEST), 0) for first in (0, MAX_IN_REQUEST))
    )
    controller.answers.append({count - 1: 0})

    async def scenario(sender: Sender) -> None:
        for index in range(count):
            sender.submit(index)
        await asyncio.sleep(1)
        assert [len(controller.indexes(number)) for number in range(3)] == [MAX_IN_REQUEST, MAX_IN_REQUEST, 1]
        assert [index for index, _ in sender.answers] == list(range(count))

    with_controller(controller, scenario)
