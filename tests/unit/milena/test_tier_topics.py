"""`milena tier verify` reports segments of topics that are deleted or no longer tiered; `restore --metadata` reports
which partitions of the metadata topic it has found."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from milena.commands.tier.command import main
from milena.commands.tier.formatting import ranges
from milena.commands.tier.restore import parts_of_metadata
from milena.node.metadata.image import TOPIC_RESOURCE
from milena.node.metadata.stopped_node_image import read_image
from milena.protocol.metadata_records import (
    LATEST_METADATA_VERSION,
    ConfigRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
    encode_record,
)
from milena.protocol.records.records import BatchBuilder
from milena.protocol.types import LeaderEpoch, Offset
from milena.runtime.files import RealDisk
from milena.storage.files.meta_properties import decode_meta_properties, encode_meta_properties
from milena.tiered.metadata.metadata_partitioner import REMOTE_LOG_METADATA_TOPIC, metadata_partition
from tests.unit.tiered.segments import PARTITION
from tests.unit.tiered.whole_tier import write_segment

THREE = ["--brokers", "2", "--override", "rlmm.config.remote.log.metadata.topic.num.partitions=3"]


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    """A stopped cluster with two segments of topic ``t`` in its tier."""
    folder = tmp_path / "cluster"
    disk = RealDisk()
    write_segment(disk, str(folder / "remote"), 1, 0, 9, {0: 0})
    write_segment(disk, str(folder / "remote"), 2, 10, 19, {0: 10}, checkpoint={0: 0})
    disk.close()
    assert main(["restore", "--dir", str(folder), *THREE]) == 0
    return folder


def record(cluster: Path, *records: Any, node: str = "controller-100") -> None:
    """Append records to the metadata log, after its snapshot."""
    [snapshot] = (cluster / "controller-100" / "data" / "__cluster_metadata-0").glob("*.checkpoint")
    builder = BatchBuilder()
    for one in records:
        builder.append(timestamp=0, value=encode_record(one, LATEST_METADATA_VERSION))
    base = Offset(int(snapshot.name[:20]))
    folder = cluster / node / "data" / "__cluster_metadata-0"
    if not folder.exists():
        shutil.copytree(snapshot.parent, folder)
    (folder / f"{base:020d}.log").write_bytes(builder.build(base_offset=base, leader_epoch=LeaderEpoch(1)))


def findings(capsys: pytest.CaptureFixture[str], folder: Path, *options: str) -> list[tuple[str, str]]:
    capsys.readouterr()
    main(["verify", "--json", "--dir", str(folder), *options])
    return [(one["kind"], one["what"]) for one in json.loads(capsys.readouterr().out)["findings"]]


GONE = RemoveTopicRecord(topic_id=PARTITION.topic_id)
NEW = TopicRecord(name="t", topic_id=UUID(int=5))
PART = PartitionRecord(partition_id=0, topic_id=UUID(int=5), replicas=(1,), isr=(1,), leader=1)
OFF = ConfigRecord(resource_type=TOPIC_RESOURCE, resource_name="t", name="remote.storage.enable", value="false")


@pytest.mark.parametrize(
    ("records", "why"),
    [
        ((GONE,), "the cluster no longer has a topic with this id"),
        (
            (GONE, NEW, PART),
            "the cluster no longer has a topic with this id, but a topic with the same name and the "
            "id AAAAAAAAAAAAAAAAAAAABQ",
        ),
        ((OFF,), "remote.storage.enable of the topic is false"),
    ],
)
def test_segments_of_topics_that_are_no_longer_tiered_are_reported(
    cluster: Path, capsys: pytest.CaptureFixture[str], records: tuple[Any, ...], why: str
) -> None:
    assert findings(capsys, cluster) == []
    record(cluster, *records)
    assert findings(capsys, cluster) == [("leftover", f"{why}, 2 segments are left of it")]
    assert main(["verify", "--dir", str(cluster)]) == 1
    assert f"leftover: t-0: {why}" in capsys.readouterr().out


def test_segments_whose_metadata_is_in_unknown_log_directories_are_no_orphans(
    cluster: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An example of unknown log directories is `milena node --override log.dirs=...`."""
    number = metadata_partition(PARTITION, 3)
    folder = f"{REMOTE_LOG_METADATA_TOPIC}-{number}"
    disk = RealDisk()
    image = read_image(disk, str(cluster / "controller-100" / "data" / "__cluster_metadata-0"))
    disk.close()
    others = []
    for broker in (1, 2):
        first, other = cluster / f"broker-{broker}" / "data", cluster / f"elsewhere-{broker}"
        other.mkdir()
        shutil.move(first / folder, other / folder)
        meta = decode_meta_properties((first / "meta.properties").read_bytes())
        own = replace(meta, directory_id=UUID(int=1000 + broker))
        (other / "meta.properties").write_bytes(encode_meta_properties(own))
        others += ["--dir", str(other)]
    ids = (UUID(int=1001), UUID(int=1002))
    topic = image.topics[REMOTE_LOG_METADATA_TOPIC].id
    record(cluster, PartitionChangeRecord(partition_id=number, topic_id=topic, directories=ids))
    assert findings(capsys, cluster) == []
    assert main(["verify", "--dir", str(cluster)]) == 0
    assert f"the partitions {number} of the metadata topic are in unknown log directories" in (capsys.readouterr().err)
    (lost,) = (cluster / "remote").rglob(f"{0:020d}-*.log")
    lost.unlink()
    assert [kind for kind, _ in findings(capsys, cluster, *others)] == ["missing"]


def test_a_brokers_copy_of_the_metadata_log_is_sufficient(cluster: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record(cluster, GONE, node="broker-1")
    for folder in (cluster, cluster / "broker-1"):
        assert [kind for kind, _ in findings(capsys, folder)] == ["leftover"]
    assert main(["verify", "--dir", str(cluster / "broker-2")]) == 0
    assert "cannot check whether the cluster still has the topics: there is no metadata of" in capsys.readouterr().err


def test_damaged_metadata_of_the_cluster_is_reported(cluster: Path, capsys: pytest.CaptureFixture[str]) -> None:
    [snapshot] = cluster.glob("controller-100/data/__cluster_metadata-0/*.checkpoint")
    snapshot.write_bytes(snapshot.read_bytes()[:-1])
    assert main(["verify", "--dir", str(cluster)]) == 0
    assert (
        f"cannot check whether the cluster still has the topics: {snapshot.parent}: snapshot {snapshot.name}: "
        in capsys.readouterr().err
    )


def test_restore_reports_which_partitions_of_the_metadata_topic_it_found(
    cluster: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in (1, 2):
        for lost in (0, 1):
            shutil.rmtree(cluster / f"broker-{number}" / "data" / f"{REMOTE_LOG_METADATA_TOPIC}-{lost}")
    tier = str(cluster / "remote")
    for metadata, note in (
        (
            cluster,
            "--metadata has 1 of the 3 partitions of the metadata topic: 2; what the others described is taken from",
        ),
        (
            cluster / "broker-1",
            "--metadata has 1 partition of the metadata topic: 2; what others described, if there are any, is ",
        ),
    ):
        again = tmp_path / metadata.name / "again"
        again.parent.mkdir(exist_ok=True)
        assert main(["restore", "--tier", tier, "--metadata", str(metadata), "--dir", str(again), *THREE]) == 0
        output = capsys.readouterr().out
        assert f"note: {note}" in output and "  0: offsets 0 to 19, 2 segments" in output


def test_restore_reports_that_a_topic_was_deleted(
    cluster: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record(cluster, GONE)
    options = ["--tier", str(cluster / "remote"), "--metadata", str(cluster), *THREE]
    assert main(["restore", "--dir", str(tmp_path / "again"), *options]) == 0
    sentence = (
        "note: t: according to --metadata, the cluster no longer has a topic with this id; choose the topics with"
    )
    assert sentence in capsys.readouterr().out


def test_only_an_incomplete_metadata_topic_is_reported() -> None:
    assert parts_of_metadata({0, 1, 2}, 3) == parts_of_metadata({0, 1, 2, 3}, 3) == []
    assert (
        "6 of the 50 partitions of the metadata topic: 0 to 2, 7, 9 to 10;"
        in parts_of_metadata({0, 1, 2, 7, 9, 10}, 50)[0]
    )


def test_numbers_are_printed_as_ranges() -> None:
    assert ranges([]) == "" and ranges([3]) == "3" and ranges([5, 1, 2, 3, 7, 8]) == "1 to 3, 5, 7 to 8"
