"""Subscriptions and assignments of classic groups."""

from __future__ import annotations

import pytest

from milena.protocol.records.consumer_protocol import (
    Assignment,
    ConsumerMessage,
    Subscription,
    TopicPartitions,
    decode_assignment,
    decode_subscription,
    encode_consumer_message,
    subscribed_topics,
)
from milena.protocol.schemas.undecodable import DecodeError
from tests.unit.protocol.schema_samples import kio_bytes, samples

OWNED = (TopicPartitions(topic="t", partitions=(0, 1)),)


@pytest.mark.parametrize("version", range(4))
def test_subscriptions_and_assignments_of_each_version_read_back(version: int) -> None:
    for subscription in samples(Subscription, version):
        assert decode_subscription(encode_consumer_message(subscription, version)) == subscription
    for assignment in samples(Assignment, version):
        assert decode_assignment(encode_consumer_message(assignment, version)) == assignment


@pytest.mark.parametrize("schema", [Subscription, Assignment])
def test_the_newest_version_is_encoded_as_kio_encodes_its_form(schema: type[ConsumerMessage]) -> None:
    for message in samples(schema, 3):
        assert encode_consumer_message(message) == b"\0\3" + kio_bytes(message)


def test_a_subscription_of_version_1_is_topics_user_data_and_owned_partitions() -> None:
    encoded = encode_consumer_message(Subscription(topics=("t",), owned_partitions=OWNED), 1)
    assert encoded.hex() == "000100000001000174ffffffff00000001000174000000020000000000000001"


def test_a_newer_version_is_read_as_the_newest_known_one_and_what_follows_is_passed_over() -> None:
    newer = b"\0\x09" + encode_consumer_message(Subscription(topics=("t",), rack_id="r"))[2:] + b"future"
    assert decode_subscription(newer) == Subscription(topics=("t",), rack_id="r")


def test_no_bytes_are_an_empty_assignment() -> None:
    assert decode_assignment(b"") == Assignment()


def test_the_topics_of_a_subscription_are_none_where_it_is_unreadable() -> None:
    assert subscribed_topics(encode_consumer_message(Subscription(topics=("a", "b")))) == frozenset("ab")
    assert subscribed_topics(b"garbage") is None
    assert subscribed_topics(b"") is None


@pytest.mark.parametrize("damaged", ["", "00", "ffff00000000", "000000000001", "00000000000100ff"])
def test_a_damaged_subscription_is_refused(damaged: str) -> None:
    with pytest.raises(DecodeError):
        decode_subscription(bytes.fromhex(damaged))
