"""How many elements one request may have, over all of its arrays and tagged fields.

Bytes alone do not bound what a request costs: an empty topic takes two of them and a microsecond or more of the loop.
The limits follow from the budget: one request may keep the event loop for at most 100 ms of CPU between two yields
(docs/decisions/2026-11-25-cooperative-work.md). An API with a higher limit than ``DEFAULT_MAX_ELEMENTS`` yields.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from milena.protocol.api_keys import ApiKey

DEFAULT_MAX_ELEMENTS: Final = 25_000
"""Handled without a yield, elements cost 2 to 7 us each."""
MAX_ELEMENTS: Final = 250_000
"""Of APIs that clients of a large cluster send for 100,000 partitions of as many topics."""
MAX_FETCHED: Final = 50_000
"""Of Fetch: topics and partitions, for a follower with 10,000 replicas or a consumer of as many partitions."""
MAX_PRODUCED: Final = 50_000
"""Of Produce: topics and batches. A producer's default ``max.request.size`` (1 MiB) has room for fewer."""
MAX_OBSERVED: Final = 1_000
"""Of a Fetch to a controller, which has one partition."""
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
}
MAX_TAGS: Final = 16
"""Tagged fields of one element of Produce or Fetch, and of a request's header. Kafka's newest versions define three."""


def max_elements(key: int) -> int:
    """Return the limit for requests of this API."""
    return _LIMITS.get(key, DEFAULT_MAX_ELEMENTS)
