"""Maps error codes to outcomes of records and changes, in the same way for all libraries.

A record is ``FAILED`` if the error code depends only on the record and on configuration: then the broker rejects each
attempt. (The workload does not change such configuration while records are in flight.) With all other codes a record is
``UNKNOWN``, even if the broker rejected the last attempt: an earlier attempt, whose answer was lost, may have been
appended. For example:

- ``REQUEST_TIMED_OUT``, ``NETWORK_EXCEPTION``, ``NOT_ENOUGH_REPLICAS_AFTER_APPEND``: appended, or possibly appended.
- ``NOT_LEADER_OR_FOLLOWER``, ``NOT_ENOUGH_REPLICAS``, ``UNKNOWN_TOPIC_OR_PARTITION``: not appended by this attempt.
- ``OUT_OF_ORDER_SEQUENCE_NUMBER``, ``UNKNOWN_PRODUCER_ID``, ``INVALID_PRODUCER_EPOCH``: the broker has lost or
  replaced the producer's state; the record may be in the log.

A change of an admin client is ``FAILED`` if the controller rejected its content. ``NOT_CONTROLLER`` is not such an
error: a controller that loses its leadership may have written the change. Two errors need more care, because a broker
forwards a request to the controller and retries if the answer is lost: an existing topic may have been created, and a
missing topic deleted, by the first attempt. These errors are ``FAILED`` only if the topic existed, or did not exist,
before the request.

A commit is ``FAILED`` only if the library reports that it was not sent: all libraries retry commits, and the first
attempt may have been written.
"""

from __future__ import annotations

from typing import Final

from milena.lab.histories.events import RequestOutcome

FATAL: Final = "fatal: "
"""The prefix of ``Sent.error`` if the library's producer accepts no more records; ``renewed`` then creates another."""
MESSAGE_TOO_LARGE: Final = 10
TOPIC_ALREADY_EXISTS: Final = 36
UNKNOWN_TOPIC_OR_PARTITION: Final = 3

REFUSED_RECORDS: Final = frozenset(
    {
        MESSAGE_TOO_LARGE,
        17,  # INVALID_TOPIC_EXCEPTION
        18,  # RECORD_LIST_TOO_LARGE
        21,  # INVALID_REQUIRED_ACKS
        29,  # TOPIC_AUTHORIZATION_FAILED
        31,  # CLUSTER_AUTHORIZATION_FAILED
        32,  # INVALID_TIMESTAMP
        43,  # UNSUPPORTED_FOR_MESSAGE_FORMAT
        44,  # POLICY_VIOLATION
        76,  # UNSUPPORTED_COMPRESSION_TYPE
        87,  # INVALID_RECORD
    }
)
REFUSED_CHANGES: Final = frozenset(
    {
        17,  # INVALID_TOPIC_EXCEPTION
        29,  # TOPIC_AUTHORIZATION_FAILED
        31,  # CLUSTER_AUTHORIZATION_FAILED
        35,  # UNSUPPORTED_VERSION
        37,  # INVALID_PARTITIONS
        38,  # INVALID_REPLICATION_FACTOR
        39,  # INVALID_REPLICA_ASSIGNMENT
        40,  # INVALID_CONFIG
        42,  # INVALID_REQUEST
        44,  # POLICY_VIOLATION
        73,  # TOPIC_DELETION_DISABLED
        89,  # THROTTLING_QUOTA_EXCEEDED
    }
)


def of_record(code: int) -> RequestOutcome:
    """Return the outcome of a record with this error code."""
    return RequestOutcome.FAILED if code in REFUSED_RECORDS else RequestOutcome.UNKNOWN


def of_change(code: int, *, there_before: bool | None = None) -> RequestOutcome:
    """Return the outcome of a change with this error code, 0 for none. ``there_before``: whether the topic existed
    before the request; None if unknown."""
    if code == 0:
        return RequestOutcome.OK
    refused = code in REFUSED_CHANGES
    refused |= code == TOPIC_ALREADY_EXISTS and there_before is True
    refused |= code == UNKNOWN_TOPIC_OR_PARTITION and there_before is False
    return RequestOutcome.FAILED if refused else RequestOutcome.UNKNOWN
