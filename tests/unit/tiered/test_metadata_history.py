"""What log directories tell without a broker: the metadata topic, and the leader epochs of replicas."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from milena.protocol.records.control_records import AbortMarker, control_batch
from milena.protocol.records.records import BatchBuilder
from milena.protocol.types import LeaderEpoch, NodeId, Offset
from milena.runtime.disk import Disk
from milena.storage.files.checkpoints import encode_epochs, encode_offsets, encode_partition_metadata
from milena.tiered.metadata.serialization import serialize
from milena.tiered.offline.epoch_history import lineage_of_replicas
from milena.tiered.offline.metadata_history import read_history
from tests.unit.tiered.segments import PARTITION, epochs, segment
from tests.unit.tiered.whole_tier import FIRST_TIME, WholeTier, log_bytes, on_a_tier


def batch(*numbers: int, base: int) -> bytes:
    """A record for each of these segments."""
    builder = BatchBuilder()
    for number in numbers:
        builder.append(timestamp=FIRST_TIME, value=serialize(segment(number, number, number, {0: number})))
    return builder.build(base_offset=Offset(base))


def write(disk: Disk, path: str, data: bytes) -> None:
    disk.make_folders(path.rpartition("/")[0])
    disk.write_atomic(path, data)


@on_a_tier
async def test_of_several_replicas_the_longest_log_counts(tier: WholeTier) -> None:
    disk = tier.runtime.disk
    write(disk, f"/a/__remote_log_metadata-0/{0:020d}.log", batch(1, 2, base=0))
    write(disk, f"/b/__remote_log_metadata-0/{0:020d}.log", batch(1, 2, base=0))
    write(disk, f"/b/__remote_log_metadata-0/{2:020d}.log", batch(3, base=2))
    write(disk, f"/a/__remote_log_metadata-7/{0:020d}.log", batch(4, base=0))
    write(disk, "/a/__remote_log_metadata-x/file", b"")
    write(disk, f"/a/t-0/{0:020d}.log", batch(9, base=0))
    history = read_history(disk, ["/a", "/b"])
    assert history.numbers == {0, 7} and history.unreadable == []
    assert [one.id.int for one in history.segments(PARTITION)] == [1, 2, 3, 4]
    assert [(one.number, one.offset) for events in history.events.values() for one in events] == [
        (0, 0),
        (0, 1),
        (0, 2),
        (7, 0),
    ]


@on_a_tier
async def test_damage_is_reported_and_the_rest_is_read(tier: WholeTier) -> None:
    disk = tier.runtime.disk
    damaged = bytearray(batch(2, base=1))
    damaged[-1] ^= 1
    marker = control_batch([AbortMarker(coordinator_epoch=0)], timestamp=FIRST_TIME, base_offset=Offset(2))
    data = batch(1, base=0) + bytes(damaged) + marker + batch(3, base=3) + batch(4, base=4)[:-1]
    write(disk, f"/a/__remote_log_metadata-0/{0:020d}.log", data)
    history = read_history(disk, ["/a"])
    assert [one.id.int for one in history.segments(PARTITION)] == [1, 3]
    [wrong] = history.unreadable
    assert "the batch at offset 1 has a wrong checksum" in wrong.why and not wrong.unknown


def replica(disk: Disk, log_dir: str, starts: Mapping[int, int], end: int, topic_id: UUID = PARTITION.topic_id) -> None:
    """A folder of partition t-0 with offsets 10 to ``end - 1``."""
    write(disk, f"{log_dir}/t-0/partition.metadata", encode_partition_metadata(topic_id))
    write(disk, f"{log_dir}/t-0/leader-epoch-checkpoint", encode_epochs(epochs(starts)))
    write(disk, f"{log_dir}/t-0/{10:020d}.log", log_bytes(10, end - 1, starts)[0])


@on_a_tier
async def test_the_lineage_is_that_of_the_replica_with_the_newest_epoch(tier: WholeTier) -> None:
    disk = tier.runtime.disk
    replica(disk, "/a", {0: 0, 1: 12}, 30)
    replica(disk, "/b", {0: 0, 2: 15}, 20)
    replica(disk, "/c", {9: 0}, 20, UUID(int=1))
    write(disk, "/b/log-start-offset-checkpoint", encode_offsets({("t", 0): Offset(4)}))
    write(disk, "/d/t-0/partition.metadata", b"nonsense")
    disk.make_folders("/e/t-0")
    disk.make_folders("/f")
    found = lineage_of_replicas(disk, ["/a", "/b", "/c", "/d", "/e", "/f"], PARTITION)
    assert found is not None and found.epochs == epochs({0: 0, 2: 15})
    assert (found.log_start, found.log_end, found.source) == (4, 20, "/b/t-0/leader-epoch-checkpoint")
    assert found.epochs[-1].epoch == LeaderEpoch(2)
    assert lineage_of_replicas(disk, ["/c", "/d", "/e", "/f"], PARTITION) is None


@on_a_tier
async def test_the_log_starts_where_the_leader_has_it_and_not_where_a_former_one_had(tier: WholeTier) -> None:
    disk = tier.runtime.disk
    for log_dir, node, start in (("/a", 1, 14), ("/b", 2, 4), ("/c", 3, 2)):
        replica(disk, log_dir, {0: 0, 1: 12}, 20 + node)
        write(disk, f"{log_dir}/log-start-offset-checkpoint", encode_offsets({("t", 0): Offset(start)}))
        write(disk, f"{log_dir}/meta.properties", b"version=1\ncluster.id=c\nnode.id=%d\n" % node)
    replica(disk, "/d", {0: 0}, 20)
    write(disk, "/d/log-start-offset-checkpoint", encode_offsets({("t", 0): Offset(0)}))

    def start_for(leader: int | None) -> int | None:
        known = None if leader is None else NodeId(leader)
        found = lineage_of_replicas(disk, ["/a", "/b", "/c", "/d"], PARTITION, known)
        assert found is not None and found.log_end == 23
        return found.log_start

    assert [start_for(leader) for leader in (1, 2, 3, 9, None)] == [14, 4, 2, 2, 2]


@on_a_tier
async def test_a_log_ends_with_its_last_whole_batch(tier: WholeTier) -> None:
    disk = tier.runtime.disk
    replica(disk, "/a", {0: 0}, 20)
    write(disk, f"/a/t-0/{10:020d}.log", log_bytes(10, 19, {0: 0})[0][:-1])
    found = lineage_of_replicas(disk, ["/a"], PARTITION)
    assert found is not None and (found.log_end, found.log_start) == (19, None)
