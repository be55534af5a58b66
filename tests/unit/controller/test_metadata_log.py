"""The metadata log on simulated disks: what is answered survives, whatever happens."""

from __future__ import annotations

import errno
import json

import pytest

from milena.config.values import ConfigError
from milena.controller.log.formatting import BOOTSTRAP_FILE, Formatting, read_bootstrap
from milena.controller.log.metadata_log import MetadataLog
from milena.lab.world.world import World, simulate
from milena.node.metadata.snapshots import batch_records
from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import KafkaError
from milena.protocol.metadata_records import (
    BeginTransactionRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    NoOpRecord,
    RegisterControllerRecord,
)
from milena.protocol.records.batch import iter_batches
from milena.protocol.records.control_records import LeaderChange
from milena.protocol.types import Offset
from milena.storage.files.meta_properties import decode_meta_properties
from milena.storage.manager.log_dir import DirectoryError
from tests.unit.controller.cluster import CLUSTER_ID
from tests.unit.controller.simulated import HOST, Site, scenario

FOLDER = "/data/__cluster_metadata-0"


def content(log: MetadataLog) -> list[object]:
    end = log.log.log_end_offset
    data = log.log.read_bytes(log.log.log_start_offset, 1 << 24, upper=end, min_one=True)
    return [record for batch in iter_batches(data) for record in batch_records(batch)]


def test_an_empty_directory_is_formatted_and_the_log_begins_as_kafkas() -> None:
    async def steps(site: Site) -> None:
        disk = site.controller.runtime.disk
        meta = decode_meta_properties(disk.read("/data/meta.properties"))
        assert (meta.cluster_id, meta.node_id) == (CLUSTER_ID, 1000)
        assert meta.directory_id is not None
        levels = [
            FeatureLevelRecord(name="metadata.version", feature_level=33),
            FeatureLevelRecord(name="transaction.version", feature_level=2),
        ]
        assert read_bootstrap(disk, "/data") == levels
        state = json.loads(disk.read(f"{FOLDER}/quorum-state"))
        assert (state["leaderId"], state["leaderEpoch"], state["data_version"]) == (1000, 1, 0)
        change, *records = content(site.controller.metadata)
        assert isinstance(change, LeaderChange)
        assert change.leader_id == 1000
        assert records[:4] == [
            BeginTransactionRecord(name="Bootstrap records"),
            *levels,
            EndTransactionRecord(),
        ]
        assert isinstance(records[4], RegisterControllerRecord)
        assert site.controller.metadata.high_watermark == 6

    simulate(scenario(steps), seed=1)


def test_each_start_is_an_epoch_and_finds_all_that_was_answered() -> None:
    async def steps(site: Site) -> None:
        await site.register(1)
        await site.create("t", 3)
        site.machine.power_off()
        site = await site.restart()
        assert site.controller.metadata.epoch == 2
        assert site.controller.cluster_id == CLUSTER_ID
        assert len(site.controller.state.image.topics["t"].partitions) == 3
        assert site.controller.state.image.metadata_version == 33
        site.machine.kill()
        site = await site.restart()
        assert site.controller.metadata.epoch == 3
        bootstraps = [r for r in content(site.controller.metadata) if isinstance(r, BeginTransactionRecord)]
        assert len(bootstraps) == 1

    simulate(scenario(steps), seed=2)


@pytest.mark.parametrize("seed", range(8))
def test_topics_created_until_the_power_fails_are_there_afterwards(seed: int) -> None:
    async def steps(site: Site) -> None:
        await site.register(1)
        answered: list[str] = []
        clock = site.controller.runtime.clock
        clock.call_later(0.03 + seed / 500, site.machine.power_off)
        number = 0
        while site.machine.alive:
            try:
                topic = await site.create(f"t{number}")
            except (ConnectionError, KafkaError):
                break
            answered.append(topic.name)
            number += 1
        assert answered
        site = await site.restart()
        assert set(answered) <= set(site.controller.state.image.topics)

    simulate(scenario(steps), seed=seed)


def test_nothing_is_answered_or_given_to_observers_before_it_is_synced() -> None:
    async def steps(site: Site) -> None:
        await site.register(1)
        metadata = site.controller.metadata
        committed = metadata.high_watermark
        done = metadata.write([NoOpRecord()])
        assert not done.done()
        assert (metadata.high_watermark, metadata.log.log_end_offset) == (committed, committed + 1)
        await done
        assert metadata.high_watermark == committed + 1
        assert metadata.write(()).done()

    simulate(scenario(steps), seed=3)


@pytest.mark.parametrize("operation", ["sync", "append"])
def test_a_disk_that_fails_ends_the_controller(operation: str) -> None:
    async def run(world: World) -> None:
        site = await Site.start(world)
        await site.register(1)
        world.machine(HOST).storage.fail(FOLDER, errno.EIO, operation=operation)
        with pytest.raises(ConnectionError):
            await site.create("t")
        assert not site.machine.alive
        assert len(site.machine.failures) == 1

    simulate(run, seed=4)


def test_an_idle_controller_writes_a_record_without_content_now_and_then() -> None:
    async def steps(site: Site) -> None:
        before = site.controller.metadata.high_watermark
        await site.controller.runtime.clock.sleep(2.05)
        assert 3 <= site.controller.metadata.high_watermark - before <= 5
        assert isinstance(content(site.controller.metadata)[-1], NoOpRecord)

    simulate(scenario(steps), seed=5)


def test_a_snapshot_replaces_the_log_before_it_and_is_loaded_at_the_next_start() -> None:
    limits = {
        "metadata_log_max_record_bytes_between_snapshots": 3000,
        "metadata_max_retention_bytes": 5000,
        "internal_metadata_log_segment_bytes": 2000,
        "metadata_log_segment_bytes": 8388608,
    }

    async def steps(site: Site) -> None:
        await site.register(1)
        for number in range(60):
            await site.create(f"t{number}", 2)
            await site.controller.runtime.clock.sleep(0.1)
        snapshots = site.controller.metadata.snapshots
        assert snapshots.ids
        assert site.controller.metadata.log.log_start_offset == snapshots.ids[0].end_offset > 0
        before = site.controller.state.image
        site.machine.power_off()
        site = await site.restart(**limits)
        after = site.controller.state.image
        assert after.topics == before.topics
        assert after.features == before.features
        assert len(site.controller.state.index.in_isr(1)) == 120
        await site.create("another")

    simulate(scenario(steps, **limits), seed=6)


def test_an_open_transaction_is_aborted_by_the_next_leader() -> None:
    async def steps(site: Site) -> None:
        metadata = site.controller.metadata
        await metadata.write(
            [BeginTransactionRecord(name="x"), FeatureLevelRecord(name="group.version", feature_level=1)]
        )
        site.machine.kill()
        site = await site.restart()
        assert not site.controller.state.in_transaction
        assert "group.version" not in site.controller.state.image.features
        await site.register(1)

    simulate(scenario(steps), seed=7)


def test_levels_are_chosen_when_the_log_is_formatted_and_not_later() -> None:
    async def run(world: World) -> None:
        chosen = Formatting.parse(
            cluster_id=CLUSTER_ID,
            features=["transaction.version=2", "eligible.leader.replicas.version=1"],
            release_version="4.1",
        )
        site = await Site.start(world, formatting=chosen)
        expected = {"metadata.version": 27, "eligible.leader.replicas.version": 1, "transaction.version": 2}
        assert site.controller.state.image.features == expected
        assert site.controller.state.image.config(4, "") == {"min.insync.replicas": "1"}
        records = read_bootstrap(site.controller.runtime.disk, "/data") or []
        assert [record.name for record in records if isinstance(record, FeatureLevelRecord)] == [
            "metadata.version",
            "eligible.leader.replicas.version",
            "transaction.version",
        ]
        site.machine.kill()
        site = await site.restart()
        assert site.controller.state.image.features == expected

    simulate(run, seed=8)


def test_a_log_with_a_level_that_the_release_does_not_support_is_refused() -> None:
    """``FeatureControlManager.replay`` fails then."""

    async def run(world: World) -> None:
        site = await Site.start(
            world, formatting=Formatting.parse(cluster_id=CLUSTER_ID, release="4.3"), kafka_version="4.3"
        )
        assert site.controller.state.image.metadata_version == 30
        site.machine.kill()
        site = await site.restart()
        update = [{"feature": "metadata.version", "max_version_level": 33, "upgrade_type": 1}]
        assert (await site.ask(ApiKey.UPDATE_FEATURES, feature_updates=update)).error_code == 0
        site.machine.kill()
        message = r"metadata\.version is 33 \(4\.4-IV2\), and this node supports 7 to 30 with kafka\.version=4\.3"
        with pytest.raises(DirectoryError, match=message):
            await site.restart(kafka_version="4.3")

    simulate(run, seed=9)


def test_a_directory_of_another_cluster_or_a_second_process_is_refused() -> None:
    async def run(world: World) -> None:
        site = await Site.start(world)
        site.machine.kill()
        await site.machine.wait_ended()
        with pytest.raises(DirectoryError, match="belongs to cluster"):
            await Site.start(world, client=site.client, formatting=Formatting("another"))
        world.machine(HOST).kill()
        await world.machine(HOST).wait_ended()
        with pytest.raises(DirectoryError, match="belongs to node 1000"):
            await Site.start(world, client=site.client, node_id=1001, controller_quorum_voters="1001@c1:9093")

    simulate(run, seed=9)


def test_a_stopped_controller_leaves_a_log_that_needs_no_recovery() -> None:
    async def steps(site: Site) -> None:
        await site.register(1)
        await site.create("t")
        end = Offset(site.controller.metadata.log.log_end_offset)
        await site.controller.stop()
        await site.controller.stop()
        site.machine.power_off()
        site = await site.restart()
        assert site.controller.metadata.log.epochs.latest_entry == (2, end)

    simulate(scenario(steps), seed=10)


def test_a_missing_bootstrap_file_means_the_usual_levels() -> None:
    async def run(world: World) -> None:
        site = await Site.start(world)
        site.machine.kill()
        await site.machine.wait_ended()
        storage = site.machine.storage
        for path in [path for path in storage.files if FOLDER in path or BOOTSTRAP_FILE in path]:
            del storage.files[path]
        site = await site.restart()
        assert site.controller.state.image.features == {"metadata.version": 33, "transaction.version": 2}

    simulate(run, seed=11)


def test_a_damaged_log_is_one_clear_sentence() -> None:
    async def run(world: World) -> None:
        site = await Site.start(world)
        site.machine.kill()
        await site.machine.wait_ended()
        site.machine.storage.files[f"{FOLDER}/quorum-state"].data[:] = b"nothing"
        with pytest.raises(
            DirectoryError, match=r"^the metadata log in .* cannot be used: .*quorum-state: not a quorum"
        ):
            await Site.start(world, client=site.client)

    simulate(run, seed=12)


def test_other_voters_are_refused_before_anything_is_touched() -> None:
    async def run(world: World) -> None:
        with pytest.raises(ConfigError, match=r"controller\.quorum\.voters names 1000, 1001: only node 1000"):
            await Site.start(world, controller_quorum_voters="1000@c1:9093,1001@c2:9093")
        assert not world.machine(HOST).storage.files

    simulate(run, seed=13)


def test_a_broker_of_the_same_process_can_lock_the_directory_that_they_share() -> None:
    async def run(world: World) -> None:
        site = await Site.start(
            world,
            process_roles="broker,controller",
            listeners="CONTROLLER://c1:9093,PLAINTEXT://c1:9092",
            advertised_listeners="PLAINTEXT://c1:9092",
        )
        site.controller.runtime.disk.lock("/data/.lock")()
        await site.controller.stop()

    simulate(run, seed=14)


def test_the_gauges_show_the_cluster() -> None:
    async def steps(site: Site) -> None:
        epoch = await site.register(1)
        await site.create("t", 3)
        gauge = "kafka_controller_kafkacontroller_"
        read = site.controller.metrics.value
        assert [read(gauge + name) for name in ("activecontrollercount", "activebrokercount", "fencedbrokercount")] == [
            1,
            1,
            0,
        ]
        assert [read(gauge + name) for name in ("globaltopiccount", "globalpartitioncount")] == [1, 3]
        await site.beat(1, epoch, want_fence=True)
        assert [read(gauge + name) for name in ("offlinepartitionscount", "fencedbrokercount")] == [3, 1]
        assert read(gauge + "lastcommittedrecordoffset") == read(gauge + "lastappliedrecordoffset")

    simulate(scenario(steps), seed=15)


@pytest.mark.parametrize("atomic", [True, False])
def test_a_change_that_fits_into_no_batch_is_refused_or_takes_several(
    monkeypatch: pytest.MonkeyPatch, atomic: bool
) -> None:
    async def steps(site: Site) -> None:
        monkeypatch.setattr("milena.controller.log.batches.MAX_RECORDS_PER_BATCH", 2)
        metadata = site.controller.metadata
        before = metadata.log.log_end_offset
        if atomic:
            with pytest.raises(KafkaError, match="do not fit into one metadata batch"):
                metadata.write([NoOpRecord()] * 5)
        else:
            await metadata.write([NoOpRecord()] * 5, atomic=False)
        data = metadata.log.read_bytes(Offset(0), 1 << 24, upper=metadata.log.log_end_offset, min_one=True)
        counts = [batch.last_offset_delta + 1 for batch in iter_batches(data) if batch.base_offset >= before]
        assert counts == ([] if atomic else [2, 2, 1])

    simulate(scenario(steps), seed=1)
