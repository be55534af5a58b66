"""What consumers of classic groups tell each other through the coordinator: subscriptions and assignments.

Both are int16 version and fields in legacy form. A version beyond those known is read as the newest known one,
and bytes that follow are passed over, so that old members understand new ones (KIP-429).
"""

from dataclasses import field
from typing import ClassVar, Final, TypeVar

from milena.protocol.limits import MAX_ELEMENTS
from milena.protocol.schemas.primitives import Data, Reader, Writer
from milena.protocol.schemas.schema import BYTES, INT32, STRING, Entity, decode_from, encode_into, versioned
from milena.protocol.schemas.undecodable import DecodeError

PROTOCOL_TYPE: Final = "consumer"
"""The protocol type of groups whose members speak this."""


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
    """What a member wants, and what it owns (version 1), since which generation (2), in which rack (3)."""

    topics: tuple[str, ...] = field(metadata=STRING)
    user_data: bytes | None = field(metadata=BYTES, default=None)
    owned_partitions: tuple[TopicPartitions, ...] = field(metadata={"since": 1}, default=())
    generation_id: int = field(metadata={**INT32, "since": 2}, default=-1)
    rack_id: str | None = field(metadata={**STRING, "since": 3}, default=None)


@versioned
class Assignment(ConsumerMessage):
    """What the leader gives a member."""

    assigned_partitions: tuple[TopicPartitions, ...] = field(default=())
    user_data: bytes | None = field(metadata=BYTES, default=None)


M = TypeVar("M", bound=ConsumerMessage)


def encode_consumer_message(message: ConsumerMessage, version: int = ConsumerMessage.__version__) -> bytes:
    """The message in ``version``; fields that it lacks are left out."""
    out = Writer()
    out.int16(version)
    encode_into(out, message, version)
    return bytes(out)


def decode_subscription(data: Data) -> Subscription:
    """Raises DecodeError, also if it has more elements than a request may."""
    return _decode(Subscription, data)


def decode_assignment(data: Data) -> Assignment:
    """Raises DecodeError. Empty bytes, which a coordinator sends where there is nothing, are an empty assignment."""
    return _decode(Assignment, data) if len(data) else Assignment()


def subscribed_topics(metadata: Data) -> frozenset[str] | None:
    """The topics in a subscription, None if it cannot be read."""
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
