"""Error codes."""

from __future__ import annotations

from kio.schema.errors import ErrorCode as KioErrorCode

from milena.protocol.errors import ErrorCode, KafkaError, error_name, retriable

NEWER_THAN_KIO = {
    "group_deletion_failed": 134,
    "streams_topology_description_update_failed": 135,
    "controller_id_not_registered": 136,
}
"""Codes of Kafka 4.4."""


def test_the_codes_are_kafkas() -> None:
    kafka = {code.name: int(code.value) for code in KioErrorCode} | NEWER_THAN_KIO
    assert {code.name.lower(): code.value for code in ErrorCode} == kafka


def test_what_is_retriable_is_kafkas_choice() -> None:
    for code in KioErrorCode:
        assert retriable(code.value) is code.retriable
    assert not retriable(12_345)


def test_an_error_reads_as_its_name_and_message() -> None:
    assert str(KafkaError(ErrorCode.INVALID_CONFIG)) == "INVALID_CONFIG"
    assert str(KafkaError(ErrorCode.INVALID_CONFIG, "no such key")) == "INVALID_CONFIG: no such key"
    assert (error_name(3), error_name(12_345)) == ("UNKNOWN_TOPIC_OR_PARTITION", "code 12345")
