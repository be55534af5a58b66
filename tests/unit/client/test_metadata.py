"""What a client remembers of topics when one node tells less than another."""

from __future__ import annotations

from uuid import UUID

from milena.client.cluster import PartitionInfo, TopicView, newest_of

ID, OTHER_ID = UUID(int=1), UUID(int=2)


def topic(*leaders: tuple[int, int], topic_id: UUID = ID, error: int = 0) -> TopicView:
    """With (leader, leader epoch) of each partition."""
    partitions = {
        number: PartitionInfo(0, leader, epoch, (1, 2, 3), (leader,), ())
        for number, (leader, epoch) in enumerate(leaders)
    }
    return TopicView("t", topic_id, error, False, partitions)


def test_the_first_answer_and_newer_ones_are_taken_as_they_are() -> None:
    assert newest_of(None, topic((1, 2))) == topic((1, 2))
    assert newest_of(topic((1, 2)), topic((3, 2))) == topic((3, 2))
    assert newest_of(topic((1, 2)), topic((2, 3))) == topic((2, 3))


def test_an_older_leader_epoch_does_not_come_back() -> None:
    assert newest_of(topic((2, 3), (1, 0)), topic((1, 2), (3, 1))) == topic((2, 3), (3, 1))


def test_partitions_that_are_known_stay_where_a_node_has_not_heard_of_them() -> None:
    assert newest_of(topic((1, 0), (2, 0)), topic((3, 1))) == topic((3, 1), (2, 0))


def test_a_topic_created_again_starts_with_new_leader_epochs() -> None:
    again = topic((1, 0), topic_id=OTHER_ID)
    assert newest_of(topic((2, 3)), again) == again


def test_nodes_that_tell_no_epochs_and_errors_are_believed() -> None:
    assert newest_of(topic((2, 3)), topic((1, -1))) == topic((1, -1))
    assert newest_of(topic((2, 3)), topic(error=3)) == topic(error=3)
