"""What it costs a broker to look at every record: batches made beforehand, over a bare socket, one request in flight.

The broker opens each batch, checks its records and appends it (acks=1). Megabytes are those of the records, not of the
stream. Values compress to between a quarter and a half.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import closing

from benchmarks.peers import Running
from benchmarks.sizes import Sizes
from benchmarks.turns import Rounds
from benchmarks.wire import (
    PRODUCE,
    PRODUCE_VERSION,
    Wire,
    create_topic,
    framed,
    leader_of,
    produce_body,
    produced_error,
)
from milena.protocol.records.batch import Codec
from milena.protocol.records.records import BatchBuilder

SHAPES = {"16k": (160, 100), "1m": (1000, 1000)}
"""Records in a batch, and bytes of their values: the default batch with small records, and a large one."""
WORDS = ("order", "customer", "amount", "currency", "EUR", "status", "pending", "shipped", "address", "created")


def codecs(running: Running, sizes: Sizes) -> Rounds:
    for shape, (count, size) in SHAPES.items():
        for codec in Codec:
            topic = f"checked-{shape}-{codec.name.lower()}"
            create_topic(running.bootstrap, topic, 1)
            for number, rate in enumerate(_rates(running, topic, codec, count, size, sizes)):
                yield {f"checked_{shape}_{codec.name.lower()}_mb_s": rate} if number else {}


def _rates(running: Running, topic: str, codec: Codec, count: int, size: int, sizes: Sizes) -> Iterator[float]:
    """The first is that of warming up."""
    message = framed(PRODUCE, PRODUCE_VERSION, produce_body(topic, _batch(codec, count, size)))
    requests = max(1, sizes.checked_mb * 1_000_000 // (count * size))
    with closing(Wire(leader_of(running.bootstrap, topic))) as wire:
        for _ in range(1 + sizes.checked_rounds):
            begin = time.perf_counter()
            for _ in range(requests):
                wire.send_framed(message)
                if error := produced_error(wire.receive()):
                    raise RuntimeError(f"{topic}: error {error}")
            yield requests * count * size / 1e6 / (time.perf_counter() - begin)


def _batch(codec: Codec, count: int, size: int) -> bytes:
    words = random.Random(1)
    builder = BatchBuilder()
    now = time.time_ns() // 1_000_000
    for number in range(count):
        text = " ".join(f"{words.choice(WORDS)}={words.randrange(10_000)}" for _ in range(size // 8))
        builder.append(timestamp=now + number // 10, key=b"%08d" % number, value=text.encode()[:size])
    return builder.build(codec=codec)
