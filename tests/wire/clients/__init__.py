"""The four clients behind one interface, so that each test can run with all of them."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from typing import Protocol

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

Record = tuple[bytes | None, bytes | None]
"""Key and value."""


class WireClient(Protocol):
    """One client library."""

    name: str

    def produce(
        self,
        bootstrap: str,
        topic: str,
        records: Sequence[Record],
        *,
        codec: str = "none",
        halfway: Callable[[], None] = lambda: None,
    ) -> list[int]:
        """Send the records idempotently; the client chooses partitions by key. It calls ``halfway`` in another thread
        when about half of the records have been acknowledged, and continues to send meanwhile.

        Returns the indexes of the acknowledged records.
        """
        ...

    def consume(
        self, bootstrap: str, topic: str, count: int, *, group: str, halfway: Callable[[], None] = lambda: None
    ) -> list[tuple[int, int, Record]]:
        """Join the group, read ``count`` records from its committed offsets (else from the earliest), commit and
        leave. Returns (partition, offset, (key, value)) of each record. The client calls ``halfway`` when half of the
        records have been read, before any of their offsets is committed."""
        ...


def all_clients() -> list[WireClient]:
    from tests.wire.clients.aiokafka_client import AiokafkaClient
    from tests.wire.clients.confluent_client import ConfluentClient
    from tests.wire.clients.kafka_python_client import KafkaPythonClient
    from tests.wire.clients.kcat_client import KcatClient

    clients: list[WireClient] = [KafkaPythonClient(), ConfluentClient(), AiokafkaClient()]
    return clients if shutil.which("kcat") is None else [KcatClient(), *clients]
