"""A consumer in another process that reads a topic from its first offset again and again, until it is stopped.

python -m benchmarks.tier_consumer BOOTSTRAP TOPIC RECORDS
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import Consumer, TopicPartition

from benchmarks.load import beside


@contextmanager
def consuming(bootstrap: str, topic: str, records: int) -> Iterator[None]:
    """While the context is open, from the first record on. Raises RuntimeError if the consumer ended by itself."""
    with beside(f"the consumer of {topic}", "benchmarks.tier_consumer", bootstrap, topic, str(records)) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield


def main(arguments: list[str]) -> int:
    bootstrap, topic, records = arguments[0], arguments[1], int(arguments[2])
    stopped: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stopped.append(number))
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "none", "check.crcs": False, "log_level": 0})
    consumer.assign([TopicPartition(topic, 0, 0)])
    seen = 0
    while not stopped:
        found = len(consumer.consume(10_000, timeout=1))
        if found and not seen:
            print("reads", flush=True)
        seen += found
        if seen >= records:
            consumer.seek(TopicPartition(topic, 0, 0))
            seen = 0
    consumer.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
