"""The errors of a coordinator's partition, as its clients get them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from milena.protocol.errors import ErrorCode, KafkaError

_CLIENT_ERRORS: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.UNKNOWN_SERVER_ERROR,
}


def client_error(error: ErrorCode) -> ErrorCode:
    """The error code for a coordinator's client after a failed append or commit. Codes of the partition's leadership or
    log become NOT_COORDINATOR or COORDINATOR_NOT_AVAILABLE, after which clients look up the coordinator again."""
    return _CLIENT_ERRORS.get(error, error)


@contextmanager
def client_errors() -> Iterator[None]:
    """Raise each KafkaError of the block with its ``client_error``."""
    try:
        yield
    except KafkaError as error:
        raise KafkaError(client_error(error.code), error.message) from error
