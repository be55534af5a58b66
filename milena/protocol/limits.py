"""How many elements one request may hold, over all of its arrays and tagged fields.

Bytes alone do not bound what a request costs: an empty topic takes two of them and a microsecond or more of the loop.
A large cluster's clients name up to 100,000 partitions in one request, at most with as many topics.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from milena.protocol.api_keys import ApiKey

MAX_ELEMENTS: Final = 250_000
"""Of any request."""
MAX_PRODUCED: Final = 50_000
"""Of Produce: topics and batches. To check and write a batch takes ten times as long as to read it, and a producer's
default ``max.request.size`` (1 MiB) has room for fewer than 20,000."""
MAX_OBSERVED: Final = 1_000
"""Of a Fetch to a controller, which has one partition."""
_FEWER: Final[Mapping[int, int]] = {
    ApiKey.API_VERSIONS: 1_000,
    ApiKey.BROKER_HEARTBEAT: 10_000,
    ApiKey.BROKER_REGISTRATION: 10_000,
    ApiKey.DESCRIBE_QUORUM: 1_000,
    ApiKey.FETCH_SNAPSHOT: 1_000,
    ApiKey.JOIN_GROUP: 1_000,
    ApiKey.LIST_CONFIG_RESOURCES: 1_000,
    ApiKey.LIST_GROUPS: 1_000,
    ApiKey.PRODUCE: MAX_PRODUCED,
    ApiKey.UPDATE_FEATURES: 1_000,
}
"""Where no client has a reason for many: protocols of a member, features, log directories, filters."""
MAX_TAGS: Final = 16
"""Tagged fields of one element of Produce or Fetch, and of a request's header. Kafka's newest versions know three."""


def max_elements(key: int) -> int:
    """Of a request of this API."""
    return _FEWER.get(key, MAX_ELEMENTS)
