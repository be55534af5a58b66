"""Checkpoint files, meta.properties and file names in Kafka's formats (docs/kafka-semantics.md: Checkpoint files)."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milena.protocol.types import BrokerEpoch, LeaderEpoch, NodeId, Offset
from milena.storage.files.checkpoints import (
    CorruptCheckpoint,
    decode_clean_shutdown,
    decode_epochs,
    decode_offsets,
    decode_partition_metadata,
    encode_clean_shutdown,
    encode_epochs,
    encode_offsets,
    encode_partition_metadata,
)
from milena.storage.files.meta_properties import (
    CorruptMetaProperties,
    MetaProperties,
    decode_meta_properties,
    encode_meta_properties,
)
from milena.storage.files.names import (
    FolderKind,
    marked_folder,
    offset_of_file,
    parse_partition_folder,
    partition_folder,
)
from milena.storage.state.epoch_cache import EpochEntry


def test_offset_checkpoints_have_kafkas_format() -> None:
    data = b"0\n2\norders 0 12\na-b 3 7\n"
    offsets = {("orders", 0): Offset(12), ("a-b", 3): Offset(7)}
    assert encode_offsets(offsets) == data
    assert decode_offsets(data) == offsets
    assert decode_offsets(b"") == {}


def test_leader_epoch_checkpoints_have_kafkas_format() -> None:
    entries = [EpochEntry(LeaderEpoch(0), Offset(0)), EpochEntry(LeaderEpoch(4), Offset(17))]
    assert encode_epochs(entries) == b"0\n2\n0 0\n4 17\n"
    assert decode_epochs(b"0\n2\n0 0\n4   17\n") == entries


@pytest.mark.parametrize(
    "data",
    [
        b"1\n0\n",
        b"0\n",
        b"0\n2\n0 0\n",
        b"0\n1\n0\n",
        b"0\n1\n0 x\n",
        b"0\n1\n-1 0\n",
        b"0\n1\n0 1",
        b"\xff\n",
        bytes(9),
    ],
)
def test_damaged_checkpoints_are_refused(data: bytes) -> None:
    with pytest.raises(CorruptCheckpoint):
        decode_epochs(data)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 10**6)), max_size=5), st.data())
def test_a_truncated_checkpoint_is_refused(pairs: list[tuple[int, int]], data: st.DataObject) -> None:
    encoded = encode_epochs([EpochEntry(LeaderEpoch(epoch), Offset(start)) for epoch, start in pairs])
    with pytest.raises(CorruptCheckpoint):
        decode_epochs(encoded[: data.draw(st.integers(1, len(encoded) - 1))])


def test_partition_metadata_has_kafkas_format() -> None:
    data = b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ"
    assert encode_partition_metadata(UUID(int=1)) == data
    assert decode_partition_metadata(data) == UUID(int=1)
    with pytest.raises(CorruptCheckpoint):
        decode_partition_metadata(b"version: 0\ntopic_id: AAAA")


def test_the_clean_shutdown_file_has_kafkas_format() -> None:
    assert encode_clean_shutdown(BrokerEpoch(5)) == b'{"version":0,"brokerEpoch":5}'
    assert decode_clean_shutdown(b'{"version":0,"brokerEpoch":5}') == 5
    assert encode_clean_shutdown(None) == b'{"version":0,"brokerEpoch":-1}'
    assert (
        decode_clean_shutdown(encode_clean_shutdown(None))
        is decode_clean_shutdown(b"")
        is decode_clean_shutdown(b"{}")
        is None
    )


def test_meta_properties_have_kafkas_format() -> None:
    meta = MetaProperties("a=b c", NodeId(3), UUID(int=1 << 100))
    data = encode_meta_properties(meta)
    assert data.splitlines()[-1] == b"version=1"
    assert decode_meta_properties(data) == meta
    kafka = b"#\n#Thu Nov 21 09:00:00 UTC 2024\nnode.id=1\nversion=1\ncluster.id=MkU3OEVBNTcwNTJENDM2Qg\n"
    assert decode_meta_properties(kafka) == MetaProperties("MkU3OEVBNTcwNTJENDM2Qg", NodeId(1), None)


@pytest.mark.parametrize(
    "data", [b"", b"version=1\nnode.id=1", b"cluster.id=c\nnode.id=x", b"cluster.id=c\nnode.id=1\ndirectory.id=x"]
)
def test_damaged_meta_properties_are_refused(data: bytes) -> None:
    with pytest.raises(CorruptMetaProperties):
        decode_meta_properties(data)


@given(st.from_regex(r"[a-zA-Z0-9._-]{1,249}", fullmatch=True), st.integers(0, 10**6), st.sampled_from(FolderKind))
def test_names_of_log_folders_are_parsed(topic: str, partition: int, kind: FolderKind) -> None:
    if kind is FolderKind.CURRENT:
        name = partition_folder(topic, partition)
    else:
        name = marked_folder(topic, partition, "0123456789abcdef" * 2, kind)
    assert len(name) <= 255 or kind is FolderKind.CURRENT
    found = parse_partition_folder(name)
    assert (found.partition, found.kind) == (partition, kind)
    assert topic.startswith(found.topic)


@pytest.mark.parametrize("name", ["topic", "-3", "topic-", "topic-x", "topic-0-delete", "a-1.-stray"])
def test_names_of_other_folders_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="TOPIC-PARTITION"):
        parse_partition_folder(name)


def test_names_of_segment_files_begin_with_their_base_offset() -> None:
    assert offset_of_file("00000000000000000012.timeindex") == 12
    assert (
        offset_of_file("00000000000000000012-0000000001.checkpoint")
        is offset_of_file("leader-epoch-checkpoint")
        is None
    )
