"""Records that contradict the metadata fail their command: they are neither written nor answered."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

import pytest

from milena.controller.commands.heartbeats import fence_gone
from milena.controller.rules.record_checks import check_records
from milena.lab.world.world import simulate
from milena.protocol.invariants import BrokenInvariant
from milena.protocol.metadata_records import (
    BrokerRegistrationChangeRecord,
    FeatureLevelRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnregisterBrokerRecord,
)
from milena.protocol.types import LeaderEpoch, Offset
from tests.unit.controller.cluster import Cluster, directory, incarnation
from tests.unit.controller.simulated import Site, scenario

TOPIC, NEW = UUID(int=77), UUID(int=78)


def partition(**fields: Any) -> PartitionRecord:
    """Another partition of the topic that there is, on brokers 1, 2 and 3."""
    given: dict[str, Any] = {
        "partition_id": 1,
        "topic_id": TOPIC,
        "replicas": (1, 2, 3),
        "isr": (1, 2, 3),
        "leader": 1,
        "leader_epoch": 0,
        "partition_epoch": 0,
        "directories": tuple(map(directory, (1, 2, 3))),
    }
    return PartitionRecord(**(given | fields))


def change(**fields: Any) -> PartitionChangeRecord:
    given: dict[str, Any] = {"partition_id": 0, "topic_id": TOPIC} | fields
    return PartitionChangeRecord(**given)


def registered(epoch: int) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(broker_id=1, broker_epoch=epoch, incarnation_id=incarnation(1, 1))


BREAKING: dict[str, tuple[Sequence[object], str]] = {
    "a topic twice": ([TopicRecord(name="t", topic_id=NEW)], "topic t .* is created twice"),
    "a topic that was not there": ([RemoveTopicRecord(topic_id=NEW)], "is removed but unknown"),
    "a partition of no topic": ([partition(topic_id=NEW)], "of an unknown topic"),
    "a partition twice": ([partition(partition_id=0)], "is created twice"),
    "a partition twice in a batch": ([partition(), partition()], "is created twice"),
    "a partition of a later epoch": ([partition(leader_epoch=3)], "starts in leader epoch 3"),
    "a partition without replicas": ([partition(replicas=(), isr=(), leader=-1, directories=())], r"has replicas \(\)"),
    "a replica twice": ([partition(replicas=(1, 1, 2), isr=(1,))], r"has replicas \(1, 1, 2\)"),
    "an ISR beyond the replicas": ([change(isr=(1, 4))], r"ISR \(1, 4\) of replicas \(1, 2, 3\)"),
    "a member twice": ([change(isr=(1, 1))], r"ISR \(1, 1\)"),
    "an ISR without its leader": ([change(isr=(2, 3))], "leader 1 outside of its ISR"),
    "a leader outside of the ISR": ([change(isr=(1, 2)), change(leader=3)], "leader 3 outside of its ISR"),
    "an ELR within the ISR": ([change(eligible_leader_replicas=(2,))], "ELR"),
    "one that is added and no replica": ([change(adding_replicas=(4,))], r"adds \(4,\)"),
    "one that is removed and no replica": ([change(removing_replicas=(4,))], r"removes \(4,\)"),
    "a directory too few": ([change(directories=(directory(1),))], "has 1 directories"),
    "a change of no partition": ([change(partition_id=7)], "is changed but unknown"),
    "a broker epoch of another offset": ([registered(epoch=3)], "broker 1 gets epoch 3 at offset"),
    "a change in another broker epoch": (
        [BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=99, fenced=1)],
        "in epoch 99, but registered with",
    ),
    "another broker epoch that goes": ([UnregisterBrokerRecord(broker_id=1, broker_epoch=99)], "in epoch 99"),
    "producer ids that were given away": (
        [ProducerIdsRecord(broker_id=1, broker_epoch=1, next_producer_id=0)],
        "producer ids up to 0",
    ),
    "producer ids for an unknown broker": (
        [ProducerIdsRecord(broker_id=1, broker_epoch=99, next_producer_id=1000)],
        "changed in epoch 99",
    ),
    "a cluster without a version": ([FeatureLevelRecord(name="metadata.version", feature_level=0)], "from level 33"),
    "a level below zero": ([FeatureLevelRecord(name="kraft.version", feature_level=-1)], "to -1"),
}


@pytest.mark.parametrize(("batch", "why"), BREAKING.values(), ids=BREAKING)
def test_a_batch_that_contradicts_the_metadata_is_refused(batch: Sequence[object], why: str) -> None:
    cluster = Cluster(3)
    topic = TopicRecord(name="t", topic_id=TOPIC)
    cluster.write([topic, partition(partition_id=0)])
    with pytest.raises(BrokenInvariant, match=why):
        check_records(cluster.state.image, batch, cluster.state.next_offset)


def test_a_partition_that_another_version_left_unsound_holds_up_no_fencing() -> None:
    cluster = Cluster(3)
    cluster.assign_topic(1, 2, name="sound")
    topic = cluster.assign_topic(1, 2)
    outside = change(topic_id=topic, isr=(2, 3), leader=1)
    cluster.state.replay([outside], base_offset=cluster.state.next_offset, epoch=LeaderEpoch(1), timestamp_ms=1)
    cluster.write([change(topic_id=topic, directories=(directory(1), directory(2)))])
    cluster.commit(fence_gone(cluster.state, cluster.state.image.brokers[2]))
    assert cluster.state.image.brokers[2].fenced
    assert cluster.partition("sound").isr == (1,)


def test_a_batch_may_build_on_itself() -> None:
    cluster = Cluster(3)
    topic = TopicRecord(name="t", topic_id=TOPIC)
    batch = [topic, partition(), change(partition_id=1, isr=(2,), leader=2), RemoveTopicRecord(topic_id=TOPIC)]
    check_records(cluster.state.image, batch, cluster.state.next_offset)


def test_what_is_refused_is_not_written_and_the_next_command_is() -> None:
    async def steps(site: Site) -> None:
        await site.register(1)
        metadata = site.controller.metadata
        end, image = metadata.log.log_end_offset, metadata.image
        with pytest.raises(BrokenInvariant):
            metadata.write([NoOpRecord(), RemoveTopicRecord(topic_id=NEW)])
        assert (metadata.log.log_end_offset, metadata.image.offset) == (end, image.offset)
        assert (await site.create("t")).error_code == 0

    simulate(scenario(steps), seed=1)


def an_image_that_is_ahead(site: Site) -> None:
    state = site.controller.state
    state.next_offset = Offset(state.next_offset + 1)


def an_image_of_a_later_epoch(site: Site) -> None:
    site.controller.state.image.epoch = LeaderEpoch(9)


def records_that_the_image_did_not_take(site: Site) -> None:
    state = site.controller.state
    replay = state.replay

    def shorter(batch: Sequence[Any], **place: Any) -> Any:
        return replay(batch[1:], **place)

    object.__setattr__(site.controller.metadata, "_state", _Shorter(state, shorter))


class _Shorter:
    """A state that loses the first record of a batch."""

    def __init__(self, state: Any, replay: Callable[..., Any]) -> None:
        self._state = state
        self.replay = replay

    def __getattr__(self, name: str) -> Any:
        return getattr(self._state, name)


@pytest.mark.parametrize(
    ("corrupt", "why"),
    [
        (an_image_that_is_ahead, "the image is at offset"),
        (an_image_of_a_later_epoch, "the image is of epoch 9"),
        (records_that_the_image_did_not_take, "2 records from"),
    ],
)
def test_an_image_that_contradicts_the_log_ends_the_controller(corrupt: Callable[[Site], None], why: str) -> None:
    async def steps(site: Site) -> None:
        corrupt(site)
        with pytest.raises(BrokenInvariant, match=why):
            site.controller.metadata.write([NoOpRecord(), NoOpRecord()])
        assert [failure for failure in site.machine.failures if "cannot be written" in str(failure)]
        site.machine.failures.clear()

    simulate(scenario(steps), seed=1)


def test_answers_wait_in_the_order_of_the_log() -> None:
    async def steps(site: Site) -> None:
        metadata = site.controller.metadata
        later: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        metadata._waiting.append((Offset(1 << 40), later))
        with pytest.raises(BrokenInvariant, match=f"after one for {1 << 40}"):
            metadata.write([NoOpRecord()])
        assert not later.done()

    simulate(scenario(steps), seed=1)
