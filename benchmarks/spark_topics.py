"""Topics for Spark to read: records of 1 KB, uncompressed or compressed, in closed segments that the tier has, too."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Final

from confluent_kafka import Producer

from tests.wire.admin import create_topic
from tests.wire.waiting import wait_until

PARTITIONS: Final = 4
RECORD: Final = 1024
"""Bytes of a value: those that differ, and a number."""
NUMBER: Final = 16
SEGMENTS: Final = 8
"""Of a partition that is not compressed, at the most; the last one is not in the tier."""
POOL: Final = 2_000
"""Different compressible values: those that come again are farther away than a batch, or a codec's window, is long."""
NONE: Final = "none"
CODECS: Final = ("gzip", "snappy", "lz4", "zstd")


def fill(bootstrap: str, topic: str, codec: str, megabytes: int, *, tiered: bool) -> None:
    """Make a topic of so many MB (uncompressed) of records by a librdkafka producer that compresses its batches."""
    segment = max(1 << 20, (megabytes << 20) // PARTITIONS // SEGMENTS)
    remote = {"remote.storage.enable": "true", "local.retention.bytes": "-2"} if tiered else {}
    create_topic(bootstrap, topic, PARTITIONS, 1, {"segment.bytes": str(segment), **remote})
    settings = {"linger.ms": 20, "batch.size": 1 << 17, "acks": "all", "compression.type": codec}
    producer = Producer({"bootstrap.servers": bootstrap, **settings})
    values = [os.urandom(RECORD - NUMBER)] if codec == NONE else compressible()
    for number in range((megabytes << 20) // RECORD):
        value = values[number % len(values)] + b"%0*d" % (NUMBER, number)
        while True:
            try:
                producer.produce(topic, value, b"%d" % number, partition=number % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
    if left := producer.flush(300):
        raise RuntimeError(f"{left} records of {topic} were not acknowledged within 300 s")


def compressible() -> Sequence[bytes]:
    """Texts of words and random digits, which gzip and zstd bring to two fifths, lz4 and snappy to three."""
    random = Random(1)
    letters = b"abcdefghijklmnopqrstuvwxyz"
    words = [bytes(random.choices(letters, k=random.randrange(4, 12))) for _ in range(200)]
    return [_text(random, words) for _ in range(POOL)]


def _text(random: Random, words: Sequence[bytes]) -> bytes:
    made = bytearray()
    while len(made) < RECORD - NUMBER:
        made += b'"%b":"%b",' % (random.choice(words), random.choice(words))
        made += random.randbytes(6).hex().encode()
    return bytes(made[: RECORD - NUMBER])


def wait_until_tiered(data: Path, tier: Path) -> None:
    """Until the broker whose log directory is ``data`` has copied all closed segments."""

    def copied() -> bool:
        local = list(data.glob("spark*/*.log"))
        remote = [path for path in tier.rglob("*.log") if path.parent.name.startswith("spark")]
        return len(remote) >= len(local) - len({path.parent for path in local})

    wait_until(copied, "all closed segments are in the tier", 300)
