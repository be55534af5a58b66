"""The topic metadata that a client keeps when different nodes return different states."""

from __future__ import annotations

from uuid import UUID

from milena.client.cluster import PartitionInfo, TopicView, newest_of

ID, OTHER_ID = UUID(int=1), UUID(int=2)


def topic(*leaders: tuple[int, int], topic_id: UUID = ID, error: int = 0) -> TopicView:
    """A topic with (leader, leader epoch) of each partition."""
    partitions = {
        number: PartitionInfo(0, leader, epoch, (1, 2, 3), (leader,), ())
        for number, (leader, epoch) in enumerate(leaders)
    }
    return TopicView("t", topic_id, error, False, partitions)


def test_the_first_and_newer_answers_replace_the_metadata() -> None:
    assert newest_of(None, topic((1, 2))) == topic((1, 2))
    assert newest_of(topic((1, 2)), topic((3, 2))) == topic((3, 2))
    assert newest_of(topic((1, 2)), topic((2, 3))) == topic((2, 3))


def test_an_answer_with_an_older_leader_epoch_is_ignored() -> None:
    assert newest_of(topic((2, 3), (1, 0)), topic((1, 2), (3, 1))) == topic((2, 3), (3, 1))


def test_known_partitions_are_kept_if_an_answer_lacks_them() -> None:
    assert newest_of(topic((1, 0), (2, 0)), topic((3, 1))) == topic((3, 1), (2, 0))


def test_a_recreated_topic_replaces_the_metadata_of_the_old_one() -> None:
    again = topic((1, 0), topic_id=OTHER_ID)
    assert newest_of(topic((2, 3)), again) == again


def test_answers_without_leader_epochs_and_errors_replace_the_metadata() -> None:
    assert newest_of(topic((2, 3)), topic((1, -1))) == topic((1, -1))
    assert newest_of(topic((2, 3)), topic(error=3)) == topic(error=3)
