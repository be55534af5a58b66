"""The four clients, behind one small interface: what each test does, it does with all of them."""

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
        """Send the records idempotently, keyed to partitions by the client. Calls ``halfway`` in another thread when
        about half of them have been acknowledged, and goes on sending.

        Returns the indexes of the acknowledged ones.
        """
        ...

    def consume(
        self, bootstrap: str, topic: str, count: int, *, group: str, halfway: Callable[[], None] = lambda: None
    ) -> list[tuple[int, int, Record]]:
        """Join the group, read ``count`` records from its committed offsets on (else from the earliest), commit and
        leave. Each is (partition, offset, (key, value)). Calls ``halfway`` when half of them have been read, before
        any of them is committed."""
        ...


def all_clients() -> list[WireClient]:
    from tests.wire.clients.aiokafka_client import AiokafkaClient
    from tests.wire.clients.confluent_client import ConfluentClient
    from tests.wire.clients.kafka_python_client import KafkaPythonClient
    from tests.wire.clients.kcat_client import KcatClient

    clients: list[WireClient] = [KafkaPythonClient(), ConfluentClient(), AiokafkaClient()]
    return clients if shutil.which("kcat") is None else [KcatClient(), *clients]
