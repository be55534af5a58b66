"""Metadata records change the image as Kafka's do, and the image gives the records back."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milena.node.metadata.image import NO_LEADER, TOPIC_RESOURCE, Delta, MetadataImage
from milena.node.metadata.image_records import to_records
from milena.node.metadata.replay import Replayer, ReplayError, apply
from milena.protocol import metadata_records as r
from milena.protocol.types import MIGRATING_DIR, LeaderEpoch, Offset
from tests.unit.node.every_record import DIR_1, DIR_2, EVERYTHING, TOPIC, broker_record, entries, topic_records


def image_of(*records: r.MetadataRecord) -> MetadataImage:
    image = MetadataImage()
    for record in records:
        apply(image, Delta(), record)
    return image


class TestPartitions:
    def test_a_change_that_names_a_leader_raises_both_epochs(self) -> None:
        image = image_of(*topic_records(), r.PartitionChangeRecord(partition_id=0, topic_id=TOPIC, isr=(2,), leader=2))
        partition = image.partition("t", 0)
        assert partition is not None
        assert (partition.leader, partition.isr, partition.leader_epoch, partition.partition_epoch) == (2, (2,), 1, 1)

    def test_a_change_without_a_leader_raises_only_the_partition_epoch(self) -> None:
        image = image_of(*topic_records(), r.PartitionChangeRecord(partition_id=0, topic_id=TOPIC, isr=(1,)))
        partition = image.partition_by_id(TOPIC, 0)
        assert partition is not None
        assert (partition.leader, partition.isr, partition.leader_epoch, partition.partition_epoch) == (1, (1,), 0, 1)

    def test_taking_the_leader_away_is_a_change_of_leader(self) -> None:
        image = image_of(*topic_records(), r.PartitionChangeRecord(partition_id=0, topic_id=TOPIC, leader=-1))
        partition = image.partition("t", 0)
        assert partition is not None
        assert (partition.leader, partition.leader_epoch) == (NO_LEADER, 1)

    def test_replicas_without_directories_count_as_migrating(self) -> None:
        image = image_of(
            r.TopicRecord(name="t", topic_id=TOPIC),
            r.PartitionRecord(partition_id=0, topic_id=TOPIC, replicas=(1, 2), isr=(1,), leader=1),
        )
        partition = image.partition("t", 0)
        assert partition is not None
        assert partition.directories == (MIGRATING_DIR, MIGRATING_DIR)
        assert partition.directory_of(2) == MIGRATING_DIR
        assert partition.directory_of(3) is None

    def test_clearing_the_elr_of_all_topics_forgets_it(self) -> None:
        change = r.PartitionChangeRecord(partition_id=0, topic_id=TOPIC, eligible_leader_replicas=(2,))
        image = image_of(*topic_records(), change)
        assert image.topics["t"].partitions[0].elr == (2,)
        apply(image, Delta(), r.ClearElrRecord(topic_name=""))
        assert not image.topics["t"].partitions[0].elr

    def test_equal_tuples_are_shared(self) -> None:
        partitions = image_of(*topic_records(2)).topics["t"].partitions
        assert partitions[0].replicas is partitions[1].replicas
        assert partitions[0].directories is partitions[1].directories


class TestTopics:
    def test_removing_a_topic_removes_its_configuration(self) -> None:
        config = r.ConfigRecord(resource_type=TOPIC_RESOURCE, resource_name="t", name="retention.ms", value="5")
        image = image_of(*topic_records(), config)
        delta = Delta()
        apply(image, delta, r.RemoveTopicRecord(topic_id=TOPIC))
        assert not image.topics and not image.topics_by_id and not image.configs
        assert [topic.name for topic in delta.deleted_topics] == ["t"]
        assert delta.configs == {(TOPIC_RESOURCE, "t")}

    def test_a_topic_created_again_is_both_deleted_and_changed(self) -> None:
        image = image_of(*topic_records())
        delta = Delta()
        apply(image, delta, r.RemoveTopicRecord(topic_id=TOPIC))
        apply(image, delta, r.TopicRecord(name="t", topic_id=UUID(int=8)))
        assert [topic.id for topic in delta.deleted_topics] == [TOPIC]
        assert delta.topics == {"t": set()}

    def test_a_null_value_deletes_a_configuration(self) -> None:
        image = image_of(
            r.ConfigRecord(resource_type=4, resource_name="", name="a", value="1"),
            r.ConfigRecord(resource_type=4, resource_name="", name="a", value=None),
        )
        assert image.config(4, "") == {}

    @pytest.mark.parametrize(
        "record",
        [
            r.RemoveTopicRecord(topic_id=TOPIC),
            r.PartitionRecord(partition_id=0, topic_id=TOPIC),
            r.PartitionChangeRecord(partition_id=0, topic_id=TOPIC),
            r.ClearElrRecord(topic_name="t"),
            r.UnregisterBrokerRecord(broker_id=1, broker_epoch=1),
        ],
    )
    def test_a_record_about_the_unknown_is_refused(self, record: r.MetadataRecord) -> None:
        with pytest.raises(ReplayError):
            image_of(record)


class TestBrokers:
    def test_registration_changes_keep_what_they_do_not_name(self) -> None:
        image = image_of(broker_record(), r.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=8, fenced=-1))
        broker = image.brokers[1]
        assert (broker.fenced, broker.rack, broker.log_dirs, broker.active) == (False, "a", (DIR_1,), True)
        change = r.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=8, in_controlled_shutdown=1)
        apply(image, Delta(), change)
        assert not image.brokers[1].active and not image.brokers[1].fenced

    def test_a_change_for_another_epoch_is_refused(self) -> None:
        with pytest.raises(ReplayError, match="epoch 9"):
            image_of(broker_record(), r.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=9))

    def test_old_fencing_records_are_understood(self) -> None:
        image = image_of(broker_record(), r.UnfenceBrokerRecord(id=1, epoch=8))
        assert not image.brokers[1].fenced
        apply(image, Delta(), r.FenceBrokerRecord(id=1, epoch=8))
        assert image.brokers[1].fenced

    def test_only_listed_and_reserved_directories_are_online(self) -> None:
        broker = image_of(broker_record()).brokers[1]
        assert broker.has_online_dir(DIR_1) and not broker.has_online_dir(DIR_2)
        assert broker.has_online_dir(UUID(int=1)) and not broker.has_online_dir(UUID(int=2))


class TestTransactions:
    def replay(self, *records: r.MetadataRecord) -> Replayer:
        replayer = Replayer(MetadataImage())
        for offset, record in enumerate(records):
            replayer.replay(record, offset=Offset(offset), epoch=LeaderEpoch(1), timestamp_ms=5)
        return replayer

    def test_records_of_a_transaction_show_only_at_its_end(self) -> None:
        replayer = self.replay(r.BeginTransactionRecord(name="n"), r.FeatureLevelRecord(name="f", feature_level=1))
        assert replayer.image.features == {} and replayer.in_transaction
        replayer.replay(r.EndTransactionRecord(), offset=Offset(2), epoch=LeaderEpoch(1), timestamp_ms=5)
        assert replayer.image.features == {"f": 1}
        assert replayer.take_delta().features == {"f"}
        assert not replayer.take_delta()

    def test_an_aborted_transaction_leaves_no_trace(self) -> None:
        replayer = self.replay(
            r.BeginTransactionRecord(), r.FeatureLevelRecord(name="f", feature_level=1), r.AbortTransactionRecord()
        )
        assert replayer.image.features == {} and replayer.image.offset == 2

    def test_an_end_without_a_beginning_is_refused(self) -> None:
        with pytest.raises(ReplayError, match="never began"):
            self.replay(r.EndTransactionRecord())
        with pytest.raises(ReplayError, match="inside of another"):
            self.replay(r.BeginTransactionRecord(), r.BeginTransactionRecord())


def test_a_snapshot_of_the_image_makes_the_same_image() -> None:
    image = image_of(*EVERYTHING)
    written = [r.encode_record(record, image.metadata_version) for record in to_records(image)]
    assert entries(image_of(*map(r.decode_record, written))) == entries(image)


@given(st.lists(st.tuples(st.integers(0, 2), st.sampled_from([-2, -1, 1, 2]), st.sampled_from([None, (1,), (2, 1)]))))
def test_partition_epochs_count_the_changes(changes: list[tuple[int, int, tuple[int, ...] | None]]) -> None:
    image = image_of(*topic_records(3))
    for partition, leader, isr in changes:
        apply(image, Delta(), r.PartitionChangeRecord(partition_id=partition, topic_id=TOPIC, leader=leader, isr=isr))
    for number, partition_image in image.topics["t"].partitions.items():
        own = [change for change in changes if change[0] == number]
        assert partition_image.partition_epoch == len(own)
        assert partition_image.leader_epoch == sum(leader != -2 for _, leader, _ in own)
