"""Fetch (1), v4 to v18: hand-written codecs of requests and responses, for consumers, followers and observers.

v5 log start offset, v7 sessions (KIP-227), v9 current leader epoch (KIP-320), v11 rack and preferred replica
(KIP-392), v12 flexible, last fetched and diverging epoch (KIP-595), v13 topic ids (KIP-516), v15 replica state
(KIP-903), v16 node endpoints (KIP-951), v17 directory id (KIP-853), v18 high watermark (KIP-1166). Topics are
``(name, topic_id, partitions)``; the name or id that the version lacks is None. A test compares the codecs with kio's.
"""

from milena.protocol.requests.fetch_request import (
    NO_HIGH_WATERMARK,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    decode_fetch_request,
    decode_large_fetch_request,
    encode_fetch_request,
)
from milena.protocol.requests.fetch_response import (
    AbortedTransaction,
    EpochEndOffset,
    FetchedPartition,
    FetchedTopic,
    FetchResponse,
    SnapshotId,
    decode_fetch_response,
    encode_fetch_response,
)

__all__ = (
    "NO_HIGH_WATERMARK",
    "AbortedTransaction",
    "EpochEndOffset",
    "FetchPartition",
    "FetchRequest",
    "FetchResponse",
    "FetchTopic",
    "FetchedPartition",
    "FetchedTopic",
    "ForgottenTopic",
    "SnapshotId",
    "decode_fetch_request",
    "decode_fetch_response",
    "decode_large_fetch_request",
    "encode_fetch_request",
    "encode_fetch_response",
)
