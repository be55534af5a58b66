"""Limits of the number of elements in one request: all elements of its arrays, and tagged fields.

A limit of bytes is not enough: an empty topic takes two bytes, but a microsecond or more of the event loop.
The limits follow from the budget: one request may keep the event loop for at most 100 ms of CPU between two yields
(docs/decisions/2026-11-25-cooperative-work.md). An API with a higher limit than ``DEFAULT_MAX_ELEMENTS`` yields.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from milena.protocol.api_keys import ApiKey

DEFAULT_MAX_ELEMENTS: Final = 25_000
"""For APIs without yields. An element costs 2 to 7 us."""
MAX_ELEMENTS: Final = 250_000
"""For APIs that clients of a large cluster send for 100,000 partitions of as many topics."""
MAX_FETCHED: Final = 50_000
"""For Fetch: topics and partitions, enough for a follower with 10,000 replicas or a consumer of as many partitions."""
MAX_PRODUCED: Final = 50_000
"""For Produce: topics and batches. A producer's default ``max.request.size`` (1 MiB) holds fewer."""
MAX_OBSERVED: Final = 1_000
"""For a Fetch to a controller, which has one partition."""
_LIMITS: Final[Mapping[int, int]] = {
    ApiKey.API_VERSIONS: 1_000,
    ApiKey.BROKER_HEARTBEAT: 10_000,
    ApiKey.BROKER_REGISTRATION: 10_000,
    ApiKey.DESCRIBE_QUORUM: 1_000,
    ApiKey.FETCH_SNAPSHOT: 1_000,
    ApiKey.JOIN_GROUP: 1_000,
    ApiKey.LIST_CONFIG_RESOURCES: 1_000,
    ApiKey.LIST_GROUPS: 1_000,
    ApiKey.UPDATE_FEATURES: 1_000,
    # A broker proposes ISRs of 10,000 partitions in as many topics, with three replicas each.
    ApiKey.ALTER_PARTITION: 75_000,
    ApiKey.DESCRIBE_CONFIGS: MAX_ELEMENTS,
    ApiKey.FETCH: MAX_FETCHED,
    ApiKey.LIST_OFFSETS: MAX_ELEMENTS,
    ApiKey.METADATA: MAX_ELEMENTS,
    ApiKey.OFFSET_COMMIT: MAX_ELEMENTS,
    ApiKey.OFFSET_FETCH: MAX_ELEMENTS,
    ApiKey.PRODUCE: MAX_PRODUCED,
    # Kafka's coordinators send the markers of all transactions that wait for a broker in one request.
    ApiKey.WRITE_TXN_MARKERS: MAX_ELEMENTS,
}
MAX_TAGS: Final = 16
"""Tagged fields of one element of Produce or Fetch, or of a request header. Kafka's newest versions define three."""


def max_elements(key: int) -> int:
    """Return the limit for requests of this API."""
    return _LIMITS.get(key, DEFAULT_MAX_ELEMENTS)
