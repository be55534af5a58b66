"""`milena tier restore`: refused calls, the files after a failure, and the metadata that the controller loads."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from milena.command_line.errors import UserError
from milena.commands.tier.command import main
from milena.node.metadata.image import NO_LEADER, MetadataImage
from milena.node.metadata.snapshots import SnapshotStore, load_image
from milena.protocol.records.batch import BatchView, pack_batch
from milena.protocol.types import ProducerEpoch, ProducerId
from milena.runtime.files import RealDisk
from milena.storage.files.producer_snapshot import encode_snapshot
from milena.storage.state.producer_state import ProducerState
from tests.unit.tiered.segments import PARTITION
from tests.unit.tiered.whole_tier import write_segment

SECOND = replace(PARTITION, partition=1)


@pytest.fixture
def tier(tmp_path: Path) -> Path:
    """A tier with topic ``t``, whose partition 1 has two leader epochs."""
    folder, disk = tmp_path / "tier", RealDisk()
    write_segment(disk, str(folder), 1, 5, 9, {0: 5}, partition=SECOND)
    write_segment(disk, str(folder), 2, 10, 19, {0: 10, 2: 15}, checkpoint={0: 3, 2: 15}, partition=SECOND)
    disk.close()
    return folder


def restore(tier: Path, folder: Path, *options: str) -> int:
    """Restore ``tier`` into ``folder``, with a metadata topic of three partitions."""
    few = ["--override", "rlmm.config.remote.log.metadata.topic.num.partitions=3"]
    return main(["restore", "--tier", str(tier), "--dir", str(folder), *few, *options])


def image_of(folder: Path) -> MetadataImage:
    disk = RealDisk()
    store = SnapshotStore(disk, str(folder / "controller-100" / "data" / "__cluster_metadata-0"))
    store.open()
    latest = store.latest()
    assert latest is not None
    image = load_image(store, latest)
    disk.close()
    return image


def test_the_restored_metadata_has_the_topics_with_their_old_ids(tier: Path, tmp_path: Path) -> None:
    folder = tmp_path / "again"
    assert restore(tier, folder, "--partitions", "t=3", "--config", "retention.ms=86400000") == 0
    image = image_of(folder)
    topic, own = image.topics["t"], image.topics["__remote_log_metadata"]
    assert (topic.id, len(topic.partitions), len(own.partitions)) == (PARTITION.topic_id, 3, 3)
    assert [one.leader_epoch for one in topic.partitions.values()] == [0, 3, 0]
    for one in topic.partitions.values():
        assert one.leader == NO_LEADER and set(one.isr) == set(one.replicas) == {1, 2, 3}
        directories = [image.brokers[broker].log_dirs[0] for broker in one.replicas]
        assert list(one.directories) == directories
    assert all(broker.fenced and broker.epoch < image.offset for broker in image.brokers.values())
    assert image.config(2, "t") == {
        "remote.storage.enable": "true",
        "retention.ms": "86400000",
        "retention.bytes": "-1",
    }
    assert (folder / "broker-1" / "data" / "t-1" / f"{20:020d}.log").exists()


def test_producer_ids_of_the_old_cluster_are_not_assigned_again(tier: Path, tmp_path: Path) -> None:
    state = ProducerState()
    for number in (7, 2**31):
        state.add_batch(producer_batch(number))
    [snapshot] = tier.glob(f"*/*/{10:020d}-*.snapshot")
    snapshot.write_bytes(encode_snapshot(state))
    assert restore(tier, tmp_path / "again") == 0
    assert image_of(tmp_path / "again").next_producer_id == 2**31 + 1


def producer_batch(producer_id: int) -> BatchView:
    data = pack_batch(
        b"",
        count=1,
        last_offset_delta=0,
        base_timestamp=0,
        max_timestamp=0,
        producer_id=ProducerId(producer_id),
        producer_epoch=ProducerEpoch(0),
        base_sequence=0,
    )
    return BatchView(memoryview(data))


def test_a_read_only_tier_can_be_restored_only_with_copying_disabled(
    tier: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def access(path: str, mode: int) -> bool:
        return not (mode & os.W_OK and path.startswith(str(tier)))

    monkeypatch.setattr(os, "access", access)
    with pytest.raises(UserError, match=r"cannot be written, .* --config remote.log.copy.disable=true"):
        restore(tier, tmp_path / "again")
    assert not (tmp_path / "again").exists()
    assert restore(tier, tmp_path / "again", "--config", "remote.log.copy.disable=true") == 0


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ((), "offsets 20 to 29 are in no segment"),
        (("--override", "log.dirs=/x"), "--override log.dirs: `milena up` sets it"),
        (("--brokers", "0"), "a cluster needs at least one broker"),
        (
            ("--skip-gaps", "--override", "rlmm.config.remote.log.metadata.topic.replication.factor=4"),
            "remote.log.metadata.topic.replication.factor=4: there are only 3 brokers",
        ),
        (("--skip-gaps", "--config", "cleanup.policy=compact"), "Remote log storage only supports topics with clean"),
        (("--skip-gaps", "--override", "nonsense=1"), "nonsense"),
        (("--storage-options", "{}"), "--storage-options needs a URL"),
    ],
)
def test_a_failed_restore_leaves_no_files(tier: Path, tmp_path: Path, options: tuple[str, ...], sentence: str) -> None:
    disk = RealDisk()
    write_segment(disk, str(tier), 3, 30, 39, {2: 30}, checkpoint={0: 3, 2: 15}, partition=SECOND)
    disk.close()
    with pytest.raises(UserError, match=sentence):
        restore(tier, tmp_path / "again", *options)
    assert not (tmp_path / "again").exists()


def test_a_failed_restore_keeps_a_tier_in_the_directory(tier: Path, tmp_path: Path) -> None:
    folder = tmp_path / "again"
    folder.mkdir()
    tier.rename(folder / "remote")
    with pytest.raises(UserError, match="there is no topic u in the tier"):
        main(["restore", "--dir", str(folder), "--topic", "u"])
    assert [path.name for path in folder.iterdir()] == ["remote"]
    assert main(["restore", "--dir", str(folder), "--topic", "t", "--brokers", "1"]) == 0
    assert len(image_of(folder).topics["__remote_log_metadata"].partitions) == 50
    assert "tier=\n" in (folder / "settings").read_text()
    with pytest.raises(UserError, match="already has a cluster"):
        main(["restore", "--dir", str(folder)])


def test_of_two_topics_with_one_name_one_is_chosen_by_its_id(tier: Path, tmp_path: Path) -> None:
    disk = RealDisk()
    write_segment(disk, str(tier), 3, 0, 4, {0: 0}, partition=replace(PARTITION, topic_id=UUID(int=5)))
    disk.close()
    with pytest.raises(UserError, match="choose one by --topic t=ID"):
        restore(tier, tmp_path / "again")
    assert restore(tier, tmp_path / "again", "--topic", "t=AAAAAAAAAAAAAAAAAAAABQ") == 0
    assert image_of(tmp_path / "again").topics["t"].id == UUID(int=5)
