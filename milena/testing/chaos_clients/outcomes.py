"""What an error says of the record or the change: the part that is the same for all libraries.

An error code of a broker makes a record ``FAILED`` if the broker decides so by the record and by settings alone: then
it refuses each further try as well, and has refused each earlier one that it saw. (Not where somebody changes these
settings while the record is under way, which the workload does not do.) All others are ``UNKNOWN``, also those by
which a broker refuses the last try: an earlier one, whose answer was lost, may have been appended. For example:

- ``REQUEST_TIMED_OUT``, ``NETWORK_EXCEPTION``, ``NOT_ENOUGH_REPLICAS_AFTER_APPEND``: appended, or perhaps so.
- ``NOT_LEADER_OR_FOLLOWER``, ``NOT_ENOUGH_REPLICAS``, ``UNKNOWN_TOPIC_OR_PARTITION``: not by this try.
- ``OUT_OF_ORDER_SEQUENCE_NUMBER``, ``UNKNOWN_PRODUCER_ID``, ``INVALID_PRODUCER_EPOCH``: the broker has lost or
  replaced the producer's state; the record may be in the log.

A change of an admin client is ``FAILED`` if the controller has refused it by what it asks for. ``NOT_CONTROLLER`` is
not among these: a controller that loses its leadership may have written the change. Two refusals are special, because
the broker forwards a request to the controller and does so again if the answer is lost: a topic that exists may be the
one that the first try has made, and one that is not there may be the one that it has deleted. These are ``FAILED`` only
if the topic was there, or was not, before the request.

A commit is ``FAILED`` only where the library says that it has sent nothing: all of them send a commit again by
themselves, and the first may have been written.
"""

from __future__ import annotations

from typing import Final

from milena.lab.histories.events import RequestOutcome

FATAL: Final = "fatal: "
"""``Sent.error`` begins so if the library's producer takes no more records; ``renewed`` makes another one."""
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
    """By the broker's error code."""
    return RequestOutcome.FAILED if code in REFUSED_RECORDS else RequestOutcome.UNKNOWN


def of_change(code: int, *, there_before: bool | None = None) -> RequestOutcome:
    """By the broker's error code, 0 for none. ``there_before``: whether the topic was there before the request; None if
    nobody knows."""
    if code == 0:
        return RequestOutcome.OK
    refused = code in REFUSED_CHANGES
    refused |= code == TOPIC_ALREADY_EXISTS and there_before is True
    refused |= code == UNKNOWN_TOPIC_OR_PARTITION and there_before is False
    return RequestOutcome.FAILED if refused else RequestOutcome.UNKNOWN
