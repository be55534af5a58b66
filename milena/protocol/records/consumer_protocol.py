"""The embedded consumer protocol of classic groups (``ConsumerProtocol``): subscriptions and assignments, which members
exchange through the coordinator.

Both consist of an int16 version and non-flexible fields. A newer version is read as the newest known one, and bytes
after the known fields are ignored, so that old members can read the messages of new ones (KIP-429).
"""

from dataclasses import field
from typing import ClassVar, Final, TypeVar

from milena.protocol.limits import MAX_ELEMENTS
from milena.protocol.schemas.primitives import Data, Reader, Writer
from milena.protocol.schemas.schema import BYTES, INT32, STRING, Entity, decode_from, encode_into, versioned
from milena.protocol.schemas.undecodable import DecodeError

PROTOCOL_TYPE: Final = "consumer"
"""The protocol type of groups that use this protocol."""


@versioned
class TopicPartitions(Entity):
    """Partitions of one topic."""

    __flexible__: ClassVar[bool] = False

    topic: str = field(metadata=STRING)
    partitions: tuple[int, ...] = field(metadata=INT32)


class ConsumerMessage(Entity):
    """A subscription or an assignment."""

    __slots__ = ()

    __version__: ClassVar[int] = 3
    __flexible__: ClassVar[bool] = False
    FLEXIBLE_SINCE: ClassVar[int] = 4


@versioned
class Subscription(ConsumerMessage):
    """A member's subscribed topics, and its owned partitions (version 1), their generation (2), and its rack (3)."""

    topics: tuple[str, ...] = field(metadata=STRING)
    user_data: bytes | None = field(metadata=BYTES, default=None)
    owned_partitions: tuple[TopicPartitions, ...] = field(metadata={"since": 1}, default=())
    generation_id: int = field(metadata={**INT32, "since": 2}, default=-1)
    rack_id: str | None = field(metadata={**STRING, "since": 3}, default=None)


@versioned
class Assignment(ConsumerMessage):
    """The partitions that the group's leader has assigned to a member."""

    assigned_partitions: tuple[TopicPartitions, ...] = field(default=())
    user_data: bytes | None = field(metadata=BYTES, default=None)


M = TypeVar("M", bound=ConsumerMessage)


def encode_consumer_message(message: ConsumerMessage, version: int = ConsumerMessage.__version__) -> bytes:
    """Encode the message in ``version``; fields that the version lacks are omitted."""
    out = Writer()
    out.int16(version)
    encode_into(out, message, version)
    return bytes(out)


def decode_subscription(data: Data) -> Subscription:
    """Decode a subscription. Raises DecodeError, also for more than MAX_ELEMENTS elements."""
    return _decode(Subscription, data)


def decode_assignment(data: Data) -> Assignment:
    """Decode an assignment. Empty bytes, which a coordinator sends to a member without assignment, are an empty
    assignment. Raises DecodeError."""
    return _decode(Assignment, data) if len(data) else Assignment()


def subscribed_topics(metadata: Data) -> frozenset[str] | None:
    """Return the topics in a subscription; None if it cannot be decoded."""
    try:
        return frozenset(decode_subscription(metadata).topics)
    except DecodeError:
        return None


def _decode(schema: type[M], data: Data) -> M:
    reader = Reader(data, 0, MAX_ELEMENTS)
    version = reader.int16()
    if version < 0:
        raise DecodeError(f"a {schema.__name__.lower()} of version {version}")
    return decode_from(reader, schema, min(version, schema.__version__))
