"""Remote log metadata in its topic, while brokers start and stop (docs/kafka-semantics.md: The metadata topic)."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from uuid import UUID

import pytest

from milena.client import admin
from milena.client.consumer import ConsumedRecord, Consumer
from milena.lab.cluster import host_of
from milena.protocol.types import Offset
from milena.tiered.metadata.metadata_manager import MetadataNotReady, RemoteLogMetadataError
from milena.tiered.metadata.metadata_partitioner import REMOTE_LOG_METADATA_TOPIC, metadata_partition
from milena.tiered.metadata.serialization import serialize
from milena.tiered.metadata.snapshot import FILE_NAME, Snapshot, encode_snapshot
from milena.tiered.metadata.topic_based_manager import TopicMetadataManager
from milena.tiered.segments.segment_metadata import (
    RemoteLogSegmentMetadata,
)
from tests.simulation.metadata_managers import (
    DELETED,
    DELETING,
    FINISHED,
    P0,
    PARTITIONS,
    SETTINGS,
    STARTED,
    Tier,
    beside_brokers,
    folder,
    known,
    of,
)
from tests.simulation.steps import seeds, until
from tests.unit.tiered.segments import KIP405_5, update


async def copy(manager: TopicMetadataManager, one: RemoteLogSegmentMetadata) -> None:
    await manager.add(one)
    await manager.update(update(one, FINISHED))


# -- publishing and reading


def test_the_first_manager_creates_the_topic() -> None:
    """The topic is not compacted: compaction would remove copies that were only started (review of KIP-1266)."""

    async def scenario(tier: Tier) -> None:
        idle = tier.manager(2)
        await asyncio.sleep(5)
        assert REMOTE_LOG_METADATA_TOPIC not in (await tier.client.metadata()).topics
        manager = await tier.ready()
        view = await tier.client.topic(REMOTE_LOG_METADATA_TOPIC, fresh=True)
        assert len(view.partitions) == 3
        assert all(len(one.replicas) == 3 for one in view.partitions.values())
        configs = {one.name: one.value for one in await admin.describe_configs(tier.client, 2, view.name)}
        expected = {"cleanup.policy": "delete", "retention.ms": "-1", "min.insync.replicas": "2"}
        assert {name: configs[name] for name in expected} == expected
        for one in (idle, manager):
            await one.stop()

    beside_brokers(scenario)


def test_a_publication_is_in_the_cache_when_the_call_returns_and_soon_in_the_caches_of_others() -> None:
    async def scenario(tier: Tier) -> None:
        one, other = await tier.ready(1), await tier.ready(2)
        for number, metadata in enumerate(KIP405_5, start=1):
            await copy(one, metadata)
            assert known(one)[-1] == (number, "COPY_SEGMENT_FINISHED")
        await until(lambda: known(other) == known(one), 5)
        await other.update(update(KIP405_5[1], DELETING))
        await other.update(update(KIP405_5[1], DELETED))
        assert [number for number, _ in known(other)] == [1, 3]
        await until(lambda: known(other) == known(one), 5)

    beside_brokers(scenario)


def test_records_have_no_key_and_are_in_the_partition_that_kafka_reads() -> None:
    async def scenario(tier: Tier) -> None:
        manager = await tier.ready()
        for partition in PARTITIONS:
            await manager.add(of(partition, partition.partition))
        consumer = Consumer(tier.client)
        consumer.assign({(REMOTE_LOG_METADATA_TOPIC, number): 0 for number in range(3)})
        records: list[ConsumedRecord] = []
        while len(records) < len(PARTITIONS):
            records += await consumer.poll(1)
        await consumer.close()
        assert {record.key for record in records} == {None}
        expected = {serialize(of(one, one.partition)): metadata_partition(one, 3) for one in PARTITIONS}
        assert {record.value: record.partition for record in records} == expected
        assert set(expected.values()) == {0, 1, 2}

    beside_brokers(scenario)


def test_the_client_ids_name_the_broker_and_the_purpose() -> None:
    async def scenario(tier: Tier) -> None:
        manager = await tier.ready()
        name = "__remote_log_metadata_client_1"
        rules = []
        for broker in tier.cluster.brokers.values():
            for api, purpose in (("PRODUCE", "producer"), ("FETCH", "consumer")):
                rules.append((broker, await broker.lab_commands.call("delay", api=api, peer=f"{name}_{purpose}", ms=1)))
        await copy(manager, of(P0, 1))
        hits = [
            (rule["api"], rule["hits"] > 0)
            for broker, _ in rules[::2]
            for rule in await broker.lab_commands.call("rules")
        ]
        assert {api for api, hit in hits if hit} == {"PRODUCE", "FETCH"}

    beside_brokers(scenario)


def test_a_partition_is_ready_once_everything_from_before_its_assignment_is_read() -> None:
    async def scenario(tier: Tier) -> None:
        one = await tier.ready(1)
        every = [of(P0, number, 10 * number) for number in range(600)]
        await tier.publish(*(data for each in every for data in (serialize(each), serialize(update(each, FINISHED)))))
        late = tier.manager(2)
        late.assign([], [P0])
        with pytest.raises(MetadataNotReady):
            late.cache(P0)
        assert not late.is_ready(P0) and not await late.wait_ready(P0, 0)
        assert await late.wait_ready(P0, 30)
        assert known(late) == known(one) and len(known(late)) == 600
        assert not late.is_ready(PARTITIONS[1])

    beside_brokers(scenario)


def test_partitions_that_are_assigned_later_are_read_from_the_start_without_duplicates_for_others() -> None:
    """The metadata topic has 3 partitions, so that most of the 8 partitions share one with another."""

    async def scenario(tier: Tier) -> None:
        one = await tier.ready(1)
        for round_ in range(4):
            for partition in PARTITIONS:
                await copy(one, of(partition, 10 * partition.partition + round_, 10 * round_))
        await one.update(update(of(P0, 0), DELETING))
        await one.update(update(of(P0, 0), DELETED))
        late = tier.manager(2)
        for partition in PARTITIONS:
            late.assign([partition], [])
            assert await late.wait_ready(partition, 30)
            assert all(late.is_ready(before) for before in PARTITIONS[: partition.partition])
        assert all(known(late, partition) == known(one, partition) for partition in PARTITIONS)
        assert [number for number, _ in known(late)] == [1, 2, 3]

    beside_brokers(scenario)


def test_a_partition_without_records_is_ready_at_once_even_while_others_are_not() -> None:
    async def scenario(tier: Tier) -> None:
        manager = await tier.ready(partitions=PARTITIONS[:4])
        await asyncio.sleep(1)
        manager.assign(PARTITIONS[4:], [])
        for partition in PARTITIONS[4:]:
            assert await manager.wait_ready(partition, 0.2)

    beside_brokers(scenario)


def test_a_manager_keeps_no_metadata_of_a_partition_that_was_unassigned() -> None:
    async def scenario(tier: Tier) -> None:
        manager = await tier.ready()
        await copy(manager, of(P0, 1))
        manager.unassign([P0])
        with pytest.raises(MetadataNotReady):
            manager.cache(P0)
        await manager.update(update(of(P0, 1), DELETING))
        manager.assign([P0], [])
        assert await manager.wait_ready(P0, 10)
        assert known(manager) == [(1, "DELETE_SEGMENT_STARTED")]

    beside_brokers(scenario)


def test_add_accepts_only_the_start_of_a_copy_and_update_refuses_it() -> None:
    async def scenario(tier: Tier) -> None:
        manager = await tier.ready()
        with pytest.raises(ValueError, match="not COPY_SEGMENT_FINISHED"):
            await manager.add(replace(of(P0, 1), state=FINISHED))
        with pytest.raises(ValueError, match="not an update"):
            await manager.update(update(of(P0, 1), STARTED))

    beside_brokers(scenario)


# -- records that others wrote


def test_records_of_an_unknown_version_are_skipped_and_the_others_are_read() -> None:
    async def scenario(tier: Tier) -> None:
        one = await tier.ready(1)
        await copy(one, of(P0, 1))
        await tier.publish(b"\x01\x00\x07 of the future", b"\x02\x00\x00", b"\x01\x63\x00", b"", b"\xff" * 50)
        await copy(one, of(P0, 2, 10))
        assert [number for number, _ in known(one)] == [1, 2]
        late = await tier.ready(2)
        assert known(late) == known(one)
        await tier.end(late, 2)
        assert folder(P0) + "/" + FILE_NAME not in tier.files(2), "a newer version must read those records"

    beside_brokers(scenario)


def test_a_segment_that_is_added_twice_is_listed_once() -> None:
    async def scenario(tier: Tier) -> None:
        manager = await tier.ready()
        await copy(manager, of(P0, 1))
        await tier.publish(serialize(of(P0, 1)), serialize(update(of(P0, 1), FINISHED)), serialize(of(P0, 1)))
        await copy(manager, of(P0, 2, 10))
        assert known(manager) == [(1, "COPY_SEGMENT_FINISHED"), (2, "COPY_SEGMENT_FINISHED")]
        assert [one.id.int for one in manager.cache(P0).find(of(P0, 1).epochs[0].epoch, Offset(3))] == [1]

    beside_brokers(scenario)


def test_an_update_with_an_invalid_state_transition_is_dropped() -> None:
    """KAFKA-15632."""

    async def scenario(tier: Tier) -> None:
        manager = await tier.ready()
        await copy(manager, of(P0, 1))
        await manager.update(update(of(P0, 1), DELETED))
        await manager.update(update(of(P0, 9), FINISHED))
        assert known(manager) == [(1, "COPY_SEGMENT_FINISHED")]

    beside_brokers(scenario)


# -- trouble


@pytest.mark.parametrize("seed", seeds(3))
def test_published_metadata_survives_the_loss_of_any_broker(seed: int) -> None:
    async def scenario(tier: Tier) -> None:
        one, other = await tier.ready(1), await tier.ready(2)
        published = 0
        for broker in (1, 2, 3):
            await tier.cluster.kill(host_of(broker))
            for _ in range(5):
                await copy(one, of(PARTITIONS[published % 8], published, 10 * published))
                published += 1
            await tier.cluster.start_broker(broker)
        every = [known(one, partition) for partition in PARTITIONS]
        assert sorted(number for of_one in every for number, _ in of_one) == list(range(15))
        await until(lambda: [known(other, partition) for partition in PARTITIONS] == every, 30)
        third = await tier.ready(3)
        assert [known(third, partition) for partition in PARTITIONS] == every

    beside_brokers(scenario, seed=seed)


def test_a_publication_that_is_not_read_back_in_time_is_an_error() -> None:
    async def scenario(tier: Tier) -> None:
        settings = replace(SETTINGS, consume_wait=3.0)
        manager = tier.manager(settings=settings)
        manager.assign([P0], [])
        assert await manager.wait_ready(P0, 60)
        held = [
            await broker.lab_commands.call("hold", api="Fetch", peer="__remote_log_metadata_client_1_consumer")
            for broker in tier.cluster.brokers.values()
        ]
        with pytest.raises(RemoteLogMetadataError, match=r"offset 0 .* not read back within 3 s"):
            await manager.add(of(P0, 1))
        for broker, rule in zip(tier.cluster.brokers.values(), held, strict=True):
            await broker.lab_commands.call("release", rule=rule["rule"])
        await manager.update(update(of(P0, 1), FINISHED))
        assert known(manager) == [(1, "COPY_SEGMENT_FINISHED")]

    beside_brokers(scenario)


def test_stopping_a_manager_fails_the_calls_that_wait() -> None:
    async def scenario(tier: Tier) -> None:
        manager = await tier.ready()
        for broker in (1, 2, 3):
            await tier.cluster.kill(host_of(broker))
        adding = asyncio.ensure_future(manager.add(of(P0, 1)))
        await asyncio.sleep(1)
        await manager.stop()
        with pytest.raises(RemoteLogMetadataError):
            await adding
        with pytest.raises(RemoteLogMetadataError):
            await manager.add(of(P0, 1))

    beside_brokers(scenario)


@pytest.mark.parametrize("after", [0.0, 0.05, 5.0])
def test_a_manager_can_be_stopped_while_it_looks_for_its_topic(after: float) -> None:
    """KAFKA-17766: in Kafka closing waited for the initialization, which waited for closing."""

    async def scenario(tier: Tier) -> None:
        manager = tier.manager()
        manager.assign([P0], [])
        waiting = asyncio.ensure_future(manager.wait_ready(P0, 60))
        await asyncio.sleep(after)
        async with asyncio.timeout(1):
            await manager.stop()
            await manager.stop()
        assert not manager.is_ready(P0)
        waiting.cancel()
        await tier.cluster.start_broker(2)
        await tier.cluster.start_broker(3)
        await asyncio.sleep(5)
        assert REMOTE_LOG_METADATA_TOPIC not in (await tier.client.metadata()).topics

    beside_brokers(scenario, brokers=1)


def test_a_topic_with_another_number_of_partitions_ends_the_node_with_both_numbers() -> None:
    async def scenario(tier: Tier) -> None:
        await tier.ready(1)
        manager = tier.manager(2, replace(SETTINGS, partitions=50))
        manager.assign([P0], [])
        machine = tier.cluster.world.machine("tier-2")
        await until(lambda: not machine.alive, 10)
        assert "has 3 partitions" in machine.failures[0][0] and "is 50" in machine.failures[0][0]

    beside_brokers(scenario, alive=False)


def test_the_topic_is_created_once_there_are_enough_brokers() -> None:
    async def scenario(tier: Tier) -> None:
        manager = tier.manager()
        manager.assign([P0], [])
        await asyncio.sleep(20)
        assert not manager.is_ready(P0)
        with pytest.raises(RemoteLogMetadataError):
            await manager.add(of(P0, 1))
        await tier.cluster.start_broker(2)
        await tier.cluster.start_broker(3)
        assert await manager.wait_ready(P0, 10)

    beside_brokers(scenario, brokers=1)


def test_a_node_ends_if_the_topic_cannot_be_created_within_the_configured_time() -> None:
    async def scenario(tier: Tier) -> None:
        tier.manager(settings=replace(SETTINGS, retry_timeout=20.0)).assign([P0], [])
        machine = tier.cluster.world.machine("tier-1")
        await asyncio.sleep(19)
        assert machine.alive
        await until(lambda: not machine.alive, 10)
        assert "cannot be used" in machine.failures[0][0]

    beside_brokers(scenario, brokers=1, alive=False)


@pytest.mark.parametrize("more", [1, 10], ids=["shorter", "longer"])
def test_a_topic_that_was_created_again_is_read_from_its_start(more: int) -> None:
    async def scenario(tier: Tier) -> None:
        manager = await tier.ready()
        for number in range(5):
            await copy(manager, of(P0, number, 10 * number))
        await admin.delete_topics(tier.client, [REMOTE_LOG_METADATA_TOPIC])
        await asyncio.sleep(2)
        again = await tier.ready(2)
        for number in range(more):
            await copy(again, of(P0, 50 + number, 10 * number))
        await until(lambda: manager.is_ready(P0) and known(manager) == known(again), 90)

    beside_brokers(scenario)


# -- restarts


def test_a_restarted_manager_loads_the_snapshot_and_reads_later_records() -> None:
    async def scenario(tier: Tier) -> None:
        one, other = await tier.ready(1), await tier.ready(2)
        await copy(one, of(P0, 1))
        await tier.end(one)
        await copy(other, of(P0, 2, 10))
        put(tier, of(P0, 55, 50), topic_id=(await tier.client.topic(REMOTE_LOG_METADATA_TOPIC, fresh=True)).id)
        again = await tier.ready(1)
        assert [number for number, _ in known(again)] == [2, 55], "55 is in the snapshot alone"

    def put(tier: Tier, one: RemoteLogSegmentMetadata, topic_id: UUID | None) -> None:
        runtime = tier.cluster.world.machine("tier-1").start()
        assert f"{folder(P0)}/{FILE_NAME}" in tier.files()
        data = encode_snapshot(P0, Snapshot(topic_id, Offset(2), [replace(one, state=FINISHED)], {}))
        runtime.disk.write_atomic(f"{folder(P0)}/{FILE_NAME}", data)
        tier.cluster.world.machine("tier-1").kill()

    beside_brokers(scenario)


@pytest.mark.parametrize("damage", ["lost", "cut", "of another topic", "beyond the end", "a folder"])
def test_without_a_usable_snapshot_all_metadata_is_read_from_the_topic(damage: str) -> None:
    async def scenario(tier: Tier) -> None:
        one = await tier.ready(1)
        for number in (1, 2, 3):
            await copy(one, of(P0, number, 10 * number))
        before = known(one)
        await tier.end(one)
        disk = tier.cluster.world.machine("tier-1").start().disk
        path = f"{folder(P0)}/{FILE_NAME}"
        data = disk.read(path)
        topic_id = (await tier.client.topic(REMOTE_LOG_METADATA_TOPIC, fresh=True)).id
        disk.remove(path)
        if damage == "cut":
            disk.write_atomic(path, data[:-1])
        elif damage == "of another topic":
            disk.write_atomic(path, encode_snapshot(P0, Snapshot(UUID(int=1), Offset(0), [of(P0, 55)], {})))
        elif damage == "beyond the end":
            disk.write_atomic(path, encode_snapshot(P0, Snapshot(topic_id, Offset(99), [of(P0, 55)], {})))
        elif damage == "a folder":
            disk.make_folders(path)
        tier.cluster.world.machine("tier-1").kill()
        assert known(await tier.ready(1)) == before

    beside_brokers(scenario)


def test_snapshots_are_written_every_minute_and_a_crash_loses_no_metadata() -> None:
    async def scenario(tier: Tier) -> None:
        one = await tier.ready(1)
        await copy(one, of(P0, 1))
        assert tier.files() == []
        await asyncio.sleep(70)
        assert tier.files() == [f"{folder(P0)}/{FILE_NAME}"]
        await copy(one, of(P0, 2, 10))
        before = known(one)
        await tier.cluster.lose_power("tier-1")
        assert known(await tier.ready(1)) == before

    beside_brokers(scenario)
