"""Errors of the scripts, with the names and texts of Kafka's exceptions, by which users and their scripts know them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from milena.node.links.outgoing import ChannelError
from milena.protocol.errors import ErrorCode, KafkaError

PACKAGE: Final = "org.apache.kafka.common.errors"
NAMES: Final[Mapping[ErrorCode, str]] = {
    ErrorCode.UNKNOWN_SERVER_ERROR: "UnknownServerException",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "InvalidTopicException",
    ErrorCode.INVALID_CONFIG: "InvalidConfigurationException",
    ErrorCode.TOPIC_ALREADY_EXISTS: "TopicExistsException",
    ErrorCode.REQUEST_TIMED_OUT: "TimeoutException",
    ErrorCode.NON_EMPTY_GROUP: "GroupNotEmptyException",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "GroupSubscribedToTopicException",
    ErrorCode.MESSAGE_TOO_LARGE: "RecordTooLargeException",
    ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE: "EligibleLeadersNotAvailableException",
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: "NotEnoughReplicasAfterAppendException",
    ErrorCode.KAFKA_STORAGE_ERROR: "KafkaStorageException",
    ErrorCode.FEATURE_UPDATE_FAILED: "FeatureUpdateFailedException",
}
"""The names that do not follow from those of the codes."""
TEXTS: Final[Mapping[ErrorCode, str]] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "This server does not host this topic-partition.",
    ErrorCode.OFFSET_OUT_OF_RANGE: "The requested offset is not within the range of offsets maintained by the server.",
    ErrorCode.GROUP_ID_NOT_FOUND: "The group id does not exist.",
    ErrorCode.NON_EMPTY_GROUP: "The group is not empty.",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: (
        "Deleting offsets of a topic is forbidden while the consumer group is actively subscribed to it."
    ),
    ErrorCode.UNKNOWN_MEMBER_ID: "The coordinator is not aware of this member.",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "The coordinator is not available.",
    ErrorCode.LEADER_NOT_AVAILABLE: (
        "There is no leader for this topic-partition as we are in the middle of a leadership election."
    ),
    ErrorCode.INVALID_TOPIC_EXCEPTION: "The request attempted to perform an operation on an invalid topic.",
    ErrorCode.MESSAGE_TOO_LARGE: (
        "The request included a message larger than the max message size the server will accept."
    ),
    ErrorCode.ELECTION_NOT_NEEDED: "Leader election not needed for topic partition.",
    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE: "The preferred leader was not available.",
    ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE: "Eligible topic partition leaders are not available.",
    ErrorCode.NO_REASSIGNMENT_IN_PROGRESS: "No partition reassignment is in progress.",
    ErrorCode.NOT_CONTROLLER: "This is not the correct controller for this cluster.",
    ErrorCode.INVALID_GROUP_ID: "The group id is invalid.",
}
"""Kafka's texts of errors that brokers send without a message."""


class ScriptError(Exception):
    """A script failed: its message, and the name of the exception that Kafka's tool throws (``kind``)."""

    def __init__(self, message: str, kind: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.kind = kind

    @property
    def full(self) -> str:
        """The message after the name of Kafka's exception, as ``Throwable.toString`` writes it."""
        return ": ".join(filter(None, (self.kind, self.message)))


def kind_of(code: ErrorCode) -> str:
    """Return the full name of Kafka's exception for an error code."""
    words = "".join(word.capitalize() for word in code.name.split("_"))
    return f"{PACKAGE}.{NAMES.get(code, f'{words}Exception')}"


def text_of(error: KafkaError) -> str:
    """Return the broker's message, or Kafka's text for the code."""
    return str(error.message or TEXTS.get(error.code) or error.code.name)


def failure_of(error: Exception) -> ScriptError:
    """Return an error of the client as an error of a script."""
    if isinstance(error, ScriptError):
        return error
    if isinstance(error, KafkaError):
        return ScriptError(text_of(error), kind_of(error.code))
    if isinstance(error, ChannelError):
        return ScriptError(str(error), f"{PACKAGE}.DisconnectException")
    if isinstance(error, OSError) and error.filename is not None:
        return ScriptError(f"{error.filename} ({error.strerror})", "java.io.FileNotFoundException")
    return ScriptError(str(error))
